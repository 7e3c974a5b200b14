//! Random snapshots of users, as `heyday rebuild` writes them.

use rand::RngExt;
use rand::rngs::SmallRng;

/// What snapshots are about.
#[derive(Clone, Copy, Debug)]
pub struct Snapshots {
    /// The moment of the rebuild; that of each snapshot lies between it and `spread` milliseconds later.
    pub since: u64,
    pub spread: u64,
    /// Whether they leave alone what users tell each other: friends among the users, and the own date.
    pub one_sided: bool,
}

/// The fields of one behind type and user.
pub(super) fn fields(
    settings: Snapshots,
    (friends, version): (u32, u64),
    random: &mut SmallRng,
    mut birthday: impl FnMut(&mut SmallRng) -> String,
) -> Vec<(String, String)> {
    let mut fields = vec![("at".to_owned(), (settings.since + random.random_range(0..=settings.spread)).to_string())];
    let mut push = |name: &str, value: String| fields.push((name.to_owned(), value));
    let whole = random.random_bool(0.4);
    let (mut from, mut to) = (0, friends);
    if random.random_bool(0.3) {
        (from, to) = (friends / 4, friends - friends / 4);
    }
    let parted = (from, to) != (0, friends) || (whole && settings.one_sided);
    let listed = (from..to).filter(|_| random.random_bool(0.5)).collect::<Vec<_>>();
    let listed = listed.into_iter().map(|friend| {
        let date = birthday(random);
        let version = random.random_bool(0.3).then(|| version.saturating_sub(random.random_range(0..60)));
        let version = version.map(|version| format!("@{version}")).unwrap_or_default();
        format!("f{friend}={date}{version}")
    });
    let mut listed: Vec<String> = listed.collect();
    listed.sort_by(|left, right| left.split('=').next().cmp(&right.split('=').next()));
    if !listed.is_empty() {
        push("friends", listed.join(" "));
    }
    if parted {
        push("from", format!("f{from}"));
        push("to", if to == friends { "g".to_owned() } else { format!("f{to}") });
    }
    if whole {
        push("whole", "1".to_owned());
        if random.random_bool(0.3) {
            push("gone", "1".to_owned());
        }
    }
    if random.random_bool(0.2) {
        return fields;
    }
    if !settings.one_sided && random.random_bool(0.5) {
        push("birthday", birthday(random));
    }
    for name in 0..5 {
        match random.random_range(0..4) {
            0 => push(&format!("profile.p{name}"), String::new()),
            1 => push(&format!("profile.p{name}"), format!("v{}", random.random_range(0..3))),
            _ => {}
        }
    }
    if random.random_bool(0.3) {
        push("versions", format!("p0={version} p1={} birthday={version}", version / 2));
    }
    fields
}
