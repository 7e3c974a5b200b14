//! The end of the demo: every view and day key compared with the oracle, every log entry with what the subscriber heard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::audience::Audience;
use super::say;
use super::screen::grouped;
use crate::calendar::Window;
use crate::client::Hub;
use crate::error::Disposition;
use crate::oracle::{Content, Contents, Oracle, found};
use crate::shard::Shard;
use crate::signal::Signal;

/// Polling heals lost signals within its interval; this is well above it.
const HEARD_WAIT: Duration = Duration::from_secs(10);
/// How long nodes may take to agree on who owns what after a failover.
const AGREE_WAIT: Duration = Duration::from_secs(10);
/// Differences shown one by one.
const EXAMPLES_MAX: usize = 10;

/// What the comparison found.
#[derive(Debug, Default)]
pub struct Verdict {
    pub lost: u64,
    pub doubled: u64,
    pub out_of_order: u64,
    pub signals_missed: u64,
    resets: u64,
    keys: usize,
    commits: usize,
    examples: Vec<String>,
}

/// The days that had a key all the time: a midnight in the middle of the run opens and closes one.
pub fn common(before: Window, after: Window) -> Window {
    Window { first: before.first.max(after.first), last: before.last.min(after.last) }
}

/// What the cluster holds, once its nodes agree on who owns what: a failover may have ended only just now.
async fn stored(hub: &Hub) -> anyhow::Result<Contents> {
    let begun = Instant::now();
    loop {
        match found(hub.topology(), hub.keys()).await {
            Err(error) if error.disposition() == Disposition::Refresh && begun.elapsed() < AGREE_WAIT => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                hub.topology().refresh().await?;
            }
            stored => return Ok(stored?),
        }
    }
}

/// Compares what is stored and what was heard with what was written. The cluster must be at rest.
pub async fn prove(hub: &Hub, oracle: &Oracle, window: Window, audience: Audience) -> anyhow::Result<Verdict> {
    let stored = stored(hub).await?;
    let mut verdict = Verdict::default();
    verdict.counts(hub, oracle, &stored);
    verdict.views(hub, oracle, window, &stored);
    let logs = logs(hub, &stored)?;
    verdict.commits = logs.values().map(Vec::len).sum();
    let missed = || logs.iter().map(|(shard, log)| audience.missed(*shard, log)).sum();
    let heard = async {
        while missed() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // What is still missing afterwards is counted.
    let _ = tokio::time::timeout(HEARD_WAIT, heard).await;
    verdict.signals_missed = missed();
    verdict.resets = audience.resets();
    Ok(verdict)
}

fn logs(hub: &Hub, stored: &Contents) -> anyhow::Result<BTreeMap<Shard, Vec<Signal>>> {
    let mut logs = BTreeMap::new();
    for shard in hub.layout().shards() {
        let Some(Content::Stream(entries)) = stored.get(hub.shard_keys(shard).log.as_str()) else { continue };
        let payloads = entries.iter().filter_map(|(_, fields)| fields.first());
        let signals = payloads.map(|(_, payload)| Signal::decode(payload)).collect::<Result<Vec<_>, _>>()?;
        logs.insert(shard, signals);
    }
    Ok(logs)
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.out_of_order + self.signals_missed == 0
    }

    pub fn print(&self) -> std::io::Result<()> {
        self.examples.iter().take(EXAMPLES_MAX).for_each(|example| eprintln!("  {example}"));
        say(&format!(
            "compared {} keys with what was written, and {} commits with what was heard ({} resets)",
            grouped(self.keys as u64),
            grouped(self.commits as u64),
            self.resets
        ))?;
        say(&format!(
            "lost {}, doubled {}, out of order {}, signals missed {}",
            self.lost, self.doubled, self.out_of_order, self.signals_missed
        ))
    }

    /// Changes that had an effect, by shard. An append that was repeated because its answer was lost has none.
    fn counts(&mut self, hub: &Hub, oracle: &Oracle, stored: &Contents) {
        for shard in hub.layout().shards() {
            let told = oracle.counts(shard);
            let expected = told.entries - told.skipped - told.dead;
            let key = hub.shard_keys(shard).state.as_str();
            let number = |field: &str| match stored.get(key) {
                Some(Content::Hash(fields)) => fields.get(field).and_then(|text| text.parse().ok()).unwrap_or(0),
                _ => 0u64,
            };
            let effective = number("entries") - number("skipped") - number("dead");
            self.note(expected, effective, || format!("{key}: {effective} changes had an effect, expected {expected}"));
        }
    }

    fn views(&mut self, hub: &Hub, oracle: &Oracle, window: Window, stored: &Contents) {
        let expected = oracle.contents(window);
        let none = Content::Hash(BTreeMap::new());
        let names: BTreeSet<&String> = expected.keys().chain(stored.keys()).collect();
        for name in names.into_iter().filter(|name| is_view(hub, name, window)) {
            self.keys += 1;
            let expected = flat(expected.get(name).unwrap_or(&none));
            let found = flat(stored.get(name).unwrap_or(&none));
            for field in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
                self.field(name, field, expected.get(field), found.get(field));
            }
        }
    }

    fn field(&mut self, name: &str, field: &str, expected: Option<&String>, found: Option<&String>) {
        if expected == found {
            return;
        }
        let example = || format!("{name} {field}: {found:?}, expected {expected:?}");
        match (expected.map(|text| text.parse()), found.map(|text| text.parse())) {
            // The number of changes applied to a profile.
            (Some(Ok(expected)), Some(Ok(found))) if field == "version" => self.note(expected, found, example),
            (Some(_), None) => self.note(1, 0, example),
            _ => {
                self.out_of_order += 1;
                self.examples.push(example());
            }
        }
    }

    fn note(&mut self, expected: u64, found: u64, example: impl Fn() -> String) {
        self.lost += expected.saturating_sub(found);
        self.doubled += found.saturating_sub(expected);
        if expected != found {
            self.examples.push(example());
        }
    }
}

