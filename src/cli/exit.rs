//! How the process ends: one table of exit codes, and which error gives which.

use std::io::ErrorKind;
use std::process::ExitCode;

use super::maintenance::Silent;
use super::worker::Unfit;
use crate::change::Rejection;
use crate::client::{day, reader, subscriber, writer};
use crate::error::Disposition;
use crate::redis::layout;
use crate::{admin, client, config, redis, shard, store};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    Found,
    Usage,
    Unavailable,
    Internal,
    Configuration,
}

/// Every exit code and what it says; `heyday --help` prints it.
pub const TABLE: [(Exit, u8, &str); 6] = [
    (Exit::Done, 0, "done"),
    (Exit::Found, 1, "a check found a problem"),
    (Exit::Usage, 64, "the command line is wrong"),
    (Exit::Unavailable, 69, "Redis is unavailable"),
    (Exit::Internal, 70, "an internal error"),
    (Exit::Configuration, 78, "the configuration is wrong"),
];

/// What the command line asks for makes no sense, as only the command itself can tell.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// What the command line asks for is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Absent(pub String);

impl Exit {
    /// The exit code for an error: the first cause in its chain that says something decides.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        error.chain().find_map(of_cause).unwrap_or(Self::Internal)
    }

    #[must_use]
    pub fn code(self) -> u8 {
        let row = TABLE.iter().find(|(exit, ..)| *exit == self);
        row.map(|(_, code, _)| *code).expect("every exit has its row in TABLE")
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// One line for each error in the table's own words, for `--help`.
#[must_use]
pub fn help() -> String {
    let rows = TABLE.iter().map(|(_, code, meaning)| format!("  {code:<4}{meaning}\n"));
    format!("Exit codes:\n{}", rows.collect::<String>())
}

/// Writes the error to stderr, one line for each problem with its whole chain, and gives the exit code. Output that
/// nobody reads any more is no error.
#[must_use]
pub fn report(error: &anyhow::Error) -> Exit {
    if is_broken_pipe(error) {
        return Exit::Done;
    }
    match error.downcast_ref::<config::Error>() {
        Some(wrong) => wrong.problems.iter().for_each(|problem| complain(problem)),
        None => complain(&format!("{error:#}")),
    }
    Exit::of(error)
}

/// Runs `command`; a panic in it is a bug, and ends the process with the code for one.
pub fn guarded(command: impl FnOnce() -> Exit) -> Exit {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(command)).unwrap_or(Exit::Internal)
}

/// From now on a panic, wherever it happens, is told in one line too.
pub fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| complain(&format!("this is a bug: {panic}"))));
}

/// Whatever the text holds, it is one line: a person reads it in a terminal, a program in a log.
fn complain(text: &str) {
    use std::io::Write;
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // Where stderr is closed there is nowhere left to say so.
    drop(writeln!(std::io::stderr(), "heyday: {line}"));
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if cause.is::<config::Error>() || cause.is::<admin::Error>() {
        return Some(Exit::Configuration);
    }
    if let Some(writer::Error::Rejected(_)) = cause.downcast_ref() {
        return Some(Exit::Usage);
    }
    match cause.downcast_ref() {
        // Complete after the next roll: nothing is wrong with the command or with Redis.
        Some(day::Error::NotRolled { .. }) => return Some(Exit::Found),
        Some(day::Error::NotKept { .. } | day::Error::OtherDay { .. } | day::Error::OtherLayout { .. }) => {
            return Some(Exit::Usage);
        }
        Some(day::Error::Redis { .. }) | None => {}
    }
    if cause.is::<Absent>() {
        return Some(Exit::Found);
    }
    if cause.is::<Usage>() || cause.is::<Rejection>() || cause.is::<shard::Error>() {
        return Some(Exit::Usage);
    }
    if let Some(unfit) = cause.downcast_ref::<Unfit>() {
        return Some(if unfit.is_passing() { Exit::Unavailable } else { Exit::Configuration });
    }
    if cause.is::<Silent>() {
        return Some(Exit::Unavailable);
    }
    disposition(cause).map(of_disposition)
}

/// What the boundary's errors say of themselves.
fn disposition(cause: &(dyn std::error::Error + 'static)) -> Option<Disposition> {
    fn of<E: std::error::Error + 'static>(
        cause: &(dyn std::error::Error + 'static),
        says: impl Fn(&E) -> Disposition,
    ) -> Option<Disposition> {
        cause.downcast_ref::<E>().map(says)
    }
    of(cause, redis::Error::disposition)
        .or_else(|| of(cause, layout::Error::disposition))
        .or_else(|| of(cause, |error: &store::Error| error.disposition))
        .or_else(|| of(cause, client::ConnectError::disposition))
        .or_else(|| of(cause, reader::Error::disposition))
        .or_else(|| of(cause, day::Error::disposition))
        .or_else(|| of(cause, writer::Error::disposition))
        .or_else(|| of(cause, subscriber::Error::disposition))
}

/// What a failure at the boundary means once nobody tries again.
fn of_disposition(disposition: Disposition) -> Exit {
    match disposition {
        Disposition::Retry | Disposition::Refresh | Disposition::Ambiguous | Disposition::Full => Exit::Unavailable,
        Disposition::Fatal => Exit::Configuration,
        Disposition::Fenced | Disposition::Poison => Exit::Internal,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn error_decides_the_code_however_deep_it_lies() {
        let wrong = config::Error { problems: vec!["worker.block: too long".to_owned()] };
        assert_eq!(Exit::of(&wrong.clone().into()), Exit::Configuration);
        let wrapped = Err::<(), _>(wrong).context("while starting").context("worker").unwrap_err();
        assert_eq!(Exit::of(&wrapped), Exit::Configuration);
        let unreachable = redis::Error::Unreachable { tried: "a:1".to_owned() };
        assert_eq!(Exit::of(&anyhow::Error::from(unreachable).context("status")), Exit::Unavailable);
        let single = redis::Error::NotCluster { node: redis::NodeAddress::new("a", 1) };
        assert_eq!(Exit::of(&single.into()), Exit::Configuration);
        let full = store::Error { disposition: Disposition::Full, reason: "memory", message: String::new() };
        assert_eq!(Exit::of(&full.into()), Exit::Unavailable);
        assert_eq!(Exit::of(&anyhow::anyhow!("anything else")), Exit::Internal);
    }

    #[test]
    fn only_output_that_nobody_reads_is_quiet() {
        let pipe = || std::io::Error::from(ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&pipe().into()));
        assert!(is_broken_pipe(&anyhow::Error::from(pipe()).context("printing")));
        assert!(!is_broken_pipe(&std::io::Error::from(ErrorKind::NotFound).into()));
    }

    #[test]
    fn panic_is_an_internal_error() {
        assert_eq!(guarded(|| "none".parse::<u8>().map(|_| Exit::Done).unwrap()), Exit::Internal);
        assert_eq!(guarded(|| Exit::Found), Exit::Found);
    }

    #[test]
    fn codes_are_told_apart() {
        let mut codes: Vec<u8> = TABLE
            .iter()
            .map(|(exit, code, _)| (exit.code(), *code))
            .map(|(found, row)| {
                assert_eq!(found, row);
                row
            })
            .collect();
        codes.dedup();
        assert_eq!(codes, [0, 1, 64, 69, 70, 78]);
    }
}
