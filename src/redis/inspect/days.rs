//! Day keys, the other way round: everybody who stands there is put there by a view.

use std::collections::BTreeSet;

use super::confirm::{Suspect, ends, stored};
use super::scan::{By, Page, Scan};
use super::{Check, Ground};
use crate::invariant::{Day, Kind, Violation, shown};
use crate::redis::query::command;
use crate::redis::{Error, Pipeline};

impl Check<'_> {
    pub(super) async fn days(&mut self, ground: &Ground) -> Result<(), Error> {
        let mut scans: Vec<Scan> =
            ground.days.iter().map(|day| Scan::new(By::Sorted, &day.key, ground.keys.slot)).collect();
        // Most days are small, so the first page of each comes with the others'.
        let steps = scans.iter().map(Scan::step).collect();
        let replies = self.source.ask_slot(ground.keys.slot, steps).await?;
        let unrest = self.source.unrest();
        for ((day, scan), reply) in ground.days.iter().zip(&mut scans).zip(&replies) {
            let first = scan.take(reply, unrest)?;
            self.members(ground, day, first).await?;
            while let Some(page) = self.page(scan).await? {
                self.members(ground, day, page).await?;
            }
        }
        Ok(())
    }

    async fn members(&mut self, ground: &Ground, day: &Day, page: Page) -> Result<(), Error> {
        if page.is_empty() {
            return Ok(());
        }
        self.findings.counts.day_members += page.len() as u64;
        let mut members: Vec<(String, String)> = Vec::with_capacity(page.len());
        for (member, score) in &page {
            match std::str::from_utf8(member) {
                Ok(member) => members.push((member.to_owned(), String::from_utf8_lossy(score).into_owned())),
                Err(_) => {
                    let violation = Violation::new(Kind::Day, &day.key, "a user and a friend", shown(member));
                    self.findings.note_all([violation]);
                }
            }
        }
        let question = |(member, _): &(String, String)| -> Pipeline {
            match ends(member) {
                Some((user, friend)) => command(&["HGET", ground.keys.birthdays(&user).as_str(), friend]),
                None => command(&["HGET", ground.keys.state.as_str(), ""]),
            }
        };
        let replies = self.source.ask_slot(ground.keys.slot, members.iter().map(question).collect()).await?;
        let mut suspects = BTreeSet::new();
        for ((member, score), reply) in members.into_iter().zip(replies) {
            let date = stored(&member, std::slice::from_ref(&reply));
            let expected = date.and_then(|date| day.score(date.as_deref()));
            if expected.map(|due| due.to_string()).as_ref() != Some(&score) {
                suspects.insert(Suspect::Member { date: day.date, member });
            }
        }
        self.confirm(ground, suspects).await
    }
}