/// Whether a key is of the public ones that changes make: views, their index and the day keys of the window. A key that nobody
/// knows counts too, so that it shows.
fn is_view(hub: &Hub, name: &str, window: Window) -> bool {
    let Some(row) = hub.keys().row_of(name) else { return true };
    if !row.public || !["HASH", "ZSET"].contains(&row.kind) || name == hub.keys().layout().as_str() {
        return false;
    }
    if !row.pattern.ends_with("YYYY-MM-DD") {
        return true;
    }
    let date = name.rsplit(':').next().and_then(|date| date.parse().ok());
    date.is_some_and(|date| window.holds(date))
}

fn flat(content: &Content) -> BTreeMap<String, String> {
    match content {
        Content::Hash(fields) => fields.clone(),
        Content::Sorted(members) => members.iter().map(|(member, score)| (member.clone(), score.to_string())).collect(),
        Content::Text(text) => [("value".to_owned(), text.clone())].into(),
        Content::Stream(entries) => entries.iter().map(|(id, _)| (id.clone(), String::new())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(field: &str, expected: Option<&str>, found: Option<&str>) -> (u64, u64, u64) {
        let mut verdict = Verdict::default();
        verdict.field("key", field, expected.map(str::to_owned).as_ref(), found.map(str::to_owned).as_ref());
        assert_eq!(verdict.is_clean(), verdict.examples.is_empty());
        (verdict.lost, verdict.doubled, verdict.out_of_order)
    }

    #[test]
    fn each_difference_counts_as_what_it_is() {
        assert_eq!(verdict("friend-1", Some("1990-05-01"), Some("1990-05-01")), (0, 0, 0));
        assert_eq!(verdict("friend-1", Some("1990-05-01"), None), (1, 0, 0), "a friendship is missing");
        assert_eq!(verdict("friend-1", None, Some("1990-05-01")), (0, 0, 1), "a removal was overtaken");
        assert_eq!(verdict("friend-1", Some("1990-05-01"), Some("1990-05-02")), (0, 0, 1), "an older date won");
        assert_eq!(verdict("version", Some("7"), Some("5")), (2, 0, 0));
        assert_eq!(verdict("version", Some("7"), Some("8")), (0, 1, 0));
    }

    #[test]
    fn only_days_that_had_a_key_all_the_time_are_compared() {
        let calendar = crate::calendar::Calendar::default();
        // 2026-11-29T12:00:00Z: in between a day began where it is latest, and one where it is earliest.
        const NOON: u64 = 1_795_953_600_000;
        let window = common(calendar.window(NOON - 3 * 3_600_000), calendar.window(NOON));
        assert_eq!(window.first.to_string(), "2026-11-28");
        assert_eq!(window.last.to_string(), "2026-12-07");
    }
}
