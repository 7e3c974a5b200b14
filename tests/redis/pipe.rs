//! A pipe hands every caller its own answers, and after a break tells what had been sent from what had not.

use std::sync::Arc;
use std::time::Duration;

use heyday::error::Disposition;
use heyday::redis::{ConnectOptions, Error, Pipe, Pipes};
use tokio::task::JoinSet;

use super::{WAIT, command, pipeline, through};
use crate::support::eventually;
use crate::support::proxy::{Cut, Proxy};
use crate::support::single::Single;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_each_get_their_own_answers() {
    let server = Single::plain().await;
    let pipe = Pipe::connect(server.address(), &ConnectOptions::default()).await.expect("a pipe");
    let mut callers = JoinSet::new();
    for caller in 0..200_u32 {
        let pipe = pipe.clone();
        callers.spawn(async move {
            for round in 0..50_u32 {
                let (name, value) = (format!("k{caller}"), format!("{caller}-{round}"));
                let commands = pipeline(&[&["SET", &name, &value], &["NONSENSE"], &["GET", &name]]);
                let replies = pipe.submit(commands).await.expect("replies");
                assert!(replies[1].error().is_some());
                assert_eq!(replies[2].as_bytes().expect("GET"), value.as_bytes());
            }
        });
    }
    callers.join_all().await;
    // One write carries what many callers had queued.
    let info = command(server.address(), &["INFO", "stats"]).await;
    let info = info.to_str().expect("INFO");
    let reads = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    let reads: u64 = reads.expect("a count of reads").trim().parse().expect("a number");
    assert!(reads < 5_000, "{reads} reads for 10,000 submissions");
}

#[tokio::test]
async fn what_was_in_flight_at_a_kill_is_ambiguous() {
    let mut server = Single::plain().await;
    let pipe = Pipe::connect(server.address(), &ConnectOptions::default()).await.expect("a pipe");
    let waiting = tokio::spawn({
        let pipe = pipe.clone();
        async move { pipe.submit(pipeline(&[&["INCR", "n"], &["BLPOP", "empty", "0"]])).await }
    });
    eventually(WAIT, "the first command arrived", async || {
        command(server.address(), &["GET", "n"]).await.as_u64().ok()
    })
    .await;
    server.kill();
    let error = waiting.await.expect("no panic").unwrap_err();
    assert!(matches!(error, Error::Closed { sent: true, .. }), "{error:?}");
    assert_eq!(error.disposition(), Disposition::Ambiguous);
    eventually(WAIT, "the pipe said it was closed", async || pipe.is_closed().then_some(())).await;
    let error = pipe.submit(pipeline(&[&["INCR", "n"]])).await.unwrap_err();
    assert!(matches!(error, Error::Closed { sent: false, .. }), "{error:?}");
    assert!(!error.possibly_sent());
}

#[tokio::test]
async fn what_still_waited_in_the_queue_at_a_cut_was_not_sent() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let mut options = through(server.address(), proxy.address());
    options.reply_timeout = WAIT;
    let pipe = Pipe::connect(server.address(), &options).await.expect("a pipe");
    proxy.stall();
    // Far more than all buffers on the way hold: the write gets stuck, and what comes later is not begun.
    let large = "x".repeat(20_000_000);
    let submit = |value: &str| {
        let (pipe, commands) = (pipe.clone(), pipeline(&[&["RPUSH", "list", value]]));
        tokio::spawn(async move { pipe.submit(commands).await })
    };
    let first = submit(&large);
    let begun =
        eventually(WAIT, "the large write began", async || (proxy.waiting() > 1_000_000).then_some(submit("late")))
            .await;
    proxy.cut(Cut::Reset);
    let error = first.await.expect("no panic").unwrap_err();
    assert!(error.possibly_sent(), "{error:?}");
    let error = begun.await.expect("no panic").unwrap_err();
    assert!(!error.possibly_sent(), "{error:?}");
    assert_eq!(command(server.address(), &["LLEN", "list"]).await.as_u64().expect("LLEN"), 0);
}

#[tokio::test]
async fn a_silent_network_times_out_all_that_was_sent() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let mut options = through(server.address(), proxy.address());
    options.reply_timeout = Duration::from_millis(300);
    let pipe = Pipe::connect(server.address(), &options).await.expect("a pipe");
    proxy.stall();
    let (one, other) =
        tokio::join!(pipe.submit(pipeline(&[&["INCR", "n"]])), pipe.submit(pipeline(&[&["INCR", "n"]])),);
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert!(matches!(error, Error::Timeout { sent: true, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn the_next_use_after_a_break_gets_a_new_pipe() {
    let mut server = Single::plain().await;
    let pipes = Pipes::new(Arc::new(ConnectOptions::default()));
    let first = pipes.get(server.address()).await.expect("a pipe");
    first.submit(pipeline(&[&["PING"]])).await.expect("a reply");
    server.kill();
    let error = eventually(WAIT, "the registry noticed", async || pipes.get(server.address()).await.err()).await;
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    server.restart(|_| ConnectOptions::default()).await;
    let again = eventually(WAIT, "the node was reached again", async || pipes.get(server.address()).await.ok()).await;
    again.submit(pipeline(&[&["PING"]])).await.expect("a reply");
}

#[tokio::test]
async fn a_pipe_closes_its_connection_with_its_last_handle() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let options = through(server.address(), proxy.address());
    let pipe = Pipe::connect(server.address(), &options).await.expect("a pipe");
    proxy.open(1).await;
    let answered = pipe.submit(pipeline(&[&["PING"]])).await;
    answered.expect("a reply");
    drop(pipe);
    proxy.open(0).await;
}
