//! One side and its two workers: performs operations and tells the answers in a form that can be compared.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::change::Fields;
use heyday::key::{Key, ShardKeys};
use heyday::lease::WorkerId;
use heyday::oracle::Content;
use heyday::reduce::{Commit, Decoded, Entry, Jobs, Place, Plan, RollStep, Rules, ShardState, Turn, reduce};
use heyday::shard::Layout;
use heyday::store::{Committed, Error, Read, ShardLink, Store, Taken};

use super::SHARD;
use super::ground::Ground;
use super::normal::Normal;

pub const WORKERS: usize = 2;
/// More than anybody has.
const FRIENDS: usize = 1000;
/// Nothing runs out by itself while operations are compared.
pub const TTL: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub enum Operation {
    Append(Fields),
    Take(usize),
    Renew(usize),
    Release(usize),
    /// One worker makes the other's lease last no longer than this.
    Shorten(usize, Duration),
    Read(usize, Read, usize),
    Load(usize),
    Commit(usize),
    /// Takes the lease, reads, loads and commits, as an owner does.
    Settle(usize, Read, usize),
    /// The same, but the other worker takes the lease between load and commit.
    Overtake(usize, Read, usize),
    /// One step of a roll over all open days.
    Roll(usize),
    Trim(usize),
    Backlog(usize),
    Heartbeat(usize),
    Leave(usize),
    Holders,
    Reconnect(usize),
    LoseLease,
    DestroyGroup,
    Rewind(usize),
    TrimPending,
    /// Somebody writes text where a hash or a sorted set belongs.
    Plant(usize),
    /// And removes it again.
    Clean,
}

pub struct Side<G: Ground> {
    pub ground: G,
    keys: ShardKeys,
    rules: Rules,
    players: Vec<Player<<G::Store as Store>::Link>>,
    planted: Vec<Key>,
    normal: Normal,
}

/// A worker's link, and what it has in hand.
struct Player<L> {
    name: WorkerId,
    link: L,
    state: ShardState,
    batch: Vec<Entry>,
    prepared: Option<Commit>,
}

