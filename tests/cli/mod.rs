//! The built binary, as a user meets it: output, complaints and exit codes.

mod bench;
mod birthdays;
mod check;
mod config;
mod demo;
mod dlq;
mod keys;
mod letters;
mod maintenance;
mod outages;
mod read;
mod rebuild;
mod refusals;
mod roll;
mod setup;
mod stage;
mod usage;
mod write;

use std::process::{Command, Output};

/// What one run of heyday gave.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A run of heyday with nothing in its environment that could be a setting.
pub fn heyday(arguments: &[&str]) -> Run {
    run(arguments, &[])
}

/// The same with these variables.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let Output { status, stdout, stderr } =
        command(arguments, variables).output().expect("the binary was built for this test");
    Run {
        code: status.code().expect("it ended by itself"),
        stdout: String::from_utf8(stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(stderr).expect("stderr is UTF-8"),
    }
}

pub fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heyday"));
    let inherited = std::env::vars_os().map(|(name, _)| name);
    for name in inherited.filter(|name| name.to_string_lossy().starts_with("HEYDAY_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied());
    command
}
