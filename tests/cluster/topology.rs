//! The scripts in `cluster/` and the local cluster: the same shape every time, safe to call twice, nothing left behind.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use heyday::local::{LocalCluster, Nodes, Options, Ports};

use crate::support::cluster::{own_cluster, redis_cli, shared_cluster, unique_prefix};
use crate::support::eventually;

const WAIT: Duration = Duration::from_secs(20);

/// Runs a script of `cluster/` and returns its output.
fn script(name: &str, arguments: &[&str], password: Option<&str>) -> Output {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster").join(name));
    command.args(arguments).env_remove("REDISCLI_AUTH").stdin(Stdio::null());
    if let Some(password) = password {
        command.env("REDISCLI_AUTH", password);
    }
    command.output().unwrap_or_else(|error| panic!("cluster/{name}: {error}"))
}

fn stdout_of_success(name: &str, output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "cluster/{name}: {stdout}{stderr}");
    stdout
}

/// `PORT role first-slot-last-slot` of each node, in the order of ports, with a replica's primary in place of slots: all that
/// must be the same from one cluster to the next.
async fn shape(nodes: &Nodes, index: usize) -> Vec<String> {
    let listing = redis_cli(nodes, index, &["CLUSTER", "NODES"]).await;
    let rows: Vec<Vec<&str>> = listing.lines().map(|line| line.split(' ').collect()).collect();
    let number = |row: &[&str]| {
        let port = row[1].split(['@', ':']).nth(1).and_then(|port| port.parse::<u16>().ok()).expect("host:port@bus");
        port - nodes.port_first() + 1
    };
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let role = row[2].trim_start_matches("myself,");
            let detail = match role {
                "slave" => rows
                    .iter()
                    .find(|other| other[0] == row[3])
                    .map(|other| number(other).to_string())
                    .unwrap_or_default(),
                _ => row[8..].join(" "),
            };
            format!("{} {role} {detail}", number(row))
        })
        .collect();
    lines.sort();
    lines
}

const SHAPE: [&str; 6] =
    ["1 master 0-5460", "2 master 5461-10922", "3 master 10923-16383", "4 slave 1", "5 slave 2", "6 slave 3"];

#[tokio::test]
async fn cluster_own_nodes_know_the_same_fixed_shape() {
    let cluster = own_cluster(Options::default()).await;
    for index in 0..6 {
        assert_eq!(shape(&cluster, index).await, SHAPE, "as node {} sees it", index + 1);
    }
}

#[tokio::test]
async fn a_cluster_keeps_appended_entries_and_refuses_writes_when_full() {
    let nodes = shared_cluster().await;
    for (setting, value) in [
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("maxmemory-policy", "noeviction"),
        ("cluster-require-full-coverage", "no"),
    ] {
        for index in 0..6 {
            assert_eq!(redis_cli(&nodes, index, &["CONFIG", "GET", setting]).await, format!("{setting}\n{value}"));
        }
    }
}

#[tokio::test]
async fn forming_a_formed_cluster_changes_nothing() {
    let nodes = shared_cluster().await;
    let addresses: Vec<String> = nodes.nodes().iter().map(|(host, port)| format!("{host}:{port}")).collect();
    let arguments: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let said = stdout_of_success("create.sh", &script("create.sh", &arguments, None));
    assert!(said.starts_with("cluster already formed"), "{said}");
    assert_eq!(shape(&nodes, 0).await, SHAPE);
}

#[tokio::test]
async fn create_refuses_what_is_no_cluster_and_names_the_node() {
    let nodes = shared_cluster().await;
    let first = format!("127.0.0.1:{}", nodes.port_first());
    assert_eq!(script("create.sh", &[&first], None).status.code(), Some(64), "one address is not six");
    let output = script("create.sh", &[first.as_str(); 6], Some("wrong"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&first) && said.contains("password"), "{said}");
}

/// Servers that `up` starts are daemons: should this test be killed, somebody must still take them down.
struct DownAtTheEnd(Child);

