//! Stories of single batches: what was loaded, what came, which commands follow.

use bytes::Bytes;

use super::*;
use crate::key::{Keys, ShardKeys};
use crate::shard::{Layout, Shard};

mod across;
mod activity;
mod profile;
mod snapshot;
mod zones;

/// 2026-11-29T19:00:00Z
const NOW: u64 = 1_795_978_800_000;

/// A shard with what a test put into it. All users live in the one shard of a layout of one.
struct Story {
    rules: Rules,
    keys: ShardKeys,
    state: ShardState,
    jobs: Jobs,
    stored: Vec<(&'static str, &'static str, &'static str)>,
    extent: (u64, bool),
    sample: Vec<(String, String)>,
    /// How many entries are pending; the first of them is the first of every batch.
    pending: u64,
    events: Vec<&'static str>,
    producers: Vec<(&'static str, &'static str)>,
}

fn story() -> Story {
    let keys = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0));
    let state = ShardState { generation: 7, last: CommitId::new(6, 3), ..ShardState::default() };
    Story {
        rules: Rules::default(),
        keys,
        state,
        jobs: Jobs::default(),
        stored: vec![],
        extent: (0, false),
        sample: vec![],
        pending: 1,
        events: vec![],
        producers: vec![],
    }
}

impl Story {
    /// A stored hash field: part of the user's keys, field, value.
    fn with(mut self, part: &'static str, field: &'static str, value: &'static str) -> Story {
        self.stored.push((part, field, value));
        self
    }

    fn batch(&self, entries: &[&str]) -> Vec<Decoded> {
        let entry = |(at, text): (usize, &&str)| Entry {
            id: EntryId::new(NOW, at as u64 + 1),
            fields: Some(
                text.split_whitespace()
                    .map(|pair| pair.split_once('=').unwrap())
                    // Lists are written with commas here.
                    .map(|(name, value)| (Bytes::from(name.to_owned()), Bytes::from(value.replace(',', " "))))
                    .collect(),
            ),
            deliveries: 1,
        };
        entries.iter().enumerate().map(entry).map(|entry| Decoded::new(entry, &self.rules.limits)).collect()
    }

    fn get(&self, part: &str, field: &str) -> Option<String> {
        let found = self.stored.iter().find(|(p, f, _)| *p == part && *f == field);
        found.map(|(_, _, value)| (*value).to_owned())
    }

    fn part(&self, part: &str) -> impl Iterator<Item = (String, String)> {
        let part = part.to_owned();
        let found = self.stored.iter().filter(move |(p, ..)| *p == part);
        found.map(|(_, field, value)| ((*field).to_owned(), (*value).to_owned()))
    }

    fn lightest(&self, count: usize) -> Vec<(String, u64)> {
        let mut members: Vec<_> = self.part("top").map(|(name, sum)| (sum.parse::<u64>().unwrap(), name)).collect();
        members.sort();
        members.into_iter().take(count).map(|(sum, name)| (name, sum)).collect()
    }

    fn load(&self, plan: &Plan) -> Loaded {
        let all = || UserLoaded {
            everyone: self.part("birthdays").collect(),
            all_versions: self.part("versions").collect(),
            ..UserLoaded::default()
        };
        let user = |user: &UserPlan| UserLoaded {
            sample: if user.sample { self.sample.clone() } else { vec![] },
            days: self.part("activity").filter(|_| user.activity).collect(),
            weights: user.categories.iter().map(|name| self.get("top", name)?.parse().ok()).collect(),
            top_length: if user.categories.is_empty() { 0 } else { self.part("top").count() as u64 },
            lightest: self.lightest(user.lightest()),
            ..if user.all { all().with_profile(self.part("profile")) } else { self.load_named(user) }
        };
        Loaded {
            milliseconds: NOW,
            pending: self.pending,
            pending_first: (self.pending > 0).then_some(EntryId::new(NOW, 1)),
            rebuild: self.state.rebuild,
            users: plan.users.iter().map(user).collect(),
            events: plan.events.iter().map(|event| self.events.contains(&event.as_str())).collect(),
            producers: plan
                .producers
                .iter()
                .map(|name| self.producers.iter().find(|(known, _)| known == name).map(|(_, v)| (*v).to_owned()))
                .collect(),
            producers_sample: self.producers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            ..Loaded::default()
        }
    }

