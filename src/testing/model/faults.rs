//! Seeded faults: what may befall an operation or a shard, each with its own chance.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::error::Disposition;

/// Chances are per operation on a shard, in ten thousandths; zero turns a fault off.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub seed: u64,
    /// Before and after every operation, each up to this long.
    pub latency_max: Duration,
    /// The operation is refused and has no effect.
    pub refused: u32,
    /// The operation has its effect, and its reply is lost.
    pub reply_lost: u32,
    /// The link dies with the request on its way: it arrives up to `late_max` later, or never.
    pub cut: u32,
    pub late_max: Duration,
    /// How often, in percent, a request whose sender is gone arrives all the same; a blocked read then goes on to swallow
    /// entries, as it does on a server that has not noticed that its client is gone.
    pub arrives_percent: u32,
    /// The client freezes, for between half of this and all of it.
    pub stall: u32,
    pub stall_max: Duration,
    /// The lease's key is lost.
    pub lease_lost: u32,
    /// A replica takes over; links die and the shard is away for `away_max` at most.
    pub failover: u32,
    pub away_max: Duration,
    /// The most commits that a failover loses, whole.
    pub commits_lost_max: usize,
    /// Writes are refused for `full_max` at most.
    pub memory_full: u32,
    pub full_max: Duration,
    /// The workers' group is destroyed.
    pub group_destroyed: u32,
    /// Somebody trims entries that are pending.
    pub pending_trimmed: u32,
    /// The server forgets the last acknowledgements and delivers their entries again.
    pub group_rewound: u32,
}

impl Faults {
    /// Everything at once, harsh enough that a run of a few hundred operations sees most of it.
    pub fn all(seed: u64) -> Faults {
        Faults {
            seed,
            latency_max: Duration::from_millis(20),
            refused: 150,
            reply_lost: 80,
            cut: 120,
            late_max: Duration::from_secs(12),
            arrives_percent: 70,
            stall: 60,
            stall_max: Duration::from_secs(12),
            lease_lost: 30,
            failover: 30,
            away_max: Duration::from_secs(3),
            commits_lost_max: 3,
            memory_full: 20,
            full_max: Duration::from_secs(4),
            group_destroyed: 20,
            pending_trimmed: 15,
            group_rewound: 15,
        }
    }
}

/// What befalls one operation.
pub(super) struct Fate {
    pub before: Duration,
    pub after: Duration,
    pub stall: Duration,
    pub refused: Option<Disposition>,
    pub reply_lost: bool,
    pub cut: bool,
    /// When a request whose sender is gone arrives after that, if it does.
    pub late: Option<Duration>,
    pub calamity: Option<Calamity>,
}

/// What befalls a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calamity {
    LeaseLost,
    /// Away this long, with so many of the last commits lost whole.
    Failover {
        away: Duration,
        commits_lost: usize,
    },
    MemoryFull {
        lasting: Duration,
    },
    GroupDestroyed,
    /// The oldest pending entry's body is trimmed, and all before it.
    PendingTrimmed,
    /// The group goes back to before so many entries it has read.
    GroupRewound {
        entries: usize,
    },
}

pub(super) struct Dice {
    faults: Faults,
    random: SmallRng,
}

impl Dice {
    pub fn new(faults: Faults) -> Dice {
        Dice { random: SmallRng::seed_from_u64(faults.seed), faults }
    }

    pub fn fate(&mut self) -> Fate {
        let faults = self.faults.clone();
        let refused = self.chance(faults.refused).then(|| match self.random.random_range(0..3) {
            0 => Disposition::Refresh,
            1 => Disposition::Full,
            _ => Disposition::Retry,
        });
        let stall = if self.chance(faults.stall) {
            faults.stall_max / 2 + self.up_to(faults.stall_max / 2)
        } else {
            Duration::ZERO
        };
        Fate {
            before: self.up_to(faults.latency_max),
            after: self.up_to(faults.latency_max),
            stall,
            refused,
            reply_lost: self.chance(faults.reply_lost),
            cut: self.chance(faults.cut),
            late: self.arrives().then(|| self.up_to(faults.late_max)),
            calamity: self.calamity(&faults),
        }
    }

    /// How long a blocked read of a client that is gone goes on.
    pub fn arrives(&mut self) -> bool {
        let percent = self.faults.arrives_percent;
        percent > 0 && self.random.random_range(0..100) < percent
    }

    fn calamity(&mut self, faults: &Faults) -> Option<Calamity> {
        if self.chance(faults.lease_lost) {
            return Some(Calamity::LeaseLost);
        }
        if self.chance(faults.failover) {
            let commits_lost = self.random.random_range(0..=faults.commits_lost_max);
            // A replica needs a moment to be elected: no two generations can be taken within one millisecond around it.
            let away = Duration::from_millis(10) + self.up_to(faults.away_max);
            return Some(Calamity::Failover { away, commits_lost });
        }
        if self.chance(faults.memory_full) {
            return Some(Calamity::MemoryFull { lasting: self.up_to(faults.full_max) });
        }
        if self.chance(faults.group_destroyed) {
            return Some(Calamity::GroupDestroyed);
        }
        if self.chance(faults.pending_trimmed) {
            return Some(Calamity::PendingTrimmed);
        }
        let rewound = self.chance(faults.group_rewound);
        rewound.then(|| Calamity::GroupRewound { entries: self.random.random_range(1..6) })
    }

    fn chance(&mut self, of_ten_thousand: u32) -> bool {
        of_ten_thousand > 0 && self.random.random_range(0..10_000) < of_ten_thousand
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.random.random_range(0..=longest.as_micros() as u64))
    }
}
