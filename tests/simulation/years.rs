//! Years of days: the worker's real loop goes through them by the hour, among users all over the world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use heyday::calendar::{Calendar, zone_named};
use heyday::change::{Fields, UserId};
use heyday::key::Keys;
use heyday::oracle::{Content, Contents};
use heyday::reduce::Rules;
use heyday::shard::Layout;
use heyday::testing::model::{Faults, Model};
use heyday::worker::{self, Context, Options};
use jiff::Timestamp;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Interval, interval};

use super::world::context;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// 2027-06-01T00:00:00Z: two years from here have a 29 February, and one whole year in them.
const BEGIN: u64 = 1_811_808_000_000;
/// From the first to the last in all zones: date line, half and quarter hours, clock changes on both halves of the globe.
const ZONES: [&str; 10] = [
    "Pacific/Kiritimati",
    "Etc/GMT+12",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/St_Johns",
    "Africa/Casablanca",
    "UTC",
];
const DATES: [&str; 9] =
    ["1990-05-01", "--02-29", "2000-02-29", "1984-12-31", "--01-01", "1961-02-28", "1999-03-01", "--10-25", ""];

struct Years {
    model: Model,
    rules: Arc<Rules>,
    hours: Interval,
    worker: Option<(JoinHandle<()>, oneshot::Sender<()>)>,
}

impl Years {
    fn new(calendar: Calendar) -> Years {
        let model = Model::new(Layout::new(2).unwrap(), Keys::new("").unwrap(), BEGIN);
        let rules = Arc::new(Rules { calendar, ..Rules::default() });
        Years { model, rules, hours: interval(Duration::from_millis(HOUR)), worker: None }
    }

    /// A worker that looks around once an hour.
    fn work(&mut self) {
        let options = Options {
            block: Duration::from_millis(HOUR / 2),
            lease_ttl: Duration::from_millis(12 * HOUR),
            heartbeat: Duration::from_millis(HOUR),
            trim_interval: Duration::from_millis(HOUR),
            ..Options::default()
        };
        let context = Context { rules: self.rules.clone(), ..context(&self.model, options) };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(worker::run(context, async { drop(stopped.await) }));
        self.worker = Some((task, stop));
    }

    async fn rest(&mut self) {
        if let Some((task, stop)) = self.worker.take() {
            stop.send(()).expect("the worker lives");
            task.await.expect("the worker ends in order");
        }
    }

    fn append(&self, entry: &str) {
        let field = |word: &str| {
            let (name, value) = word.split_once('=').expect("name=value");
            (name.to_owned().into(), value.to_owned().into())
        };
        let fields: Fields = entry.split(' ').map(field).collect();
        let user: UserId = entry.split("user=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        self.model.append(self.model.layout().shard_of(&user), fields).expect("an append");
    }

    fn now(&self) -> u64 {
        self.model.milliseconds()
    }

    /// Until everything is settled and every day complete: at the latest when the worker has looked around twice.
    async fn settle(&mut self) -> u32 {
        for hours in 1.. {
            self.hours.tick().await;
            let done =
                |shard| self.model.unsettled(shard).is_empty() && self.model.is_rolled(shard, &self.rules.calendar);
            if self.model.layout().shards().all(done) {
                return hours;
            }
            assert!(hours < 12, "not settled by {}", moment(self.now()));
        }
        unreachable!()
    }

    /// Every day that may be looked at now holds those whom the views put there, and nobody else.
    fn check(&self) {
        let contents = self.model.contents();
        let window = self.rules.calendar.window(self.now());
        let mut expected: BTreeMap<(Date, String), TimeZone> = BTreeMap::new();
        for (user, friend, birthday, zone) in friendships(&contents) {
            for day in window.days().filter(|day| celebrates(&birthday, *day)) {
                expected.insert((day, format!("{user}:{friend}")), zone.clone());
            }
        }
        for (day, member, due) in standing(&contents).into_iter().filter(|(day, ..)| window.holds(*day)) {
            let zone = expected.remove(&(day, member.clone()));
            let zone = zone.unwrap_or_else(|| panic!("{}: nobody puts {member} on {day}", moment(self.now())));
            is_nine_o_clock(&zone, day, due);
        }
        assert!(expected.is_empty(), "{}: missing {:?}", moment(self.now()), expected.keys());
        // One day too many is only a clock that is a little behind.
        let last = standing(&contents).into_iter().map(|(day, ..)| day).max();
        let allowed = window.last.tomorrow().unwrap();
        assert!(last.is_none_or(|last| last <= allowed), "{}: {last:?} is not open", moment(self.now()));
    }
}

fn moment(milliseconds: u64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds as i64).unwrap()
}

