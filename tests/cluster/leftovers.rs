//! What tests leave behind: under every prefix only keys of the registry.

use heyday::key::Keys;
use heyday::redis::{ConnectOptions, Link, NodeAddress, Pipeline, Reply};

use super::client::WAIT;
use crate::support::cluster::{PREFIX, PREFIX_FOREIGN, shared_cluster};

/// In the middle of a run it sees what is there so far. `tools/tests` runs it once more after all others, on the same cluster.
#[tokio::test]
async fn the_shared_cluster_holds_no_key_outside_the_registry() {
    let mut names = Vec::new();
    // The replicas hold the same.
    for (host, port) in shared_cluster().await.nodes().into_iter().take(3) {
        names.extend(names_of(&NodeAddress::new(host, port)).await);
    }
    println!("{} keys", names.len());
    let mut wrong: Vec<_> = names.iter().filter_map(|name| judge(name)).collect();
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_key_outside_the_registry_is_found() {
    for (name, good) in [
        ("test-1-0:heyday:layout", true),
        ("test-1-0:lease:{0}", true),
        ("foreign-1-0:whatever", true),
        ("test-1-0:push:{0}", false),
        ("test-1-0:whatever", false),
        ("heyday:layout", false),
        ("test", false),
    ] {
        assert_eq!(judge(name).is_none(), good, "{name}");
    }
}

fn judge(name: &str) -> Option<String> {
    if name.starts_with(PREFIX_FOREIGN) {
        return None;
    }
    let Some((prefix, _)) = name.split_once(':').filter(|_| name.starts_with(PREFIX)) else {
        return Some(format!("{name}: under no test's prefix"));
    };
    match Keys::new(&format!("{prefix}:")).expect("a prefix").row_of(name) {
        None => Some(format!("{name}: no row of the registry names it")),
        Some(row) if row.kind == "CHANNEL" => Some(format!("{name}: a key with a channel's name")),
        Some(_) => None,
    }
}

async fn names_of(node: &NodeAddress) -> Vec<String> {
    let text = |reply: &Reply| reply.to_str().expect("text").to_owned();
    let mut link = Link::connect(node, &ConnectOptions::default()).await.expect("a link");
    let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let mut scan = Pipeline::new();
        scan.push(&["SCAN", &cursor, "COUNT", "5000"]);
        let page = link.request(&scan, WAIT).await.expect("an answer").remove(0);
        let [next, found] = page.as_array().expect("a page") else { panic!("{page:?} is no page") };
        names.extend(found.as_array().expect("names").iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            return names;
        }
    }
}
