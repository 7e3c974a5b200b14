//! What decides which of two changes is the newer one: versions that writers send, and the order of changes to both sides of
//! a friendship.

use std::time::Duration;

use super::changed::{Changed, Told, What};
use super::named::Named;
use super::user::Moment;
use super::{Op, Rules, UserLoaded, UserPlan};
use crate::birthday::Birthday;
use crate::change::UserId;
use crate::key::{FORGOTTEN_FIELD, ShardKeys, changed_field, order_field};
use crate::position::Order;

/// The longest time that a rebuild may be on.
const REBUILD_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// One user's, while a batch is reduced.
pub(super) struct Versions<'a> {
    plan: &'a UserPlan,
    sample: &'a [(String, String)],
    slots: Named<'a, Slot>,
}

#[derive(Default)]
struct Slot {
    stored: Option<Mark>,
    touched: bool,
}

/// What a field of `versions` holds.
#[derive(Clone, Copy)]
enum Mark {
    Version(Stamp),
    Order(Order),
    Changed(Changed),
}

/// What becomes of something that a snapshot tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Taken,
    /// What is stored is newer.
    Kept,
    /// There is a friendship, with a date that was told later.
    Dated(Birthday),
}

/// A stored version; a tombstone carries the server time of the removal.
#[derive(Clone, Copy)]
struct Stamp {
    version: u64,
    removed_at: Option<u64>,
}

