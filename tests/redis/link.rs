//! A link is in strict sequence, and never outlives an error.

use std::time::Duration;

use heyday::error::{Disposition, ServerCode};
use heyday::redis::{ConnectOptions, Error, Link, NodeAddress};

use super::{WAIT, command, pipeline, through};
use crate::support::eventually;
use crate::support::proxy::{Cut, Proxy};
use crate::support::single::Single;

async fn connect(server: &Single) -> Link {
    Link::connect(server.address(), &ConnectOptions::default()).await.expect("a link")
}

#[tokio::test]
async fn an_error_reply_in_the_middle_keeps_the_rest_aligned() {
    let server = Single::plain().await;
    let mut link = connect(&server).await;
    let commands = pipeline(&[
        &["SET", "text", "abc"],
        &["INCR", "text"],
        &["NONSENSE"],
        &["GET", "text"],
        &["GET", "absent"],
        &["INCR", "number"],
    ]);
    let replies = link.request(&commands, WAIT).await.expect("replies");
    assert_eq!(replies.len(), 6);
    replies[0].expect_status("OK").expect("SET");
    assert_eq!(replies[1].error().expect("an error").code, ServerCode::Other);
    assert_eq!(replies[2].error().expect("an error").code, ServerCode::UnknownCommand);
    assert_eq!(replies[3].as_bytes().expect("GET"), "abc");
    assert!(replies[4].is_null());
    assert_eq!(replies[5].as_u64().expect("INCR"), 1);
    let again = link.request(&pipeline(&[&["PING"]]), WAIT).await;
    again.expect("a reply")[0].expect_status("PONG").expect("PING");
}

#[tokio::test]
async fn large_values_and_many_commands_pass_in_both_directions() {
    let server = Single::plain().await;
    let mut link = connect(&server).await;
    let large = "x".repeat(20_000_000);
    let replies = link.request(&pipeline(&[&["SET", "k", &large], &["GET", "k"]]), WAIT).await.expect("replies");
    assert_eq!(replies[1].as_bytes().expect("GET"), large.as_bytes());
    let mut many = heyday::redis::Pipeline::new();
    for number in 0..100_000 {
        many.command("ECHO").arg_u64(number);
    }
    let replies = link.request(&many, WAIT).await.expect("replies");
    for (number, reply) in replies.iter().enumerate() {
        assert_eq!(reply.as_u64().expect("ECHO"), number as u64);
    }
}

#[tokio::test]
async fn a_request_given_up_midway_closes_the_link_and_drops_what_it_watched() {
    let server = Single::plain().await;
    let mut link = connect(&server).await;
    let watched = link.request(&pipeline(&[&["WATCH", "state"], &["MULTI"]]), WAIT).await;
    watched.expect("replies");
    {
        let commands = pipeline(&[&["EXEC"], &["BLPOP", "empty", "0"]]);
        let request = link.request(&commands, WAIT);
        tokio::pin!(request);
        tokio::select! {
            biased;
            _ = &mut request => panic!("BLPOP on an empty list came back"),
            () = blocked_clients(server.address(), 1) => {}
        }
    }
    assert!(link.is_closed());
    let error = link.request(&pipeline(&[&["PING"]]), WAIT).await.unwrap_err();
    assert!(matches!(error, Error::Closed { sent: false, .. }), "{error:?}");
    blocked_clients(server.address(), 0).await;
}

async fn blocked_clients(node: &NodeAddress, count: usize) {
    let expected = format!("blocked_clients:{count}");
    eventually(WAIT, &format!("the server had {expected}"), async || {
        let info = command(node, &["INFO", "clients"]).await;
        let info = info.to_str().expect("INFO");
        info.contains(&expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_network_that_falls_silent_is_a_timeout_after_sending() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let options = through(server.address(), proxy.address());
    let mut link = Link::connect(server.address(), &options).await.expect("a link");
    proxy.stall_answers();
    let deadline = Duration::from_millis(200);
    let error = link.request(&pipeline(&[&["INCR", "n"]]), deadline).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { sent: true, .. }), "{error:?}");
    assert_eq!(error.disposition(), Disposition::Ambiguous);
    assert!(link.is_closed());
    // It was ambiguous with good reason: it did happen.
    assert_eq!(command(server.address(), &["GET", "n"]).await.as_u64().expect("GET"), 1);
}

#[tokio::test]
async fn a_node_that_accepts_and_says_nothing_fails_the_connect_in_time() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    proxy.stall();
    let mut options = through(server.address(), proxy.address());
    options.connect_timeout = Duration::from_millis(200);
    let error = Link::connect(server.address(), &options).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { sent: false, .. }), "{error:?}");
}

#[tokio::test]
async fn a_connection_cut_while_idle_is_noticed_before_sending() {
    let server = Single::plain().await;
    for cut in [Cut::Fin, Cut::Reset] {
        let proxy = Proxy::start(server.address()).await;
        let options = through(server.address(), proxy.address());
        let mut link = Link::connect(server.address(), &options).await.expect("a link");
        proxy.cut(cut);
        proxy.open(0).await;
        // An exchange with somebody else gives the news the time it needs.
        command(server.address(), &["PING"]).await;
        let error = link.request(&pipeline(&[&["INCR", "n"]]), WAIT).await.unwrap_err();
        assert!(matches!(error, Error::Closed { sent: false, .. }), "{cut:?}: {error:?}");
        assert_eq!(error.disposition(), Disposition::Refresh);
        assert!(link.is_closed());
    }
}

#[tokio::test]
async fn a_blocking_read_waits_longer_than_its_block() {
    let server = Single::plain().await;
    let mut link = connect(&server).await;
    let block = Duration::from_millis(300);
    let replies = link.request_blocking(&pipeline(&[&["BLPOP", "empty", "0.3"]]), block).await;
    assert!(replies.expect("a reply")[0].is_null());
    assert!(!link.is_closed());
}

#[tokio::test]
async fn credentials_that_redis_refuses_are_fatal_and_named() {
    let with = |username: Option<&str>, password: Option<&str>| ConnectOptions {
        username: username.map(str::to_owned),
        password: password.map(str::to_owned),
        ..ConnectOptions::default()
    };
    let server =
        Single::start(&["--port", "{port}", "--requirepass", "secret"], &[], |_| with(None, Some("secret"))).await;
    for (options, code) in [
        (with(None, Some("wrong")), ServerCode::WrongPass),
        (with(Some("nobody"), Some("secret")), ServerCode::WrongPass),
        (with(None, None), ServerCode::NoAuth),
    ] {
        let error = Link::connect(server.address(), &options).await.unwrap_err();
        assert_eq!(error.disposition(), Disposition::Fatal, "{error:?}");
        assert!(matches!(&error, Error::Refused { error, .. } if error.code == code), "{error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let named = Link::connect(server.address(), &with(Some("default"), Some("secret"))).await;
    let mut link = named.expect("a link");
    let list = link.request(&pipeline(&[&["CLIENT", "LIST"]]), WAIT).await.expect("a reply");
    assert!(list[0].to_str().expect("CLIENT LIST").contains("name=heyday"));

    let open = Single::plain().await;
    let error = Link::connect(open.address(), &with(None, Some("secret"))).await.unwrap_err();
    assert_eq!(error.disposition(), Disposition::Fatal, "{error:?}");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_a_connect_error_with_its_address() {
    let mut server = Single::plain().await;
    server.kill();
    let error = Link::connect(server.address(), &ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&server.address().to_string()), "{error}");
}
