//! Contestants take turns: every round all of them, each time beginning with the next one, so that whatever else the
//! machine does meanwhile falls on all alike.

use std::future::Future;
use std::pin::Pin;

use super::report::Chapter;
use super::servers::NodeUse;

/// What a contestant does in its turn.
pub type Turn<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Sample>> + 'a>>;

/// Somebody whose work is measured.
pub trait Contestant {
    /// As it stands in tables.
    fn name(&self) -> String;

    /// Does its work once, from preparing it to proving it done. Only what lies within its measured part is in the sample.
    fn turn(&mut self, round: usize) -> Turn<'_>;
}

/// One turn's measured part.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub changes: f64,
    pub seconds: f64,
    /// Of the process or thread that consumes.
    pub worker_cpu_seconds: f64,
    pub servers: Vec<NodeUse>,
    /// Changes settled by the end of each slice of time: seconds since the beginning, changes.
    pub progress: Vec<(f64, f64)>,
}

impl Sample {
    pub fn rate(&self) -> f64 {
        self.changes / self.seconds
    }

    /// Microseconds a change of all primaries together.
    pub fn server_cpu(&self) -> f64 {
        self.of_primaries(|node| node.cpu_seconds * 1e6)
    }

    /// Microseconds a change of all replicas together.
    pub fn replica_cpu(&self) -> f64 {
        let replicas = self.servers.iter().filter(|node| !node.primary);
        replicas.map(|node| node.cpu_seconds).sum::<f64>() * 1e6 / self.changes
    }

    /// Microseconds a change.
    pub fn worker_cpu(&self) -> f64 {
        self.worker_cpu_seconds * 1e6 / self.changes
    }

    /// Bytes a change between primaries and their clients, replication left out.
    pub fn wire_bytes(&self) -> f64 {
        self.of_primaries(|node| node.bytes_in + node.bytes_out)
    }

    pub fn commands(&self) -> f64 {
        self.of_primaries(|node| node.commands)
    }

    fn of_primaries(&self, what: impl Fn(&NodeUse) -> f64) -> f64 {
        self.servers.iter().filter(|node| node.primary).map(what).sum::<f64>() / self.changes
    }
}

/// All turns of one contestant.
pub struct Outcome {
    pub name: String,
    pub samples: Vec<Sample>,
    /// Why it has no samples, or no further ones.
    pub failure: Option<String>,
}

impl Chapter {
    /// Notes which contestants failed.
    pub fn failed(&mut self, title: &str, outcomes: &[Outcome]) {
        let failed = outcomes.iter().filter_map(|outcome| Some((&outcome.name, outcome.failure.as_ref()?)));
        self.troubles.extend(failed.map(|(name, why)| format!("{title}: {name} failed: {why}")));
    }
}

/// A contestant that fails is left out from then on, and the others go on.
pub async fn interleave(
    rounds: usize,
    contestants: &mut [Box<dyn Contestant>],
    mut tell: impl FnMut(usize, &str),
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = contestants
        .iter()
        .map(|contestant| Outcome { name: contestant.name(), samples: Vec::new(), failure: None })
        .collect();
    for round in 0..rounds {
        for step in 0..contestants.len() {
            let at = (round + step) % contestants.len();
            if outcomes[at].failure.is_some() {
                continue;
            }
            tell(round, &outcomes[at].name);
            match contestants[at].turn(round).await {
                Ok(sample) => outcomes[at].samples.push(sample),
                Err(error) => {
                    let why = format!("{error:#}");
                    eprintln!("heyday bench: {} failed: {why}", outcomes[at].name);
                    outcomes[at].failure = Some(why);
                }
            }
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    struct Player {
        name: &'static str,
        fails_in: Option<usize>,
        played: Rc<RefCell<Vec<&'static str>>>,
    }

    impl Contestant for Player {
        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn turn(&mut self, round: usize) -> Turn<'_> {
            self.played.borrow_mut().push(self.name);
            Box::pin(async move {
                match self.fails_in == Some(round) {
                    true => Err(anyhow::anyhow!("on purpose")),
                    false => Ok(Sample { changes: 1.0, seconds: 1.0, ..Sample::default() }),
                }
            })
        }
    }

    #[tokio::test]
    async fn each_round_begins_with_the_next_one_and_goes_on_without_who_failed() {
        let played = Rc::new(RefCell::new(Vec::new()));
        let player =
            |name, fails_in| Box::new(Player { name, fails_in, played: played.clone() }) as Box<dyn Contestant>;
        let mut players = [player("a", None), player("b", Some(1)), player("c", None)];
        let outcomes = interleave(3, &mut players, |_, _| {}).await;
        assert_eq!(*played.borrow(), ["a", "b", "c", "b", "c", "a", "c", "a"]);
        assert_eq!(outcomes.iter().map(|outcome| outcome.samples.len()).collect::<Vec<_>>(), [3, 1, 3]);
        assert_eq!(outcomes[1].failure.as_deref(), Some("on purpose"));
    }
}
