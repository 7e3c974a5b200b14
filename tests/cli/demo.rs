//! `heyday demo`: what it claims, what it leaves behind, and how it ends early.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{command, run};

const SMALL: [&str; 6] = ["--rate", "1000", "--users", "500", "--shards", "16"];

#[test]
fn cluster_own_demo_loses_nothing_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [&["demo", "--seconds", "3"][..], &SMALL].concat();
    let run = run(&arguments, &[("TMPDIR", text(folder.path()))]);
    let verdict = "lost 0, doubled 0, out of order 0, signals missed 0\n";
    assert!(run.code == 0 && run.stdout.ends_with(verdict), "{}\n{}", run.stdout, run.stderr);
    for told in ["killed (SIGKILL)", "all shards owned again", "replica promoted"] {
        assert!(run.stderr.contains(told), "no {told:?} in\n{}", run.stderr);
    }
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
}

#[test]
fn cluster_own_demo_interrupted_proves_what_it_did_and_keeps_what_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [&["demo", "--seconds", "60", "--keep"][..], &SMALL].concat();
    let mut demo = command(&arguments, &[("TMPDIR", text(folder.path()))])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Ended)
        .expect("the demo starts");
    let told = demo.0.stderr.take().expect("piped");
    let mut told = BufReader::new(told).lines().map(|line| line.expect("text"));
    let flowing = told.by_ref().find(|line| line.contains("written") && !line.contains("written 0"));
    assert!(flowing.is_some(), "the demo ended before anything was written");
    interrupt(demo.0.id());
    let rest: Vec<String> = told.collect();
    let status = demo.0.wait().expect("it ends");
    assert!(status.success(), "{status}: {}", rest.join("\n"));

    let ending = rest.last().expect("it says how to end the cluster").trim();
    assert!(ending.starts_with("for port in"), "{}", rest.join("\n"));
    assert!(!leftovers(folder.path()).is_empty(), "the cluster was not kept");
    let ended = Command::new("sh").args(["-c", ending]).status().expect("a shell");
    assert!(ended.success(), "{ending}");
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
}

/// A demo that a failed test leaves behind.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn interrupt(process: u32) {
    let sent = Command::new("kill").args(["-INT", &process.to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// Files in the folder, and processes that were started with it.
fn leftovers(folder: &Path) -> Vec<String> {
    let files =
        std::fs::read_dir(folder).expect("the folder").flatten().map(|entry| entry.path().display().to_string());
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let named = processes.filter_map(|process| {
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(text(folder)).then_some(line)
    });
    files.chain(named).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
