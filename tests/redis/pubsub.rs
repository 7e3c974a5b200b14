//! A subscription says all that happens to it: above all that a slot has left, which is said once.

use std::time::Duration;

use heyday::error::ServerCode;
use heyday::local::Options;
use heyday::redis::{ConnectOptions, Error, Event, NodeAddress, Subscription};

use super::{WAIT, addresses, command, through};
use crate::support::cluster::{own_cluster, redis_cli, shared_cluster, unique_prefix};
use crate::support::proxy::{Cut, Proxy};

async fn subscribed(node: &NodeAddress, options: &ConnectOptions, channel: &str) -> Subscription {
    let mut subscription = Subscription::connect(node, options).await.expect("a connection");
    subscription.subscribe(channel.to_owned());
    let channel = channel.to_owned().into();
    assert_eq!(next(&mut subscription).await.expect("an event"), Event::Subscribed { channel });
    subscription
}

async fn next(subscription: &mut Subscription) -> Result<Event, Error> {
    tokio::time::timeout(WAIT, subscription.next()).await.expect("within 20 s there was no event")
}

/// Tags whose slots (1584 and 3300) the first node owns, and one (9842) of the second.
const TAGS_OF_FIRST: [&str; 2] = ["3", "b"];
const TAG_OF_SECOND: &str = "1";

fn channel(tag: &str) -> String {
    format!("{}c:{{{tag}}}", unique_prefix())
}

#[tokio::test]
async fn channels_of_several_slots_share_one_connection() {
    let nodes = addresses(&shared_cluster().await);
    let channels = TAGS_OF_FIRST.map(channel);
    let mut subscription = subscribed(&nodes[0], &ConnectOptions::default(), &channels[0]).await;
    subscription.subscribe(channels[1].clone());
    let second = channels[1].clone().into();
    assert_eq!(next(&mut subscription).await.expect("an event"), Event::Subscribed { channel: second });
    for channel in &channels {
        command(&nodes[0], &["SPUBLISH", channel, "hello"]).await;
        let expected = Event::Message { channel: channel.clone().into(), payload: "hello".into() };
        assert_eq!(next(&mut subscription).await.expect("an event"), expected);
    }
    subscription.unsubscribe(channels[0].clone());
    let first = channels[0].clone().into();
    assert_eq!(next(&mut subscription).await.expect("an event"), Event::Unsubscribed { channel: first });
}

#[tokio::test]
async fn a_channel_of_another_node_is_refused_and_the_rest_goes_on() {
    let nodes = addresses(&shared_cluster().await);
    let here = channel(TAGS_OF_FIRST[0]);
    let mut subscription = subscribed(&nodes[1], &ConnectOptions::default(), &channel(TAG_OF_SECOND)).await;
    subscription.subscribe(here.clone());
    match next(&mut subscription).await.expect("an event") {
        Event::Refused { channel, error } => {
            assert_eq!(channel, here);
            let endpoint = nodes[0].to_string();
            assert!(
                matches!(&error.code, ServerCode::Moved { endpoint: found, .. } if *found == endpoint),
                "{error:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    let further = channel(TAG_OF_SECOND);
    subscription.subscribe(further.clone());
    let expected = Event::Subscribed { channel: further.into() };
    assert_eq!(next(&mut subscription).await.expect("an event"), expected);
}

#[tokio::test]
async fn a_silent_connection_is_probed_and_a_dead_one_found() {
    let nodes = addresses(&shared_cluster().await);
    let proxy = Proxy::start(&nodes[0]).await;
    let mut options = through(&nodes[0], proxy.address());
    options.reply_timeout = Duration::from_millis(300);
    let name = channel(TAGS_OF_FIRST[0]);
    let mut subscription = subscribed(&nodes[0], &options, &name).await;
    // Three intervals of silence: the probes are answered, and are no events.
    let quiet = tokio::time::timeout(Duration::from_secs(3), subscription.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    command(&nodes[0], &["SPUBLISH", &name, "hello"]).await;
    assert!(matches!(next(&mut subscription).await, Ok(Event::Message { .. })));
    proxy.stall();
    let error = next(&mut subscription).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(matches!(next(&mut subscription).await, Err(Error::Closed { .. })));
}

#[tokio::test]
async fn a_cut_connection_is_an_error_at_once() {
    let nodes = addresses(&shared_cluster().await);
    for cut in [Cut::Fin, Cut::Reset] {
        let proxy = Proxy::start(&nodes[0]).await;
        let options = through(&nodes[0], proxy.address());
        let mut subscription = subscribed(&nodes[0], &options, &channel(TAGS_OF_FIRST[0])).await;
        proxy.cut(cut);
        let error = next(&mut subscription).await.unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{cut:?}: {error:?}");
    }
}

#[tokio::test]
async fn cluster_own_a_slot_that_moves_away_unsubscribes_by_itself() {
    let cluster = own_cluster(Options::default()).await;
    let nodes = addresses(&cluster);
    let name = channel(TAGS_OF_FIRST[0]);
    let mut subscription = subscribed(&nodes[0], &ConnectOptions::default(), &name).await;
    let slot = redis_cli(&cluster, 0, &["CLUSTER", "KEYSLOT", &name]).await;
    let target = redis_cli(&cluster, 1, &["CLUSTER", "MYID"]).await;
    for node in [1, 0, 2] {
        redis_cli(&cluster, node, &["CLUSTER", "SETSLOT", &slot, "NODE", &target]).await;
    }
    let expected = Event::Unsubscribed { channel: name.into() };
    assert_eq!(next(&mut subscription).await.expect("an event"), expected);
}
