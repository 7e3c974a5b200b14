//! The command line: one file for each command, one table that lists them, one way in and out.
//!
//! To add a command: write its file with `Arguments` and `run`, and give it a `mod` line and a row in `commands!`.

mod bench;
mod birthdays;
mod calendar;
mod check;
mod cluster;
mod config;
mod demo;
mod dlq;
pub mod exit;
mod flags;
mod init;
mod keys;
mod logging;
mod maintenance;
pub mod output;
mod progress;
mod read;
mod rebuild;
mod roll;
mod shard;
mod signals;
mod stage;
mod status;
mod upcoming;
mod watch;
mod worker;
mod write;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{Settings, Sources};
pub use exit::Exit;

/// What every command gets besides its own arguments.
#[derive(Debug)]
pub struct Context {
    pub settings: Settings,
}

/// Keeps every user's friends' birthdays and runtime profile ready to read on a Redis Cluster
#[derive(Debug, Parser)]
#[command(name = "heyday", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    flags: flags::Flags,
    #[command(subcommand)]
    command: Command,
}

/// Builds the enum of commands and the way from each to its file.
macro_rules! commands {
    ($($name:ident => $module:ident),+ $(,)?) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($name($module::Arguments),)+
        }

        impl Command {
            fn run(self, context: &Context) -> anyhow::Result<Exit> {
                match self {
                    $(Self::$name(arguments) => $module::run(arguments, context),)+
                }
            }
        }
    };
}

commands! {
    Init => init,
    Worker => worker,
    Write => write,
    Read => read,
    Upcoming => upcoming,
    Calendar => calendar,
    Birthdays => birthdays,
    Watch => watch,
    Shard => shard,
    Status => status,
    Dlq => dlq,
    Check => check,
    Roll => roll,
    Rebuild => rebuild,
    Maintenance => maintenance,
    Keys => keys,
    Config => config,
    Demo => demo,
    Bench => bench,
}

/// Runs the process: reads the command line and the settings, starts logging, and runs the command. Whatever fails is
/// told on stderr in one line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers; where nobody reads them, that is no error either.
            drop(error.print());
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    exit::tell_of_panics();
    exit::guarded(|| start(arguments).unwrap_or_else(|error| exit::report(&error)))
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let command = Arguments::command().after_help(exit::help());
    Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

fn start(arguments: Arguments) -> anyhow::Result<Exit> {
    let Arguments { flags, command } = arguments;
    let (file, flags) = flags.resolve();
    let settings = Settings::load(&Sources::of_process(file, flags))?;
    logging::start(&settings.config.logging)?;
    command.run(&Context { settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn leaves<'a>(path: &str, command: &'a clap::Command, found: &mut Vec<(String, &'a clap::Command)>) {
            let path = format!("{path} {}", command.get_name());
            let mut below = command.get_subcommands().peekable();
            if below.peek().is_none() {
                found.push((path.clone(), command));
            }
            below.for_each(|command| leaves(&path, command, found));
        }
        let command = Arguments::command();
        let mut found = Vec::new();
        leaves("", &command, &mut found);
        assert!(!found.is_empty());
        for (path, command) in found {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example:\n  ") && help.contains("heyday "), "{path} has no example");
            assert!(command.get_about().is_some(), "{path} does not say what it does");
        }
    }
}
