//! Settings: where they come from, what they may be, and what they are now.
//!
//! Four sources, each over the one before: the defaults in the code, the file given with `--config`, environment
//! variables `HEYDAY_SECTION__KEY`, and flags. This module is the only one that reads the environment. Lower layers have
//! option structs of their own and never see a [`Config`].

mod check;
mod client;
mod convert;
mod relation;
mod sections;
mod source;
mod values;

use std::collections::BTreeMap;

use figment::Figment;
use figment::providers::Serialized;
use figment::value::Value;
use serde::Serialize;

pub use sections::{
    Admin, Calendar, Change, Config, Log, LogFormat, Logging, Preflight, Profile, Reader, Redis, Subscriber, Worker,
    Writer,
};
pub use source::{Flag, Source, Sources, color_wanted};
pub use values::{NotifyAt, Secret, Zone};

/// Settings whose value is never shown, whatever is wrong with it.
const SECRET_KEYS: &[&str] = &["redis.password"];
/// Settings that are tables of the user's own keys, so that what is inside them is a value and not a setting.
const TABLE_KEYS: &[&str] = &["redis.address_map"];

/// What a span of time looks like, for whoever wrote something else.
pub const DURATION_EXPECTED: &str = "a duration such as 200ms or 10s";

/// The effective settings, and where each one came from.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: Config,
    sources: BTreeMap<String, Source>,
}

/// Everything that is wrong with the settings, found in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// One sentence each: which setting, its value, where it was set, and what was expected. Never empty.
    pub problems: Vec<String>,
}

/// One row of `heyday config show`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effective {
    /// The setting, as `section.key`.
    pub key: String,
    /// Its value as JSON; a secret that is set is `***`.
    pub value: serde_json::Value,
    /// `default`, a file, an environment variable, or a flag.
    pub source: String,
}

/// One value that some source gives to one setting.
#[derive(Clone, Debug)]
struct Assignment {
    key: String,
    value: Value,
    source: Source,
}

impl Settings {
    /// Lays the sources over the defaults and checks the result; reports every problem, not just the first.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or is not TOML, settings that do not exist, values of the wrong type or out of bounds,
    /// and settings that contradict each other.
    pub fn load(sources: &Sources) -> Result<Self, Error> {
        let (assignments, mut problems) = sources.assignments();
        let known = defaults();
        problems.extend(assignments.iter().filter_map(|assignment| fault(assignment, &known)));
        Error::unless_none(problems)?;

        let settings = Self {
            config: merge(&assignments).map_err(|error| Error { problems: vec![error.to_string()] })?,
            sources: assignments.into_iter().map(|assignment| (assignment.key, assignment.source)).collect(),
        };
        Error::unless_none(check::violations(&settings))?;
        Ok(settings)
    }

    /// Where the value of `key` came from.
    #[must_use]
    pub fn source(&self, key: &str) -> &Source {
        self.sources.get(key).unwrap_or(&Source::Default)
    }

    /// Every setting with its present value and source, in the order of `config/default.toml`.
    #[must_use]
    pub fn effective(&self) -> Vec<Effective> {
        let tree = serde_json::to_value(&self.config).expect("settings are plain data");
        let sections = tree.as_object().expect("settings are sections").iter();
        let rows = sections.flat_map(|(section, keys)| {
            let keys = keys.as_object().expect("a section is a table of settings").iter();
            keys.map(move |(key, value)| (format!("{section}.{key}"), value.clone()))
        });
        rows.map(|(key, value)| Effective { source: self.source(&key).to_string(), key, value }).collect()
    }
}

impl Error {
    fn unless_none(problems: Vec<String>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.problems.join("; "))
    }
}

impl std::error::Error for Error {}

/// The name of every setting.
fn defaults() -> Vec<String> {
    let settings = Settings { config: Config::default(), sources: BTreeMap::new() };
    settings.effective().into_iter().map(|row| row.key).collect()
}

fn merge(assignments: &[Assignment]) -> Result<Config, Box<figment::Error>> {
    let start = Figment::from(Serialized::defaults(Config::default()));
    let merged = assignments
        .iter()
        .fold(start, |figment, assignment| figment.merge(Serialized::default(&assignment.key, &assignment.value)));
    merged.extract().map_err(Box::new)
}

/// What is wrong with one assignment taken alone, so that two wrong values are two sentences.
fn fault(assignment: &Assignment, known: &[String]) -> Option<String> {
    let Assignment { key, source, .. } = assignment;
    if !known.contains(key) {
        let hint = match nearest(key, known) {
            Some(nearest) => format!("did you mean {}?", source.spelled(nearest)),
            None => "see `heyday config show` for every setting".to_owned(),
        };
        return Some(format!("{}: no such setting ({source}); {hint}", source.spelled(key)));
    }
    let error = merge(std::slice::from_ref(assignment)).err()?;
    Some(format!("{key} = {} ({source}): {}", shown(assignment), complaint(&error)))
}

fn shown(assignment: &Assignment) -> String {
    if SECRET_KEYS.contains(&assignment.key.as_str()) {
        return Secret::MASK.to_owned();
    }
    serde_json::to_string(&assignment.value).unwrap_or_else(|_| "?".to_owned())
}

/// What was wrong with it, in words; our own types say that themselves.
fn complaint(error: &figment::Error) -> String {
    use figment::error::Kind;
    match &error.kind {
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) | Kind::InvalidLength(_, expected) => {
            match expected.as_str() {
                "u8" | "u16" | "u32" | "u64" | "usize" => "expected a whole number, 0 or more".to_owned(),
                "a boolean" => "expected true or false".to_owned(),
                "a duration" => format!("expected {DURATION_EXPECTED}"),
                other => format!("expected {other}"),
            }
        }
        Kind::UnknownVariant(_, variants) => format!("expected one of {}", variants.join(", ")),
        Kind::Message(message) => message.clone(),
        other => other.to_string(),
    }
}

/// The known setting that `key` was probably meant to be.
fn nearest<'a>(key: &str, known: &'a [String]) -> Option<&'a str> {
    const EDITS_MAX: usize = 2;
    let flat = key.replace('.', "_");
    let ranked = known.iter().map(|candidate| {
        let name = candidate.rsplit('.').next();
        let obvious = name == Some(key) || candidate.starts_with(key) || candidate.replace('.', "_") == flat;
        (if obvious { 0 } else { edits(key, candidate) }, candidate)
    });
    ranked.min().filter(|(edits, _)| *edits <= EDITS_MAX).map(|(_, candidate)| candidate.as_str())
}

/// How many letters have to be added, removed or replaced to come from one word to the other.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, left) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, right) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests;
