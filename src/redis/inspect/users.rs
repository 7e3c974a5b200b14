//! Users in order: everybody who is listed has a view, it is well formed, and all friends stand on their days.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;

use super::confirm::Suspect;
use super::scan::{By, Page, Scan};
use super::{Check, Ground, readable};
use crate::change::UserId;
use crate::invariant::{Day, Kind, PROFILE_FIELDS, Violation, judge_friend, judge_profile, shown};
use crate::key::day_member;
use crate::redis::query::command;
use crate::redis::{Error, Pipeline, Reply};

/// Users looked at together.
const USERS_MAX: usize = 64;
/// Users with another score than 0 that are looked into; more are found by the next check.
const SCORED_MAX: &str = "100";
/// Commands for each user.
const QUESTIONS: usize = 3;

/// One listed user of a page.
struct Listed {
    user: UserId,
    scan: Scan,
}

impl Check<'_> {
    pub(super) async fn users(&mut self, ground: &Ground) -> Result<(), Error> {
        self.scores(ground).await?;
        // The scores are all 0, so the order is that of the names, and a page is resumed whatever changed meanwhile.
        let mut after = b"-".to_vec();
        loop {
            let key = ground.keys.users.as_str();
            let count = USERS_MAX.to_string();
            let words: [&[u8]; 8] =
                [b"ZRANGE", key.as_bytes(), &after, b"+", b"BYLEX", b"LIMIT", b"0", count.as_bytes()];
            let page = command(&words);
            let replies = self.source.ask_slot(ground.keys.slot, vec![page]).await?;
            let Some(names) = readable(&replies[0]) else { return Ok(()) };
            let names = names.as_array()?;
            let Some(last) = names.last() else { return Ok(()) };
            after = [b"(", &last.as_bytes()?[..]].concat();
            let suspects = self.users_of(ground, names).await?;
            self.confirm(ground, suspects).await?;
            (self.progress)(names.len() as u64);
            if names.len() < USERS_MAX {
                return Ok(());
            }
        }
    }

    /// Whoever has another score than 0 would not be found in the order of names.
    async fn scores(&mut self, ground: &Ground) -> Result<(), Error> {
        let key = ground.keys.users.as_str();
        let range = |from, to| command(&["ZRANGE", key, from, to, "BYSCORE", "LIMIT", "0", SCORED_MAX]);
        let replies = self.source.ask_slot(ground.keys.slot, vec![range("-inf", "(0"), range("(0", "+inf")]).await?;
        let mut suspects = BTreeSet::new();
        for names in replies.iter().filter_map(readable) {
            for name in names.as_array()? {
                suspects.insert(Suspect::Listing { user: String::from_utf8_lossy(name.as_bytes()?).into_owned() });
            }
        }
        self.confirm(ground, suspects).await
    }

    async fn users_of(&mut self, ground: &Ground, names: &[Reply]) -> Result<BTreeSet<Suspect>, Error> {
        let mut suspects = BTreeSet::new();
        let mut listed = Vec::new();
        for name in names {
            self.findings.counts.users += 1;
            let name = name.as_bytes()?;
            let user = std::str::from_utf8(name).ok().and_then(|name| name.parse::<UserId>().ok());
            match user {
                Some(user) if self.layout.shard_of(&user) == ground.keys.shard => {
                    let scan = Scan::new(By::Hash, ground.keys.birthdays(&user), ground.keys.slot);
                    listed.push(Listed { user, scan });
                }
                Some(user) => {
                    let expected = format!("users of shard {}", ground.keys.shard);
                    let found = format!("\"{user}\" of shard {}", self.layout.shard_of(&user));
                    self.findings.note_all([Violation::new(Kind::WrongShard, &ground.keys.users, expected, found)]);
                }
                None => {
                    let expected = "ids of users";
                    self.findings.note_all([Violation::new(Kind::View, &ground.keys.users, expected, shown(name))]);
                }
            }
        }
        let questions: Vec<Pipeline> = listed.iter().flat_map(|listed| questions(ground, listed)).collect();
        let replies = self.source.ask_slot(ground.keys.slot, questions).await?;
        let unrest = self.source.unrest();
        let mut members = Members::default();
        for (listed, replies) in listed.iter_mut().zip(replies.chunks(QUESTIONS)) {
            let page = listed.scan.take(&replies[2], unrest)?;
            let has_profile = replies[1].as_u64().map_or(true, |fields| fields > 0);
            if !has_profile && listed.scan.is_done() && page.is_empty() {
                suspects.insert(Suspect::Listing { user: listed.user.to_string() });
            } else if has_profile && let Some(fields) = readable(&replies[0]) {
                self.profile(ground, &listed.user, fields)?;
            }
            self.friends(ground, &listed.user, &page, &mut members);
        }
        self.missing(ground, members, &mut suspects).await?;
        for listed in listed.iter_mut().filter(|listed| !listed.scan.is_done()) {
            while let Some(page) = self.page(&mut listed.scan).await? {
                let mut members = Members::default();
                self.friends(ground, &listed.user, &page, &mut members);
                self.missing(ground, members, &mut suspects).await?;
            }
        }
        Ok(suspects)
    }

    fn profile(&mut self, ground: &Ground, user: &UserId, fields: &Reply) -> Result<(), Error> {
        let fields = fields.as_array()?.iter().map(Reply::as_bytes_or_null).collect::<Result<Vec<_>, _>>()?;
        let fields: Result<[_; PROFILE_FIELDS.len()], _> = fields.try_into();
        if let Ok(fields) = fields {
            let key = ground.keys.profile(user);
            self.findings.note_all(judge_profile(&key, fields.map(|field| field.map(AsRef::as_ref))));
        }
        Ok(())
    }

    fn friends(&mut self, ground: &Ground, user: &UserId, page: &Page, members: &mut Members) {
        self.findings.counts.friends += page.len() as u64;
        let key = ground.keys.birthdays(user);
        for (friend, date) in page {
            if let Some(violation) = judge_friend(&key, user, friend, date) {
                self.findings.note_all([violation]);
                continue;
            }
            let text = |bytes| std::str::from_utf8(bytes).ok();
            let (Some(friend), Some(date)) = (text(friend).and_then(|id| id.parse::<UserId>().ok()), text(date)) else {
                continue;
            };
            for day in ground.days.iter().filter(|day| day.celebrates(date)) {
                members.days.entry(day.date).or_default().push(day_member(user, friend.as_str()));
            }
        }
    }

    /// Asks the days for their members. Who stands there with a wrong score is met again on the walk through the days.
    async fn missing(
        &mut self,
        ground: &Ground,
        members: Members,
        suspects: &mut BTreeSet<Suspect>,
    ) -> Result<(), Error> {
        let days: Vec<(&Day, Vec<String>)> = members
            .days
            .into_iter()
            .filter_map(|(date, members)| Some((super::confirm::day(&ground.days, date)?, members)))
            .collect();
        let questions = days.iter().map(|(day, members)| {
            let mut pipeline = Pipeline::new();
            pipeline.command("ZMSCORE").arg(day.key.as_bytes()).args(members);
            pipeline
        });
        let replies = self.source.ask_slot(ground.keys.slot, questions.collect()).await?;
        for ((day, members), reply) in days.into_iter().zip(&replies) {
            let Some(scores) = readable(reply) else { continue };
            for (member, score) in members.into_iter().zip(scores.as_array()?) {
                if !score.is_null() {
                    continue;
                }
                if ground.progress.is_complete(day.date) {
                    suspects.insert(Suspect::Member { date: day.date, member });
                } else {
                    self.findings.counts.not_rolled += 1;
                }
            }
        }
        Ok(())
    }
}

/// Who must stand on which day.
#[derive(Default)]
struct Members {
    days: BTreeMap<Date, Vec<String>>,
}

fn questions(ground: &Ground, listed: &Listed) -> [Pipeline; QUESTIONS] {
    let profile = ground.keys.profile(&listed.user);
    let mut fields = Pipeline::new();
    fields.command("HMGET").arg(profile.as_bytes()).args(PROFILE_FIELDS);
    [fields, command(&["HLEN", profile.as_str()]), listed.scan.step()]
}
