//! Values by name while a batch is reduced.

use std::borrow::Cow;

use foldhash::HashMap;

/// In the order of first mention.
pub(super) struct Named<'a, T> {
    items: Vec<(Cow<'a, str>, T)>,
    /// Where all there is was loaded: a name that is not among it has nothing. Else the plan names every one, and they are
    /// few, so that a scan is cheaper than a map.
    index: Option<HashMap<Cow<'a, str>, usize>>,
}

impl<'a, T: Default> Named<'a, T> {
    /// What the plan names.
    pub fn some(items: impl Iterator<Item = (&'a str, T)>) -> Named<'a, T> {
        Named { items: items.map(|(name, item)| (Cow::Borrowed(name), item)).collect(), index: None }
    }

    /// All there is.
    pub fn all(items: impl Iterator<Item = (&'a str, T)>) -> Named<'a, T> {
        let items: Vec<_> = items.map(|(name, item)| (Cow::Borrowed(name), item)).collect();
        let index = items.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        Named { items, index: Some(index) }
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        let at = match &self.index {
            Some(index) => *index.get(name)?,
            None => self.items.iter().position(|(known, _)| known == name)?,
        };
        Some(&self.items[at].1)
    }

    pub fn slot(&mut self, name: &str) -> &mut T {
        let at = match &mut self.index {
            None => self.items.iter().position(|(known, _)| known == name),
            Some(index) => Some(index.get(name).copied().unwrap_or_else(|| {
                let at = self.items.len();
                self.items.push((Cow::Owned(name.to_owned()), T::default()));
                index.insert(Cow::Owned(name.to_owned()), at);
                at
            })),
        };
        &mut self.items[at.expect("the plan names everything of the batch")].1
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.items.iter().map(|(name, item)| (&**name, item))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut T)> {
        self.items.iter_mut().map(|(name, item)| (&**name, item))
    }
}
