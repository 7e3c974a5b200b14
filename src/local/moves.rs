//! What can be done to the roles and slots of a running cluster. Each waits until it is done; the caller says how long.

use std::time::Duration;

use tokio::time::Instant;

use super::{Error, Nodes};

/// Between two looks whether it is done.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A manual failover that did not come about is given up by the server after 5 s, without a word.
const FAILOVER_ATTEMPT: Duration = Duration::from_secs(6);
/// Keys of a slot that are moved at once.
const KEYS_MOVED_MAX: &str = "100";

impl Nodes {
    /// Whether this node takes itself for a primary; false where it does not answer.
    pub async fn is_primary(&self, index: usize) -> bool {
        self.cli(index, &["ROLE"]).await.is_ok_and(|role| role.starts_with("master"))
    }

    /// Returns once this replica has all that its primary has.
    pub async fn in_step(&self, replica: usize) {
        let up = async || {
            let replication = self.cli(replica, &["INFO", "replication"]).await;
            replication.is_ok_and(|replication| replication.contains("master_link_status:up"))
        };
        while !up().await {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Makes a replica the primary, by hand and without loss.
    ///
    /// # Errors
    ///
    /// Where the replica refuses, as one does that is none.
    pub async fn promote(&self, replica: usize) -> Result<(), Error> {
        let mut asked: Option<Instant> = None;
        while !self.is_primary(replica).await {
            if asked.is_none_or(|asked| asked.elapsed() > FAILOVER_ATTEMPT) {
                self.cli(replica, &["CLUSTER", "FAILOVER"]).await?;
                asked = Some(Instant::now());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Moves a slot with all its keys from one primary to another, while everybody goes on.
    ///
    /// # Errors
    ///
    /// Where a node refuses; the slot may then be on its way for ever.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) -> Result<(), Error> {
        let slot = slot.to_string();
        let from_id = self.cli(from, &["CLUSTER", "MYID"]).await?;
        let to_id = self.cli(to, &["CLUSTER", "MYID"]).await?;
        self.cli(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await?;
        self.cli(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await?;
        let (host, port) = self.nodes()[to].clone();
        let port = port.to_string();
        loop {
            let keys = self.cli(from, &["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_MOVED_MAX]).await?;
            let keys: Vec<&str> = keys.lines().collect();
            if keys.is_empty() {
                break;
            }
            let command = ["MIGRATE", &host, &port, "", "0", "5000", "REPLACE", "KEYS"];
            self.cli(from, &[&command[..], &keys].concat()).await?;
        }
        // The new owner first, so that at no moment nobody owns it.
        self.cli(to, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await?;
        self.cli(from, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await?;
        Ok(())
    }
}
