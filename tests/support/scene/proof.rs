//! The proof at the end of every scene: all keys as the oracle foretells, the log whole, nothing that should not be there.

use std::collections::{BTreeMap, BTreeSet};

use heyday::change::{Change, Fields, Limits};
use heyday::key::{CONSUMER, GROUP};
use heyday::oracle::{Content, Oracle};
use heyday::position::{CommitId, EntryId};
use heyday::shard::Shard;
use heyday::signal::Signal;

use super::super::beyond::Evidence;
use super::load::TRACE;
use super::snapshot::text;
use super::{Scene, Snapshot, Written};

/// Differences that a failed proof shows.
const SHOWN_MAX: usize = 10;
/// Entries of one user that are shown with a difference.
const ENTRIES_SHOWN_MAX: usize = 20;

/// Entries that are no longer in a stream, in order; no fields for those that were lost before they were applied.
pub type Earlier = BTreeMap<Shard, Vec<(EntryId, Option<Fields>)>>;

/// What writers were told and what is not true.
#[derive(Debug, Default)]
pub struct Misled {
    /// Acknowledged and not there.
    pub lost: Vec<(Shard, String)>,
    pub doubled: Vec<String>,
    pub disordered: Vec<String>,
    pub other: Vec<String>,
    /// How many of those that nobody was certain of are there.
    pub unknown_appended: usize,
}

impl Scene {
    /// Everything that can be said of a settled scene must hold. Answers the snapshot it was proven on.
    pub async fn prove(&self) -> Snapshot {
        self.prove_after(&Earlier::new()).await
    }

    /// The same where these entries came before those in the streams.
    pub async fn prove_after(&self, earlier: &Earlier) -> Snapshot {
        let snapshot = Snapshot::take(self).await;
        verdict(&self.judge(&snapshot, earlier).await);
        snapshot
    }

    /// Everything that is wrong with a settled scene.
    pub async fn judge(&self, snapshot: &Snapshot, earlier: &Earlier) -> Vec<String> {
        let mut wrong = self.differences(snapshot, earlier);
        wrong.extend(self.strangers(snapshot));
        wrong.extend(self.lifetimes(snapshot));
        for shard in self.layout.shards() {
            wrong.extend(self.broken_log(snapshot, shard));
        }
        wrong.extend(self.foreign_consumers().await);
        let findings = self.check().await;
        wrong.extend(findings.violations.list.iter().map(|violation| format!("check: {violation}")));
        wrong.extend(findings.undecided.list.iter().map(|undecided| format!("check: {undecided:?}")));
        wrong
    }

    /// What the shards have told each other, in a scene whose streams still hold everything.
    pub fn evidence<'a>(&'a self, snapshot: &'a Snapshot) -> Evidence<'a> {
        let entries = self.layout.shards().map(|shard| {
            let entries = snapshot.entries(self, shard).into_iter();
            (shard, entries.map(|(id, fields)| (id, Some(fields.clone()))).collect())
        });
        let entries: BTreeMap<Shard, Vec<(EntryId, Option<Fields>)>> = entries.collect();
        let accepted = entries.values().flatten().filter_map(|(_, fields)| fields.clone()).collect();
        let (rules, keys, layout, contents) = (&self.rules, &self.keys, &self.layout, &snapshot.contents);
        Evidence { rules, keys, layout, contents, entries, accepted }
    }

    /// What writers were told is true of what is in the streams: `kept` says whether acknowledged appends must all be there,
    /// which no crash of a primary promises.
    pub fn prove_written(&self, snapshot: &Snapshot, written: &Written, kept: bool) {
        verdict(&self.misled(snapshot, written, kept));
    }

    /// Everything that writers were told and that is not true; what was acknowledged and is gone, only where `kept`.
    pub fn misled(&self, snapshot: &Snapshot, written: &Written, kept: bool) -> Vec<String> {
        let Misled { lost, doubled, disordered, other, .. } = self.told(snapshot, written);
        let lost = lost.into_iter().filter(|_| kept).map(|(_, line)| line).collect();
        [lost, doubled, disordered, other].concat()
    }