impl DownAtTheEnd {
    /// A shell that waits for the end of its input, which is the end of this test, however it ends.
    fn of(dir: &str) -> DownAtTheEnd {
        let down = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/down");
        let mut command = Command::new("sh");
        command.args(["-c", r#"trap '' INT TERM HUP; read -r _; "$0" --dir "$1" --wipe; rm -rf "$(dirname "$1")""#]);
        command.arg(down).arg(dir).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        DownAtTheEnd(command.spawn().expect("a shell"))
    }
}

impl Drop for DownAtTheEnd {
    fn drop(&mut self) {
        // `wait` closes the pipe first.
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn cluster_own_scripts_are_safe_to_call_twice_and_keep_data_between_runs() {
    let ports = Ports::reserve().expect("ports").expect("six free ports");
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("birth days");
    let dir = dir.to_str().expect("a readable path");
    let _down = DownAtTheEnd::of(dir);
    let password = Some("pass word");
    let port_base = ports.first().to_string();
    let up = || stdout_of_success("up", &script("up", &["--dir", dir, "--port-base", &port_base], password));
    let down = |wipe: &[&str]| stdout_of_success("down", &script("down", &[&["--dir", dir], wipe].concat(), password));

    assert!(up().starts_with("cluster formed"));
    assert!(up().starts_with("already running"));
    let nodes = Nodes::attach(ports.first(), password.map(str::to_owned)).expect("redis-cli");
    assert_eq!(shape(&nodes, 3).await, SHAPE);
    // Slot 1584 belongs to the first node.
    redis_cli(&nodes, 0, &["SET", "{3}", "kept"]).await;
    let anonymous = Nodes::attach(ports.first(), None).expect("redis-cli");
    assert!(anonymous.cli(0, &["PING"]).await.is_err(), "a node answered without the password");

    assert!(down(&[]).starts_with("stopped 6 servers"));
    assert!(down(&[]).starts_with("not running"));
    assert!(up().starts_with("cluster formed"));
    assert_eq!(redis_cli(&nodes, 0, &["GET", "{3}"]).await, "kept");

    assert!(down(&["--wipe"]).starts_with("stopped 6 servers"));
    assert!(!Path::new(dir).exists(), "{dir} was left behind");
    assert!(nodes.cli(0, &["PING"]).await.is_err(), "a server was left behind");
}

#[tokio::test]
async fn up_names_the_port_that_another_program_holds() {
    let ports = Ports::reserve().expect("ports").expect("six free ports");
    let _other = std::net::TcpListener::bind(("127.0.0.1", ports.first())).expect("the port was free");
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a readable path");
    let output = script("up", &["--dir", dir, "--port-base", &ports.first().to_string()], None);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&format!("port {} is taken", ports.first())), "{said}");
}

#[tokio::test]
async fn cluster_own_killed_primary_is_replaced_and_comes_back_as_replica_of_its_replacement() {
    let mut cluster = own_cluster(Options::default()).await;
    redis_cli(&cluster, 0, &["SET", "{3}", "kept"]).await;
    eventually(WAIT, "the replica received the key", async || {
        let count = redis_cli(&cluster, 3, &["CLUSTER", "COUNTKEYSINSLOT", "1584"]).await;
        (count == "1").then_some(())
    })
    .await;
    cluster.kill(0).expect("kill");
    eventually(WAIT, "the replica took over", async || {
        let said = cluster.cli(3, &["GET", "{3}"]).await.ok();
        (said.as_deref() == Some("kept")).then_some(())
    })
    .await;
    cluster.restart(0).await.expect("restart");
    cluster.form().await.expect("a whole cluster again");
    assert_eq!(shape(&cluster, 1).await[0], "1 slave 4");
}

#[tokio::test]
async fn cluster_own_frozen_node_answers_again_once_it_goes_on() {
    let cluster = own_cluster(Options { memory_bytes_max: Some(64 << 20), ..Options::default() }).await;
    assert_eq!(redis_cli(&cluster, 5, &["CONFIG", "GET", "maxmemory"]).await, "maxmemory\n67108864");
    cluster.stop_process(5).expect("SIGSTOP");
    eventually(WAIT, "the others took the frozen node for failed", async || {
        redis_cli(&cluster, 0, &["CLUSTER", "NODES"]).await.contains("slave,fail ").then_some(())
    })
    .await;
    cluster.cont(5).expect("SIGCONT");
    cluster.form().await.expect("a whole cluster again");
}

#[tokio::test]
async fn cluster_own_servers_and_folder_are_gone_with_their_owner() {
    let cluster = own_cluster(Options { password: Some("se\"cret\\".to_owned()), ..Options::default() }).await;
    let (nodes, folder) = (cluster.nodes(), cluster.folder().to_owned());
    let processes: Vec<u32> = (0..6).map(|index| cluster.pid(index)).collect();
    assert!(nodes.iter().all(|node| std::net::TcpStream::connect(node).is_ok()));
    drop(cluster);
    assert!(nodes.iter().all(|node| std::net::TcpStream::connect(node).is_err()), "a server was left behind");
    assert!(processes.iter().all(|id| !is_running(*id)), "a process was left behind");
    assert!(!folder.exists(), "{} was left behind", folder.display());
}

#[tokio::test]
async fn cluster_own_servers_and_folder_are_gone_when_their_owner_is_killed() {
    const OWNER: &str = "HEYDAY_TEST_OWNER";
    const NAME: &str = "cluster::topology::cluster_own_servers_and_folder_are_gone_when_their_owner_is_killed";
    if std::env::var_os(OWNER).is_some() {
        return own_until_killed().await;
    }
    let mut owner = Command::new(std::env::current_exe().expect("this test's program"))
        .args(["--exact", NAME, "--nocapture"])
        .env(OWNER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process of this test");
    let lines = BufReader::new(owner.stdout.take().expect("its output")).lines();
    let told = lines.map_while(Result::ok).find_map(|line| {
        let (_, told) = line.split_once("owns ")?;
        told.split_once(' ').map(|(port, folder)| (port.to_owned(), folder.to_owned()))
    });
    let (port, folder) = told.expect("the owner told its first port and its folder");
    let nodes = Nodes::attach(port.parse().expect("a port"), None).expect("redis-cli");
    assert_eq!(redis_cli(&nodes, 1, &["PING"]).await, "PONG");
    owner.kill().expect("SIGKILL");
    owner.wait().expect("its end");
    eventually(WAIT, "all servers ended and their folder was removed", async || {
        let listening = nodes.nodes().iter().any(|node| std::net::TcpStream::connect(node).is_ok());
        (!listening && !Path::new(&folder).exists()).then_some(())
    })
    .await;
}

/// The killed owner's part: it has a cluster of which one server is killed already, says so, and ends by itself only when the
/// test that started it is gone.
async fn own_until_killed() {
    let mut cluster = own_cluster(Options::default()).await;
    cluster.kill(0).expect("kill");
    println!("owns {} {}", cluster.port_first(), cluster.folder().display());
    std::io::stdin().read_line(&mut String::new()).expect("the end of the input");
}

#[tokio::test]
async fn cluster_own_servers_that_were_left_running_are_stopped_by_down() {
    let cluster = own_cluster(Options::default()).await;
    let folder = cluster.folder().to_owned();
    let dir = folder.to_str().expect("a readable path");
    let nodes = cluster.leave_running().expect("six released servers");
    let alive = nodes.cli(5, &["PING"]).await;
    let said = stdout_of_success("down", &script("down", &["--dir", dir, "--wipe"], None));
    assert_eq!(alive.expect("a server that goes on"), "PONG");
    assert!(said.starts_with("stopped 6 servers"), "{said}");
    std::fs::remove_dir_all(&folder).expect("what the cluster left besides its data");
}

#[tokio::test]
async fn cluster_own_start_that_cannot_succeed_says_why_and_leaves_nothing() {
    let bad = Options { config_lines: vec!["no-such-setting 1".to_owned()], ..Options::default() };
    let error = LocalCluster::start(bad).await.expect_err("a server with a bad setting").to_string();
    assert!(error.contains("no-such-setting") || error.contains("Bad directive"), "{error}");
    let missing = Options { server: Some("/nowhere/redis-server".into()), ..Options::default() };
    let error = LocalCluster::start(missing).await.expect_err("a server that is not there").to_string();
    assert!(error.contains("/nowhere/redis-server"), "{error}");
}

#[tokio::test]
async fn shared_cluster_is_one_and_prefixes_are_many() {
    let (one, other) = (shared_cluster().await, shared_cluster().await);
    assert_eq!(one.seeds(), other.seeds());
    assert_ne!(unique_prefix(), unique_prefix());
}

/// Signal 0 reaches a process that exists.
fn is_running(id: u32) -> bool {
    Command::new("kill")
        .args(["-0", &id.to_string()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
