//! Tests of the admin server over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Admin, ENDPOINTS, Error, Shown};
use crate::metrics::{Health, Metrics, Readiness};

const ANSWER_MAX: Duration = Duration::from_secs(10);

struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn shown(silence_max: Duration) -> Shown {
    Shown { metrics: Metrics::new(Health::new(silence_max)), worker: "first & <only>".to_owned() }
}

fn start(shown: &Shown) -> Admin {
    Admin::start("127.0.0.1:0", shown.clone()).unwrap()
}

fn ask(address: SocketAddr, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: heyday\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

#[test]
fn metrics_are_served_as_prometheus_reads_them() {
    let shown = shown(Duration::from_secs(60));
    let admin = start(&shown);
    let _shard = shown.metrics.shard_owned(3);
    let answer = ask(admin.address(), "/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", answer.head);
    assert!(answer.body.contains("\nheyday_shards_owned 1\n"), "{}", answer.body);
}

#[test]
fn process_whose_supervision_is_silent_is_not_healthy() {
    let patient = shown(Duration::from_secs(60));
    let answer = ask(start(&patient).address(), "/healthz");
    assert_eq!(answer.status, 200);
    assert!(answer.body.starts_with(r#"{"alive":true,"heartbeat_age_ms":"#), "{}", answer.body);

    let silent = shown(Duration::ZERO);
    let admin = start(&silent);
    let deadline = Instant::now() + ANSWER_MAX;
    while silent.metrics.health().is_alive() {
        assert!(Instant::now() < deadline, "the process never counted as silent");
        std::thread::yield_now();
    }
    let answer = ask(admin.address(), "/healthz");
    assert_eq!(answer.status, 503);
    assert!(answer.body.starts_with(r#"{"alive":false,"#), "{}", answer.body);
}

#[test]
fn worker_is_ready_once_it_owns_its_share() {
    let shown = shown(Duration::from_secs(60));
    let admin = start(&shown);
    let answer = ask(admin.address(), "/readyz");
    assert_eq!(answer.status, 503);
    assert!(
        answer.body.contains(r#""reason":"the cluster has not been looked at yet, or was refused""#),
        "{}",
        answer.body
    );

    let mut readiness = Readiness {
        preflight_passed: true,
        registered: true,
        shards_owned: 1,
        shards_aimed: 2,
        ..Readiness::default()
    };
    shown.metrics.health().report(readiness.clone());
    let answer = ask(admin.address(), "/readyz");
    assert_eq!((answer.status, answer.body.contains(r#""reason":"owns 1 of 2 shards""#)), (503, true));

    readiness.shards_owned = 2;
    shown.metrics.health().report(readiness);
    let answer = ask(admin.address(), "/readyz");
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.body,
        "{\"ready\":true,\"reason\":null,\"preflight_passed\":true,\"registered\":true,\"shards_owned\":2,\"shards_aimed\":2,\"maintenance\":null}\n"
    );
}

#[test]
fn page_links_every_endpoint_and_escapes_names() {
    let admin = start(&shown(Duration::from_secs(60)));
    let answer = ask(admin.address(), "/");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: text/html"), "{}", answer.head);
    for endpoint in &ENDPOINTS {
        assert!(answer.body.contains(&format!("href=\"{}\"", endpoint.path)), "{} has no link", endpoint.path);
        assert_ne!(ask(admin.address(), endpoint.path).status, 404, "{} is not served", endpoint.path);
    }
    assert!(answer.body.contains("first &amp; &lt;only&gt;"), "{}", answer.body);
    assert!(answer.body.contains(env!("CARGO_PKG_VERSION")));
    assert!(!answer.body.contains("http://") && !answer.body.contains("https://"), "{}", answer.body);
}

#[test]
fn unknown_path_tells_which_there_are() {
    let answer = ask(start(&shown(Duration::from_secs(60))).address(), "/nothing");
    assert_eq!((answer.status, answer.body.as_str()), (404, "no such page; there are: / /metrics /healthz /readyz\n"));
}

#[test]
fn address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Admin::start(&address, shown(Duration::ZERO)).unwrap_err();
    assert!(matches!(error, Error::Bind { .. }));
    let said = error.to_string();
    assert!(said.starts_with(&format!("admin.listen {address}: cannot listen there: ")), "{said}");
    assert!(said.ends_with("; set admin.listen (HEYDAY_ADMIN__LISTEN) to another address, or to nothing"), "{said}");
}

#[tokio::test]
async fn answers_while_the_runtime_of_the_data_plane_is_stuck() {
    let admin = start(&shown(Duration::from_secs(60)));
    let address = admin.address();
    // This blocks the only thread of the runtime the test runs on; the server must not need it.
    assert_eq!(ask(address, "/metrics").status, 200);
}

#[test]
fn stops_within_its_grace_although_a_client_holds_on() {
    let admin = start(&shown(Duration::from_secs(60)));
    let address = admin.address();
    let mut idle = TcpStream::connect(address).unwrap();
    write!(idle, "GET /metrics HTTP/1.1\r\n").unwrap();
    assert_eq!(ask(address, "/healthz").status, 200);
    let started = Instant::now();
    drop(admin);
    assert!(started.elapsed() < ANSWER_MAX, "the server held on for {:?}", started.elapsed());
    TcpStream::connect(address).unwrap_err();
}