    fn load_named(&self, user: &UserPlan) -> UserLoaded {
        UserLoaded {
            friends: user.friends.iter().map(|friend| self.get("birthdays", friend.as_str())).collect(),
            versions: user.versions.iter().map(|field| self.get("versions", field)).collect(),
            profile: match user.whole {
                true => self.part("profile").collect(),
                false => user.profile_fields().filter_map(|n| Some((n.to_owned(), self.get("profile", n)?))).collect(),
            },
            profile_length: if user.fields.is_empty() && !user.whole { 0 } else { self.part("profile").count() as u64 },
            birthday: self.get("profile", "birthday").filter(|_| user.birthday),
            zone: self.get("profile", "tz").filter(|_| user.zone),
            everyone: self.part("birthdays").filter(|_| user.everyone).collect(),
            extent: user.extent.then_some(self.extent),
            ..UserLoaded::default()
        }
    }

    fn commit(&self, entries: &[&str]) -> Commit {
        let batch = self.batch(entries);
        let plan = Plan::of(&batch, &self.state, &self.jobs, (&self.rules, NOW));
        let (plan, loaded) = match plan.widened(&self.load(&plan)) {
            Some(plan) => (plan.clone(), self.load(&plan)),
            None => (plan.clone(), self.load(&plan)),
        };
        reduce(&self.rules, &self.keys, &self.state, &batch, (&plan, &loaded))
    }

    fn check(&self, entries: &[&str], outcomes: &[Outcome], commands: &[&str]) {
        let commit = self.commit(entries);
        assert_eq!(commit.outcomes, outcomes, "{entries:?}");
        let found: Vec<String> = commit.ops.iter().map(text).collect();
        assert_eq!(found, commands, "{entries:?}");
    }
}

