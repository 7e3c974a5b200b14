//! What decides which of two changes is the newer one: versions that writers send, and the order of changes to both sides of
//! a friendship.

use super::user::Moment;
use super::{Op, Rules, UserLoaded, UserPlan};
use crate::change::UserId;
use crate::key::{FORGOTTEN_FIELD, ShardKeys, order_field};
use crate::position::Order;

/// One user's, while a batch is reduced.
pub(super) struct Versions<'a> {
    plan: &'a UserPlan,
    sample: &'a [(String, String)],
    /// Aligned with the plan's versions.
    slots: Vec<Slot>,
}

struct Slot {
    stored: Option<Mark>,
    touched: bool,
}

/// What a field of `versions` holds.
#[derive(Clone, Copy)]
enum Mark {
    Version(Stamp),
    Order(Order),
}

/// A stored version; a tombstone carries the server time of the removal.
#[derive(Clone, Copy)]
struct Stamp {
    version: u64,
    removed_at: Option<u64>,
}

impl<'a> Versions<'a> {
    pub fn new(plan: &'a UserPlan, loaded: &'a UserLoaded) -> Versions<'a> {
        let fields = plan.versions.iter().zip(&loaded.versions);
        let slot = |(field, stored): (&String, &Option<String>)| Slot {
            stored: stored.as_deref().and_then(|text| Mark::parse(field, text)),
            touched: false,
        };
        Versions { plan, sample: &loaded.sample, slots: fields.map(slot).collect() }
    }

    /// Whether a change is newer than what is stored; if so its version is stored. Without a version it always is.
    pub fn newer(&mut self, field: &str, moment: Moment, removes: bool) -> bool {
        let Some(version) = moment.version else {
            return true;
        };
        let slot = self.slot(field);
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
        if !self.newer(friend.as_str(), moment, removes) {
            return false;
        }
        self.set_order(friend, order.max(stored));
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
        let at = self.plan.versions.iter().position(|planned| planned == field)?;
        self.slots.get(at)
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
        let version = self.slot(friend.as_str());
        if version.stored.is_some() {
            version.put(None);
        }
        self.set_order(friend, order);
        true
    }

    /// The user itself is forgotten.
    pub fn forget_all(&mut self, order: Order) {
        self.slot(FORGOTTEN_FIELD).put(Some(Mark::Order(order)));
    }

    pub fn set_order(&mut self, friend: &UserId, order: Order) {
        self.slot(&order_field(friend)).put(Some(Mark::Order(order)));
    }

    fn order(&mut self, field: &str) -> Order {
        match self.slot(field).stored {
            Some(Mark::Order(order)) => order,
            _ => Order::default(),
        }
    }

    fn slot(&mut self, field: &str) -> &mut Slot {
        let at = self.plan.versions.iter().position(|planned| planned == field);
        &mut self.slots[at.expect("the plan names every version of the batch")]
    }

    /// Appends the commands; whether anything was set.
    pub fn write(&self, keys: &ShardKeys, rules: &Rules, now: u64, ops: &mut Vec<Op>) -> bool {
        let touched = || self.plan.versions.iter().zip(&self.slots).filter(|(_, slot)| slot.touched);
        let set: Vec<_> =
            touched().filter_map(|(field, slot)| slot.stored.map(|mark| (field.clone(), mark.text()))).collect();
        let retention = rules.tombstone_retention.as_millis() as u64;
        let old = |field: &str, text: &str| {
            let at = Mark::parse(field, text).and_then(Mark::ends_mattering_at);
            at.is_some_and(|at| at.saturating_add(retention) < now)
        };
        let pruned = self.sample.iter().filter(|(field, text)| old(field, text)).map(|(field, _)| field);
        let pruned = pruned.filter(|field| !set.iter().any(|(kept, _)| kept == *field)).cloned();
        let forgotten = touched().filter(|(_, slot)| slot.stored.is_none()).map(|(field, _)| field.clone());
        let mut deleted: Vec<_> = pruned.chain(forgotten).collect();
        deleted.sort_unstable();
        deleted.dedup();
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
        if field.ends_with(':') {
            return text.parse().ok().map(Mark::Order);
        }
        Stamp::parse(text).map(Mark::Version)
    }

    fn text(self) -> String {
        match self {
            Mark::Version(stamp) => stamp.text(),
            Mark::Order(order) => order.to_string(),
        }
    }

    /// From when on it is kept only for what may still be on its way; none for what is kept for good.
    fn ends_mattering_at(self) -> Option<u64> {
        match self {
            Mark::Version(stamp) => stamp.removed_at,
            Mark::Order(order) => Some(order.entry.milliseconds),
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
