//! A change as the fields of its stream entry.

use std::borrow::Cow;

use super::{Action, Change, Mirror, Snapshot, UserId, shard_producer};
use crate::birthday::Birthday;

/// A field's name and value, ready for XADD.
pub type Field<'a> = (Cow<'a, str>, Cow<'a, str>);

impl Change {
    /// The fields in a fixed order; [`Change::decode`] of them gives the same change.
    pub fn encode(&self) -> Vec<Field<'_>> {
        let mut fields: Vec<Field<'_>> = Vec::with_capacity(8);
        let mut push = |name: &'static str, value: Cow<'_, str>| fields.push((name.into(), value.into_owned().into()));
        push("type", self.action.name().into());
        push("user", self.user.as_str().into());
        match &self.action {
            Action::Add { friend, birthday, mutual } => {
                push("friend", friend.as_str().into());
                if let Some(birthday) = birthday {
                    push("birthday", text(*birthday));
                }
                if *mutual {
                    push("mutual", "1".into());
                }
            }
            Action::Remove { friend, mutual } => {
                push("friend", friend.as_str().into());
                if *mutual {
                    push("mutual", "1".into());
                }
            }
            Action::Update { friend, birthday } => {
                push("friend", friend.as_str().into());
                push("birthday", text(*birthday));
            }
            Action::Birthday { birthday } => push("birthday", text(*birthday)),
            Action::Activity { category, weight } => {
                if let Some(category) = category {
                    push("category", category.as_str().into());
                }
                if *weight != 1 {
                    push("weight", weight.to_string().into());
                }
            }
            Action::Profile { .. } | Action::Forget => {}
            Action::Mirror(mirror) => mirror_fields(mirror, &self.others, &mut push),
            Action::Snapshot(snapshot) => snapshot_fields(snapshot, &mut push),
        }
        let mut option = |name: &'static str, value: Option<String>| {
            if let Some(value) = value {
                fields.push((name.into(), value.into()));
            }
        };
        let version = self.version.filter(|_| self.action.has_version());
        option("version", version.map(|version| version.to_string()));
        option("id", self.event.clone());
        option("producer", self.producer.as_ref().map(|producer| producer.name.clone()));
        option("seq", self.producer.as_ref().map(|producer| producer.sequence.to_string()));
        option("producer", self.relayed.map(|relayed| shard_producer(relayed.source)));
        option("seq", self.relayed.map(|relayed| relayed.id.to_string()));
        option("at", self.at.map(|at| at.to_string()));
        let profile = match &self.action {
            Action::Profile { fields } => Some(fields),
            Action::Snapshot(snapshot) => Some(&snapshot.profile),
            _ => None,
        };
        if let Some(named) = profile {
            let named = named
                .iter()
                .map(|(name, value)| (format!("profile.{name}").into(), value.as_deref().unwrap_or_default().into()));
            fields.extend(named);
        }
        fields
    }
}

fn mirror_fields<'a>(mirror: &Mirror, others: &[UserId], push: &mut impl FnMut(&'static str, Cow<'a, str>)) {
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(UserId::as_str).collect();
        push("others", names.join(" ").into());
    }
    let (Mirror::Add { friend, .. }
    | Mirror::Remove { friend, .. }
    | Mirror::Birthday { friend, .. }
    | Mirror::Forget { friend, .. }) = mirror;
    push("friend", friend.to_string().into());
    match mirror {
        Mirror::Add { birthday, ask, order, .. } => {
            if let Some(birthday) = birthday {
                push("birthday", text(*birthday));
            }
            if *ask {
                push("ask", "1".into());
            }
            push("order", order.to_string().into());
        }
        Mirror::Birthday { birthday, .. } => push("birthday", text(*birthday)),
        Mirror::Remove { order, .. } | Mirror::Forget { order, .. } => push("order", order.to_string().into()),
    }
}

fn snapshot_fields<'a>(snapshot: &Snapshot, push: &mut impl FnMut(&'static str, Cow<'a, str>)) {
    let mut friends = String::with_capacity(snapshot.friends.len() * 24);
    snapshot.friends.iter().for_each(|listed| listed.write(&mut friends));
    if !friends.is_empty() {
        push("friends", friends.into());
    }
    if let Some(from) = &snapshot.from {
        push("from", from.to_string().into());
    }
    if let Some(to) = &snapshot.to {
        push("to", to.to_string().into());
    }
    if snapshot.whole {
        push("whole", "1".into());
    }
    if snapshot.gone {
        push("gone", "1".into());
    }
    if let Some(birthday) = snapshot.birthday {
        push("birthday", text(birthday));
    }
    let versions: Vec<String> = snapshot.versions.iter().map(|(name, version)| format!("{name}={version}")).collect();
    if !versions.is_empty() {
        push("versions", versions.join(" ").into());
    }
}

fn text(birthday: Birthday) -> Cow<'static, str> {
    birthday.to_string().into()
}
