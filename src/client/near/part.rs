//! The two things that can be kept of a user, and what they have in common.

use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Kind;
use crate::client::answer::Asked;
use crate::client::profile::{Profile, ProfileView};
use crate::client::reader::{Friend, Options, State, View};

/// What an entry takes beside its strings and lists, and a string or a member of a map beside its bytes: about.
const ENTRY_BYTES: usize = 256;
const STRING_BYTES: usize = 32;

/// An answer, and when it was given.
#[derive(Clone)]
pub(super) struct Known {
    pub value: Value,
    pub read_at: Instant,
    /// The server's time then, and that from which on it says something else; Unix milliseconds.
    pub now: u64,
    pub until: u64,
}

#[derive(Clone)]
pub(super) enum Value {
    View(Arc<View>),
    Profile(Arc<ProfileView>),
}

/// A kind of answer.
pub(super) trait Part: Asked + Clone + Sync + 'static {
    const KIND: Kind;

    fn wrap(this: &Arc<Self>) -> Value;

    /// None where it is of the other kind.
    fn unwrap(value: &Value) -> Option<&Arc<Self>>;

    /// What it takes in memory, about.
    fn bytes(&self) -> usize;

    /// Whether there is so little in it that any change of the user may show, as coming to be known.
    fn is_bare(&self) -> bool;

    /// Marks it as stale, from so long ago.
    fn mark(&mut self, age: Duration);

    /// Makes it the answer of a later moment of the server's time.
    fn turn(&mut self, now: u64, options: &Options);
}

impl Known {
    /// The server's time, as far as the time since the answer tells.
    pub fn server_now(&self) -> u64 {
        let since = u64::try_from(self.read_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.now.saturating_add(since)
    }
}

impl Part for View {
    const KIND: Kind = Kind::View;

    fn wrap(this: &Arc<View>) -> Value {
        Value::View(this.clone())
    }

    fn unwrap(value: &Value) -> Option<&Arc<View>> {
        match value {
            Value::View(view) => Some(view),
            Value::Profile(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        let friend = |friend: &Friend| size_of::<Friend>() + STRING_BYTES + friend.friend.as_str().len();
        ENTRY_BYTES + size_of::<View>() + profile_bytes(&self.profile) + self.friends.iter().map(friend).sum::<usize>()
    }

    fn is_bare(&self) -> bool {
        // Whatever makes a user known changes the profile or the birthdays, and both show here anyway.
        false
    }

    fn mark(&mut self, age: Duration) {
        (self.state, self.age) = (State::Stale, age);
    }

    fn turn(&mut self, now: u64, options: &Options) {
        self.turn_to(now, options);
    }
}

impl Part for ProfileView {
    const KIND: Kind = Kind::Profile;

    fn wrap(this: &Arc<ProfileView>) -> Value {
        Value::Profile(this.clone())
    }

    fn unwrap(value: &Value) -> Option<&Arc<ProfileView>> {
        match value {
            Value::Profile(profile) => Some(profile),
            Value::View(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        let top = self.top.iter().map(|(category, _)| category.len() + STRING_BYTES + size_of::<u64>());
        ENTRY_BYTES
            + size_of::<ProfileView>()
            + profile_bytes(&self.profile)
            + self.days.len() * STRING_BYTES
            + top.sum::<usize>()
    }

    fn is_bare(&self) -> bool {
        self.profile == Profile::default() && self.days.is_empty() && self.top.is_empty()
    }

    fn mark(&mut self, age: Duration) {
        (self.state, self.age) = (State::Stale, age);
    }

    fn turn(&mut self, now: u64, options: &Options) {
        self.turn_to(now, options);
    }
}

fn profile_bytes(profile: &Profile) -> usize {
    profile.fields.iter().map(|(name, value)| name.len() + value.len() + 2 * STRING_BYTES).sum()
}