/// User, friend, date, and the zone of the user, as the views have them.
fn friendships(contents: &Contents) -> Vec<(String, String, String, TimeZone)> {
    let mut found = Vec::new();
    for (name, content) in contents {
        let (Some(stem), Content::Hash(friends)) = (name.strip_suffix(":birthdays"), content) else { continue };
        let user = stem.rsplit(':').next().unwrap().to_owned();
        let zone = match contents.get(&format!("{stem}:profile")) {
            Some(Content::Hash(profile)) => profile.get("tz").map_or("UTC", String::as_str),
            _ => "UTC",
        };
        let zone = zone_named(zone).unwrap();
        found.extend(friends.iter().map(|(friend, date)| (user.clone(), friend.clone(), date.clone(), zone.clone())));
    }
    found
}

fn standing(contents: &Contents) -> Vec<(Date, String, i64)> {
    let mut found = Vec::new();
    for (name, content) in contents {
        let (true, Content::Sorted(members)) = (name.starts_with("birthdays:"), content) else { continue };
        let day: Date = name.rsplit(':').next().unwrap().parse().unwrap();
        found.extend(members.iter().map(|(member, due)| (day, member.clone(), *due)));
    }
    found
}

/// The rule in other words: month and day are the same, or it is 28 February of a year without a 29th; not before the first
/// birthday.
fn celebrates(birthday: &str, day: Date) -> bool {
    let Some((year, month_day)) = birthday.split_at_checked(birthday.len().saturating_sub(5)) else { return false };
    if month_day.is_empty() {
        return false;
    }
    let born = year.trim_end_matches('-').parse::<i16>().ok();
    let today = day.strftime("%m-%d").to_string();
    let leap = day.year() % 4 == 0 && (day.year() % 100 != 0 || day.year() % 400 == 0);
    let same = today == month_day || (month_day == "02-29" && !leap && today == "02-28");
    same && born.is_none_or(|born| day.year() > born)
}

/// Told by the zone's clock: no calculation of ours is in it.
fn is_nine_o_clock(zone: &TimeZone, day: Date, due: i64) {
    let local = zone.to_datetime(Timestamp::from_second(due).unwrap());
    assert_eq!(local, day.at(9, 0, 0, 0), "{zone:?}");
}

#[tokio::test(start_paused = true)]
async fn every_birthday_is_due_once_a_year_at_nine_where_the_user_lives() {
    let mut years = Years::new(Calendar::default());
    let mut random = SmallRng::seed_from_u64(7);
    years.work();
    // Those whom nobody changes, and those who change and move all the time.
    for (at, zone) in ZONES.iter().enumerate() {
        years.append(&format!("type=profile user=steady{at} profile.tz={zone}"));
        for (friend, birthday) in DATES.iter().enumerate() {
            years.append(&format!("type=add user=steady{at} friend=f{friend} birthday={birthday}"));
        }
    }
    let mut due: BTreeMap<(String, i16), u32> = BTreeMap::new();
    let mut seen = years.now();
    while years.now() < BEGIN + 731 * DAY {
        for _ in 0..random.random_range(0..4) {
            years.append(&restless(&mut random, years.now()));
        }
        years.settle().await;
        years.check();
        let now = years.now();
        for (day, member, at) in standing(&years.model.contents()) {
            let at_milliseconds = at as u64 * 1000;
            if member.starts_with("steady") && seen < at_milliseconds && at_milliseconds <= now {
                *due.entry((member, day.year())).or_default() += 1;
            }
        }
        seen = now;
        for _ in 0..random.random_range(4..12) {
            years.hours.tick().await;
        }
    }
    for (at, zone) in ZONES.iter().enumerate() {
        for (friend, birthday) in DATES.iter().enumerate() {
            let times = due.get(&(format!("steady{at}:f{friend}"), 2028)).copied().unwrap_or(0);
            assert_eq!(times, u32::from(!birthday.is_empty()), "{birthday} for somebody in {zone}");
        }
    }
    assert!(due.values().all(|times| *times == 1), "{due:?}");
    years.rest().await;
}

/// A change of a few users' friends, dates and zones, most of them near the present day.
fn restless(random: &mut SmallRng, now: u64) -> String {
    let (user, friend) = (random.random_range(0..6), random.random_range(0..10));
    let near = moment(now + random.random_range(0..20 * DAY)).to_string();
    let birthday = match random.random_range(0..4) {
        0 => DATES[random.random_range(0..DATES.len())].to_owned(),
        _ => format!("1977{}", &near[4..10]),
    };
    // There is no such day in 1977.
    let birthday = birthday.replace("1977-02-29", "--02-29");
    match random.random_range(0..10) {
        0..5 => format!("type=add user=restless{user} friend=f{friend} birthday={birthday}"),
        5..7 => format!("type=update user=restless{user} friend=f{friend} birthday={birthday}"),
        7 => format!("type=remove user=restless{user} friend=f{friend}"),
        8 => format!("type=profile user=restless{user} profile.tz="),
        _ => format!("type=profile user=restless{user} profile.tz={}", ZONES[random.random_range(0..ZONES.len())]),
    }
}

