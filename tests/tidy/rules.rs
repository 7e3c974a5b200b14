//! The rules about what a line, or a whole file, may hold.

use super::edges::{layer, module_of};

/// Files longer than this are split by meaning.
pub(super) const LINES_MAX: usize = 450;

/// The only test file that may sleep: it waits between two looks at a condition, with a deadline.
pub(super) const MAY_SLEEP: &str = "tests/support/mod.rs";

/// How key and channel names begin (design: one registry, in one module).
pub(super) const KEY_BEGINNINGS: [&str; 15] = [
    "changes:",
    "lease:",
    "state:",
    "user:",
    "users:",
    "birthdays:",
    "dedup:",
    "producers:",
    "outbox:",
    "dlq:",
    "log:",
    "push:",
    "heyday:layout",
    "heyday:workers",
    "lock:maintenance",
];

/// The lines of a file that are code, with their numbers: no comments. `product` leaves out the tests at the end of the file too.
pub(super) fn code(text: &str, product: bool) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .take_while(move |(_, line)| !(product && *line == "#[cfg(test)]"))
        .filter(|(_, line)| !line.starts_with("//"))
        .map(|(number, line)| (number, line.split(" // ").next().unwrap_or(line)))
}

/// Lines outside `owner` that hold one of `words`.
pub(super) fn only_in(owner: &str, words: &[&str], why: &str, path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("src/") || module_of(path) == Some(owner) {
        return Vec::new();
    }
    holding(words, why, path, code(text, true))
}

pub(super) fn holding<'a>(
    words: &[&str],
    why: &str,
    path: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> Vec<String> {
    lines
        .filter_map(|(number, line)| {
            let word = words.iter().find(|word| line.contains(**word))?;
            Some(format!("{path}:{number}: {word}: {why}"))
        })
        .collect()
}

pub(super) fn spawns(path: &str, text: &str) -> Vec<String> {
    let words =
        ["tokio::spawn", "tokio::task::spawn", "spawn_blocking(", "spawn_local(", "thread::spawn", "thread::Builder"];
    only_in("task", &words, "only task.rs starts tasks and threads", path, text)
}

pub(super) fn environment(path: &str, text: &str) -> Vec<String> {
    let words = ["env::var", "env::set_var", "env::remove_var", "Env::prefixed", "option_env!"];
    only_in("config", &words, "only config.rs reads settings", path, text)
}

/// String literals that begin like a key and go on with its tag, or end there to have it appended.
pub(super) fn keys(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("src/") || module_of(path) == Some("key") {
        return Vec::new();
    }
    let mut broken = Vec::new();
    for (number, line) in code(text, true) {
        for beginning in KEY_BEGINNINGS {
            let built = line.match_indices(beginning).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + beginning.len()..].chars().next();
                let whole = beginning.starts_with("heyday:");
                matches!(before, Some('"' | '}')) && (whole || matches!(after, Some('{' | '"')))
            });
            if built {
                broken.push(format!("{path}:{number}: {beginning}: only key.rs builds keys"));
            }
        }
    }
    broken
}

/// Layer 1 gets time and chance as values and does nothing outside itself.
pub(super) fn purity(path: &str, text: &str) -> Vec<String> {
    let words = ["::now()", "rand::", "tokio::", "fred::", "std::net", "std::fs", "std::thread", "std::process"];
    match module_of(path).and_then(layer) {
        Some(1) => holding(&words, "layer 1 is pure", path, code(text, true)),
        _ => Vec::new(),
    }
}

pub(super) fn stubs(path: &str, text: &str) -> Vec<String> {
    if path.starts_with("tests/tidy/") {
        return Vec::new();
    }
    let words = ["todo!", "unimplemented!", "#[ignore", "should_panic"];
    holding(&words, "no stubs, and no test that is skipped or wants a panic", path, code(text, false))
}

pub(super) fn sleeps(path: &str, text: &str) -> Vec<String> {
    let words = ["thread::sleep", "time::sleep", " sleep("];
    let why = "a test waits for a condition (support::eventually)";
    if path == MAY_SLEEP || path.starts_with("tests/tidy/") {
        return Vec::new();
    }
    if path.starts_with("tests/") {
        return holding(&words, why, path, code(text, false));
    }
    let tests_begin = text.lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(usize::MAX);
    holding(&words, why, path, code(text, false).filter(|(number, _)| *number > tests_begin))
}

pub(super) fn form(path: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if !text.starts_with("//! ") {
        broken.push(format!("{path}: does not begin with a //! line that says what it is"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        broken.push(format!("{path}: {lines} lines, more than {LINES_MAX}: split it by meaning"));
    }
    broken
}
