//! Peers that are a few lines of shell.

use super::*;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);
const BOUNDS: Bounds = Bounds { prepare: LONG, ready: LONG, work: LONG, end: LONG };
const GOOD: &str = "[ \"$PEER_CHANGES\" = 3 ] || exit 1; echo ready; read word; [ \"$word\" = go ] || exit 1\n\
                    echo '{\"changes\": 3, \"seconds\": 0.5, \"cpu_seconds\": 0.25}'";

/// A folder of peers, each with a script.
fn folder(peers: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, script) in peers {
        let own = folder.path().join(name);
        std::fs::create_dir(&own).unwrap();
        // Written by a process of its own: while this one starts others, a file that it has open cannot be run.
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 755 "$2""#;
        let written =
            std::process::Command::new("sh").args(["-c", write, "sh", script]).arg(own.join(PROGRAM)).status();
        assert!(written.unwrap().success());
    }
    folder
}

/// One turn of a peer with this script.
async fn turn(script: &str, bounds: Bounds) -> anyhow::Result<Told> {
    let folder = folder(&[("one", script)]);
    let program = find(folder.path())?.remove(0);
    let mut running = program.start(&[("PEER_CHANGES", "3".to_owned())], bounds).await?;
    running.go().await?;
    let told = running.result().await?;
    running.end().await?;
    Ok(told)
}

async fn why(script: &str, bounds: Bounds) -> String {
    format!("{:#}", turn(script, bounds).await.expect_err("it fails"))
}

#[tokio::test]
async fn a_peer_that_answers_is_measured_by_what_it_says() {
    let told = turn(GOOD, BOUNDS).await.unwrap();
    assert_eq!((told.changes, told.cpu_seconds), (3, 0.25));
}

#[tokio::test]
async fn a_peer_that_fails_is_named_with_its_last_words() {
    let failing = "echo ready; read word; echo 'no server' >&2; exit 1";
    assert_eq!(
        why(failing, BOUNDS).await,
        "it ended with exit status: 1 before it said its result; its last words: no server"
    );
    assert_eq!(why("echo hello; cat", BOUNDS).await, "it says \"hello\" instead of `ready`");
    let unreadable = why("echo ready; read word; echo done", BOUNDS).await;
    assert!(unreadable.starts_with("its result \"done\" cannot be read: "), "{unreadable}");
    let late = format!("{GOOD}; echo oh >&2; exit 7");
    assert_eq!(why(&late, BOUNDS).await, "it ended with exit status: 7; its last words: oh");
    let many = why("seq 100000 >&2; exit 1", BOUNDS).await;
    assert!(many.ends_with("\n100000") && many.len() < 2 * STDERR_BYTES_MAX, "{many}");
}

#[tokio::test]
async fn a_peer_that_hangs_is_killed_with_what_it_started() {
    // What it starts in the background keeps its stderr open for as long as it lives.
    let hang = "echo waiting >&2; tail -f /dev/null & echo ready; cat > /dev/null";
    let work = Bounds { work: SHORT, ..BOUNDS };
    assert_eq!(why(hang, work).await, "it did not say its result within 100ms; its last words: waiting");
    let ready = Bounds { ready: SHORT, ..BOUNDS };
    assert!(why("cat", ready).await.starts_with("it did not say ready within 100ms"));
    let end = Bounds { end: SHORT, ..BOUNDS };
    assert!(why(&format!("{GOOD}; tail -f /dev/null"), end).await.starts_with("it did not end within 100ms"));
}

#[tokio::test]
async fn a_peer_is_prepared_or_it_is_said_why_not() {
    let script = "[ \"$1\" = prepare ] || exit 2";
    let folder = folder(&[("one", script), ("two", "echo 'no compiler' >&2; exit 1")]);
    let found = find(folder.path()).unwrap();
    assert_eq!(found.iter().map(|program| &*program.name).collect::<Vec<_>>(), ["one", "two"]);
    found[0].prepare(BOUNDS).await.unwrap();
    let error = format!("{:#}", found[1].prepare(BOUNDS).await.unwrap_err());
    assert_eq!(error, "it cannot be prepared: it ended with exit status: 1; its last words: no compiler");
}

#[test]
fn a_folder_without_peers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("check")).unwrap();
    let error = format!("{:#}", find(folder.path()).unwrap_err());
    assert!(error.ends_with("has no folder with a program `run`"), "{error}");
    assert!(find(&folder.path().join("none")).is_err());
}
