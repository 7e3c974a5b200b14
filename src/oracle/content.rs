//! What a key holds, in a form in which the oracle, the model and a real Redis can be compared.

use std::collections::BTreeMap;

use crate::change::Fields;

/// Every key by its name.
pub type Contents = BTreeMap<String, Content>;

/// The value of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Text(String),
    Hash(BTreeMap<String, String>),
    Sorted(BTreeMap<String, i64>),
    /// Entries in stream order, each with its id.
    Stream(Vec<(String, Fields)>),
}

impl Content {
    /// As Redis answers a key that was emptied: there is none.
    pub fn is_empty(&self) -> bool {
        match self {
            Content::Text(_) => false,
            Content::Hash(fields) => fields.is_empty(),
            Content::Sorted(members) => members.is_empty(),
            Content::Stream(entries) => entries.is_empty(),
        }
    }

    /// How `expected` and `found` differ, told by the first part that does.
    pub(super) fn difference(expected: &Content, found: &Content) -> Option<String> {
        match (expected, found) {
            _ if expected == found => None,
            (Content::Hash(expected), Content::Hash(found)) => first_difference(expected, found),
            (Content::Sorted(expected), Content::Sorted(found)) => first_difference(expected, found),
            (Content::Stream(expected), Content::Stream(found)) => {
                let numbered = |entries: &[(String, Fields)]| {
                    entries.iter().cloned().enumerate().collect::<BTreeMap<usize, (String, Fields)>>()
                };
                first_difference(&numbered(expected), &numbered(found))
            }
            _ => Some(format!("expected {expected:?}, found {found:?}")),
        }
    }
}

fn first_difference<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    expected: &BTreeMap<K, V>,
    found: &BTreeMap<K, V>,
) -> Option<String> {
    let names: std::collections::BTreeSet<&K> = expected.keys().chain(found.keys()).collect();
    let different: Vec<&K> = names.into_iter().filter(|name| expected.get(name) != found.get(name)).collect();
    let first = *different.first()?;
    let shown = |value: Option<&V>| value.map_or_else(|| "nothing".to_owned(), |value| format!("{value:?}"));
    let others = different.len() - 1;
    Some(format!(
        "{first:?}: expected {}, found {} ({others} more)",
        shown(expected.get(first)),
        shown(found.get(first))
    ))
}
