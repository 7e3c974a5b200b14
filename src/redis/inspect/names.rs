//! Every key of every primary by its name: the registry knows it, it is of its type, lives as long as it should, and lies
//! where its name says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::confirm::Suspect;
use super::walks::{Walk, Walked};
use super::{Check, Ground};
use crate::change::UserId;
use crate::error::ServerCode;
use crate::invariant::{Kind, Progress, Violation, judge_kind, life, shown};
use crate::key::{Found, slot_of_name};
use crate::redis::query::{command, escaped};
use crate::redis::{Error, NodeAddress, Pipeline, Reply};
use crate::shard::Shard;

/// Names that a step of SCAN goes past.
const NAMES_STEP: u64 = 500;
/// Keys that are begun to be walked through together.
pub(super) const SCANS_MAX: usize = 64;
/// Once as the slot map says, and again for shards that moved meanwhile.
const PASSES_MAX: usize = 4;
/// A copy is looked at so often, with pauses, before it counts: a node that gave a slot up needs a moment to forget it.
const COPY_LOOKS: usize = 5;
const COPY_PAUSE: Duration = Duration::from_millis(300);

/// Which names matter.
struct Wanted {
    shards: BTreeSet<Shard>,
    /// Also what belongs to no shard.
    all: bool,
}

/// A name, and what a transaction over several keys has to look into because of it.
#[derive(Default)]
struct Looked {
    violations: BTreeMap<Shard, Vec<Violation>>,
    suspects: BTreeMap<Shard, BTreeSet<Suspect>>,
    /// Users with activity: they have a profile.
    active: BTreeSet<(Shard, UserId)>,
    walks: Vec<Walk>,
}