    /// The same by what is wrong.
    pub fn told(&self, snapshot: &Snapshot, written: &Written) -> Misled {
        let found = self.traces(snapshot);
        let copies = |trace: &String| found.get(trace).map(Vec::as_slice).unwrap_or_default();
        let mut wrong = Misled::default();
        let mut last: BTreeMap<(&str, Shard), EntryId> = BTreeMap::new();
        for (trace, appended, fields) in &written.acknowledged {
            let copies = copies(trace);
            let there = copies.contains(&(appended.shard, appended.id, fields));
            if !there {
                let line = format!("append {trace} was acknowledged as {appended:?}, found {copies:?}");
                wrong.lost.push((appended.shard, line));
            }
            if copies.len() > 1 && !is_repeatable(fields) {
                wrong.doubled.push(format!("append {trace} is in the stream {} times", copies.len()));
            }
            if there && is_change(fields, appended.id) {
                let writer = trace.split('.').next().unwrap_or_default();
                let before = last.insert((writer, appended.shard), appended.id);
                if before.is_some_and(|before| before >= appended.id) {
                    let line = format!("append {trace} came before {before:?}, which was handed over first");
                    wrong.disordered.push(line);
                }
            }
        }
        for (trace, why) in written.refused.iter().filter(|(trace, _)| !copies(trace).is_empty()) {
            wrong.other.push(format!("append {trace} was refused ({why}), found {:?}", copies(trace)));
        }
        for trace in written.unknown.keys() {
            let copies = copies(trace);
            wrong.unknown_appended += usize::from(!copies.is_empty());
            if copies.len() > 1 && !is_repeatable(copies[0].2) {
                wrong.doubled.push(format!("append {trace} is in the stream {} times", copies.len()));
            }
        }
        let reasons = self.reasons(snapshot);
        for (trace, expected) in written.malformed.iter().filter(|(trace, _)| !copies(trace).is_empty()) {
            let reasons = reasons.get(trace).map(Vec::as_slice).unwrap_or_default();
            if reasons.is_empty() || reasons.iter().any(|reason| reason != expected) {
                wrong.other.push(format!("append {trace} is no change ({expected}), its dead letters say {reasons:?}"));
            }
        }
        wrong
    }

    /// The reasons of all dead letters, by trace.
    pub fn reasons(&self, snapshot: &Snapshot) -> BTreeMap<String, Vec<String>> {
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for shard in self.layout.shards() {
            for (_, fields) in snapshot.stream(self.shard_keys(shard).dead_letters.as_str()) {
                let value = |wanted: &str| {
                    let found = fields.iter().find(|(name, _)| name == wanted);
                    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
                };
                reasons.entry(value(&format!("f.{TRACE}"))).or_default().push(value("reason"));
            }
        }
        reasons
    }

