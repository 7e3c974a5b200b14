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
