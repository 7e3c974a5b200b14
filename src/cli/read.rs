//! `heyday read`: a user's profile, activity and friends.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::Serialize;

use super::cluster::{self, block_on};
use super::output::{self, Format, shown};
use super::{Context, Exit};
use crate::birthday::Birthday;
use crate::client::reader::{Friend, Profile, ProfileView, View};

/// Show a user's profile, activity and friends, soonest birthday first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday read 42\n  heyday read 42 --json | jq '.friends[0]'\n\n\
    STATE is live, stale (changes have been waiting for longer than reader.fresh_within) or cold (nobody \
    has told of this user: an empty view, not an error).")]
pub struct Arguments {
    /// The user's id
    user: String,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    user: String,
    shard: u16,
    state: &'static str,
    freshness_ms: u64,
    profile: ProfileAnswer,
    activity: ActivityAnswer,
    top: Vec<CategoryAnswer>,
    friends: Vec<FriendAnswer>,
}

#[derive(Serialize)]
struct ActivityAnswer {
    today: u64,
    last_7_days: u64,
    last_30_days: u64,
    last: Option<u64>,
}

#[derive(Serialize)]
struct CategoryAnswer {
    category: String,
    weight: u64,
}

#[derive(Serialize)]
struct ProfileAnswer {
    schema: Option<u32>,
    version: Option<u64>,
    updated_at: Option<u64>,
    birthday: Option<String>,
    expires_at: Option<u64>,
    /// The user's own fields; none has one of the names above.
    #[serde(flatten)]
    fields: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct FriendAnswer {
    friend: String,
    birthday: Option<String>,
    next: Option<String>,
    days: Option<i32>,
    age: Option<i16>,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let user = cluster::user(&arguments.user)?;
    let (view, profile) = block_on(async {
        let hub = cluster::hub(context).await?;
        let reader = hub.reader(context.settings.config.reader());
        Ok(tokio::try_join!(reader.read(&user), reader.profile(&user))?)
    })?;
    if arguments.format.json {
        output::print_json(&Answer::new(&view, &profile))?;
    } else {
        print(&view, &profile)?;
    }
    Ok(Exit::Done)
}

impl Answer {
    fn new(view: &View, profile: &ProfileView) -> Answer {
        let activity = profile.activity;
        let category =
            |(category, weight): &(String, u64)| CategoryAnswer { category: category.clone(), weight: *weight };
        Answer {
            user: view.user.to_string(),
            shard: view.shard.0,
            state: view.state.name(),
            freshness_ms: u64::try_from(view.freshness.as_millis()).unwrap_or(u64::MAX),
            profile: ProfileAnswer::new(&view.profile),
            activity: ActivityAnswer {
                today: activity.today,
                last_7_days: activity.last_7_days,
                last_30_days: activity.last_30_days,
                last: activity.last,
            },
            top: profile.top.iter().map(category).collect(),
            friends: view.friends.iter().map(FriendAnswer::new).collect(),
        }
    }
}

impl ProfileAnswer {
    fn new(profile: &Profile) -> ProfileAnswer {
        let known = profile.schema > 0;
        ProfileAnswer {
            schema: known.then_some(profile.schema),
            version: known.then_some(profile.version),
            updated_at: profile.updated_at,
            birthday: known_date(profile.birthday),
            expires_at: profile.expires_at,
            fields: profile.fields.clone(),
        }
    }
}

impl FriendAnswer {
    fn new(friend: &Friend) -> FriendAnswer {
        FriendAnswer {
            friend: friend.friend.to_string(),
            birthday: known_date(friend.birthday),
            next: friend.next.map(|next| next.date.to_string()),
            days: friend.next.map(|next| next.days),
            age: friend.next.and_then(|next| next.age),
        }
    }
}

fn known_date(birthday: Birthday) -> Option<String> {
    (birthday != Birthday::Unknown).then(|| birthday.to_string())
}

fn print(view: &View, profile: &ProfileView) -> std::io::Result<()> {
    let Answer { user, state, profile, activity, top, friends, .. } = Answer::new(view, profile);
    let mut table = output::plain();
    table.add_row(["user", &output::harmless(&user)]);
    table.add_row(["state", &output::state(state, view.freshness)]);
    if let Some(birthday) = &profile.birthday {
        table.add_row(["birthday", birthday]);
    }
    for (name, value) in &profile.fields {
        table.add_row([output::harmless(name), output::harmless(value)]);
    }
    if let Some(at) = profile.updated_at {
        table.add_row(["updated", &output::moment(at)]);
    }
    if let Some(at) = profile.expires_at {
        table.add_row(["expires", &output::moment(at)]);
    }
    add_activity(&mut table, &activity, &top);
    output::print_table(&table)?;
    if friends.is_empty() {
        return output::print("\nno friends\n");
    }
    let mut table = output::table(&["friend", "birthday", "next", "in", "turns"]);
    for (row, friend) in friends.into_iter().zip(&view.friends) {
        table.add_row([
            output::harmless(&row.friend),
            shown(row.birthday),
            shown(friend.next.map(|next| output::weekday(next.date))),
            shown(row.days.map(output::in_days)),
            shown(row.age),
        ]);
    }
    output::right(&mut table, &[4]);
    output::print("\n")?;
    output::print_table(&table)
}

fn add_activity(table: &mut Table, activity: &ActivityAnswer, top: &[CategoryAnswer]) {
    let ActivityAnswer { today, last_7_days, last_30_days, last } = activity;
    if let Some(at) = last {
        table.add_row(["active", &output::moment(*at)]);
    }
    if *last_30_days > 0 {
        table.add_row(["activity", &format!("{today} today, {last_7_days} in 7 days, {last_30_days} in 30 days")]);
    }
    if !top.is_empty() {
        let shown: Vec<String> =
            top.iter().map(|row| format!("{} {}", output::harmless(&row.category), row.weight)).collect();
        table.add_row(["top", &shown.join(", ")]);
    }
}