    /// What is in the streams, by trace.
    fn traces<'a>(&self, snapshot: &'a Snapshot) -> BTreeMap<String, Vec<(Shard, EntryId, &'a Fields)>> {
        let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for shard in self.layout.shards() {
            for (id, fields) in snapshot.entries(self, shard) {
                let trace = fields.iter().find(|(name, _)| name == TRACE);
                let trace = trace.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
                found.entry(trace.unwrap_or_default()).or_default().push((shard, id, fields));
            }
        }
        found
    }

    /// What the oracle expects otherwise, with the entries of the users concerned.
    fn differences(&self, snapshot: &Snapshot, earlier: &Earlier) -> Vec<String> {
        let mut oracle = Oracle::new(self.rules.clone(), self.keys.clone(), self.layout.clone());
        for shard in self.layout.shards() {
            for (id, fields) in earlier.get(&shard).into_iter().flatten() {
                oracle.entry(shard, *id, fields.as_ref());
            }
            for (id, fields) in snapshot.entries(self, shard) {
                oracle.rebuilding(self.rebuild.filter(|at| id.milliseconds > *at));
                oracle.entry(shard, id, Some(fields));
            }
        }
        let differences = oracle.differences(self.window(), &snapshot.contents);
        let count = differences.len();
        let mut told: Vec<String> = differences.into_iter().take(SHOWN_MAX).collect();
        for line in &mut told {
            let user = line.split_once("}:").and_then(|(_, rest)| rest.split(':').next()).map(str::to_owned);
            if let Some(user) = user.filter(|_| line.contains("user:{")) {
                line.push_str(&self.history(snapshot, &user));
            }
        }
        if count > told.len() {
            told.push(format!("and {} more differences", count - told.len()));
        }
        told
    }

    /// The entries that name a user, in order.
    fn history(&self, snapshot: &Snapshot, user: &str) -> String {
        let Ok(id) = user.parse() else { return String::new() };
        let entries = snapshot.entries(self, self.layout.shard_of(&id));
        let named = |fields: &Fields| fields.iter().any(|(name, value)| name == "user" && value == user);
        let lines = entries.iter().filter(|(_, fields)| named(fields)).map(|(id, fields)| {
            let fields = fields.iter().map(|(name, value)| {
                format!("{}={:.40}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
            });
            format!("\n      {id} {}", fields.collect::<Vec<_>>().join(" "))
        });
        let lines: Vec<String> = lines.collect();
        lines[lines.len().saturating_sub(ENTRIES_SHOWN_MAX)..].concat()
    }

    /// Keys that no row of the registry names, and keys whose type is not their row's.
    fn strangers(&self, snapshot: &Snapshot) -> Vec<String> {
        let stranger = |(name, content): (&String, &Content)| match self.keys.row_of(name) {
            None => Some(format!("{name}: no row of the registry names it")),
            // No key is a CHANNEL.
            Some(row) if row.kind != kind(content) => {
                Some(format!("{name}: is a {}, its row of the registry says {}", kind(content), row.kind))
            }
            Some(_) => None,
        };
        snapshot.contents.iter().filter_map(stranger).collect()
    }

    /// Keys that live for ever and should not, or the other way round.
    fn lifetimes(&self, snapshot: &Snapshot) -> Vec<String> {
        let wrong = |name: &String| {
            let expires = snapshot.expires.get(name).copied();
            let pattern = self.keys.row_of(name)?.pattern;
            let good = match pattern {
                "birthdays:{t}:YYYY-MM-DD" => {
                    let date = name.rsplit(':').next()?.parse().expect("a date, as its row says");
                    let foretold = self.rules.calendar.expires_at(date) * 1000;
                    // A node whose clock was wrong gave a key that it took over another end.
                    let earliest = foretold - self.clock_drift_max.as_millis() as i64;
                    let latest = foretold + (self.expiry_drift_max + self.clock_drift_max).as_millis() as i64;
                    expires.is_some_and(|expires| (earliest..=latest).contains(&expires))
                }
                "dedup:{t}:EVENTID" | "lease:{t}" | "lock:maintenance" | "user:{t}:ID:activity" => expires.is_some(),
                // With the user: a user whose views are gone leaves tombstones for a while.
                "user:{t}:ID:versions" => true,
                _ => expires.is_none(),
            };
            (!good).then(|| format!("{name}: expires at {expires:?}"))
        };
        snapshot.contents.keys().filter_map(wrong).collect()
    }

    /// Each commit names its predecessor, and generations only rise.
    fn broken_log(&self, snapshot: &Snapshot, shard: Shard) -> Vec<String> {
        let keys = self.shard_keys(shard);
        let log = match read_log(snapshot, keys.log.as_str()) {
            Ok(log) => log,
            Err(error) => return vec![error],
        };
        let mut wrong = Vec::new();
        let trimmed = log.len() as u64 >= self.rules.log_length_max;
        let mut before = log.first().filter(|_| trimmed).map_or(CommitId::ZERO, |first| first.previous);
        for signal in &log {
            if signal.previous != before || signal.id <= before {
                wrong.push(format!("{}: {} follows {before}, but names {}", keys.log, signal.id, signal.previous));
            }
            before = signal.id;
        }
        let last = snapshot.hash(keys.state.as_str()).get("last").cloned().unwrap_or_else(|| "0-0".to_owned());
        if last != before.to_string() && !(log.is_empty() && last == "0-0") {
            wrong.push(format!("{}: ends with {before}, but the state says {last}", keys.log));
        }
        if !trimmed {
            let told: BTreeSet<String> =
                log.iter().flat_map(|signal| &signal.users).map(|(user, _)| user.to_string()).collect();
            let listed = snapshot.contents.get(keys.users.as_str());
            if let Some(Content::Sorted(users)) = listed {
                let untold = users.keys().filter(|user| !told.contains(*user));
                wrong.extend(untold.map(|user| format!("{}: user {user} has views that no commit told of", keys.log)));
            }
        }
        wrong
    }

    /// One group with one consumer on every stream.
    async fn foreign_consumers(&self) -> Vec<String> {
        let asked = self.ask_shards(|keys, pipeline| {
            pipeline.push(&["XINFO", "GROUPS", keys.changes.as_str()]);
            pipeline.push(&["XINFO", "CONSUMERS", keys.changes.as_str(), GROUP]);
        });
        let mut wrong = Vec::new();
        for (shard, replies) in asked.await.expect("a cluster that answers") {
            // No stream, no group.
            let Ok(groups) = replies[0].as_array() else { continue };
            let names = |replies: &[heyday::redis::Reply]| -> Vec<String> {
                replies.iter().map(|item| text(&item.as_array().expect("a row")[1])).collect()
            };
            let groups = names(groups);
            let consumers = names(replies[1].as_array().unwrap_or_default());
            if groups != [GROUP] || !(consumers.is_empty() || consumers == [CONSUMER]) {
                wrong.push(format!("shard {shard}: groups {groups:?}, consumers {consumers:?}"));
            }
        }
        wrong
    }
}

