//! How to reach Redis: addresses, credentials, TLS and deadlines.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::decode::REPLY_BYTES_MAX;
use super::tls::Tls;

/// Where a node listens. Written `host:port`, an IPv6 host in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeAddress {
    pub host: String,
    pub port: u16,
}

impl NodeAddress {
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// An address that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node address \"{value}\": {reason}")]
pub struct AddressError {
    value: String,
    reason: &'static str,
}

impl FromStr for NodeAddress {
    type Err = AddressError;

    fn from_str(value: &str) -> Result<Self, AddressError> {
        let fail = |reason| AddressError { value: value.to_owned(), reason };
        let (host, port) = match value.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").ok_or_else(|| fail("expected [host]:port"))?,
            None => value.rsplit_once(':').ok_or_else(|| fail("expected host:port"))?,
        };
        if host.is_empty() {
            return Err(fail("the host is missing"));
        }
        if host.contains(|letter: char| letter.is_whitespace() || letter == '/' || letter == '@') {
            return Err(fail("the host has a character that no host name has; expected host:port"));
        }
        if host.contains(':') && !value.starts_with('[') {
            return Err(fail("write an IPv6 address in brackets, as in [::1]:6379"));
        }
        match port.parse() {
            Ok(0) | Err(_) => Err(fail("the port is not a number from 1 to 65535")),
            Ok(port) => Ok(Self::new(host, port)),
        }
    }
}

impl TryFrom<String> for NodeAddress {
    type Error = AddressError;

    fn try_from(value: String) -> Result<Self, AddressError> {
        value.parse()
    }
}

impl From<NodeAddress> for String {
    fn from(address: NodeAddress) -> Self {
        address.to_string()
    }
}

/// Everything needed to open a connection to any node of the cluster.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Nodes to ask first. One that answers is enough.
    pub seeds: Vec<NodeAddress>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub tls: Option<Tls>,
    /// Bounds dialling, the TLS handshake and authentication together.
    pub connect_timeout: Duration,
    /// Bounds the wait for an answer, where the caller names no other deadline.
    pub reply_timeout: Duration,
    /// The largest answer taken in; a larger one ends its connection.
    pub reply_bytes_max: usize,
    /// Shown by `CLIENT LIST`.
    pub client_name: Option<String>,
    /// Where to dial instead of an announced address: for forwarded ports and translated networks.
    pub address_map: BTreeMap<NodeAddress, NodeAddress>,
}

impl ConnectOptions {
    pub fn new(seeds: Vec<NodeAddress>) -> Self {
        Self { seeds, ..Self::default() }
    }

    /// The address to dial in order to reach `node`.
    pub fn dialled<'a>(&'a self, node: &'a NodeAddress) -> &'a NodeAddress {
        self.address_map.get(node).unwrap_or(node)
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            username: None,
            password: None,
            tls: None,
            connect_timeout: Duration::from_secs(2),
            reply_timeout: Duration::from_secs(2),
            reply_bytes_max: REPLY_BYTES_MAX,
            client_name: Some("heyday".to_owned()),
            address_map: BTreeMap::new(),
        }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectOptions")
            .field("seeds", &self.seeds)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .field("reply_timeout", &self.reply_timeout)
            .field("reply_bytes_max", &self.reply_bytes_max)
            .field("client_name", &self.client_name)
            .field("address_map", &self.address_map)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_written() {
        for text in ["localhost:6379", "127.0.0.1:7000", "redis-0.redis.svc:6379", "[::1]:6379"] {
            let address: NodeAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(serde_json::to_value(&address).unwrap(), text);
        }
        assert_eq!("[::1]:6379".parse(), Ok(NodeAddress::new("::1", 6379)));
    }

    #[test]
    fn a_wrong_address_is_named() {
        for (text, reason) in [
            ("", "expected host:port"),
            ("localhost", "expected host:port"),
            (":6379", "the host is missing"),
            ("localhost:", "the port is not a number"),
            ("localhost:0", "the port is not a number"),
            ("localhost:65536", "the port is not a number"),
            ("::1:6379", "in brackets"),
            ("[::1]", "expected [host]:port"),
            ("redis://localhost:6379", "expected host:port"),
            ("a b:6379", "expected host:port"),
        ] {
            let message = text.parse::<NodeAddress>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("node address \"{text}\": ")), "{message}");
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn debug_output_hides_the_password() {
        let mut options = ConnectOptions::new(vec![NodeAddress::new("localhost", 6379)]);
        options.password = Some("hunter2".into());
        let shown = format!("{options:?}");
        assert!(shown.contains("***") && !shown.contains("hunter2"), "{shown}");
    }
}
