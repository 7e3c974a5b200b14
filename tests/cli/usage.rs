//! Help, version, and command lines that are wrong.

use std::process::Stdio;

use super::{command, heyday};

#[test]
fn help_and_version_are_answers() {
    for flag in ["--help", "-h"] {
        let help = heyday(&[flag]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        for part in ["Usage: heyday", "--redis <NODES>", "config", "Exit codes:", "69  Redis is unavailable"] {
            assert!(help.stdout.contains(part), "no {part:?} in\n{}", help.stdout);
        }
    }
    let version = heyday(&["--version"]);
    assert_eq!(version.code, 0);
    assert_eq!(version.stdout, format!("heyday {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn command_has_help_with_an_example() {
    let help = heyday(&["config", "show", "--help"]);
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("Example:\n  HEYDAY_WORKER__LEASE_TTL=15s heyday"), "{}", help.stdout);
}

#[test]
fn wrong_command_line_ends_with_64_and_says_so_on_stderr() {
    let cases: [(&[&str], &str); 7] = [
        (&[], "Usage: heyday"),
        (&["frobnicate"], "frobnicate"),
        (&["config"], "Usage: heyday config"),
        (&["config", "show", "--frobnicate"], "--frobnicate"),
        (&["watch", "--for", "banana"], "expected a duration such as 200ms or 10s"),
        (&["dlq", "list", "--reason", "bananas"], "possible values: missing, too_long, "),
        (&["config", "show", "--log-level", "debug", "--verbose"], "cannot be used with"),
    ];
    for (arguments, expected) in cases {
        let run = heyday(arguments);
        assert_eq!(run.code, 64, "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
        assert!(run.stderr.contains(expected), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn reader_that_goes_away_is_no_error() {
    let mut child = command(&["config", "show"], &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Closed before the first byte is written or after: nothing may be said, and it is not a failure.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
