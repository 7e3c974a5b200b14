//! What a command says, and how it ends, where the cluster is not what it must be: one line, at once.

use std::time::{Duration, Instant};

use heyday::local::{Options, Ports};

use super::stage::Stage;
use super::{Run, run};
use crate::support::cluster::own_cluster;
use crate::support::single::Single;

/// Far below any retry storm, far above one refused connection.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Every command that begins with the cluster.
const COMMANDS: [&[&str]; 9] = [
    &["init"],
    &["worker"],
    &["shard", "42"],
    &["status"],
    &["dlq", "list"],
    &["read", "42"],
    &["watch"],
    &["write", "remove", "user=1", "friend=2"],
    &["write", "--file", "/dev/null"],
];

fn check(arguments: &[&str], variables: &[(&str, &str)], code: i32, part: &str) -> Run {
    let started = Instant::now();
    let variables = [&[("HEYDAY_ADMIN__LISTEN", "")], variables].concat();
    let refused = run(arguments, &variables);
    assert_eq!((refused.code, refused.stdout.as_str()), (code, ""), "{arguments:?}: {}", refused.stderr);
    assert!(refused.stderr.contains(part), "{arguments:?}: no {part:?} in {}", refused.stderr);
    assert!(refused.stderr.starts_with("heyday: ") && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    assert!(started.elapsed() < AT_ONCE, "{arguments:?} took {:?}", started.elapsed());
    refused
}

#[test]
fn no_cluster_is_told_at_once() {
    let ports = Ports::reserve().unwrap().expect("free ports");
    let nobody = format!("127.0.0.1:{}", ports.first());
    for command in COMMANDS {
        let part = format!(
            "heyday: redis.nodes (environment variable HEYDAY_REDIS__NODES): no cluster node reached: {nobody}: cannot connect"
        );
        check(command, &[("HEYDAY_REDIS__NODES", &nobody)], 69, &part);
    }
    check(&["status", "--redis", &nobody], &[], 69, "heyday: redis.nodes (flag --redis): no cluster node reached: ");
}

#[tokio::test]
async fn single_redis_is_no_cluster() {
    let single = Single::plain().await;
    let node = single.address().to_string();
    for command in COMMANDS {
        check(command, &[("HEYDAY_REDIS__NODES", &node)], 78, &format!("{node}: not a cluster"));
    }
}

#[tokio::test]
async fn wrong_password_is_a_wrong_setting_cluster_own() {
    let options = Options { password: Some("hunter2".to_owned()), ..Options::default() };
    let cluster = own_cluster(options).await;
    let seeds = cluster.seeds();
    for command in COMMANDS {
        let wrong = [("HEYDAY_REDIS__NODES", seeds.as_str()), ("HEYDAY_REDIS__PASSWORD", "hunter3")];
        let refused = check(command, &wrong, 78, "WRONGPASS");
        assert!(!refused.stderr.contains("hunter"), "{}", refused.stderr);
        check(command, &[("HEYDAY_REDIS__NODES", &seeds)], 78, "NOAUTH");
    }
    let right = [("HEYDAY_REDIS__NODES", seeds.as_str()), ("HEYDAY_REDIS__PASSWORD", "hunter2")];
    let created = run(&["init", "--shards", "4"], &right);
    assert_eq!((created.code, created.stderr.as_str()), (0, ""));
}

#[tokio::test]
async fn missing_layout_names_the_command_that_creates_it() {
    let stage = Stage::bare().await;
    for command in &COMMANDS[1..] {
        let part = format!("no layout at {}heyday:layout: run `heyday init` first", stage.prefix);
        check(command, &stage.variables(), 78, &part);
    }
}

#[tokio::test]
async fn layout_of_another_format_is_left_alone() {
    let stage = Stage::with_shards(4).await;
    let key = format!("{}heyday:layout", stage.prefix);
    stage.redis(&["HSET", &key, "format", "9"]).await;
    for command in COMMANDS {
        check(command, &stage.variables(), 78, "layout format 9: this build reads format 1");
    }
    assert_eq!(stage.redis(&["HGET", &key, "format"]).await, "9");
}

#[tokio::test]
async fn worker_refuses_a_cluster_that_may_lose_data_cluster_own() {
    let options = Options { config_lines: vec!["maxmemory-policy allkeys-lru".to_owned()], ..Options::default() };
    let cluster = own_cluster(options).await;
    let seeds = cluster.seeds();
    let nodes = [("HEYDAY_REDIS__NODES", seeds.as_str())];
    assert_eq!(run(&["init", "--shards", "4"], &nodes).code, 0);
    let part = format!(
        "{}: maxmemory_policy is allkeys-lru, expected noeviction",
        cluster.nodes()[0].0.clone() + &format!(":{}", cluster.port_first())
    );
    check(&["worker"], &nodes, 78, &part);
}
