//! Fields of a file that have no effect: most likely misspelt, though workers let them through.

use std::collections::BTreeMap;

/// Names that are told; of others only that there are more.
const NAMES_MAX: usize = 20;
/// Longest part of a name that is told, in characters.
const NAME_SHOWN_MAX: usize = 64;

/// How often each was met, in memory of a bounded size.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    names: BTreeMap<String, u64>,
    more: u64,
}

impl Ignored {
    pub fn count(&mut self, names: Vec<String>) {
        for name in names {
            let name: String = name.chars().take(NAME_SHOWN_MAX).collect();
            if self.names.len() < NAMES_MAX || self.names.contains_key(&name) {
                *self.names.entry(name).or_default() += 1;
            } else {
                self.more += 1;
            }
        }
    }

    /// One sentence, where there are any.
    pub fn sentence(&self) -> Option<String> {
        if self.names.is_empty() {
            return None;
        }
        let mut named: Vec<String> = self.names.iter().map(|(name, count)| format!("{name:?} ({count})")).collect();
        if self.more > 0 {
            named.push(format!("and others ({})", self.more));
        }
        Some(format!("without effect, as their type has no such field: {}", named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_and_bounded() {
        let mut ignored = Ignored::default();
        assert_eq!(ignored.sentence(), None);
        ignored.count(vec!["colour".to_owned(), "a\nb".to_owned()]);
        ignored.count(vec!["colour".to_owned()]);
        let expected = r#"without effect, as their type has no such field: "a\nb" (1), "colour" (2)"#;
        assert_eq!(ignored.sentence().as_deref(), Some(expected));
        ignored.count((0..100).map(|at| format!("f{at}")).collect());
        ignored.count(vec!["x".repeat(1 << 20), "colour".to_owned()]);
        let sentence = ignored.sentence().unwrap();
        assert!(sentence.contains("\"colour\" (3)") && sentence.ends_with(", and others (83)"), "{sentence}");
        assert!(sentence.len() < 1000, "{sentence}");
    }
}
