//! Reading: new entries, pending ones, and a group or stream that somebody destroyed.

use std::time::Duration;

use heyday::error::Disposition;
use heyday::reduce::Entry;
use heyday::store::{Backlog, CalendarNews, Read, ShardLink};

use super::{DONE, Ground, NEW, TTL, WAIT, id, mine, refused};
use crate::support::eventually;

fn ids(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.id.to_string()).collect()
}

#[tokio::test]
async fn new_entries_come_in_order_until_they_are_applied_and_the_first_of_them_is_pending() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    assert!(link.read(NEW, 10).await.unwrap().is_empty());
    assert!(link.read(Read::Pending, 10).await.unwrap().is_empty());
    let appended = [ground.add("1", "2").await, ground.add("1", "3").await, ground.add("1", "4").await];
    let first = link.read(NEW, 2).await.unwrap();
    assert_eq!(ids(&first), appended[..2]);
    assert_eq!(first[0].deliveries, 1);
    let fields = first[0].fields.as_ref().unwrap();
    assert_eq!(fields[1], ("user".into(), "1".into()));
    assert_eq!(ground.pending().await, appended[..1]);
    assert_eq!(ids(&link.read(NEW, 10).await.unwrap()), appended, "none of them is applied");
    assert_eq!(ground.pending().await, appended[..2]);

    let pending = link.read(Read::Pending, 1).await.unwrap();
    assert_eq!(ids(&pending), appended[..1]);
    assert_eq!(pending[0].fields, first[0].fields);
    let pending = link.read(Read::Pending, 10).await.unwrap();
    assert_eq!(ids(&pending), appended);
    assert_eq!(pending.iter().map(|entry| entry.deliveries).collect::<Vec<_>>(), [3, 2, 1]);
    let (loaded, commit) = ground.prepare(&mut link, &state, pending).await;
    assert_eq!((loaded.pending, loaded.pending_first.unwrap().to_string()), (2, appended[0].clone()));
    assert_eq!(link.commit(&commit).await.unwrap(), DONE);
    assert_eq!(ground.pending().await, Vec::<String>::new());
    assert!(link.read(NEW, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_blocked_read_wakes_for_an_entry_and_gives_up_in_time() {
    let mut ground = Ground::shared().await;
    let (mut link, _) = ground.owner("a").await;
    let started = std::time::Instant::now();
    assert!(link.read(Read::New { block: Duration::from_millis(50) }, 10).await.unwrap().is_empty());
    assert!(started.elapsed() >= Duration::from_millis(45));
    let waiting = tokio::spawn(async move { link.read(Read::New { block: WAIT }, 10).await });
    let appended = ground.add("1", "2").await;
    assert_eq!(ids(&waiting.await.unwrap().unwrap()), [appended]);
}

#[tokio::test]
async fn pending_entries_that_were_trimmed_come_without_fields() {
    let mut ground = Ground::shared().await;
    let (mut link, _) = ground.owner("a").await;
    let appended = [ground.add("1", "2").await, ground.add("1", "3").await];
    link.read(NEW, 10).await.unwrap();
    let changes = ground.keys.changes.clone();
    ground.command(&["XDEL", changes.as_str(), &appended[0]]).await;
    let pending = link.read(Read::Pending, 10).await.unwrap();
    assert_eq!(ids(&pending), appended);
    assert!(pending[0].fields.is_none() && pending[1].fields.is_some());
    assert_eq!((pending[0].deliveries, pending[1].deliveries), (1, 1), "what is gone was not delivered again");
}

#[tokio::test]
async fn entries_that_somebody_read_under_another_name_come_back_in_order() {
    let mut ground = Ground::shared().await;
    let changes = ground.keys.changes.clone();
    let (mut link, _) = ground.owner("a").await;
    let appended = [ground.add("1", "2").await, ground.add("1", "3").await, ground.add("1", "4").await];
    let stray = ["XREADGROUP", "GROUP", "heyday", "me", "COUNT", "1", "STREAMS", changes.as_str(), ">"];
    link.read(NEW, 1).await.unwrap();
    ground.command(&stray).await.checked().unwrap();
    assert_eq!(ids(&link.read(NEW, 10).await.unwrap()), appended, "they are part of the batch all the same");
    let pending = link.read(Read::Pending, 10).await.unwrap();
    assert_eq!(ids(&pending), appended);
    assert!(pending.iter().all(|entry| entry.fields.is_some()));
}

#[tokio::test]
async fn a_destroyed_group_is_recreated_at_the_applied_position() {
    let mut ground = Ground::shared().await;
    let changes = ground.keys.changes.clone();
    let (mut link, state) = ground.owner("a").await;
    ground.add("1", "2").await;
    ground.settle(&mut link, &state).await;
    let unread = ground.add("1", "3").await;
    let blocked = Read::New { block: WAIT };
    assert_eq!(ids(&link.read(blocked, 10).await.unwrap()), std::slice::from_ref(&unread));

    let waiting = tokio::spawn(async move { (link.read(blocked, 10).await, link) });
    eventually(WAIT, "the owner waited", async || {
        let clients = ground.text(&["INFO", "clients"]).await.expect("information");
        (!clients.contains("blocked_clients:0")).then_some(())
    })
    .await;
    ground.command(&["XGROUP", "DESTROY", changes.as_str(), "heyday"]).await;
    let (result, mut link) = waiting.await.unwrap();
    refused(result, Disposition::Refresh, &["NOGROUP", "read"]);
    refused(link.read(Read::Pending, 10).await, Disposition::Refresh, &["NOGROUP"]);
    refused(link.load(&Default::default()).await, Disposition::Refresh, &["NOGROUP", changes.as_str()]);
    refused(link.backlog().await, Disposition::Refresh, &["NOGROUP", changes.as_str()]);

    mine(link.take(&id("a"), TTL).await.expect("the same link"));
    assert_eq!(ids(&link.read(NEW, 10).await.unwrap()), [unread], "what is applied is not read again");
}

#[tokio::test]
async fn a_deleted_stream_is_begun_anew_above_the_applied_position() {
    let mut ground = Ground::shared().await;
    let (changes, stored) = (ground.keys.changes.clone(), ground.keys.state.clone());
    let (mut link, _) = ground.owner("a").await;
    ground.command(&["HSET", stored.as_str(), "applied", "5000000000000-5"]).await;
    let waiting = tokio::spawn(async move { (link.read(Read::New { block: WAIT }, 10).await, link) });
    eventually(WAIT, "the owner was cut off", async || {
        ground.command(&["DEL", changes.as_str()]).await;
        waiting.is_finished().then_some(())
    })
    .await;
    let (result, mut link) = waiting.await.unwrap();
    assert_eq!(result.unwrap_err().disposition, Disposition::Refresh);
    let state = mine(link.take(&id("a"), TTL).await.unwrap());
    let appended = ground.add("1", "2").await;
    assert_eq!(appended, "5000000000000-6");
    let entries = link.read(NEW, 10).await.unwrap();
    assert!(entries[0].id > state.applied);
    assert_eq!(ids(&entries), [appended]);
}

#[tokio::test]
async fn the_backlog_is_counted() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    let timeless = |backlog: Backlog| {
        assert!(backlog.calendar.milliseconds > 1_600_000_000_000, "{backlog:?}");
        Backlog { calendar: CalendarNews::default(), ..backlog }
    };
    assert_eq!(timeless(link.backlog().await.unwrap()), Backlog::default());
    for friend in ["2", "3", "4"] {
        ground.add("1", friend).await;
    }
    let backlog = link.backlog().await.unwrap();
    assert_eq!((backlog.unread, backlog.pending, backlog.dead_letters), (3, 0, 0));
    assert!(backlog.oldest_milliseconds.is_some_and(|age| age < 60_000), "{backlog:?}");
    let entries = link.read(NEW, 2).await.unwrap();
    let backlog = link.backlog().await.unwrap();
    assert_eq!((backlog.unread, backlog.pending), (2, 1), "the first of a batch is pending for all of it");
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    link.commit(&commit).await.unwrap();
    let state = ground.settle(&mut link, &commit.state).await;
    assert_eq!(timeless(link.backlog().await.unwrap()), Backlog::default());

    // Redis cannot tell how many are unread once one of them was deleted.
    let (changes, user) = (ground.keys.changes.clone(), "1");
    let (first, _) = (ground.add(user, "5").await, ground.add(user, "6").await);
    ground.command(&["XDEL", changes.as_str(), &first]).await;
    assert_eq!(link.backlog().await.unwrap().unread, 1);
    ground.append(&["type", "nonsense"]).await;
    ground.settle(&mut link, &state).await;
    assert_eq!(timeless(link.backlog().await.unwrap()), Backlog { dead_letters: 1, ..Backlog::default() });
}
