//! Which part of which day is read, and what is said where it cannot be whole.

use heyday::client::day::{Cursor, Error, Incomplete, Options};
use heyday::error::Disposition;
use heyday::shard::Shard;
use jiff::Span;

use super::almanac::{Almanac, ZONES, entries};
use super::take;
use crate::support::cluster::shared_cluster;

async fn refusal(almanac: &Almanac, date: jiff::civil::Date, options: Options) -> Error {
    let mut day = almanac.reader().day(date, options);
    let refusal = day.next_user().await.expect("an answer").unwrap_err();
    assert!(day.next_user().await.is_none(), "an error is the end of a stream");
    refusal
}

#[tokio::test]
async fn moments_part_a_day_without_gap_or_overlap() {
    let almanac = Almanac::new(&shared_cluster().await, 4, 200, 3).await;
    let mut moments: Vec<i64> = ZONES.iter().map(|zone| almanac.due(zone)).collect();
    moments.sort_unstable();
    let ends = [None].into_iter().chain(moments.into_iter().map(Some)).chain([None]).collect::<Vec<_>>();
    let mut found = Vec::new();
    for pair in ends.windows(2) {
        let options = Options { due_after: pair[0], due_until: pair[1], page: 5, ..Options::default() };
        let (part, _) = take(&almanac, options.clone(), usize::MAX).await;
        let part = entries(&part);
        let within = |due: i64| pair[0].is_none_or(|after| due > after) && pair[1].is_none_or(|until| due <= until);
        assert!(part.iter().all(|entry| within(entry.due)), "{pair:?}");
        // A cursor in front of the part begins it, and one within it goes on there.
        let begin = Options { cursor: Some(Cursor::of_shard(almanac.date, Shard(0))), ..options.clone() };
        assert_eq!(entries(&take(&almanac, begin, usize::MAX).await.0), part);
        let (first, cursor) = take(&almanac, options.clone(), 3).await;
        let rest =
            if cursor.is_some() { take(&almanac, Options { cursor, ..options }, usize::MAX).await.0 } else { vec![] };
        assert_eq!([entries(&first), entries(&rest)].concat(), part, "{pair:?}");
        found.extend(part);
    }
    found.sort();
    assert_eq!(found, almanac.expected());
}

#[tokio::test]
async fn a_day_that_is_not_kept_is_refused_with_the_days_that_are() {
    let almanac = Almanac::new(&shared_cluster().await, 1, 0, 1).await;
    let time = almanac.ground.ask_one(Shard(0), &["TIME"]).await;
    let window = almanac.calendar.window(time.as_array().unwrap()[0].as_u64().unwrap() * 1000);
    for far in [window.first.yesterday().unwrap(), window.last.checked_add(Span::new().days(3)).unwrap()] {
        let Error::NotKept { date, first, last } = refusal(&almanac, far, Options::default()).await else {
            panic!("{far} was taken");
        };
        assert_eq!(date, far);
        assert!(first >= window.first && last >= window.last && first < last, "{first} to {last}");
    }
}

#[tokio::test]
async fn a_shard_that_has_not_rolled_is_an_error_or_named() {
    let almanac = Almanac::new(&shared_cluster().await, 4, 60, 3).await;
    let (behind, never) = (Shard(1), Shard(3));
    let yesterday = almanac.date.yesterday().unwrap();
    almanac.rolled(behind, yesterday).await;
    let state = &almanac.ground.hub.shard_keys(never).state;
    almanac.ground.ask_one(never, &["HDEL", state.as_str(), "rolled"]).await;

    let mut day = almanac.reader().day(almanac.date, Options { page: 7, ..Options::default() });
    let mut found = Vec::new();
    let error = loop {
        match day.next_user().await.expect("an answer") {
            Ok(item) => found.push(item),
            Err(error) => break error,
        }
    };
    assert!(found.iter().all(|item| item.shard == Shard(0)) && !found.is_empty());
    let date = almanac.date;
    let text = format!("{date}, shard 1: not complete before the next roll (complete up to {yesterday})");
    assert_eq!((error.to_string(), error.disposition()), (text, Disposition::Retry));
    let Error::NotRolled { shard, rolled, .. } = &error else { panic!("{error}") };
    assert_eq!((*shard, *rolled), (behind, Some(yesterday)));

    // The roll comes, and the walk goes on from where it was.
    almanac.rolled(behind, almanac.date).await;
    let cursor = error.cursor().cloned();
    let mut day = almanac.reader().day(date, Options { cursor, incomplete: true, page: 7, ..Options::default() });
    while let Some(item) = day.next_user().await {
        found.push(item.unwrap());
    }
    assert_eq!(entries(&found), almanac.expected());
    assert_eq!(day.incomplete(), [Incomplete { shard: never, first: None, rolled: None, open: Some(date) }]);
    assert_eq!(*day.cursor(), Cursor::of_shard(date, Shard(4)), "the end of the day");
    let (none, _) = take(&almanac, Options { cursor: Some(day.cursor().clone()), ..Options::default() }, 1).await;
    assert!(none.is_empty());
}