impl<'a> Versions<'a> {
    pub fn new(plan: &'a UserPlan, loaded: &'a UserLoaded) -> Versions<'a> {
        let slot = |field: &'a str, text: Option<&str>| {
            (field, Slot { stored: text.and_then(|text| Mark::parse(field, text)), touched: false })
        };
        let slots = if plan.all {
            Named::all(loaded.all_versions.iter().map(|(field, text)| slot(field, Some(text))))
        } else {
            let fields = plan.versions.iter().zip(&loaded.versions);
            Named::some(fields.map(|(field, text)| slot(field, text.as_deref())))
        };
        Versions { plan, sample: &loaded.sample, slots }
    }

    /// Whether a change is newer than what is stored; if so its version is stored. Without a version it always is.
    pub fn newer(&mut self, field: &str, moment: Moment, removes: bool) -> bool {
        let Some(version) = moment.version else {
            return true;
        };
        let slot = self.slots.slot(field);
        if let Some(Mark::Version(stored)) = slot.stored
            && stored.version >= version
        {
            return false;
        }
        slot.put(Some(Mark::Version(Stamp { version, removed_at: removes.then_some(moment.now) })));
        true
    }

    /// Whether a change is newer than what is stored, which stays as it is.
    pub fn is_newer(&self, field: &str, moment: Moment) -> bool {
        let stored = self.find(field).and_then(|slot| slot.stored);
        match (moment.version, stored) {
            (Some(version), Some(Mark::Version(stored))) => version > stored.version,
            _ => true,
        }
    }

    /// Whether the other side's change came later than what is known here: by its version where it has one, by its order
    /// otherwise, and not before the user was forgotten. If so that is stored.
    pub fn admits(&mut self, friend: &UserId, order: Order, moment: Moment, removes: bool) -> bool {
        let stored = self.order(&order_field(friend));
        if self.forgotten_since(order).is_some() || (moment.version.is_none() && order <= stored) {
            return false;
        }
        let version = self.find(friend.as_str()).and_then(|slot| slot.stored.as_ref());
        let stands = matches!(version, Some(Mark::Version(stamp)) if stamp.removed_at.is_none());
        if !self.newer(friend.as_str(), moment, removes) {
            return false;
        }
        // The order of what decides from here on, also where its version let it pass a later removal: whether it was before the
        // friend was forgotten is told by its own. A friendship that stands was made later all the same.
        self.set_order(friend, if stands && !removes { order.max(stored) } else { order });
        true
    }

    /// When the user was forgotten last, as long as that is remembered.
    pub fn forgotten(&self) -> Option<Order> {
        match self.find(FORGOTTEN_FIELD)?.stored {
            Some(Mark::Order(order)) => Some(order),
            _ => None,
        }
    }

    /// Whether a change to both sides of this friendship is remembered.
    pub fn has_order(&self, friend: &UserId) -> bool {
        self.find(&order_field(friend)).is_some_and(|slot| slot.stored.is_some())
    }

    fn find(&self, field: &str) -> Option<&Slot> {
        if self.slots.is_empty() { None } else { self.slots.get(field) }
    }

    /// When the user was forgotten, if that was not before `order`.
    pub fn forgotten_since(&mut self, order: Order) -> Option<Order> {
        Some(self.order(FORGOTTEN_FIELD)).filter(|forgotten| order <= *forgotten)
    }

    /// The friend is forgotten, and with it its version. False where the friendship is newer than that.
    pub fn forget(&mut self, friend: &UserId, order: Order) -> bool {
        if order <= self.order(&order_field(friend)) {
            return false;
        }
        let version = self.slots.slot(friend.as_str());
        if version.stored.is_some() {
            version.put(None);
        }
        self.set_order(friend, order);
        true
    }

    /// The user itself is forgotten.
    pub fn forget_all(&mut self, order: Order) {
        self.slots.slot(FORGOTTEN_FIELD).put(Some(Mark::Order(order)));
    }

    pub fn set_order(&mut self, friend: &UserId, order: Order) {
        self.slots.slot(&order_field(friend)).put(Some(Mark::Order(order)));
    }

    fn order(&mut self, field: &str) -> Order {
        match self.slots.slot(field).stored {
            Some(Mark::Order(order)) => order,
            _ => Order::default(),
        }
    }

    /// The stored version that a change without one leaves as it is.
    fn version(&self, field: &str) -> Option<u64> {
        match self.find(field)?.stored {
            Some(Mark::Version(stored)) => Some(stored.version),
            _ => None,
        }
    }

    /// What was decided after `at`, as far as a rebuild wanted to know.
    fn changed_after(&self, field: &str, at: u64) -> Option<What> {
        // A snapshot asks for every friend, and most users have no versions at all.
        if self.slots.is_empty() {
            return None;
        }
        match self.find(&changed_field(field))?.stored {
            Some(Mark::Changed(changed)) if changed.at > at => Some(changed.what),
            _ => None,
        }
    }

    /// Remembers when a friendship or a field was changed, where a rebuild is on.
    pub fn changed(&mut self, field: &str, moment: Moment) {
        self.decided(field, moment, What::All);
    }

    /// The same for a friendship that began, or was told again, without a date.
    pub fn changed_without_date(&mut self, friend: &UserId, moment: Moment) {
        let since = self.plan.rebuild.unwrap_or_default();
        let what = match self.changed_after(friend.as_str(), since) {
            Some(What::All) => What::All,
            Some(What::Friendship(told)) => What::Friendship(told),
            Some(What::Date(told)) => What::Friendship(Some(told)),
            None => What::Friendship(None),
        };
        self.decided(friend.as_str(), moment, what);
    }

    /// A date was told of a friendship, or of one that is not there and that a rebuild may bring. Whether there is one is not
    /// decided by that.
    pub fn date_told(&mut self, friend: &UserId, birthday: Birthday, moment: Moment, exists: bool) {
        let Some(since) = self.plan.rebuild else { return };
        let (field, version) = (friend.as_str(), moment.version);
        let is_outdated = |newest: u64| version.is_some_and(|version| version <= newest);
        let what = match self.changed_after(field, since) {
            Some(What::All | What::Friendship(_)) => exists.then_some(What::All),
            Some(What::Date(Told { version: Some(newest), .. })) if !exists && is_outdated(newest) => None,
            _ if !exists && self.version(field).is_some_and(is_outdated) => None,
            Some(What::Date(_)) | None => Some(What::Date(Told { birthday, version })),
        };
        if let Some(what) = what {
            self.decided(field, moment, what);
        }
    }

    fn decided(&mut self, field: &str, moment: Moment, what: What) {
        if self.plan.rebuild.is_some() {
            let changed = Changed { at: moment.entry.milliseconds, what };
            self.slots.slot(&changed_field(field)).put(Some(Mark::Changed(changed)));
        }
    }

    /// Something that a snapshot of the moment `at` tells: by version where both have one, by time where nothing stored has
    /// one. Its version is stored where it is taken.
    pub fn told(&mut self, field: &str, version: Option<u64>, at: u64) -> Verdict {
        if let Some(stored) = self.version(field) {
            let newer = version.filter(|version| *version > stored);
            newer.inspect(|version| self.set_version(field, *version));
            return if newer.is_some() { Verdict::Taken } else { Verdict::Kept };
        }
        let (verdict, version) = match self.changed_after(field, at) {
            Some(What::All) => (Verdict::Kept, None),
            Some(What::Date(told) | What::Friendship(Some(told))) => match (told.version, version) {
                (Some(newest), Some(version)) if version >= newest => (Verdict::Taken, Some(version)),
                _ => (Verdict::Dated(told.birthday), told.version.or(version)),
            },
            Some(What::Friendship(None)) | None => (Verdict::Taken, version),
        };
        version.inspect(|version| self.set_version(field, *version));
        verdict
    }

    /// Something that a snapshot of the moment `at` would name if it had been there. Where it goes, its version stays for
    /// what may be on its way.
    pub fn absent(&mut self, field: &str, at: u64, now: u64) -> Verdict {
        match self.changed_after(field, at) {
            Some(What::All) => return Verdict::Kept,
            // A date from before is none of this friendship.
            Some(What::Friendship(_)) => return Verdict::Dated(Birthday::Unknown),
            Some(What::Date(_)) | None => {}
        }
        if let Some(version) = self.version(field) {
            self.slots.slot(field).put(Some(Mark::Version(Stamp { version, removed_at: Some(now) })));
        }
        Verdict::Taken
    }

    /// Whether a field was changed after `at`.
    pub fn is_newer_than(&self, field: &str, at: u64) -> bool {
        self.changed_after(field, at).is_some()
    }

    fn set_version(&mut self, field: &str, version: u64) {
        self.slots.slot(field).put(Some(Mark::Version(Stamp { version, removed_at: None })));
    }

    /// For how long marks are kept that may matter to what is on its way: while a rebuild is on, that is the whole snapshot.
    pub fn retention(&self, rules: &Rules) -> Duration {
        let least = if self.plan.rebuild.is_some() { REBUILD_MAX } else { Duration::ZERO };
        rules.tombstone_retention.max(least)
    }

    /// Appends the commands; whether anything was set.
    pub fn write(&self, keys: &ShardKeys, rules: &Rules, now: u64, ops: &mut Vec<Op>) -> bool {
        // Most users have no versions at all.
        if self.slots.is_empty() && self.sample.is_empty() {
            return false;
        }
        let touched = || self.slots.iter().filter(|(_, slot)| slot.touched);
        let set: Vec<_> =
            touched().filter_map(|(field, slot)| slot.stored.map(|mark| (field.to_owned(), mark.text()))).collect();
        let retention = self.retention(rules).as_millis() as u64;
        let old = |field: &str, text: &str| {
            let at = Mark::parse(field, text).and_then(Mark::ends_mattering_at);
            at.is_some_and(|at| at.saturating_add(retention) < now)
        };
        let pruned = self.sample.iter().filter(|(field, text)| old(field, text)).map(|(field, _)| field);
        let pruned = pruned.filter(|field| !set.iter().any(|(kept, _)| kept == *field)).cloned();
        let forgotten = touched().filter(|(_, slot)| slot.stored.is_none()).map(|(field, _)| field.to_owned());
        let mut deleted: Vec<_> = pruned.chain(forgotten).collect();
        deleted.sort_unstable();
        deleted.dedup();
        if set.is_empty() && deleted.is_empty() {
            return false;
        }
        let key = keys.versions(&self.plan.user);
        if !deleted.is_empty() {
            ops.push(Op::HashDelete { key: key.clone(), fields: deleted });
        }
        let touched = !set.is_empty();
        if touched {
            ops.push(Op::HashSet { key, fields: set });
        }
        touched
    }
}