/// The type as the registry names it.
fn kind(content: &Content) -> &'static str {
    match content {
        Content::Text(_) => "STRING",
        Content::Hash(_) => "HASH",
        Content::Sorted(_) => "ZSET",
        Content::Stream(_) => "STREAM",
    }
}

/// Only what carries a producer's sequence may be sent again.
fn is_repeatable(fields: &Fields) -> bool {
    fields.iter().any(|(name, _)| name == "producer")
}

/// Whether the writer took it; what is no change went another way, in no order with the others.
fn is_change(fields: &Fields, id: EntryId) -> bool {
    Change::decode(fields, &Limits::default(), id.milliseconds).is_ok()
}

/// The commits of a shard's log.
pub fn read_log(snapshot: &Snapshot, name: &str) -> Result<Vec<Signal>, String> {
    let decode = |(id, fields): &(String, Fields)| {
        let (_, payload) =
            fields.iter().find(|(name, _)| name == "s").ok_or_else(|| format!("{name} {id}: no signal"))?;
        let signal = Signal::decode(payload).map_err(|error| format!("{name} {id}: {error}"))?;
        if signal.id.to_string() != *id {
            return Err(format!("{name} {id}: tells of commit {}", signal.id));
        }
        Ok(signal)
    };
    snapshot.stream(name).iter().map(decode).collect()
}

/// Ends the test where something is wrong.
pub(super) fn verdict(wrong: &[String]) {
    let shown = &wrong[..wrong.len().min(2 * SHOWN_MAX)];
    assert!(wrong.is_empty(), "{} things are wrong:\n  {}", wrong.len(), shown.join("\n  "));
}
