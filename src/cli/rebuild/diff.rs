//! `heyday rebuild --dry-run`: what a run would do to the views as they are now, by the reducer itself.

use serde::Serialize;
use tokio::io::BufReader;

use super::gone::{self, Ids, Walk};
use super::load::{NAMED_MAX, Options, READ_BYTES, repeated};
use super::mark;
use super::parts::Form;
use super::source::Source;
use super::way::Way;
use crate::change::{Change, UserId};
use crate::cli::write::Lines;
use crate::cli::{Context, Exit, output};
use crate::key::ShardKeys;
use crate::position::EntryId;
use crate::reduce::{Decoded, Entry, Jobs, Loaded, Op, Plan, Rules, ShardState, UserLoaded, reduce};

/// Users whose views are read at once.
const USERS_MAX: usize = 256;
/// Differences that are told one by one.
const TOLD_MAX: usize = 20;
/// Fields that follow from others.
const HEAD: [&str; 4] = ["schema", "version", "updated_at", "expires_at"];

/// What would change.
#[derive(Debug, Default, Serialize)]
struct Difference {
    /// Unix milliseconds; null where no rebuild is on and the run would begin one.
    moment: Option<u64>,
    lines: u64,
    bad: u64,
    /// Lines of users who are in an earlier line too.
    repeated: u64,
    users: Users,
    friends: Counts,
    /// Profile fields, the own date included.
    fields: Counts,
    /// Entries that would become dead letters.
    dead_letters: u64,
    /// The first differences.
    first: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct Users {
    /// In the file.
    named: u64,
    changed: u64,
    new: u64,
    gone: u64,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    added: u64,
    changed: u64,
    removed: u64,
}

pub(super) async fn run(options: Options, context: &Context) -> anyhow::Result<Exit> {
    let way = Way::open(context).await?;
    let now = way.shards.now().await?;
    let moment = mark::on(&way).await?;
    let form = Form::new(moment.unwrap_or(now), options.authoritative, context.settings.config.limits());
    let difference = Difference { moment, ..Difference::default() };
    let rules = context.settings.config.rules();
    let mut compare = Compare { way: &way, form, rules, now, difference };
    compare.file(&options).await?;
    let Difference { bad, repeated, .. } = compare.difference;
    if options.json {
        output::print_json(&compare.difference)?;
    } else {
        output::print(&compare.difference.text())?;
    }
    Ok(if bad == 0 && repeated == 0 { Exit::Done } else { Exit::Found })
}

struct Compare<'a> {
    way: &'a Way,
    form: Form,
    rules: Rules,
    now: u64,
    difference: Difference,
}

impl Compare<'_> {
    async fn file(&mut self, options: &Options) -> anyhow::Result<()> {
        let source = Source::of(&options.file)?;
        let file = tokio::fs::File::open(&source.path).await?;
        let mut lines = Lines::new(BufReader::with_capacity(READ_BYTES, file));
        let (mut ids, mut users) = (Ids::default(), Vec::with_capacity(USERS_MAX));
        while let Some(line) = lines.next().await? {
            let (number, user) = (line.number, self.form.read(&line));
            self.difference.lines = number;
            match user {
                Ok(None) => {}
                Ok(Some(user)) => {
                    if !ids.add(user.id()) {
                        self.difference.repeated += 1;
                        if self.difference.repeated <= NAMED_MAX {
                            eprintln!("heyday: {}", repeated(number, user.id()));
                        }
                    }
                    users.push(user.entries);
                }
                Err(reason) => {
                    self.difference.bad += 1;
                    if self.difference.bad <= NAMED_MAX {
                        eprintln!("heyday: line {number}: {reason}");
                    }
                }
            }
            if users.len() == USERS_MAX {
                self.users(std::mem::take(&mut users)).await?;
            }
        }
        self.difference.users.named = ids.len() as u64;
        self.users(users).await?;
        if options.authoritative {
            let Difference { bad, repeated, .. } = self.difference;
            match gone::doubt(&source, bad, repeated)? {
                Some(why) => eprintln!("heyday: no users would be removed: {why}"),
                None => self.unnamed(&ids).await?,
            }
        }
        Ok(())
    }

    async fn unnamed(&mut self, ids: &Ids) -> anyhow::Result<()> {
        let way = self.way;
        for shard in way.shards.layout().shards() {
            let mut pages = Walk::new(&way.shards, shard);
            while let Some(gone) = pages.next(ids).await? {
                let gone: Vec<_> = gone.into_iter().map(|user| vec![self.form.nobody(user, 0)]).collect();
                self.users(gone).await?;
            }
        }
        Ok(())
    }

    /// Each user's entries, against what is stored.
    async fn users(&mut self, users: Vec<Vec<Change>>) -> anyhow::Result<()> {
        let ids: Vec<UserId> = users.iter().map(|entries| entries[0].user.clone()).collect();
        let stored = self.way.shards.views(&ids).await?;
        for (entries, stored) in users.into_iter().zip(stored) {
            self.user(entries, stored);
        }
        Ok(())
    }

    fn user(&mut self, entries: Vec<Change>, stored: UserLoaded) {
        let (user, at) = (entries[0].user.clone(), self.form.at);
        let keys = self.way.hub.keys_of(&user);
        let decoded = |(number, change): (u64, Change)| Decoded {
            entry: Entry { id: EntryId::new(self.now, number), fields: None, deliveries: 1 },
            // What an earlier run has done already is no less of a difference.
            change: Ok(Change { producer: None, ..change }),
        };
        let batch: Vec<Decoded> = (1..).zip(entries).map(decoded).collect();
        let state = ShardState { rebuild: Some(at), ..ShardState::default() };
        let plan = Plan::of(&batch, &state, &Jobs::default(), (&self.rules, self.now));
        let users = vec![stored];
        let loaded = Loaded { milliseconds: self.now, rebuild: Some(at), users, ..Loaded::default() };
        let commit = reduce(&self.rules, keys, &state, &batch, (&plan, &loaded));
        self.difference.dead_letters += commit.dead_kinds.len() as u64;
        self.difference.users.changed += u64::from(!commit.signal.users.is_empty());
        for op in &commit.ops {
            self.difference.note(op, (keys, &user), &loaded.users[0]);
        }
    }
}

