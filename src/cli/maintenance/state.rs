//! How maintenance stands, for people and programs.

use std::time::Duration;

use serde::Serialize;

use crate::cli::output::{self, Format};
use crate::redis::maintenance::Found;
use crate::store::MaintenanceLock;

/// The lock as every answer shows it; null but for `on` where it is off.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Maintenance {
    on: bool,
    holder: Option<String>,
    reason: Option<String>,
    held_ms: Option<u64>,
    left_ms: Option<u64>,
}

/// The lock and the workers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct State {
    #[serde(flatten)]
    maintenance: Maintenance,
    workers: Vec<Worker>,
}

#[derive(Clone, Debug, Serialize)]
struct Worker {
    worker: String,
    paused: bool,
}

impl Maintenance {
    pub fn new(lock: Option<&MaintenanceLock>) -> Maintenance {
        lock.map_or_else(Maintenance::default, |lock| Maintenance {
            on: true,
            holder: Some(lock.holder.clone()),
            reason: Some(lock.reason.clone()),
            held_ms: Some(milliseconds(lock.held_for)),
            left_ms: Some(milliseconds(lock.left)),
        })
    }

    pub fn is_on(&self) -> bool {
        self.on
    }

    /// One line.
    pub fn sentence(&self) -> String {
        match (&self.holder, &self.reason, self.held_ms, self.left_ms) {
            (Some(holder), Some(reason), Some(held), Some(left)) => {
                format!(
                    "maintenance is on, by {holder} for {}, {} left: {reason}",
                    output::age(held),
                    output::age(left)
                )
            }
            _ => "maintenance is off".to_owned(),
        }
    }
}

impl State {
    pub fn new(found: &Found, living: impl Iterator<Item = String>) -> State {
        let worker = |worker: String| Worker { paused: found.paused.contains(&worker), worker };
        State { maintenance: Maintenance::new(found.lock.as_ref()), workers: living.map(worker).collect() }
    }

    pub fn is_held_by(&self, holder: &str) -> bool {
        self.maintenance.holder.as_deref() == Some(holder)
    }

    /// Workers that still may commit.
    pub fn unpaused(&self) -> Vec<&str> {
        self.workers.iter().filter(|worker| !worker.paused).map(|worker| worker.worker.as_str()).collect()
    }

    pub fn show(&self, format: Format) -> std::io::Result<()> {
        if format.json {
            return output::print_json(self);
        }
        output::print(&format!("{}\n", self.maintenance.sentence()))?;
        if !self.maintenance.on || self.workers.is_empty() {
            return Ok(());
        }
        output::print("\n")?;
        let mut table = output::table(&["worker", "paused"]);
        for row in &self.workers {
            table.add_row([row.worker.as_str(), if row.paused { "yes" } else { "no" }]);
        }
        output::print_table(&table)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_public_and_keeps_its_shape() {
        let lock = MaintenanceLock {
            holder: "ann@host".to_owned(),
            reason: "upgrade".to_owned(),
            held_for: Duration::from_millis(1_500),
            left: Duration::from_secs(598),
        };
        let found = Found { lock: Some(lock), paused: ["left-1-0".to_owned()].into() };
        let living = || ["left-1-0", "right-2-0"].map(str::to_owned).into_iter();
        let on = State::new(&found, living());
        assert_eq!(on.unpaused(), ["right-2-0"]);
        assert!(on.is_held_by("ann@host") && !on.is_held_by("bob@host"));
        assert_eq!(on.maintenance.sentence(), "maintenance is on, by ann@host for 1s 500ms, 9m 58s left: upgrade");
        insta::assert_json_snapshot!([on, State::new(&Found::default(), living())]);
    }
}
