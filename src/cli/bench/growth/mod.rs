//! What becomes of cost, memory, rolls and reads as data grows, and what the encodings of Redis do to users with many friends.

mod days;
mod encodings;
mod fill;
mod measure;
mod memory;
mod room;
mod tables;

use std::rc::Rc;

use super::Plan;
use super::ground::Ground;
use super::report::Chapter;
pub use fill::{DataSet, restless};
use measure::Site;

/// Friends of each user of the data sets.
const FRIENDS: u64 = 50;
/// As many as a layout has by default.
const SHARDS: u32 = 256;
const SMOKE_SHARDS: u32 = 16;

/// While much is loaded a disk may hold a server up for longer than its neighbours take for a failure: that is not measured here.
const PATIENT: (&str, &str) = ("cluster-node-timeout", "15000");

pub async fn chapter(ground: &Rc<Ground>, plan: &Plan) -> anyhow::Result<Chapter> {
    if !ground.is_own() {
        return study(ground, plan).await;
    }
    let usual = ground.setting(PATIENT.0).await?;
    ground.configure(PATIENT.0, PATIENT.1).await?;
    let chapter = study(ground, plan).await;
    ground.configure(PATIENT.0, &usual).await?;
    chapter
}

async fn study(ground: &Rc<Ground>, plan: &Plan) -> anyhow::Result<Chapter> {
    let mut chapter = Chapter {
        name: "growth".to_owned(),
        title: "Cost and memory as data grows".to_owned(),
        method: format!(
            "Users with {FRIENDS} friends each come into an empty field as entries of a rebuild, through the stream and two \
             workers, until their streams are trimmed; a sample of them is compared with what was sent, and some shards are \
             checked as heyday check does. Bytes are the memory that the primaries use after that, less what they used \
             before, buffers of connections, replication and the file of appended commands left out; beside them those of a field that has \
             nothing but the birthdays hashes of the same users, dates and names of keys. Then one worker rolls all shards \
             within worker.roll_percent, users are read one after the other, and in every round the date of one more friend \
             of each user who changes is told again: so many as --users, also where the data set has fewer. CPU as in the other chapters."
        ),
        ..Chapter::default()
    };
    let set = DataSet { seed: ground.seed, friends: FRIENDS };
    let site = Site { ground, plan, set, shards: if plan.smoke { SMOKE_SHARDS } else { SHARDS } };
    let (mut points, mut notes) = (Vec::new(), Vec::new());
    for friendships in plan.friendships() {
        let free = if ground.is_own() { room::free() } else { None };
        if let Some(why) = free.and_then(|free| room::too_large(friendships, free)) {
            notes.push(why);
            continue;
        }
        let point = site.point(friendships).await;
        match point {
            Ok(point) => {
                chapter.troubles.extend(point.trouble.clone());
                points.push(point);
            }
            Err(error) => chapter.troubles.push(format!("{friendships} friendships: {error:#}")),
        }
    }
    if !ground.is_own() {
        let left_out = plan.friendships_left_out();
        notes.extend(
            left_out
                .map(|size| format!("{size} friendships left out: --friendships-max allows a given cluster no more")),
        );
    }
    chapter.by_size(&points);
    if let Some(table) = chapter.tables.first_mut() {
        table.notes.extend(notes);
    }
    if ground.is_own() {
        encodings::measure(ground, plan, &mut chapter).await?;
        days::measure(ground, plan, &mut chapter).await?;
    } else {
        eprintln!("heyday bench: encodings left out, since a given cluster keeps its settings");
    }
    Ok(chapter)
}
