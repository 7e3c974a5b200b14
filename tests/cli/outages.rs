//! Commands while a part of the cluster is down.

use std::time::{Duration, Instant};

use heyday::local::Options;

use super::{heyday, run};
use crate::support::cluster::own_cluster;
use crate::support::eventually;
use crate::support::process::Process;

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn status_goes_on_without_a_node_that_is_silent_cluster_own() {
    // No replica may take the frozen node's place meanwhile.
    let patient = Options { config_lines: vec!["cluster-node-timeout 60000".to_owned()], ..Options::default() };
    let cluster = own_cluster(patient).await;
    let seeds = cluster.seeds();
    let variables = [("HEYDAY_REDIS__NODES", seeds.as_str())];
    assert_eq!(run(&["init", "--shards", "16"], &variables).code, 0);
    // Frozen, not dead: its connections open and nothing answers, neither with data nor with a refusal.
    let frozen = format!("127.0.0.1:{}", cluster.port_first());
    cluster.stop_process(0).unwrap();
    let started = Instant::now();
    let status = run(&["status", "--json"], &variables);
    let took = started.elapsed();
    cluster.cont(0).unwrap();
    assert_eq!(status.code, 69, "{}", status.stderr);
    assert!(took < Duration::from_secs(8), "it took {took:?}");
    let answer: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    let rows = answer["shards"].as_array().unwrap();
    let (silent, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["node"] == frozen);
    assert!(!silent.is_empty() && silent.iter().all(|row| row["unread"].is_null()), "{answer}");
    assert!(!others.is_empty() && others.iter().all(|row| row["unread"] == 0), "{answer}");
    assert_eq!(answer["totals"]["silent"], silent.len());
    assert!(status.stderr.lines().any(|line| line.starts_with(&format!("heyday: {frozen}"))), "{}", status.stderr);
}

#[tokio::test]
async fn commands_start_while_the_layouts_own_node_is_silent_cluster_own() {
    let patient = Options { config_lines: vec!["cluster-node-timeout 60000".to_owned()], ..Options::default() };
    let cluster = own_cluster(patient).await;
    let seeds = cluster.seeds();
    let variables = [("HEYDAY_REDIS__NODES", seeds.as_str())];
    assert_eq!(run(&["init", "--shards", "16"], &variables).code, 0);
    let slot: usize = cluster.cli(0, &["CLUSTER", "KEYSLOT", "heyday:layout"]).await.unwrap().parse().unwrap();
    // The three primaries have a third of the slots each, in order.
    let place = slot * 3 / 16384;
    cluster.stop_process(place).unwrap();
    let status = run(&["status", "--json"], &variables);
    cluster.cont(place).unwrap();
    assert_eq!(status.code, 69, "its shards' figures are missing: {}", status.stderr);
    let answer: serde_json::Value = serde_json::from_str(&status.stdout).expect("an answer all the same");
    let known = answer["shards"].as_array().unwrap().iter().filter(|row| row["unread"] == 0).count();
    assert!(known > 0 && known < 16, "{answer}");
}

#[tokio::test]
async fn status_finds_the_new_owner_after_a_failover_cluster_own() {
    let mut cluster = own_cluster(Options::default()).await;
    let seeds = cluster.seeds();
    let variables = [("HEYDAY_REDIS__NODES", seeds.as_str())];
    assert_eq!(run(&["init", "--shards", "16"], &variables).code, 0);
    cluster.kill(0).unwrap();
    let whole = async || Some(run(&["status", "--json"], &variables)).filter(|status| status.code == 0);
    let status = eventually(PATIENCE, "status was whole again", whole).await;
    let answer: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(answer["totals"]["silent"], 0);
}

#[tokio::test]
async fn worker_warns_of_what_it_would_refuse_where_told_so_cluster_own() {
    let options = Options { config_lines: vec!["maxmemory-policy allkeys-lru".to_owned()], ..Options::default() };
    let cluster = own_cluster(options).await;
    let seeds = cluster.seeds();
    let variables = [
        ("HEYDAY_REDIS__NODES", seeds.as_str()),
        ("HEYDAY_WORKER__PREFLIGHT", "warn"),
        ("HEYDAY_ADMIN__LISTEN", "127.0.0.1:0"),
    ];
    assert_eq!(run(&["init", "--shards", "4"], &variables).code, 0);
    let worker = Process::start(&["worker"], &variables);
    let line = worker.says("heyday worker ").await;
    assert!(line.contains("4 shards, admin http://127.0.0.1:"), "{line}");
    let warning = worker.says("maxmemory_policy is allkeys-lru, expected noeviction").await;
    assert!(warning.contains("WARN"), "{warning}");

    // The address is taken now; a second worker that wants it says so.
    let taken = line.rsplit("http://").next().unwrap().to_owned();
    let second = run(&["worker"], &[&variables[..2], &[("HEYDAY_ADMIN__LISTEN", taken.as_str())]].concat());
    assert_eq!((second.code, second.stdout.as_str()), (78, ""));
    let last = second.stderr.lines().last().unwrap();
    assert!(last.starts_with(&format!("heyday: admin.listen {taken}: cannot listen there")), "{last}");
}

#[test]
fn every_command_says_how_it_is_used() {
    let help = heyday(&["--help"]).stdout;
    for command in ["init", "worker", "write", "read", "watch", "shard", "status", "dlq", "keys", "config"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "no {command} in\n{help}");
    }
    let help = heyday(&["dlq", "--help"]).stdout;
    for command in ["list", "show", "replay", "drop"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "no {command} in\n{help}");
    }
}
