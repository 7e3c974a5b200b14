//! The real store must equal the model: the same random operations on both give the same answers and the same keys.
//!
//! Entry ids are alike on both sides: a real server gives them, and the model takes them over. What follows from a clock
//! (generations, times) is compared by what it means: the third generation of one side is the third of the other.

mod ground;
mod maintenance;
mod normal;
mod side;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heyday::change::Fields;
use heyday::key::Keys;
use heyday::local::Nodes;
use heyday::redis::{ConnectOptions, NodeAddress, RedisStore, Topology};
use heyday::reduce::Rules;
use heyday::shard::{Layout, Shard};
use heyday::store::Read;
use heyday::testing::generate::{Generator, Settings};
use heyday::testing::model::Model;
use heyday::testing::snapshots::Snapshots;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::support::cluster::{shared_cluster, unique_prefix};
use ground::{Ground, ModelGround, RealGround};
use side::{Operation, Side, WORKERS};

const SHARD: Shard = Shard(1);
const STEPS: u32 = 500;
/// Of the two sides: at most what a step takes.
const EXPIRY_TOLERANCE_MS: u64 = 20_000;

#[tokio::test]
async fn random_operations_give_the_same_answers_and_the_same_keys() {
    let begin = match std::env::var("HEYDAY_SEED") {
        Ok(seed) => seed.parse().expect("HEYDAY_SEED is a number"),
        Err(_) => 0,
    };
    let mut told = String::new();
    for seed in begin..begin + 8 {
        told += &compare(seed).await;
    }
    for (words, times) in [("done with 0 errors", 150), ("done with 1 errors", 1), ("refused", 20), ("held by", 50)] {
        let found = told.matches(words).count();
        assert!(found >= times, "{words:?} was answered {found} times only: the comparison is too narrow");
    }
}

/// Answers what was answered, on both sides alike.
async fn compare(seed: u64) -> String {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut model, mut real) = sides().await;
    // The moments of snapshots lie before and after what changes meanwhile.
    let since = milliseconds();
    let snapshots = seed.is_multiple_of(2).then_some(Snapshots { since, spread: 2000, one_sided: false });
    if snapshots.is_some() {
        model.ground.rebuild(since);
        real.ground.rebuild(since).await;
    }
    let today = Rules::default().calendar.today(milliseconds());
    let mut generator = Generator::new(seed, Settings { malformed_percent: 4.0, snapshots, ..Settings::new(6, today) });
    let mut told = Vec::new();
    for step in 0..STEPS {
        let operation = choose(&mut random, &mut generator);
        let expected_id = match &operation {
            Operation::Append(fields) => Some(real.ground.append(fields.clone(), None).await),
            _ => None,
        };
        if let (Operation::Append(fields), Some(id)) = (&operation, expected_id) {
            model.ground.append(fields.clone(), Some(id)).await;
            continue;
        }
        let (found, expected) = (real.perform(&operation).await, model.perform(&operation).await);
        told.push(format!("{operation:?} -> {expected}"));
        let before = told.len().saturating_sub(12);
        assert_eq!(
            found,
            expected,
            "seed {seed}, step {step} (HEYDAY_SEED={seed} repeats it): found is Redis, expected the model; before:\n{}",
            told[before..].join("\n")
        );
    }
    let (found, expected) = (real.ground.expiries().await, model.ground.expiries().await);
    let kept = |expiries: &BTreeMap<String, u64>| expiries.keys().cloned().collect::<Vec<_>>();
    assert_eq!(kept(&found), kept(&expected), "seed {seed}: keys that expire; found is Redis, expected the model");
    for (name, at) in &expected {
        assert!(
            at.abs_diff(found[name]) < EXPIRY_TOLERANCE_MS,
            "seed {seed}: {name} expires at {at} or {}",
            found[name]
        );
    }
    let (found, expected) = (real.contents().await, model.contents().await);
    for (name, expected) in &expected {
        assert_eq!(found.get(name), Some(expected), "seed {seed}: {name}: found is Redis, expected the model");
    }
    let foreign: Vec<_> = found.keys().filter(|name| !expected.contains_key(*name)).collect();
    assert!(foreign.is_empty(), "seed {seed}: Redis holds {foreign:?} and the model does not");
    told.join("\n")
}

async fn sides() -> (Side<ModelGround>, Side<RealGround>) {
    let nodes = shared_cluster().await;
    let (layout, keys) = (Layout::new(4).unwrap(), Keys::new(&unique_prefix()).unwrap());
    let topology = topology(&nodes).await;
    let store = RedisStore::new(topology, keys.clone(), layout.clone());
    let names = keys.shard(&layout, SHARD);
    let real = RealGround::new(store, &keys, names.clone()).await;
    let model = ModelGround::new(Model::new(layout, keys, milliseconds()), names.clone());
    (Side::new(model, names.clone()).await, Side::new(real, names).await)
}

async fn topology(nodes: &Nodes) -> Arc<Topology> {
    let seeds = nodes.nodes().into_iter().map(|(host, port)| NodeAddress::new(host, port)).collect();
    Arc::new(Topology::connect(Arc::new(ConnectOptions::new(seeds))).await.expect("a cluster"))
}

fn milliseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as u64
}

fn choose(random: &mut SmallRng, generator: &mut Generator) -> Operation {
    let worker = random.random_range(0..WORKERS);
    let count = random.random_range(1..12);
    match random.random_range(0..200) {
        0..40 => Operation::Append(entry(generator)),
        40..52 => Operation::Take(worker),
        52..84 => Operation::Read(worker, Read::New { block: side::block(random.random_range(0..3)) }, count),
        84..94 => Operation::Read(worker, Read::Pending, count),
        94..100 => Operation::Overtake(worker, Read::Pending, count),
        100..115 => Operation::Load(worker),
        115..130 => Operation::Commit(worker),
        130..150 => Operation::Settle(worker, Read::Pending, count),
        150..160 => Operation::Settle(worker, Read::New { block: side::block(0) }, count),
        160..164 => Operation::Renew(worker),
        164..166 => Operation::Release(worker),
        166..167 => Operation::Roll(worker),
        // Longer or shorter than a lease lasts, and never so short that one runs out.
        167..168 => Operation::Shorten(worker, side::TTL * [1, 3][count % 2] / 2),
        168..170 => Operation::Trim(worker),
        170..172 => Operation::Roll(worker),
        172..176 => Operation::Backlog(worker),
        176..180 => Operation::Holders,
        180..183 => Operation::Heartbeat(worker),
        183..184 => Operation::Leave(worker),
        184..187 => Operation::LoseLease,
        187..188 => Operation::DestroyGroup,
        188..190 => Operation::Rewind(count),
        190..192 => Operation::TrimPending,
        192..195 => Operation::Reconnect(worker),
        195..197 => Operation::Plant(count),
        _ => Operation::Clean,
    }
}

fn entry(generator: &mut Generator) -> Fields {
    generator.entry().fields
}