pub fn block(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

impl<G: Ground> Side<G> {
    pub async fn new(ground: G, keys: ShardKeys) -> Side<G> {
        let mut players = Vec::new();
        for name in ["a", "b"] {
            players.push(Player {
                name: name.parse().expect("a good name"),
                link: ground.store().connect(SHARD).await.expect("a link"),
                state: ShardState::default(),
                batch: Vec::new(),
                prepared: None,
            });
        }
        // So narrow that profiles are full and categories pushed out.
        let rules = Rules { top_max: 4, profile_fields_max: 4, ..Rules::default() };
        Side { ground, keys, rules, players, planted: Vec::new(), normal: Normal::default() }
    }

    pub async fn perform(&mut self, operation: &Operation) -> String {
        match operation {
            Operation::Append(_) => unreachable!("appended on both sides with one id"),
            Operation::Take(at) => self.take(*at).await,
            Operation::Read(at, which, count) => self.read(*at, *which, *count).await,
            Operation::Load(at) => self.load(*at).await,
            Operation::Commit(at) => self.commit(*at).await,
            Operation::Settle(at, which, count) => {
                let taken = self.take(*at).await;
                let read = self.read(*at, *which, *count).await;
                let loaded = self.load(*at).await;
                format!("{taken}\n{read}\n{loaded}\n{}", self.commit(*at).await)
            }
            Operation::Overtake(at, which, count) => {
                let taken = self.take(*at).await;
                let read = self.read(*at, *which, *count).await;
                let loaded = self.load(*at).await;
                self.ground.lose_lease().await;
                let overtaken = self.take(WORKERS - 1 - at).await;
                format!("{taken}\n{read}\n{loaded}\n{overtaken}\n{}", self.commit(*at).await)
            }
            Operation::Roll(at) => self.roll(*at).await,
            Operation::Renew(at) => {
                let player = &mut self.players[*at];
                answer(player.link.renew(&player.name, TTL).await)
            }
            Operation::Release(at) => answer(self.ground.store().release(SHARD, &self.players[*at].name).await),
            Operation::Shorten(at, ttl) => {
                let leases = [(SHARD, self.players[*at].name.clone())];
                answer(self.ground.store().shorten(&leases, *ttl).await.remove(0))
            }
            Operation::Trim(at) => {
                self.ground.pass_millisecond().await;
                answer(self.players[*at].link.trim(Duration::ZERO).await)
            }
            Operation::Backlog(at) => {
                let backlog = self.players[*at].link.backlog().await;
                answer(backlog.map(|backlog| {
                    let oldest = backlog.oldest_milliseconds.is_some();
                    (backlog.unread > 0, backlog.pending, oldest, backlog.dead_letters)
                }))
            }
            Operation::Heartbeat(at) => {
                let living = self.ground.store().heartbeat(&self.players[*at].name, TTL).await;
                answer(living.map(|mut living| {
                    living.sort();
                    living
                }))
            }
            Operation::Leave(at) => answer(self.ground.store().leave(&self.players[*at].name).await),
            Operation::Holders => {
                let holders = self.ground.store().holders(&[SHARD, heyday::shard::Shard(0)]).await;
                holders.into_iter().map(answer).collect::<Vec<_>>().join(", ")
            }
            Operation::Reconnect(at) => {
                self.players[*at].link = self.ground.store().connect(SHARD).await.expect("a link");
                String::new()
            }
            beside => {
                self.beside(beside).await;
                String::new()
            }
        }
    }

    /// What others do.
    async fn beside(&mut self, operation: &Operation) {
        match operation {
            Operation::LoseLease => self.ground.lose_lease().await,
            Operation::DestroyGroup => self.ground.destroy_group().await,
            Operation::Rewind(entries) => self.ground.rewind(*entries).await,
            Operation::TrimPending => self.ground.trim_pending().await,
            Operation::Plant(which) => {
                let user = format!("u{}", which % 6).parse().expect("a good id");
                let today = self.rules.calendar.today(self.normal.now());
                let keys = [
                    self.keys.birthdays(&user),
                    self.keys.profile(&user),
                    self.keys.versions(&user),
                    self.keys.activity(&user),
                    self.keys.top(&user),
                    self.keys.day(today),
                    self.keys.producers.clone(),
                ];
                let key = keys[which % keys.len()].clone();
                self.ground.plant(&key).await;
                self.planted.push(key);
            }
            _ => {
                for key in std::mem::take(&mut self.planted) {
                    self.ground.delete(&key).await;
                }
            }
        }
    }

    async fn take(&mut self, at: usize) -> String {
        let player = &mut self.players[at];
        let taken = player.link.take(&player.name, TTL).await;
        answer(taken.map(|taken| match taken {
            Taken::Mine(state, cause) => {
                player.state = state;
                format!("mine, {}: {:?}", cause.name(), self.normal.state(&state))
            }
            Taken::Held(holder) => format!("held by {holder}"),
        }))
    }

    async fn read(&mut self, at: usize, which: Read, count: usize) -> String {
        let player = &mut self.players[at];
        let read = player.link.read(which, count).await;
        if let Ok(entries) = &read {
            player.batch.clone_from(entries);
            player.prepared = None;
        }
        answer(read)
    }

    async fn load(&mut self, at: usize) -> String {
        let player = &mut self.players[at];
        if player.state.generation == 0 {
            return "never an owner".to_owned();
        }
        let limits = &self.rules.limits;
        let batch: Vec<Decoded> = player.batch.iter().map(|entry| Decoded::new(entry.clone(), limits)).collect();
        let now = batch.last().map_or(0, |decoded| decoded.entry.id.milliseconds);
        let plan = Plan::of(&batch, &player.state, &Jobs::default(), (&self.rules, now));
        let loaded = player.link.load(&plan).await;
        answer(loaded.map(|loaded| {
            player.state.rebuild = loaded.rebuild;
            player.prepared = Some(reduce(&self.rules, &self.keys, &player.state, &batch, (&plan, &loaded)));
            self.normal.loaded(loaded)
        }))
    }

    async fn roll(&mut self, at: usize) -> String {
        let (player, now) = (&mut self.players[at], self.normal.now());
        let Some(Turn::Roll { roll, asked }) = player.state.turn(&self.rules.calendar, now, (None, true)) else {
            return "nothing to roll".to_owned();
        };
        let mut survey = match player.link.survey_days(&roll, FRIENDS).await {
            Ok(survey) => survey,
            Err(error) => return answer::<()>(Err(error)),
        };
        survey.users.iter_mut().for_each(|user| user.friends.sort());
        let layout = Layout::new(4).expect("a power of two");
        let loaded = player.link.load(&Plan::default()).await;
        let prepared = answer(loaded.map(|loaded| {
            let place = Place { rules: &self.rules, layout: &layout, keys: &self.keys };
            let step = RollStep { roll: &roll, asked, survey: &survey };
            player.prepared = Some(step.reduce(place, &player.state, &loaded));
            self.normal.loaded(loaded)
        }));
        let users = format!("{:?}", survey.users);
        format!("{users}\n{prepared}\n{}", self.commit(at).await)
    }

    async fn commit(&mut self, at: usize) -> String {
        let player = &mut self.players[at];
        let Some(commit) = player.prepared.clone() else {
            return "nothing prepared".to_owned();
        };
        let committed = player.link.commit(&commit).await;
        let outcomes = commit.outcomes.clone();
        answer(committed.map(|committed| match committed {
            Committed::Done { errors } => {
                player.state = commit.state;
                player.batch.clear();
                player.prepared = None;
                format!("done with {} errors {outcomes:?}", errors.len())
            }
            Committed::Refused => "refused".to_owned(),
        }))
    }

    /// Every key of the shard, and the group.
    pub async fn contents(&mut self) -> BTreeMap<String, String> {
        let mut told = BTreeMap::new();
        for (name, content) in self.ground.contents().await.into_iter().filter(|(name, _)| !name.contains("heyday:")) {
            let content: Content = self.normal.content(&self.keys, &name, content);
            told.insert(name, format!("{content:?}"));
        }
        told.insert("group".to_owned(), format!("{:?}", self.ground.group().await));
        told
    }
}

/// Errors are compared by what they ask of the caller.
fn answer<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("error {:?}", error.disposition),
    }
}
