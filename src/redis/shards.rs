//! Reads what CLUSTER SHARDS and CLUSTER INFO answer.

use std::sync::Arc;

use super::{
    error::Error,
    options::NodeAddress,
    reply::Reply,
    topology::{Node, SLOTS, Table},
};

/// The slot table in an answer of `asked`.
pub fn parse(reply: &Reply, asked: &NodeAddress, tls: bool) -> Result<Table, Error> {
    let mut table = Table { owners: vec![None; usize::from(SLOTS)], ..Table::default() };
    for shard in reply.as_array()? {
        let mut nodes = Vec::new();
        for node in field(shard, "nodes")?.ok_or_else(|| missing("nodes"))?.as_array()? {
            nodes.push(Arc::new(parse_node(node, asked, tls)?));
        }
        let slots = field(shard, "slots")?.ok_or_else(|| missing("slots"))?.as_array()?;
        for range in slots.chunks(2) {
            let [first, last] = range else {
                return Err(Error::protocol("slot ranges", "an odd number of bounds"));
            };
            let (first, last) = (slot(first)?, slot(last)?);
            if first > last {
                return Err(Error::protocol("slot ranges", format!("{first} to {last}")));
            }
            // After a failover both the old and the new primary may still call themselves so for a moment.
            let primary = nodes.iter().filter(|node| node.primary).max_by_key(|node| node.online);
            table.owners[first..=last].fill(primary.cloned());
        }
        table.nodes.extend(nodes);
    }
    table.nodes.sort_by(|left, right| left.address.cmp(&right.address));
    Ok(table)
}

/// A field of CLUSTER INFO.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn parse_node(node: &Reply, asked: &NodeAddress, tls: bool) -> Result<Node, Error> {
    let text = |name: &str| -> Result<Option<&str>, Error> {
        match field(node, name)? {
            None | Some(Reply::Null) => Ok(None),
            Some(value) => value.to_str().map(Some),
        }
    };
    let port_name = if tls { "tls-port" } else { "port" };
    let port = field(node, port_name)?.ok_or_else(|| missing(port_name))?.as_u64()?;
    let port = u16::try_from(port).map_err(|_| Error::protocol("a port", port.to_string()))?;
    // The endpoint is what the cluster wants clients to use; empty or unknown means the host that was asked.
    let host = text("endpoint")?.filter(|host| !matches!(*host, "" | "?")).unwrap_or(&asked.host);
    Ok(Node {
        id: text("id")?.unwrap_or_default().to_owned(),
        address: NodeAddress::new(host, port),
        primary: text("role")? == Some("master"),
        online: text("health")? == Some("online"),
    })
}

fn field<'a>(map: &'a Reply, name: &str) -> Result<Option<&'a Reply>, Error> {
    for (key, value) in map.as_pairs()? {
        if key.to_str()? == name {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn slot(reply: &Reply) -> Result<usize, Error> {
    let slot = reply.as_u64()?;
    if slot >= u64::from(SLOTS) {
        return Err(Error::protocol("a slot", slot.to_string()));
    }
    Ok(slot as usize)
}

fn missing(name: &str) -> Error {
    Error::protocol(format!("the field {name} in CLUSTER SHARDS"), "none")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Bytes(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn node(role: &str, health: &str, endpoint: Reply, port: i64) -> Reply {
        let fields = [
            ("id", text(&format!("id-{port}"))),
            ("port", Reply::Integer(port)),
            ("tls-port", Reply::Integer(port + 1)),
            ("ip", text("10.0.0.9")),
            ("endpoint", endpoint),
            ("role", text(role)),
            ("replication-offset", Reply::Integer(1)),
            ("health", text(health)),
        ];
        Reply::Array(fields.into_iter().flat_map(|(name, value)| [text(name), value]).collect())
    }

    fn shard(slots: &[i64], nodes: Vec<Reply>) -> Reply {
        let slots = slots.iter().map(|slot| Reply::Integer(*slot)).collect();
        Reply::Array(vec![text("slots"), Reply::Array(slots), text("nodes"), Reply::Array(nodes)])
    }

    fn asked() -> NodeAddress {
        NodeAddress::new("asked", 1)
    }

    fn owner(table: &Table, slot: usize) -> Option<String> {
        table.owners[slot].as_ref().map(|node| node.address.to_string())
    }

    #[test]
    fn endpoints_are_what_the_cluster_prefers_or_the_host_that_was_asked() {
        for (endpoint, host) in [
            (text("10.0.0.1"), "10.0.0.1"),
            (text("redis-0.svc"), "redis-0.svc"),
            (text(""), "asked"),
            (text("?"), "asked"),
            (Reply::Null, "asked"),
        ] {
            for (tls, port) in [(false, 7000), (true, 7001)] {
                let reply =
                    Reply::Array(vec![shard(&[0, 16383], vec![node("master", "online", endpoint.clone(), 7000)])]);
                let table = parse(&reply, &asked(), tls).unwrap();
                assert_eq!(owner(&table, 16383), Some(format!("{host}:{port}")));
            }
        }
    }

    #[test]
    fn of_two_that_call_themselves_primary_the_one_online_owns_the_slots() {
        let nodes = vec![
            node("master", "fail", text("a"), 1),
            node("master", "online", text("b"), 2),
            node("replica", "online", text("c"), 3),
        ];
        let gap = shard(&[0, 1, 5, 5], nodes);
        let empty = shard(&[], vec![node("master", "online", text("d"), 4)]);
        let table = parse(&Reply::Array(vec![gap, empty]), &asked(), false).unwrap();
        let owners: Vec<_> = (0..7).map(|slot| owner(&table, slot).is_some()).collect();
        assert_eq!(owners, [true, true, false, false, false, true, false]);
        assert_eq!(owner(&table, 5).as_deref(), Some("b:2"));
        assert_eq!(table.nodes.len(), 4);
    }

    #[test]
    fn a_malformed_answer_is_an_error_and_no_panic() {
        let good = || vec![node("master", "online", text("a"), 1)];
        for reply in [
            Reply::Null,
            Reply::Array(vec![Reply::Integer(1)]),
            Reply::Array(vec![shard(&[0], good())]),
            Reply::Array(vec![shard(&[5, 4], good())]),
            Reply::Array(vec![shard(&[0, 16384], good())]),
            Reply::Array(vec![shard(&[-1, 4], good())]),
            Reply::Array(vec![shard(&[0, 1], vec![node("master", "online", text("a"), 70_000)])]),
            Reply::Array(vec![shard(&[0, 1], vec![Reply::Array(vec![])])]),
            Reply::Array(vec![Reply::Array(vec![])]),
        ] {
            let error = parse(&reply, &asked(), false).unwrap_err();
            assert!(matches!(error, Error::Protocol { .. }), "{reply:?}: {error:?}");
        }
    }

    #[test]
    fn a_field_of_cluster_info_is_found_by_its_whole_name() {
        let info = "cluster_state:ok\r\ncluster_slots_ok:1\r\ncluster_current_epoch:6\r\n";
        assert_eq!(info_field(info, "cluster_state"), Some("ok"));
        assert_eq!(info_field(info, "cluster_current_epoch"), Some("6"));
        assert_eq!(info_field(info, "cluster_current"), None);
    }
}
