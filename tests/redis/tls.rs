//! Everything over TLS, against a real TLS server, and what is said where certificates do not fit.

use std::path::Path;
use std::sync::Arc;

use fred::interfaces::KeysInterface;
use heyday::error::Disposition;
use heyday::redis::{
    ConnectOptions, Error, Event, Link, NodeAddress, Nodes, Pipe, Subscription, Tls, TlsOptions, Topology,
};
use rcgen::{CertifiedKey, generate_simple_self_signed};

use super::{WAIT, pipeline};
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::single::Single;

const ARGUMENTS: [&str; 15] = [
    "--port",
    "0",
    "--tls-port",
    "{port}",
    "--tls-cert-file",
    "{dir}/server.pem",
    "--tls-key-file",
    "{dir}/server.key",
    "--tls-ca-cert-file",
    "{dir}/server.pem",
    "--cluster-enabled",
    "yes",
    "--tls-cluster",
    "yes",
    "--tls-auth-clients",
];

/// Trusts the server's certificate under `name`, or else its address, and shows one of its own where `own` says so.
fn trusting(folder: &Path, name: Option<&str>, own: bool) -> ConnectOptions {
    let own = |name: &str| own.then(|| folder.join(name));
    let tls = Tls::load(&TlsOptions {
        ca_file: Some(folder.join("server.pem")),
        server_name: name.map(str::to_owned),
        certificate_file: own("server.pem"),
        key_file: own("server.key"),
    });
    ConnectOptions { tls: Some(tls.expect("TLS settings")), ..ConnectOptions::default() }
}

/// A cluster of one node that owns every slot.
async fn server(names: &[&str], asks_clients: bool) -> Single {
    let owned: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(owned).expect("a certificate");
    let files = [("server.pem", cert.pem()), ("server.key", signing_key.serialize_pem())];
    let mut arguments = ARGUMENTS.to_vec();
    arguments.push(if asks_clients { "yes" } else { "no" });
    Single::start(&arguments, &files, |folder| trusting(folder, Some(names[0]), asks_clients)).await
}

#[tokio::test]
async fn links_pipes_subscriptions_and_clients_work_over_tls() {
    let server = server(&["127.0.0.1", "localhost"], false).await;
    let node = server.address();
    let mut options = trusting(server.folder(), None, false);
    options.seeds = vec![node.clone()];

    let mut link = Link::connect(node, &options).await.expect("a link");
    let slots = pipeline(&[&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]]);
    link.request(&slots, WAIT).await.expect("a reply")[0].expect_status("OK").expect("ADDSLOTSRANGE");
    let large = "x".repeat(5_000_000);
    let set = pipeline(&[&["SET", "k:{b}", &large], &["GET", "k:{b}"]]);
    let replies = eventually(WAIT, "the cluster was up", async || {
        let replies = link.request(&set, WAIT).await.expect("replies");
        replies[0].error().is_none().then_some(replies)
    })
    .await;
    assert_eq!(replies[1].as_bytes().expect("GET"), large.as_bytes());

    let pipe = Pipe::connect(node, &options).await.expect("a pipe");
    let replies = pipe.submit(set.clone()).await.expect("replies");
    assert_eq!(replies[1].as_bytes().expect("GET"), large.as_bytes());

    let mut subscription = Subscription::connect(node, &options).await.expect("a subscription");
    subscription.subscribe("c:{b}");
    assert_eq!(subscription.next().await.expect("an event"), Event::Subscribed { channel: "c:{b}".into() });

    let options = Arc::new(options);
    let topology = eventually(WAIT, "the cluster knew its slots", async || {
        let topology = Topology::connect(options.clone()).await.ok()?;
        topology.node_of(3300).is_ok().then_some(topology)
    })
    .await;
    assert_eq!(topology.node_of(3300).expect("an owner").address, *node);
    let nodes = Nodes::new(Arc::new(topology));
    let read = nodes.read(3300, WAIT, |client| async move { client.get::<String, _>("k:{b}").await });
    assert_eq!(read.await.expect("an answer").len(), large.len());
}

#[tokio::test]
async fn a_large_write_passes_once_the_way_is_free_again() {
    let server = server(&["127.0.0.1"], false).await;
    let proxy = Proxy::start(server.address()).await;
    let mut options = trusting(server.folder(), None, false);
    options.address_map.insert(server.address().clone(), proxy.address().clone());
    options.reply_timeout = WAIT;
    let pipe = Pipe::connect(server.address(), &options).await.expect("a pipe");
    proxy.stall();
    let large = "x".repeat(20_000_000);
    let echo = tokio::spawn(async move { pipe.submit(pipeline(&[&["ECHO", &large]])).await });
    eventually(WAIT, "the way to the server was full", async || (proxy.waiting() > 4_000_000).then_some(())).await;
    proxy.pass();
    let replies = echo.await.expect("no panic").expect("a reply");
    assert_eq!(replies[0].as_bytes().expect("ECHO").len(), 20_000_000);
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_the_server_asks_for_one() {
    let server = server(&["127.0.0.1"], true).await;
    let ping = pipeline(&[&["PING"]]);
    let shown = trusting(server.folder(), None, true);
    let mut link = Link::connect(server.address(), &shown).await.expect("a link");
    link.request(&ping, WAIT).await.expect("a reply")[0].expect_status("PONG").expect("PING");
    let error = Link::connect(server.address(), &trusting(server.folder(), None, false)).await.unwrap_err();
    assert_eq!(error.disposition(), Disposition::Fatal, "{error:?}");
}

#[tokio::test]
async fn certificates_that_do_not_fit_are_fatal_and_named() {
    let server = server(&["redis.example"], false).await;
    let node = server.address();
    // Reached by its address, the certificate's name is another one; told the name, it fits.
    check_refused(node, trusting(server.folder(), None, false), "name").await;
    let named = trusting(server.folder(), Some("redis.example"), false);
    Link::connect(node, &named).await.expect("a link");
    // The public authorities did not sign it.
    let public = TlsOptions { server_name: Some("redis.example".to_owned()), ..TlsOptions::default() };
    let public = Tls::load(&public).expect("TLS settings");
    check_refused(node, ConnectOptions { tls: Some(public), ..named }, "UnknownIssuer").await;
}

async fn check_refused(node: &NodeAddress, options: ConnectOptions, reason: &str) {
    let error = Link::connect(node, &options).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    assert_eq!(error.disposition(), Disposition::Fatal);
    assert!(error.to_string().contains(reason), "{error}");
}