impl Slot {
    fn put(&mut self, mark: Option<Mark>) {
        self.stored = mark;
        self.touched = true;
    }
}

impl Mark {
    fn parse(field: &str, text: &str) -> Option<Mark> {
        if field.ends_with(":@") {
            return Changed::parse(text).map(Mark::Changed);
        }
        if field.ends_with(':') {
            return text.parse().ok().map(Mark::Order);
        }
        Stamp::parse(text).map(Mark::Version)
    }

    fn text(self) -> String {
        match self {
            Mark::Version(stamp) => stamp.text(),
            Mark::Order(order) => order.to_string(),
            Mark::Changed(changed) => changed.text(),
        }
    }

    /// From when on it is kept only for what may still be on its way; none for what is kept for good.
    fn ends_mattering_at(self) -> Option<u64> {
        match self {
            Mark::Version(stamp) => stamp.removed_at,
            Mark::Order(order) => Some(order.entry.milliseconds),
            Mark::Changed(changed) => Some(changed.at),
        }
    }
}

impl Stamp {
    fn parse(text: &str) -> Option<Stamp> {
        match text.split_once(':') {
            None => Some(Stamp { version: text.parse().ok()?, removed_at: None }),
            Some((version, at)) => Some(Stamp { version: version.parse().ok()?, removed_at: Some(at.parse().ok()?) }),
        }
    }

    fn text(self) -> String {
        match self.removed_at {
            None => self.version.to_string(),
            Some(at) => format!("{}:{at}", self.version),
        }
    }
}