/// A command as one line, without the tag.
fn text(op: &Op) -> String {
    let pairs =
        |fields: &[(String, String)]| fields.iter().map(|(f, v)| format!("{f}={v}")).collect::<Vec<_>>().join(" ");
    let line = match op {
        Op::HashSet { key, fields } => format!("HSET {key} {}", pairs(fields)),
        Op::HashDelete { key, fields } => format!("HDEL {key} {}", fields.join(" ")),
        Op::SortedAdd { key, members } => {
            let members: Vec<_> = members.iter().map(|(score, member)| format!("{score}={member}")).collect();
            format!("ZADD {key} {}", members.join(" "))
        }
        Op::SortedRemove { key, members } => format!("ZREM {key} {}", members.join(" ")),
        Op::ExpireAt { key, at_seconds } => format!("EXPIREAT {key} {at_seconds}"),
        Op::ExpireAfter { key, after } => format!("PEXPIRE {key} {}", after.as_millis()),
        Op::Persist { key } => format!("PERSIST {key}"),
        Op::Remember { key, ttl } => format!("SET {key} PX {}", ttl.as_millis()),
        Op::Rename { key, to } => format!("RENAME {key} {to}"),
        Op::Delete { keys } => {
            format!("UNLINK {}", keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        }
        Op::StreamDelete { key, ids } => {
            format!("XDEL {key} {}", ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        }
        Op::Append { key, fields, .. } | Op::Enqueue { key, fields, .. } => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
                .collect();
            format!("XADD {key} {}", fields.join(" "))
        }
    };
    let tag = Layout::new(1).unwrap().tag(Shard(0)).to_owned();
    line.replace(&format!("{{{tag}}}"), "{t}")
}

use Outcome::*;

#[test]
fn a_first_friend_makes_a_view() {
    story().check(
        &["type=add user=42 friend=77 birthday=1990-05-01"],
        &[Applied],
        &["HSET user:{t}:42:birthdays 77=1990-05-01", "ZADD users:{t} 0=42"],
    );
}

#[test]
fn changes_of_one_user_become_one_write() {
    story().with("birthdays", "1", "").check(
        &[
            "type=add user=42 friend=77 birthday=1990-05-01",
            "type=update user=42 friend=77 birthday=1990-05-02",
            "type=update user=42 friend=1 birthday=--02-29",
            "type=remove user=42 friend=77",
            "type=update user=42 friend=77 birthday=1990-05-03",
            "type=add user=42 friend=77",
        ],
        &[Applied, Applied, Applied, Applied, NoSuchFriend, Applied],
        &["HSET user:{t}:42:birthdays 77= 1=--02-29"],
    );
}

#[test]
fn what_the_view_says_already_is_not_written_again() {
    let told = story().with("birthdays", "77", "1990-05-01");
    told.check(&["type=add user=42 friend=77 birthday=1990-05-01"], &[Unchanged], &[]);
    told.check(&["type=add user=42 friend=77"], &[Unchanged], &[]);
    told.check(
        &["type=update user=42 friend=77 birthday=1990-05-02", "type=update user=42 friend=77 birthday=1990-05-01"],
        &[Applied, Applied],
        &[],
    );
    assert!(told.commit(&["type=add user=42 friend=77"]).signal.users.is_empty());
}

#[test]
fn day_keys_follow_the_dates_within_the_window() {
    let due = 1_796_029_200; // 2026-11-30 09:00 UTC
    story().with("birthdays", "77", "1990-12-01").check(
        &["type=update user=42 friend=77 birthday=1990-11-30"],
        &[Applied],
        &[
            "HSET user:{t}:42:birthdays 77=1990-11-30",
            &format!("ZADD birthdays:{{t}}:2026-11-30 {due}=42:77"),
            "EXPIREAT birthdays:{t}:2026-11-30 1796216400",
            "ZREM birthdays:{t}:2026-12-01 42:77",
        ],
    );
    story().with("birthdays", "77", "1990-12-09").check(
        &["type=update user=42 friend=77 birthday=1990-06-30"],
        &[Applied],
        &["HSET user:{t}:42:birthdays 77=1990-06-30"],
    );
}

#[test]
fn the_last_friend_gone_takes_the_user_off_the_list() {
    let mut last = story().with("birthdays", "77", "");
    last.extent = (1, false);
    last.check(
        &["type=remove user=42 friend=77"],
        &[Applied],
        &["HDEL user:{t}:42:birthdays 77", "PEXPIRE user:{t}:42:versions 2592000000", "ZREM users:{t} 42"],
    );
    last.extent = (1, true);
    last.check(&["type=remove user=42 friend=77"], &[Applied], &["HDEL user:{t}:42:birthdays 77"]);
    last.extent = (2, false);
    last.check(&["type=remove user=42 friend=77"], &[Applied], &["HDEL user:{t}:42:birthdays 77"]);
}

#[test]
fn only_newer_versions_win() {
    let mut versioned = story().with("birthdays", "77", "").with("versions", "77", "5");
    versioned.extent = (1, false);
    versioned.check(&["type=add user=42 friend=77 birthday=--01-01 version=5"], &[Outdated], &[]);
    versioned.check(
        &["type=add user=42 friend=77 birthday=--01-01 version=6", "type=remove user=42 friend=77 version=4"],
        &[Applied, Outdated],
        &["HSET user:{t}:42:birthdays 77=--01-01", "HSET user:{t}:42:versions 77=6", "PERSIST user:{t}:42:versions"],
    );
}

#[test]
fn a_removal_leaves_a_tombstone_that_an_older_add_cannot_pass() {
    let tombstone = format!("77=9:{NOW}");
    story().check(
        &["type=remove user=42 friend=77 version=9", "type=add user=42 friend=77 version=8"],
        &[Unchanged, Outdated],
        &[&format!("HSET user:{{t}}:42:versions {tombstone}"), "PEXPIRE user:{t}:42:versions 2592000000"],
    );
    // The next friend makes the view live again: its versions stay.
    story().with("versions", "77", "9:1").check(
        &["type=add user=42 friend=77 version=10"],
        &[Applied],
        &[
            "HSET user:{t}:42:birthdays 77=",
            "HSET user:{t}:42:versions 77=10",
            "PERSIST user:{t}:42:versions",
            "ZADD users:{t} 0=42",
        ],
    );
    // Also where an add without a version came first, which left them to expire.
    let mut filled = story().with("versions", "77", "9:1");
    filled.extent = (1, false);
    filled.check(
        &["type=add user=42 friend=77 version=10"],
        &[Applied],
        &[
            "HSET user:{t}:42:birthdays 77=",
            "HSET user:{t}:42:versions 77=10",
            "PERSIST user:{t}:42:versions",
            "ZADD users:{t} 0=42",
        ],
    );
}

#[test]
fn old_tombstones_are_pruned_when_one_is_added() {
    let mut pruning = story().with("birthdays", "1", "");
    pruning.extent = (2, false);
    pruning.sample =
        vec![("old".into(), "3:1000".into()), ("new".into(), format!("3:{NOW}")), ("live".into(), "3".into())];
    pruning.check(
        &["type=remove user=42 friend=77 version=9"],
        &[Unchanged],
        &[
            "HDEL user:{t}:42:versions old",
            &format!("HSET user:{{t}}:42:versions 77=9:{NOW}"),
            "PERSIST user:{t}:42:versions",
        ],
    );
}

#[test]
fn an_update_of_no_friend_leaves_no_version_behind() {
    story().check(&["type=update user=42 friend=77 birthday=--01-01 version=9"], &[NoSuchFriend], &[]);
}

#[test]
fn a_repeated_event_id_is_dropped() {
    let mut seen = story();
    seen.events = vec!["e1"];
    seen.check(
        &["type=add user=42 friend=1 id=e1", "type=add user=42 friend=2 id=e2", "type=add user=42 friend=3 id=e2"],
        &[Duplicate, Applied, Duplicate],
        &["HSET user:{t}:42:birthdays 2=", "ZADD users:{t} 0=42", "SET dedup:{t}:e2 PX 86400000"],
    );
}

#[test]
fn a_repeated_sequence_is_dropped() {
    let mut seen = story();
    seen.producers = vec![("p", "5:1795978800000")];
    seen.check(
        &["type=add user=42 friend=1 producer=p seq=5", "type=add user=42 friend=2 producer=p seq=6"],
        &[Duplicate, Applied],
        &["HSET user:{t}:42:birthdays 2=", "ZADD users:{t} 0=42", &format!("HSET producers:{{t}} p=6:{NOW}")],
    );
}

#[test]
fn a_new_producer_pushes_out_those_long_silent() {
    let mut seen = story();
    seen.producers = vec![("silent", "5:1000"), ("awake", "5:1795978800000")];
    seen.check(
        &["type=add user=42 friend=1 producer=new seq=0"],
        &[Applied],
        &[
            "HSET user:{t}:42:birthdays 1=",
            "ZADD users:{t} 0=42",
            "HDEL producers:{t} silent",
            &format!("HSET producers:{{t}} new=0:{NOW}"),
        ],
    );
}

#[test]
fn a_malformed_entry_is_buried_and_the_rest_goes_on() {
    story().check(
        &["type=add user=42 friend=42", "type=add user=42 friend=77"],
        &[Dead, Applied],
        &[
            &format!(
                "XADD dlq:{{t}} reason=friend \"42\": the same as user kind=same_as_user entry={NOW}-1 \
                 f.type=add f.user=42 f.friend=42"
            ),
            "HSET user:{t}:42:birthdays 77=",
            "ZADD users:{t} 0=42",
        ],
    );
}

#[test]
fn a_change_in_the_stream_of_another_shard_is_buried_and_says_where_it_belongs() {
    let layout = Layout::new(4).unwrap();
    let story = story();
    let entry = || story.batch(&["type=add user=foo friend=77"]).remove(0);
    assert!(entry().at(&layout, Shard(2)).change.is_ok());
    let reason = entry().at(&layout, Shard(1)).change.unwrap_err().to_string();
    assert_eq!(reason, "user \"foo\": belongs to shard 2, not to shard 1, in whose stream it was found");
}

#[test]
fn a_trimmed_entry_is_buried_by_its_id() {
    let trimmed = Decoded::new(Entry { id: EntryId::new(NOW, 1), fields: None, deliveries: 2 }, &Limits::default());
    let story = story();
    let batch = [trimmed];
    let plan = Plan::of(&batch, &story.state, &story.jobs, (&story.rules, NOW));
    let commit = reduce(&story.rules, &story.keys, &story.state, &batch, (&plan, &story.load(&plan)));
    let expected = format!(
        "XADD dlq:{{t}} reason=entry: trimmed from the stream before it was applied kind=trimmed entry={NOW}-1"
    );
    assert_eq!(commit.ops.iter().map(text).collect::<Vec<_>>(), [expected]);
}

#[test]
fn entries_settled_before_are_only_acknowledged() {
    let mut again = story();
    again.state.applied = EntryId::new(NOW, 1);
    again.check(
        &["type=add user=42 friend=1", "type=add user=42 friend=2"],
        &[Duplicate, Applied],
        &["HSET user:{t}:42:birthdays 2=", "ZADD users:{t} 0=42"],
    );
    assert_eq!(again.commit(&["type=add user=42 friend=1"]).acks, [EntryId::new(NOW, 1)]);
    assert_eq!(again.commit(&["type=add user=42 friend=1"]).state.applied, EntryId::new(NOW, 1));
}

#[test]
fn what_may_be_pending_is_acknowledged() {
    let entries = ["type=add user=42 friend=1", "type=add user=42 friend=2"];
    let all = [EntryId::new(NOW, 1), EntryId::new(NOW, 2)];
    for (pending, acks) in [(0, &all[..0]), (1, &all[..1]), (2, &all[..])] {
        let commit = Story { pending, ..story() }.commit(&entries);
        assert_eq!((&commit.settled[..], &commit.acks[..]), (&all[..], acks), "{pending} pending");
    }
}

#[test]
fn commits_chain_across_generations() {
    let story = story();
    let first = story.commit(&["type=add user=42 friend=1"]);
    assert_eq!((first.signal.previous, first.signal.id), (CommitId::new(6, 3), CommitId::new(7, 1)));
    let next = Story { state: first.state, ..story };
    let second = next.commit(&["type=remove user=42 friend=9", "type=add user=1 friend=1"]);
    assert_eq!((second.signal.previous, second.signal.id), (CommitId::new(7, 1), CommitId::new(7, 2)));
    // The first entry of the second batch was settled by the first commit, and so counts no more.
    assert_eq!(second.state.counts, Counts { entries: 2, dead: 1, skipped: 0 });
}
