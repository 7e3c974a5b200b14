//! Day keys, the other way round: everybody who stands there is put there by a view.

use std::collections::BTreeSet;

use super::confirm::{Suspect, stored, text, views};
use super::scan::{By, Page, Scan};
use super::{Check, Ground};
use crate::invariant::{Day, Kind, Violation, shown};
use crate::redis::Error;

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
        let questions = members.iter().flat_map(|(member, _)| views(&ground.keys, member));
        let replies = self.source.ask_slot(ground.keys.slot, questions.collect()).await?;
        let mut suspects = BTreeSet::new();
        for ((member, score), replies) in members.into_iter().zip(replies.chunks_exact(2)) {
            let (date, zone) = (stored(&member, replies), text(&replies[1]).flatten());
            let expected = date.and_then(|date| day.score(date.as_deref(), zone.as_deref()));
            if expected.map(|due| due.to_string()).as_ref() != Some(&score) {
                suspects.insert(Suspect::Member { date: day.date, member });
            }
        }
        self.confirm(ground, suspects).await
    }
}
