//! Proxies in front of the nodes, and the client that goes through them.

use std::collections::BTreeMap;

use heyday::client::{self, Hub};
use heyday::local::Nodes;
use heyday::redis::{ConnectOptions, NodeAddress};

use super::super::proxy::Proxy;
use super::Scene;

/// One proxy in front of each of the first nodes. Who is not told of them goes straight.
pub struct Detour {
    pub proxies: Vec<Proxy>,
    address_map: BTreeMap<NodeAddress, NodeAddress>,
}

impl Detour {
    /// Around the first `count` nodes.
    pub async fn around(nodes: &Nodes, count: usize) -> Detour {
        let mut detour = Detour { proxies: Vec::new(), address_map: BTreeMap::new() };
        for (host, port) in nodes.nodes().into_iter().take(count) {
            let address = NodeAddress::new(host, port);
            let proxy = Proxy::start(&address).await;
            detour.address_map.insert(address, proxy.address().clone());
            detour.proxies.push(proxy);
        }
        detour
    }

    pub fn each(&self, act: impl Fn(&Proxy)) {
        self.proxies.iter().for_each(act);
    }

    /// A client that goes through the proxies.
    pub async fn hub(&self, scene: &Scene, connect: ConnectOptions) -> Hub {
        let connect = ConnectOptions { address_map: self.address_map.clone(), ..connect };
        client::connect(connect, scene.keys.prefix()).await.expect("a client")
    }

    /// The setting that sends a heyday process through the proxies.
    pub fn setting(&self) -> (&'static str, String) {
        let pairs = self.address_map.iter().map(|(from, to)| format!("\"{from}\"=\"{to}\""));
        ("HEYDAY_REDIS__ADDRESS_MAP", format!("{{{}}}", pairs.collect::<Vec<_>>().join(",")))
    }
}