impl Check<'_> {
    pub(super) async fn names(&mut self, shards: &[Shard]) -> Result<(), Error> {
        let all = shards.len() == self.layout.count() as usize;
        let mut wanted = Wanted { shards: shards.iter().copied().collect(), all };
        let mut nodes = self.source.primaries();
        for _ in 0..PASSES_MAX {
            let before = self.owners(&wanted.shards);
            for node in &nodes {
                self.names_at(node, &wanted).await?;
            }
            // A failure shows with the next question.
            let _ = self.source.topology().refresh().await;
            let now = self.owners(&wanted.shards);
            let moved = |shard: &Shard| before.get(shard) != now.get(shard);
            wanted = Wanted { shards: wanted.shards.into_iter().filter(moved).collect(), all: false };
            if wanted.shards.is_empty() {
                return Ok(());
            }
            let owners: BTreeSet<NodeAddress> =
                now.into_iter().filter(|(shard, _)| wanted.has(*shard)).map(|(_, node)| node).collect();
            nodes = owners.into_iter().collect();
        }
        for shard in wanted.shards {
            self.findings.undecided(self.shard_keys(shard).state, "its slot kept moving");
        }
        Ok(())
    }

    fn owners(&self, shards: &BTreeSet<Shard>) -> BTreeMap<Shard, NodeAddress> {
        let owner = |shard: &Shard| {
            let node = self.source.topology().node_of(self.layout.slot(*shard)).ok()?;
            Some((*shard, node.address.clone()))
        };
        shards.iter().filter_map(owner).collect()
    }

    async fn names_at(&mut self, node: &NodeAddress, wanted: &Wanted) -> Result<(), Error> {
        let pattern = format!("{}*", escaped(self.keys.prefix()));
        let mut cursor = "0".to_owned();
        let mut end = Instant::now() + self.source.patience();
        loop {
            let step = command(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", &NAMES_STEP.to_string()]);
            let page = self.source.ask_node(node, &[step]).await;
            match page.and_then(|mut replies| replies.pop().unwrap_or(Reply::Null).checked()) {
                Ok(reply) => {
                    let [next, names] = reply.as_array()? else {
                        return Err(Error::protocol("a cursor and names", "another number"));
                    };
                    cursor = next.to_str()?.to_owned();
                    let names = names.as_array()?.iter().map(|name| name.as_bytes().cloned());
                    self.look(node, names.collect::<Result<Vec<_>, _>>()?, wanted).await?;
                    (self.progress)(NAMES_STEP);
                    if cursor == "0" {
                        return Ok(());
                    }
                    end = Instant::now() + self.source.patience();
                }
                Err(error) => {
                    self.source.wait_out(error, end).await?;
                    // Its shards have another owner then, and are looked for there.
                    if !self.source.primaries().contains(node) {
                        return Ok(());
                    }
                    cursor = "0".to_owned();
                }
            }
        }
    }

    /// Asks about a page of names whoever owns them.
    async fn look(&mut self, node: &NodeAddress, names: Vec<Bytes>, wanted: &Wanted) -> Result<(), Error> {
        let names: Vec<(Bytes, u16)> = names
            .into_iter()
            .filter(|name| wanted.includes(self.parse(name).map(|(_, shard)| shard)))
            .map(|name| {
                let slot = slot_of_name(&name);
                (name, slot)
            })
            .collect();
        self.copies(node, &names).await?;
        let questions: Vec<(u16, Pipeline)> = names
            .iter()
            .flat_map(|(name, slot)| {
                [(*slot, command(&[b"TYPE", &name[..]])), (*slot, command(&[b"PEXPIRETIME", &name[..]]))]
            })
            .collect();
        let replies = self.source.ask(&questions).await?;
        let mut looked = Looked::default();
        for ((name, slot), replies) in names.iter().zip(replies.chunks(2)) {
            let (kind, expires_at) = (replies[0].as_status()?, replies[1].as_i64()?);
            // It is gone since.
            if kind != "none" && expires_at != -2 {
                self.findings.counts.keys += 1;
                self.judge(name, *slot, (kind, expires_at), &mut looked);
            }
        }
        self.look_into(looked).await
    }

    fn parse<'n>(&self, name: &'n [u8]) -> Option<(Found<'n>, Option<Shard>)> {
        let found = self.keys.parse(std::str::from_utf8(name).ok()?)?;
        Some((found, found.tag.and_then(|tag| self.tags.get(tag).copied())))
    }

    fn judge(&mut self, name: &Bytes, slot: u16, (kind, expires_at): (&str, i64), looked: &mut Looked) {
        let Some((found, shard)) = self.parse(name).filter(|(found, _)| found.row.kind != "CHANNEL") else {
            let key = shown(name);
            let key = key.trim_matches('"');
            self.findings.note_all([Violation::new(
                Kind::UnknownKey,
                key,
                "a key of the registry",
                format!("a {kind}"),
            )]);
            return;
        };
        let text = String::from_utf8_lossy(name).into_owned();
        if found.tag.is_some() && shard.is_none_or(|shard| self.layout.slot(shard) != slot) {
            let expected = format!("the tag of one of {} shards", self.layout.count());
            let tag = shown(found.tag.unwrap_or_default().as_bytes());
            self.findings.note_all([Violation::new(Kind::ForeignSlot, text, expected, tag)]);
            return;
        }
        if let Some(violation) = judge_kind(&text, found.row, kind) {
            self.findings.note_all([violation]);
            return;
        }
        let expiry = life(&self.rules.calendar, &found).judge(&text, expires_at);
        match (expiry, shard) {
            (Some(violation), Some(shard)) => looked.violations.entry(shard).or_default().push(violation),
            (expiry, _) => self.findings.note_all(expiry),
        }
        if let Some(shard) = shard.filter(|_| !found.view.is_empty()) {
            self.judge_view(text, found.view, (found.part, shard), looked);
        }
    }

    fn judge_view(&mut self, name: String, view: &str, (id, shard): (&str, Shard), looked: &mut Looked) {
        let expected = || format!("a user of shard {shard}");
        match id.parse::<UserId>() {
            Err(_) => {
                let found = shown(id.as_bytes());
                self.findings.note_all([Violation::new(Kind::WrongShard, name, expected(), found)]);
            }
            Ok(user) if self.layout.shard_of(&user) != shard => {
                let found = format!("\"{user}\" of shard {}", self.layout.shard_of(&user));
                self.findings.note_all([Violation::new(Kind::WrongShard, name, expected(), found)]);
            }
            Ok(user) => match Walked::of(view) {
                Some(view) => {
                    looked.walks.push(Walk { name, slot: self.layout.slot(shard), view });
                    if view != Walked::Versions {
                        looked.active.insert((shard, user));
                    }
                }
                None => {
                    looked.suspects.entry(shard).or_default().insert(Suspect::Listing { user: user.to_string() });
                }
            },
        }
    }

    async fn look_into(&mut self, looked: Looked) -> Result<(), Error> {
        for (shard, violations) in looked.violations {
            let keys = self.shard_keys(shard);
            self.settle(&keys, violations).await?;
        }
        let listings: Vec<(Shard, String)> = looked
            .suspects
            .into_iter()
            .flat_map(|(shard, suspects)| {
                suspects.into_iter().filter_map(move |suspect| match suspect {
                    Suspect::Listing { user } => Some((shard, user)),
                    Suspect::Member { .. } => None,
                })
            })
            .collect();
        let score = |shard, user: &str| command(&["ZSCORE", self.shard_keys(shard).users.as_str(), user]);
        let profile = |shard, user: &UserId| command(&["EXISTS", self.shard_keys(shard).profile(user).as_str()]);
        let listed = listings.into_iter().map(|(shard, user)| (shard, score(shard, &user), user));
        let active =
            looked.active.into_iter().map(|(shard, user)| (shard, profile(shard, &user), user.as_str().to_owned()));
        self.lacking(listed.chain(active).collect()).await?;
        self.walks(&looked.walks).await
    }

    /// Looks into the users for whom a question finds nothing: those with a view whom `users` does not list, and those with
    /// activity who have no profile.
    async fn lacking(&mut self, listings: Vec<(Shard, Pipeline, String)>) -> Result<(), Error> {
        let question = |(shard, question, _): &(Shard, Pipeline, String)| (self.layout.slot(*shard), question.clone());
        let questions: Vec<_> = listings.iter().map(question).collect();
        let replies = self.source.ask(&questions).await?;
        let mut suspects: BTreeMap<Shard, BTreeSet<Suspect>> = BTreeMap::new();
        let lacking = |reply: &Reply| matches!(reply, Reply::Null | Reply::Integer(0));
        for ((shard, _, user), _) in listings.into_iter().zip(&replies).filter(|(_, reply)| lacking(reply)) {
            suspects.entry(shard).or_default().insert(Suspect::Listing { user });
        }
        for (shard, suspects) in suspects {
            let ground = Ground { keys: self.shard_keys(shard), days: Vec::new(), progress: Progress::default() };
            self.source.begin();
            self.confirm(&ground, suspects).await?;
        }
        Ok(())
    }

    /// Keys on a node that neither owns their slot nor is taking it over: what a migration left behind.
    async fn copies(&mut self, node: &NodeAddress, names: &[(Bytes, u16)]) -> Result<(), Error> {
        let topology = self.source.topology().clone();
        let foreign = |slot: u16| topology.node_of(slot).is_ok_and(|owner| owner.address != *node);
        let suspects: BTreeMap<u16, &Bytes> =
            names.iter().filter(|(_, slot)| foreign(*slot)).map(|(name, slot)| (*slot, name)).collect();
        for (slot, name) in suspects {
            if self.is_copy(node, slot, name).await {
                let key = shown(name);
                let found = format!("a copy on {node}");
                let expected = format!("keys of slot {slot} only on its owner");
                self.findings.note_all([Violation::new(Kind::ForeignSlot, key.trim_matches('"'), expected, found)]);
            }
        }
        Ok(())
    }

    async fn is_copy(&mut self, node: &NodeAddress, slot: u16, name: &Bytes) -> bool {
        let questions = [
            command(&["ROLE"]),
            command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]),
            command(&["ASKING"]),
            command(&[b"TYPE", &name[..]]),
        ];
        for look in 0..COPY_LOOKS {
            if look > 0 {
                sleep(COPY_PAUSE).await;
            }
            // Who does not answer is no primary for much longer.
            let Ok(replies) = self.source.ask_node(node, &questions).await else { return false };
            let primary = replies[0].as_array().ok().and_then(|role| role.first()?.to_str().ok()) == Some("master");
            let holds = replies[1].as_u64().is_ok_and(|count| count > 0);
            let refuses = replies[3].error().is_some_and(|error| matches!(error.code, ServerCode::Moved { .. }));
            if !(primary && holds && refuses) {
                return false;
            }
        }
        true
    }
}

impl Wanted {
    fn has(&self, shard: Shard) -> bool {
        self.shards.contains(&shard)
    }

    /// `parsed` is none for a name that no row of the registry explains; then the shard, none where its tag is no shard's.
    fn includes(&self, parsed: Option<Option<Shard>>) -> bool {
        self.all || parsed.flatten().is_some_and(|shard| self.has(shard))
    }
}
