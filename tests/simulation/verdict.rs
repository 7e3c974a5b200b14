//! What must be true at the end of a life, whatever happened in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use heyday::calendar::Window;
use heyday::oracle::{Content, Contents, Oracle};
use heyday::position::{CommitId, EntryId};
use heyday::reduce::Rules;
use heyday::shard::Shard;
use heyday::testing::model::{History, Model};

/// Faults shown of one life.
const SHOWN_MAX: usize = 12;

#[derive(Default)]
pub struct Verdict {
    pub faults: Vec<String>,
    /// Entries settled in the end.
    pub settled: usize,
    /// The longest that an entry waited for its commit.
    pub waited_max: Duration,
    /// The most times that a shard's lease was taken.
    pub takes_max: usize,
    /// How long all living workers had said that they have paused for maintenance, and which commits there were meanwhile.
    pub paused: Duration,
    pub commits_paused: Vec<CommitId>,
}

impl Verdict {
    pub fn shows(&self, words: &str) -> bool {
        self.faults.iter().any(|fault| fault.contains(words))
    }

    /// Looks for commits within these spans of time, Unix milliseconds.
    pub fn look_within(&mut self, model: &Model, windows: &[(u64, u64)]) {
        let length = windows.iter().map(|(begun, ended)| ended.saturating_sub(*begun)).sum();
        self.paused = Duration::from_millis(length);
        for shard in model.layout().shards() {
            let within = |at: u64| windows.iter().any(|(begun, ended)| (*begun..=*ended).contains(&at));
            let commits = model.history(shard).commits.into_iter().filter(|record| within(record.at_milliseconds));
            self.commits_paused.extend(commits.map(|record| record.id));
        }
    }

    fn fault(&mut self, shard: Shard, what: impl fmt::Display) {
        self.faults.push(format!("shard {shard}: {what}"));
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in self.faults.iter().take(SHOWN_MAX) {
            writeln!(f, "  {fault}")?;
        }
        let more = self.faults.len().saturating_sub(SHOWN_MAX);
        if more > 0 { writeln!(f, "  and {more} more") } else { Ok(()) }
    }
}

/// Day keys are looked at for the days of `window`.
/// A rebuild may have been on all the time.
pub fn judge(model: &Model, rules: &Rules, (window, rebuild): (Window, Option<u64>)) -> Verdict {
    let mut verdict = Verdict::default();
    let mut oracle = Oracle::new(rules.clone(), model.keys().clone(), model.layout().clone());
    oracle.rebuilding(rebuild);
    let contents = model.contents();
    for shard in model.layout().shards() {
        let history = model.history(shard);
        let settled = entries(&mut verdict, shard, &history);
        commits(&mut verdict, shard, &history);
        log(&mut verdict, shard, model, &history);
        if let Some(holder) = contents.get(model.keys().shard(model.layout(), shard).lease.as_str()) {
            verdict.fault(shard, format!("the lease is held after all workers stopped: {holder:?}"));
        }
        let trimmed = trimmed(&contents, model, shard);
        for (id, fields) in history.entries.iter().filter(|(id, _)| settled.contains(id)) {
            let fields = (!trimmed.contains(&id.to_string())).then_some(fields);
            oracle.entry(shard, *id, fields);
        }
        for id in repeated(&history) {
            oracle.entry(shard, id, None);
        }
        verdict.settled += settled.len();
        verdict.waited_max = verdict.waited_max.max(waited(&history));
        verdict.takes_max = verdict.takes_max.max(history.takes);
    }
    let differences = oracle.differences(window, &contents);
    verdict.faults.extend(differences.into_iter().map(|difference| format!("differs: {difference}")));
    verdict
}

/// Each accepted entry is settled once, in order. Answers those that are.
fn entries(verdict: &mut Verdict, shard: Shard, history: &History) -> BTreeSet<EntryId> {
    let mut settled = BTreeSet::new();
    let mut last = EntryId::ZERO;
    let rewound: BTreeSet<&EntryId> = history.rewound.iter().collect();
    for record in history.commits.iter().filter(|record| !record.lost) {
        for id in &record.entries {
            if !settled.insert(*id) && !rewound.contains(id) {
                verdict.fault(shard, format!("{id} settled twice, the second time in commit {}", record.id));
            } else if *id < last && !rewound.contains(id) {
                verdict.fault(shard, format!("{id} settled out of order after {last} in commit {}", record.id));
            }
            last = last.max(*id);
        }
    }
    // Trimmed while pending, and then the group with its list of pending entries was lost: nobody can know of it.
    let vanished: BTreeSet<&EntryId> = history.trimmed.iter().collect();
    for (id, _) in history.entries.iter().filter(|(id, _)| !settled.contains(id) && !vanished.contains(id)) {
        verdict.fault(shard, format!("{id} was never settled"));
    }
    settled
}

/// Settled entries that were settled once more, each time.
fn repeated(history: &History) -> Vec<EntryId> {
    let mut seen = BTreeSet::new();
    let kept = history.commits.iter().filter(|record| !record.lost).flat_map(|record| &record.entries);
    kept.filter(|id| !seen.insert(**id)).copied().collect()
}

fn waited(history: &History) -> Duration {
    let waits = history.commits.iter().flat_map(|record| {
        let wait = |id: &EntryId| record.at_milliseconds.saturating_sub(id.milliseconds);
        record.entries.iter().map(wait)
    });
    Duration::from_millis(waits.max().unwrap_or(0))
}

/// Commit ids are never issued twice, and no owner commits that had been fenced.
fn commits(verdict: &mut Verdict, shard: Shard, history: &History) {
    let mut ids: BTreeMap<CommitId, usize> = BTreeMap::new();
    for record in &history.commits {
        *ids.entry(record.id).or_default() += 1;
        if record.is_fenced() {
            let stored = record.generation_stored;
            verdict.fault(shard, format!("commit {} by a fenced owner: generation {stored} was stored", record.id));
        }
    }
    for (id, times) in ids.into_iter().filter(|(_, times)| *times > 1) {
        verdict.fault(shard, format!("commit id {id} was issued {times} times"));
    }
}

/// The log holds every commit that was not lost, each naming the one before it.
fn log(verdict: &mut Verdict, shard: Shard, model: &Model, history: &History) {
    let log = model.log(shard);
    let kept: Vec<CommitId> = history.commits.iter().filter(|record| !record.lost).map(|record| record.id).collect();
    let told: Vec<CommitId> = log.iter().map(|signal| signal.id).collect();
    if kept != told {
        verdict.fault(shard, format!("the log tells {} commits, {} were executed", told.len(), kept.len()));
    }
    let mut previous = CommitId::ZERO;
    for signal in log {
        if signal.previous != previous {
            verdict.fault(shard, format!("log entry {} follows {}, not {previous}", signal.id, signal.previous));
        }
        previous = signal.id;
    }
}

/// Ids of the entries that became dead letters because their bodies were gone.
pub fn trimmed(contents: &Contents, model: &Model, shard: Shard) -> BTreeSet<String> {
    let key = model.keys().shard(model.layout(), shard).dead_letters;
    let Some(Content::Stream(letters)) = contents.get(key.as_str()) else {
        return BTreeSet::new();
    };
    let field = |fields: &heyday::change::Fields, name: &str| {
        let value = fields.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value);
        value.map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    let trimmed = letters.iter().filter(|(_, fields)| field(fields, "kind") == "trimmed");
    trimmed.map(|(_, fields)| field(fields, "entry")).collect()
}
