//! The proxy itself: a test that relies on a held EXEC must be able to rely on it.

use std::time::Duration;

use heyday::redis::{ConnectOptions, Error, Link};

use super::{WAIT, command, pipeline, through};
use crate::support::proxy::{Cut, Proxy};
use crate::support::single::Single;

/// A link through the proxy that has watched a key and queued a write, and whose EXEC is held back.
async fn held_before_exec(
    server: &Single,
    proxy: &Proxy,
) -> tokio::task::JoinHandle<Result<Vec<heyday::redis::Reply>, Error>> {
    let options = through(server.address(), proxy.address());
    let mut link = Link::connect(server.address(), &options).await.expect("a link");
    proxy.hold_before("EXEC");
    let request = tokio::spawn(async move {
        let commands = pipeline(&[&["WATCH", "fence"], &["MULTI"], &["SET", "k", "v"], &["EXEC"]]);
        link.request(&commands, Duration::from_secs(3)).await
    });
    proxy.held().await;
    request
}

#[tokio::test]
async fn a_held_exec_takes_effect_only_when_it_is_released() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let request = held_before_exec(&server, &proxy).await;
    assert!(command(server.address(), &["GET", "k"]).await.is_null());
    proxy.release();
    let replies = request.await.expect("no panic").expect("replies");
    assert_eq!(replies[3].as_array().expect("EXEC").len(), 1);
    assert_eq!(command(server.address(), &["GET", "k"]).await.as_bytes().expect("GET"), "v");
}

#[tokio::test]
async fn a_held_exec_of_a_client_that_has_gone_still_arrives_and_meets_the_fence() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let request = held_before_exec(&server, &proxy).await;
    let error = request.await.expect("no panic").unwrap_err();
    assert!(matches!(error, Error::Timeout { sent: true, .. }), "{error:?}");
    command(server.address(), &["SET", "fence", "raised"]).await;
    proxy.release();
    proxy.open(0).await;
    assert!(command(server.address(), &["GET", "k"]).await.is_null());
}

#[tokio::test]
async fn a_cut_drops_what_was_held() {
    let server = Single::plain().await;
    for cut in [Cut::Fin, Cut::Reset] {
        let proxy = Proxy::start(server.address()).await;
        let request = held_before_exec(&server, &proxy).await;
        proxy.cut(cut);
        let error = request.await.expect("no panic").unwrap_err();
        assert!(matches!(error, Error::Closed { sent: true, .. }), "{cut:?}: {error:?}");
        assert!(command(server.address(), &["GET", "k"]).await.is_null());
    }
}

#[tokio::test]
async fn bytes_pass_up_to_a_count_and_other_connections_pass_whole() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let options = through(server.address(), proxy.address());
    let connect = async || Link::connect(server.address(), &options).await.expect("a link");
    let (mut first, mut second) = (connect().await, connect().await);
    let set = pipeline(&[&["INCR", "a"], &["INCR", "b"]]);
    proxy.hold_after(set.bytes().len() / 2 + 1);
    let request = tokio::spawn(async move { first.request(&set, WAIT).await });
    proxy.held().await;
    second.request(&pipeline(&[&["PING"]]), WAIT).await.expect("a reply");
    assert!(command(server.address(), &["GET", "b"]).await.is_null());
    proxy.release();
    assert_eq!(request.await.expect("no panic").expect("replies").len(), 2);
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_stall_ends_when_it_is_told_to_and_loses_nothing() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let options = through(server.address(), proxy.address());
    let mut link = Link::connect(server.address(), &options).await.expect("a link");
    proxy.stall();
    let request = tokio::spawn(async move { link.request(&pipeline(&[&["INCR", "n"]]), WAIT).await });
    // A request through another way shows that the stalled one had its time.
    command(server.address(), &["PING"]).await;
    assert!(command(server.address(), &["GET", "n"]).await.is_null());
    proxy.pass();
    assert_eq!(request.await.expect("no panic").expect("a reply")[0].as_u64().expect("INCR"), 1);
    proxy.refuse(true);
    let refused = Link::connect(server.address(), &options).await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused:?}");
    let direct = Link::connect(server.address(), &ConnectOptions::default()).await;
    direct.expect("the server itself is well");
}
