//! Clusters for tests: one that all tests of a run share, and one of its own for a test that breaks things.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use heyday::local::{Lifetime, LocalCluster, Nodes, Options};
use tokio::sync::OnceCell;

/// Set by cargo-nextest, the same for all processes of a run.
const RUN_ID: &str = "NEXTEST_RUN_ID";
/// Set by `tools/tests`, the same for all it runs: its process id and when it began. The cluster then lives as long as that
/// process, so that what the tests left behind can be looked at after the last of them.
const RUN: &str = "HEYDAY_TEST_RUN";
/// How the prefixes of tests begin, and of those that put keys of their own there.
pub const PREFIX: &str = "test-";
pub const PREFIX_FOREIGN: &str = "foreign-";

/// The cluster that all tests of this run share, started by the first test that asks.
///
/// Several tests use it at the same time: a test writes under its own [`unique_prefix`], and neither kills nodes nor moves slots nor
/// sets anything for a whole node (that is what [`own_cluster`] is for). nextest runs each test in a process of its own, so
/// there the cluster lives exactly as long as the nextest process: a keeper watches that and ends the servers, however it ended.
/// Under `cargo test` all tests run in this one process, and the cluster ends with it.
pub async fn shared_cluster() -> Nodes {
    static SHARED: OnceCell<Nodes> = OnceCell::const_new();
    SHARED
        .get_or_init(async || match (std::env::var(RUN), std::env::var(RUN_ID)) {
            (Ok(run), _) => {
                let keeper = run.split('-').next().and_then(|id| id.parse().ok()).expect("the id of a process");
                shared_between_processes(&run, keeper).await
            }
            (_, Ok(run)) => shared_between_processes(&run, std::os::unix::process::parent_id()).await,
            _ => {
                let lifetime = Lifetime::Process(std::process::id());
                start(Options { lifetime, ..Options::default() }).await.hand_over()
            }
        })
        .await
        .clone()
}

/// A cluster for this test alone, gone when the value is dropped. Slow (2 s) and heavy: name such a test `…cluster_own…`, or put
/// it under `chaos::`, so that nextest runs few at a time.
pub async fn own_cluster(options: Options) -> LocalCluster {
    start(options).await
}

/// A prefix no other test of this run uses, for the setting `redis.prefix`.
///
/// Whatever is under it when all tests are over must be a key of the registry (see `cluster::leftovers`).
pub fn unique_prefix() -> String {
    numbered_prefix(PREFIX)
}

/// The same for a test that itself puts there what no row of the registry names.
pub fn foreign_prefix() -> String {
    numbered_prefix(PREFIX_FOREIGN)
}

fn numbered_prefix(beginning: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{beginning}{}-{}:", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// One command to one node; the test ends where it is refused.
pub async fn redis_cli(nodes: &Nodes, index: usize, arguments: &[&str]) -> String {
    nodes.cli(index, arguments).await.expect("redis-cli")
}

async fn start(options: Options) -> LocalCluster {
    LocalCluster::start(options).await.expect("a cluster on loopback")
}

/// The first process of the run that holds the lock starts the cluster and writes down its port; the others read it.
async fn shared_between_processes(run: &str, keeper: u32) -> Nodes {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (lock, ready) = run_files(folder, run);
    let lock = File::create(&lock).expect("the lock file of this run");
    // Blocks this thread only: others of this process wait for the OnceCell in any case.
    lock.lock().expect("the lock of this run");
    if let Ok(port) = fs::read_to_string(&ready) {
        let port = port.trim().parse().expect("a port in the file that the first test wrote");
        return Nodes::attach(port, None).expect("redis-cli");
    }
    forget_earlier_runs(folder, run);
    let lifetime = Lifetime::Process(keeper);
    let nodes = start(Options { lifetime, ..Options::default() }).await.hand_over();
    fs::write(&ready, nodes.port_first().to_string()).expect("the port of this run's cluster");
    nodes
}

fn run_files(folder: &Path, run: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("cluster-{run}.lock")), folder.join(format!("cluster-{run}.port")))
}

/// Files of runs that have ended are of no use to anybody. A run that has not ended yet is left alone: its lock may be held, but
/// its port file is needed to the end, so only files an hour old go.
fn forget_earlier_runs(folder: &Path, run: &str) {
    let old = std::time::Duration::from_secs(3600);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
        if name.starts_with("cluster-") && !name.contains(run) && age.is_some_and(|age| age > old) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