impl Difference {
    fn note(&mut self, op: &Op, (keys, user): (&ShardKeys, &UserId), stored: &UserLoaded) {
        let (birthdays, profile) = (keys.birthdays(user), keys.profile(user));
        let friend =
            |name: &str| stored.everyone.iter().find(|(known, _)| known == name).map(|(_, date)| date.as_str());
        let field = |name: &str| stored.profile.get(name).map(String::as_str);
        match op {
            Op::HashSet { key, fields } if *key == birthdays => {
                fields.iter().for_each(|(name, now)| self.set(user, ("friend", name), (friend(name), now)));
            }
            Op::HashDelete { key, fields } if *key == birthdays => {
                fields.iter().for_each(|name| self.removed(user, ("friend", name), friend(name)));
            }
            Op::HashSet { key, fields } if *key == profile => {
                let fields = fields.iter().filter(|(name, _)| !HEAD.contains(&name.as_str()));
                fields.for_each(|(name, now)| self.set(user, ("profile", name), (field(name), now)));
            }
            Op::HashDelete { key, fields } if *key == profile => {
                fields.iter().for_each(|name| self.removed(user, ("profile", name), field(name)));
            }
            Op::Delete { keys } if keys.contains(&profile) => {
                let told = stored.profile.iter().filter(|(name, _)| !HEAD.contains(&name.as_str()));
                told.for_each(|(name, before)| self.removed(user, ("profile", name), Some(before)));
            }
            Op::SortedAdd { key, members } if *key == keys.users => self.users.new += members.len() as u64,
            Op::SortedRemove { key, members } if *key == keys.users => self.users.gone += members.len() as u64,
            _ => {}
        }
    }

    fn counts(&mut self, what: &str) -> &mut Counts {
        if what == "friend" { &mut self.friends } else { &mut self.fields }
    }

    fn set(&mut self, user: &UserId, (what, name): (&str, &str), (before, now): (Option<&str>, &str)) {
        let counts = self.counts(what);
        *(if before.is_some() { &mut counts.changed } else { &mut counts.added }) += 1;
        self.tell(|| format!("user {user}: {what} {name}: {} -> {now:?}", shown(before)));
    }

    fn removed(&mut self, user: &UserId, (what, name): (&str, &str), before: Option<&str>) {
        self.counts(what).removed += 1;
        self.tell(|| format!("user {user}: {what} {name}: {} -> none", shown(before)));
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.first.len() < TOLD_MAX {
            self.first.push(text());
        }
    }

    fn text(&self) -> String {
        let Difference { lines, bad, repeated, users, friends, fields, dead_letters, first, .. } = self;
        let mut text: String = first.iter().map(|line| format!("{line}\n")).collect();
        let all = friends.all() + fields.all();
        if all > first.len() as u64 {
            text += &format!("and {} more\n", all - first.len() as u64);
        }
        let moment = self.moment.map_or_else(|| "now, as no rebuild is on".to_owned(), mark::shown);
        text +=
            &format!("moment         {moment}\nlines          {lines}, {bad} bad, {repeated} of users named before\n");
        text += &format!(
            "users          {} in the file; {} change, {} new, {} gone\n",
            users.named, users.changed, users.new, users.gone
        );
        text += &format!("friends        {friends}\nprofile fields {fields}\n");
        if *dead_letters > 0 {
            text += &format!("dead letters   {dead_letters}\n");
        }
        text
    }
}

impl Counts {
    fn all(&self) -> u64 {
        self.added + self.changed + self.removed
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} added, {} changed, {} removed", self.added, self.changed, self.removed)
    }
}

fn shown(value: Option<&str>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("{value:?}"))
}