/// One friend for each day from the first of June to the last of August.
fn somebody_each_day(years: &Years) {
    for (at, day) in date(1990, 6, 1).series(jiff::Span::new().days(1)).take(92).enumerate() {
        years.append(&format!("type=add user=u{} friend=f{at} birthday={day}", at % 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_slept_for_weeks_catches_up_at_once() {
    let mut years = Years::new(Calendar::default());
    years.work();
    somebody_each_day(&years);
    years.settle().await;
    years.check();
    for days in [1, 3, 9, 40] {
        years.rest().await;
        for _ in 0..24 * days {
            years.hours.tick().await;
        }
        years.work();
        years.settle().await;
        years.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_horizon_that_grows_or_shrinks_is_followed() {
    let mut years = Years::new(Calendar::default());
    years.work();
    somebody_each_day(&years);
    years.settle().await;
    for horizon_days in [20, 3, 4, 60, 1, 8] {
        years.rest().await;
        years.rules =
            Arc::new(Rules { calendar: Calendar { horizon_days, ..Calendar::default() }, ..Rules::default() });
        years.work();
        years.settle().await;
        years.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_was_far_ahead_leaves_no_wrong_day() {
    let mut years = Years::new(Calendar::default());
    years.work();
    somebody_each_day(&years);
    years.settle().await;
    // Links break with every third reply, so that owners begin again from what is stored, between any two commits.
    for (seed, ahead) in [(0, 3 * DAY), (1, 40 * DAY), (2, 2000 * DAY), (3, 40 * DAY), (4, 400 * DAY)] {
        years.model.set_faults(Faults { seed, reply_lost: 3000, ..Faults::default() });
        years.model.wind_clock(ahead as i64);
        years.settle().await;
        years.check();
        // What changes now is a change of days that this clock takes to be over.
        for (user, zone) in ZONES.iter().enumerate().take(3) {
            years.append(&format!("type=remove user=u{user} friend=f{user}"));
            years.append(&format!("type=add user=u{user} friend=f{} birthday=--06-03", 90 + user));
            years.append(&format!("type=profile user=u{user} profile.tz={zone}"));
        }
        years.settle().await;
        years.model.wind_clock(-(ahead as i64));
        years.settle().await;
        years.check();
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_with_a_time_to_live_ends_within_a_day_of_it_and_is_told() {
    let mut years = Years::new(Calendar::default());
    years.rules = Arc::new(Rules {
        profile_ttl: Some(Duration::from_millis(10 * DAY)),
        profile_keep: ["role".to_owned()].into(),
        ..Rules::default()
    });
    years.work();
    years.append("type=profile user=kept profile.city=Ulm profile.role=admin profile.tz=Europe/Berlin");
    years.append("type=profile user=gone profile.city=Ulm");
    years.append("type=profile user=again profile.city=Ulm");
    years.settle().await;
    let profile = |years: &Years, user: &str| -> Vec<String> {
        let contents = years.model.contents();
        let found = contents.iter().find(|(name, _)| name.ends_with(&format!("{user}:profile")));
        match found {
            Some((_, Content::Hash(fields))) => fields.keys().cloned().collect(),
            _ => Vec::new(),
        }
    };
    assert!(profile(&years, "kept").contains(&"city".to_owned()));
    for day in 1..=12 {
        for _ in 0..24 {
            years.hours.tick().await;
        }
        if day == 5 {
            years.append("type=profile user=again profile.lang=de");
        }
        years.settle().await;
    }
    assert_eq!(profile(&years, "kept"), ["role", "schema", "tz", "updated_at", "version"]);
    assert_eq!(profile(&years, "gone"), [""; 0]);
    assert!(profile(&years, "again").contains(&"city".to_owned()), "a change lets it live on");
    let listed = years.model.contents().into_iter().find(|(name, _)| name.starts_with("users:"));
    assert!(!format!("{listed:?}").contains("gone"), "{listed:?}");
    let told: Vec<String> = (years.model.layout().shards())
        .flat_map(|shard| years.model.log(shard))
        .filter(|signal| signal.at_milliseconds > BEGIN + 9 * DAY)
        .flat_map(|signal| signal.users)
        .map(|(user, _)| user.to_string())
        .collect();
    assert!(told.contains(&"kept".to_owned()) && told.contains(&"gone".to_owned()), "{told:?}");
}
