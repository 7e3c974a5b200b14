//! `heyday bench`: that everything it measures runs, and what it leaves behind. What the figures are is nobody's business here.

use std::process::Command;

use heyday::local::NODES;

use super::stage::Stage;
use super::{heyday, run};

#[test]
fn cluster_own_bench_in_smoke_mode_measures_everything_and_writes_its_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("report");
    let arguments = ["bench", "--smoke", "--json", "--output", output.to_str().expect("a path in UTF-8")];
    let run = run(&arguments, &[("TMPDIR", folder.path().to_str().expect("a path in UTF-8"))]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    let chapters = report["chapters"].as_array().expect("chapters");
    let names: Vec<&str> = chapters.iter().filter_map(|chapter| chapter["name"].as_str()).collect();
    assert_eq!(names, ["drain", "latency", "growth", "idle", "readers", "faults"]);
    for table in chapters.iter().flat_map(|chapter| chapter["tables"].as_array().expect("tables")) {
        let rows = table["rows"].as_array().expect("rows");
        assert!(!rows.is_empty(), "{table}");
        for row in rows {
            let figures = row["figures"].as_array().expect("figures");
            assert_eq!(figures.len() + 1, table["headings"].as_array().expect("headings").len(), "{table}");
            assert!(figures.iter().any(|figure| figure["median"].is_number()), "{row} of {table}");
        }
    }
    for plot in chapters.iter().flat_map(|chapter| chapter["plots"].as_array().expect("plots")) {
        let file = output.join(format!("{}.svg", plot["name"].as_str().expect("a name")));
        assert!(file.exists(), "{} was not drawn", file.display());
    }
    for file in ["report.json", "report.md"] {
        assert!(output.join(file).exists(), "{file} was not written");
    }
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert_eq!(left, [output], "the cluster's folder is gone");
}

#[tokio::test]
async fn bench_on_a_given_cluster_clears_what_it_wrote() {
    let stage = Stage::bare().await;
    let run = stage.heyday(&["bench", "drain", "--smoke", "--given", "--changes", "200"]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("floor A") && run.stdout.contains("heyday, 2 workers"), "{}", run.stdout);
    assert_nothing_left(&stage).await;
}

async fn assert_nothing_left(stage: &Stage) {
    let pattern = format!("{}*", stage.prefix);
    for node in 0..NODES {
        let left = stage.nodes.cli(node, &["--scan", "--pattern", &pattern]).await.expect("redis-cli");
        assert_eq!(left, "");
    }
}

#[tokio::test]
async fn bench_says_which_peer_failed_and_measures_the_others() {
    let stage = Stage::bare().await;
    let folder = tempfile::tempdir().expect("a folder");
    // They say what they should: that they are ready, and that all is done. One of them cannot be prepared.
    let idle =
        r#"[ "$1" = prepare ] && exit 0; echo ready; read go; echo "{\"changes\": $PEER_CHANGES, \"cpu_seconds\": 1}""#;
    for (name, script) in [("idle", idle), ("unbuilt", "echo 'no compiler' >&2; exit 1")] {
        // Written by a process of its own: while this one starts others, a file that it has open cannot be run.
        let write = r#"mkdir "$2" && printf '#!/bin/sh\n%s\n' "$1" > "$2/run" && chmod 755 "$2/run""#;
        let written = Command::new("sh").args(["-c", write, "sh", script]).arg(folder.path().join(name)).status();
        assert!(written.expect("a shell").success());
    }
    let peers = folder.path().to_str().expect("a path in UTF-8");
    let run = stage.heyday(&["bench", "drain", "--smoke", "--given", "--changes", "200", "--peers", peers]);
    assert_eq!(run.code, 1, "{}\n{}", run.stdout, run.stderr);
    for told in ["idle failed: the friends of ", "unbuilt failed: it cannot be prepared", "its last words: no compiler"]
    {
        assert!(run.stdout.contains(told), "no {told:?} in\n{}\n{}", run.stdout, run.stderr);
    }
    assert!(
        run.stdout.contains("heyday, 2 workers") && !run.stdout.contains("heyday, 2 workers failed"),
        "{}",
        run.stdout
    );
    // The field of a turn that failed is cleared too.
    assert_nothing_left(&stage).await;
}

#[test]
fn bench_refuses_a_folder_without_peers() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = heyday(&["bench", "--peers", folder.path().to_str().expect("a path in UTF-8")]);
    assert_eq!(run.code, 64, "{}", run.stderr);
    assert!(run.stderr.contains("has no folder with a program `run`"), "{}", run.stderr);
}

#[test]
fn bench_names_what_it_cannot_measure() {
    let run = heyday(&["bench", "sleep"]);
    assert_eq!(run.code, 64);
    assert!(run.stderr.contains("'sleep'") && run.stderr.contains("drain"), "{}", run.stderr);
}
