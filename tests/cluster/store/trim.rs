//! Trimming: nothing goes that any group still needs.

use std::time::Duration;

use heyday::store::ShardLink;

use super::{Ground, NEW};

const NOW: Duration = Duration::ZERO;

/// Waits until the server's clock has passed the entry's millisecond: a retention of zero ends there.
async fn pass(ground: &mut Ground, entry: &str) {
    let milliseconds: u64 = entry.split('-').next().unwrap().parse().unwrap();
    crate::support::eventually(super::WAIT, "the server's clock moved", async || {
        let time = ground.command(&["TIME"]).await;
        let time = time.as_array().unwrap();
        (time[0].as_u64().unwrap() * 1000 + time[1].as_u64().unwrap() / 1000 > milliseconds).then_some(())
    })
    .await;
}

#[tokio::test]
async fn settled_entries_go_once_their_retention_is_over() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    assert_eq!(link.trim(NOW).await.unwrap(), 0);
    for friend in 0..250 {
        ground.add("1", &format!("f{friend}")).await;
    }
    let state = ground.settle(&mut link, &state).await;
    pass(&mut ground, &state.applied.to_string()).await;
    assert_eq!(link.trim(Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(link.trim(NOW).await.unwrap(), 250);
    assert_eq!(link.trim(NOW).await.unwrap(), 0);
}

#[tokio::test]
async fn entries_unread_or_pending_in_any_group_stay() {
    let mut ground = Ground::shared().await;
    let changes = ground.keys.changes.clone();
    let (mut link, state) = ground.owner("a").await;
    ground.command(&["XGROUP", "CREATE", changes.as_str(), "analytics", "0"]).await;
    let mut appended = Vec::new();
    for friend in 0..6 {
        appended.push(ground.add("1", &format!("f{friend}")).await);
    }
    ground.settle(&mut link, &state).await;
    pass(&mut ground, &appended[5]).await;
    assert_eq!(link.trim(NOW).await.unwrap(), 0, "analytics has read nothing");

    let read = ["XREADGROUP", "GROUP", "analytics", "x", "COUNT", "4", "STREAMS", changes.as_str(), ">"];
    ground.command(&read).await;
    assert_eq!(link.trim(NOW).await.unwrap(), 0, "analytics has acknowledged nothing");
    ground.command(&["XACK", changes.as_str(), "analytics", &appended[0], &appended[1], &appended[3]]).await;
    assert_eq!(link.trim(NOW).await.unwrap(), 2, "the third is pending");
    ground.command(&["XACK", changes.as_str(), "analytics", &appended[2]]).await;
    assert_eq!(link.trim(NOW).await.unwrap(), 2, "the last two are unread");
    ground.command(&["XGROUP", "DESTROY", changes.as_str(), "analytics"]).await;
    assert_eq!(link.trim(NOW).await.unwrap(), 2);
}

#[tokio::test]
async fn a_group_at_the_highest_sequence_there_is_stops_no_trimming() {
    let mut ground = Ground::shared().await;
    let changes = ground.keys.changes.clone();
    let (mut link, state) = ground.owner("a").await;
    let appended = ground.add("1", "2").await;
    let state = ground.settle(&mut link, &state).await;
    pass(&mut ground, &appended).await;
    let highest = format!("{}-18446744073709551615", state.applied.milliseconds);
    ground.command(&["XGROUP", "CREATE", changes.as_str(), "analytics", &highest]).await.checked().unwrap();
    assert_eq!(link.trim(NOW).await.unwrap(), 1);
}

#[tokio::test]
async fn a_lost_group_has_read_nothing() {
    let mut ground = Ground::shared().await;
    let changes = ground.keys.changes.clone();
    let (mut link, _) = ground.owner("a").await;
    let appended = ground.add("1", "2").await;
    link.read(NEW, 10).await.unwrap();
    pass(&mut ground, &appended).await;
    ground.command(&["XGROUP", "DESTROY", changes.as_str(), "heyday"]).await;
    assert_eq!(link.trim(NOW).await.unwrap(), 0);
    ground.command(&["XGROUP", "CREATE", changes.as_str(), "analytics", "$"]).await;
    assert_eq!(link.trim(NOW).await.unwrap(), 0);
}