/// As after a failover to a node whose clock is behind.
#[tokio::test]
async fn a_shard_in_which_the_day_is_over_is_an_error_or_named() {
    let almanac = Almanac::new(&shared_cluster().await, 2, 20, 3).await;
    let (over, date, tomorrow) = (Shard(1), almanac.date, almanac.date.tomorrow().unwrap());
    almanac.rolled(over, tomorrow).await;
    let state = &almanac.ground.hub.shard_keys(over).state;
    almanac.ground.ask_one(over, &["HSET", state.as_str(), "first", &date.to_string()]).await;
    assert_eq!(
        entries(&take(&almanac, Options::default(), usize::MAX).await.0),
        almanac.expected(),
        "the first is kept"
    );
    almanac.ground.ask_one(over, &["HSET", state.as_str(), "first", &tomorrow.to_string()]).await;
    let cursor = Some(Cursor::of_shard(date, over));
    let error = refusal(&almanac, date, Options { cursor: cursor.clone(), ..Options::default() }).await;
    assert_eq!(error.to_string(), format!("{date}, shard 1: not complete: days before {tomorrow} are over there"));
    assert_eq!(error.cursor(), cursor.as_ref());
    let mut day = almanac.reader().day(date, Options { incomplete: true, ..Options::default() });
    while let Some(item) = day.next_user().await {
        item.unwrap();
    }
    let named = Incomplete { shard: over, first: Some(tomorrow), rolled: Some(tomorrow), open: Some(tomorrow) };
    assert_eq!(day.incomplete(), [named]);
}

#[tokio::test]
async fn a_key_of_a_foreign_type_costs_its_own_user_alone() {
    let mut almanac = Almanac::new(&shared_cluster().await, 1, 0, 1).await;
    let day = almanac.date.strftime("--%m-%d").to_string();
    for user in ["a", "b", "c"] {
        almanac.put(user, "UTC", &[("f", &day)]).await;
    }
    let key = almanac.ground.hub.shard_keys(Shard(0)).birthdays(&"b".parse().unwrap());
    almanac.ground.ask_one(Shard(0), &["SET", key.as_str(), "foreign"]).await;
    for page in [1, 100] {
        let (found, _) = take(&almanac, Options { page, ..Options::default() }, usize::MAX).await;
        let users: Vec<_> = found.iter().map(|item| item.user.as_str()).collect();
        assert_eq!(users, ["a", "c"], "pages of {page}");
    }
}

#[tokio::test]
async fn a_cursor_of_another_day_or_layout_is_refused() {
    let almanac = Almanac::new(&shared_cluster().await, 2, 0, 1).await;
    let cursor: Cursor = format!("{}:1:5:u:f", almanac.date.yesterday().unwrap()).parse().unwrap();
    let other = refusal(&almanac, almanac.date, Options { cursor: Some(cursor), ..Options::default() }).await;
    assert!(matches!(other, Error::OtherDay { .. }), "{other}");
    let cursor = Cursor::of_shard(almanac.date, Shard(3));
    let other = refusal(&almanac, almanac.date, Options { cursor: Some(cursor), ..Options::default() }).await;
    assert_eq!(other.to_string(), format!("cursor {}:3: shard 3: this layout has shards 0 to 1", almanac.date));
}

#[tokio::test]
async fn an_empty_day_has_an_end() {
    let almanac = Almanac::new(&shared_cluster().await, 4, 0, 1).await;
    let (found, _) = take(&almanac, Options::default(), usize::MAX).await;
    assert!(found.is_empty());
}
