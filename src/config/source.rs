//! Where settings come from: a file, environment variables, flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use figment::Provider;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Value};

use super::{Assignment, Config, TABLE_KEYS};

const PREFIX: &str = "HEYDAY_";
/// Names the file where `--config` is not given.
const FILE_VARIABLE: &str = "HEYDAY_CONFIG";
/// Variables of heyday's own test suite, which are not settings.
const TEST_PREFIX: &str = "HEYDAY_TEST_";

/// Where one value came from. Displays as `default`, `file F`, `environment variable V` or `flag --f`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Default,
    File(String),
    Environment(String),
    Flag(&'static str),
}

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// As the user typed it, such as `--redis`.
    pub name: &'static str,
    /// The setting, such as `redis.nodes`.
    pub key: &'static str,
    pub value: Value,
}

/// Everything that is laid over the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// Names and values; those without the prefix `HEYDAY_` are passed over.
    pub environment: BTreeMap<String, String>,
    pub flags: Vec<Flag>,
}

impl Sources {
    /// The sources of this process: its environment besides what the command line gave.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        // A value that is not UTF-8 keeps a replacement character and fails as a value, with its name.
        let variables = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        let environment: BTreeMap<String, String> = variables.filter(|(name, _)| name.starts_with(PREFIX)).collect();
        let file = file.or_else(|| environment.get(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from));
        Self { file, environment, flags }
    }

    /// Every value that is set, the strongest last, and what could not be read.
    pub(super) fn assignments(&self) -> (Vec<Assignment>, Vec<String>) {
        let mut assignments = Vec::new();
        let mut problems = Vec::new();
        match self.file.as_ref().map(read_file) {
            Some(Ok(found)) => assignments.extend(found),
            Some(Err(problem)) => problems.push(problem),
            None => {}
        }
        let texts = text_keys();
        let variables = self.environment.iter().filter(|(name, value)| is_setting(name, value));
        assignments.extend(variables.map(|(name, value)| from_variable(name, value, &texts)));
        assignments.extend(self.flags.iter().map(|flag| Assignment {
            key: flag.key.to_owned(),
            value: flag.value.clone(),
            source: Source::Flag(flag.name),
        }));
        (assignments, problems)
    }
}

impl Source {
    /// How this source writes `key`.
    pub(super) fn spelled(&self, key: &str) -> String {
        match self {
            Self::Environment(_) => format!("{PREFIX}{}", key.replace('.', "__").to_uppercase()),
            Self::Default | Self::File(_) | Self::Flag(_) => key.to_owned(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File(path) => write!(formatter, "file {path}"),
            Self::Environment(name) => write!(formatter, "environment variable {name}"),
            Self::Flag(name) => write!(formatter, "flag {name}"),
        }
    }
}

/// Whether the user wants colours at all (<https://no-color.org>); whether the output is a terminal is another question.
#[must_use]
pub fn color_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn read_file(path: &PathBuf) -> Result<Vec<Assignment>, String> {
    let shown = path.display().to_string();
    // Read first: the parser's own message for a missing file leaves out which file it was.
    let text = std::fs::read_to_string(path).map_err(|error| format!("configuration file {shown}: {error}"))?;
    let data = Toml::string(&text).data();
    let data = data.map_err(|error| format!("configuration file {shown}: {}", without_excerpt(&error.to_string())))?;
    let source = Source::File(shown);
    let mut found = Vec::new();
    for dict in data.into_values() {
        flatten("", dict, &source, &mut found);
    }
    Ok(found)
}

/// The parser's message without the lines it quotes: one of them may hold the password.
fn without_excerpt(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let kept = lines.filter(|line| !line.is_empty() && !line.contains('|'));
    kept.collect::<Vec<_>>().join(": ")
}

fn flatten(section: &str, dict: Dict, source: &Source, found: &mut Vec<Assignment>) {
    for (name, value) in dict {
        let key = if section.is_empty() { name } else { format!("{section}.{name}") };
        match value {
            Value::Dict(_, inner) if !TABLE_KEYS.contains(&key.as_str()) => flatten(&key, inner, source, found),
            value => found.push(Assignment { key, value, source: source.clone() }),
        }
    }
}

/// Settings that are texts: what a variable gives them is taken as it stands, so that a password such as `007` or `true`
/// stays what it is.
fn text_keys() -> Vec<String> {
    let defaults = Value::serialize(Config::default()).expect("settings are plain data");
    let mut found = Vec::new();
    flatten("", defaults.into_dict().expect("settings are sections"), &Source::Default, &mut found);
    found.into_iter().filter(|assignment| assignment.value.as_str().is_some()).map(|text| text.key).collect()
}

fn from_variable(name: &str, value: &str, texts: &[String]) -> Assignment {
    let key = name.trim_start_matches(PREFIX).to_lowercase().replace("__", ".");
    let value = if texts.contains(&key) {
        Value::from(value)
    } else {
        value.parse().unwrap_or_else(|never: std::convert::Infallible| match never {})
    };
    Assignment { key, value, source: Source::Environment(name.to_owned()) }
}

/// Whether a variable is meant as a setting. What is passed over: the file's name, the test suite's variables, and those
/// that Kubernetes sets in every container for a service whose name begins with `heyday`.
fn is_setting(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return false;
    };
    let of_others = name.starts_with(TEST_PREFIX) || is_of_kubernetes(rest, value);
    name != FILE_VARIABLE && (rest.contains("__") || !of_others)
}

/// `SERVICE_HOST`, `SERVICE_PORT`, `SERVICE_PORT_ADMIN`, `PORT=tcp://…`, `PORT_9464_TCP`, `PORT_9464_TCP_ADDR`, each also
/// after the rest of a longer service name.
fn is_of_kubernetes(rest: &str, value: &str) -> bool {
    let service = rest.ends_with("SERVICE_HOST") || rest.contains("SERVICE_PORT");
    let link = rest.ends_with("PORT") && value.contains("://");
    let numbered = rest.split_once("PORT_").is_some_and(|(_, after)| {
        let mut parts = after.split('_');
        let number = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
        number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    });
    service || link || numbered
}
