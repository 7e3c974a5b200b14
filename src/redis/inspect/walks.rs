//! Through the keys of users that nothing else leads to: versions, and activity by day and by category.

use super::Check;
use super::names::SCANS_MAX;
use super::scan::{By, Page, Scan};
use crate::invariant::{Violation, judge_category, judge_day_count, judge_day_sum, judge_version};
use crate::redis::Error;

/// A key to be gone through.
pub(super) struct Walk {
    pub name: String,
    pub slot: u16,
    pub view: Walked,
}

/// What the key is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walked {
    Versions,
    Activity,
    Top,
}

impl Walked {
    /// None for a key that is gone through elsewhere.
    pub fn of(view: &str) -> Option<Walked> {
        match view {
            "versions" => Some(Walked::Versions),
            "activity" => Some(Walked::Activity),
            "top" => Some(Walked::Top),
            _ => None,
        }
    }
}

impl Walk {
    fn scan(&self) -> Scan {
        let by = if self.view == Walked::Top { By::Sorted } else { By::Hash };
        Scan::new(by, &self.name, self.slot)
    }

    fn judge(&self, (name, value): (&[u8], &[u8])) -> Option<Violation> {
        match self.view {
            Walked::Versions => judge_version(&self.name, name, value),
            Walked::Activity => judge_day_sum(&self.name, name, value),
            Walked::Top => judge_category(&self.name, name, value),
        }
    }
}

impl Check<'_> {
    pub(super) async fn walks(&mut self, walks: &[Walk]) -> Result<(), Error> {
        for chunk in walks.chunks(SCANS_MAX) {
            self.walk_together(chunk).await?;
        }
        Ok(())
    }

    /// Most are small, so the first page of each comes with the others'.
    async fn walk_together(&mut self, walks: &[Walk]) -> Result<(), Error> {
        let mut scans: Vec<Scan> = walks.iter().map(Walk::scan).collect();
        let steps: Vec<_> = walks.iter().zip(&scans).map(|(walk, scan)| (walk.slot, scan.step())).collect();
        let replies = self.source.ask(&steps).await?;
        let unrest = self.source.unrest();
        for ((walk, scan), reply) in walks.iter().zip(&mut scans).zip(&replies) {
            let (mut next, mut count) = (Some(scan.take(reply, unrest)?), 0);
            while let Some(page) = next {
                count += page.len() as u64;
                self.look_at(walk, &page);
                next = self.page(scan).await?;
            }
            if walk.view == Walked::Activity {
                self.findings.note_all(judge_day_count(&walk.name, count));
            }
        }
        Ok(())
    }

    fn look_at(&mut self, walk: &Walk, page: &Page) {
        let counted = match walk.view {
            Walked::Versions => &mut self.findings.counts.versions,
            Walked::Activity | Walked::Top => &mut self.findings.counts.activity,
        };
        *counted += page.len() as u64;
        let wrong = page.iter().filter_map(|(name, value)| walk.judge((name, value)));
        self.findings.note_all(wrong);
    }
}
