//! What a live cluster holds, in the form in which the oracle tells what it must hold.

use std::collections::BTreeMap;

use super::{Content, Contents};
use crate::key::Keys;
use crate::redis::{Error, Link, Pipeline, Reply, Topology, escaped};

/// Names asked for at once, and keys read in one pipeline.
const KEYS_READ_MAX: usize = 512;

/// Every key under the prefix on every primary, in bounded steps. The cluster must be at rest: a slot that moves meanwhile
/// is seen twice or not at all.
pub async fn found(topology: &Topology, keys: &Keys) -> Result<Contents, Error> {
    let mut contents = Contents::new();
    for node in topology.primaries() {
        let mut link = Link::connect(&node.address, topology.options()).await?;
        let mut reading = Reading { link: &mut link, topology };
        let mut cursor = "0".to_owned();
        loop {
            let (next, names) = reading.scan(&cursor, keys.prefix()).await?;
            contents.extend(reading.read(&names).await?);
            if next == "0" {
                break;
            }
            cursor = next;
        }
    }
    Ok(contents)
}

struct Reading<'a> {
    link: &'a mut Link,
    topology: &'a Topology,
}

impl Reading<'_> {
    async fn scan(&mut self, cursor: &str, prefix: &str) -> Result<(String, Vec<String>), Error> {
        let mut pipeline = Pipeline::new();
        let pattern = format!("{}*", escaped(prefix));
        pipeline.push(&["SCAN", cursor, "MATCH", &pattern, "COUNT", &KEYS_READ_MAX.to_string()]);
        let [reply] = self.ask(&pipeline).await?.try_into().map_err(|_| shape("one answer"))?;
        let [cursor, names] = <[Reply; 2]>::try_from(reply.into_array()?).map_err(|_| shape("a cursor and names"))?;
        let names = names.as_array()?.iter().map(|name| name.to_str().map(str::to_owned));
        Ok((cursor.to_str()?.to_owned(), names.collect::<Result<_, _>>()?))
    }

    async fn read(&mut self, names: &[String]) -> Result<Contents, Error> {
        if names.is_empty() {
            return Ok(Contents::new());
        }
        let mut pipeline = Pipeline::new();
        names.iter().for_each(|name| pipeline.push(&["TYPE", name]));
        let kinds = self.ask(&pipeline).await?;
        let mut pipeline = Pipeline::new();
        let mut asked = Vec::new();
        for (name, kind) in names.iter().zip(&kinds) {
            match kind.as_status()? {
                "string" => pipeline.push(&["GET", name]),
                "hash" => pipeline.push(&["HGETALL", name]),
                "zset" => pipeline.push(&["ZRANGE", name, "0", "-1", "WITHSCORES"]),
                "stream" => pipeline.push(&["XRANGE", name, "-", "+"]),
                // Expired since it was listed, or of a type that heyday never writes: the registry names the latter.
                _ => continue,
            }
            asked.push((name, kind.as_status()?));
        }
        let replies = self.ask(&pipeline).await?;
        let read = asked.into_iter().zip(&replies);
        read.map(|((name, kind), reply)| Ok((name.clone(), content(kind, reply)?))).collect()
    }

    async fn ask(&mut self, pipeline: &Pipeline) -> Result<Vec<Reply>, Error> {
        let replies = self.link.request(pipeline, self.topology.options().reply_timeout).await?;
        replies.into_iter().map(Reply::checked).collect()
    }
}

fn content(kind: &str, reply: &Reply) -> Result<Content, Error> {
    let text = |reply: &Reply| Ok::<_, Error>(String::from_utf8_lossy(reply.as_bytes()?).into_owned());
    Ok(match kind {
        "string" => Content::Text(
            reply.as_bytes_or_null()?.map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned()),
        ),
        "hash" => Content::Hash(
            pairs(reply)?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect::<Result<_, Error>>()?,
        ),
        "zset" => {
            let member = |(member, score): (&Reply, &Reply)| {
                Ok((text(member)?, score.to_str()?.parse().map_err(|_| shape("a whole score"))?))
            };
            Content::Sorted(pairs(reply)?.map(member).collect::<Result<BTreeMap<_, _>, Error>>()?)
        }
        _ => {
            let entry = |entry: &Reply| {
                let [id, fields] = entry.as_array()? else { return Err(shape("an entry")) };
                let fields =
                    pairs(fields)?.map(|(name, value)| Ok((name.as_bytes()?.clone(), value.as_bytes()?.clone())));
                Ok((text(id)?, fields.collect::<Result<_, Error>>()?))
            };
            Content::Stream(reply.as_array()?.iter().map(entry).collect::<Result<_, _>>()?)
        }
    })
}

fn pairs(reply: &Reply) -> Result<impl Iterator<Item = (&Reply, &Reply)>, Error> {
    reply.as_pairs()
}

fn shape(expected: &str) -> Error {
    Error::protocol(expected, "another answer")
}
