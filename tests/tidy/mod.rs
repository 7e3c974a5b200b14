//! The rules that no compiler knows: which module may use which, who alone may build keys, start tasks and read the environment.
//!
//! Each rule is a function from a file to what it breaks, so that the rules themselves can be tested on one-line cases.

mod edges;
mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use edges::{edges, module_of};
use rules::*;

/// All rules that concern one file.
fn check(path: &str, text: &str) -> Vec<String> {
    [edges, spawns, environment, keys, purity, stubs, sleeps, form].iter().flat_map(|rule| rule(path, text)).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a folder entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn relative(file: &Path) -> String {
    file.strip_prefix(root()).expect("a file of the package").to_string_lossy().into_owned()
}

#[test]
fn every_file_keeps_the_rules() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "examples", "benches"] {
        rust_files(&root().join(folder), &mut files);
    }
    assert!(files.len() > 3, "found only {files:?}");
    let broken: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let path = relative(file);
            check(&path, &fs::read_to_string(file).expect("a source file"))
        })
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn architecture_page_names_every_module() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut files = Vec::new();
    rust_files(&root().join("src"), &mut files);
    let modules: BTreeSet<String> =
        files.iter().filter_map(|file| module_of(&relative(file)).map(str::to_owned)).collect();
    let missing: Vec<&String> = modules.iter().filter(|module| !page.contains(&format!("`{module}`"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {missing:?}");
}

#[test]
fn rules_find_what_they_forbid_and_let_the_rest_pass() {
    let cases = [
        ("src/worker/shard.rs", "use crate::redis::Link;", "worker must not use redis"),
        ("src/worker/mod.rs", "use crate::client::Writer;", "worker must not use client"),
        ("src/client/mod.rs", "use crate::{key, worker::Worker};", "client must not use worker"),
        (
            "src/reduce/mod.rs",
            "use crate::{\n    key::{Keys, Tag},\n    store::Store,\n};",
            "reduce must not use store",
        ),
        ("src/redis/mod.rs", "fn f() { crate::config::load() }", "redis must not use config"),
        ("src/cli/demo.rs", "use crate::testing::checker;", "cli must not use testing"),
        ("src/novelty.rs", "", "has no layer"),
        ("src/worker/mod.rs", "tokio::spawn(async {});", "only task.rs"),
        ("src/cli/demo.rs", "let name = std::env::var(\"NAME\");", "only config.rs"),
        ("src/worker/mod.rs", "let key = format!(\"changes:{{{tag}}}\");", "only key.rs"),
        ("src/worker/mod.rs", "let key = format!(\"{prefix}lease:{{{tag}}}\");", "only key.rs"),
        ("src/cli/init.rs", "\"heyday:layout\"", "only key.rs"),
        ("src/lease.rs", "let now = Instant::now();", "layer 1 is pure"),
        ("src/cli/mod.rs", "todo!()", "no stubs"),
        ("tests/chaos/mod.rs", "#[ignore]", "no stubs"),
        ("tests/chaos/mod.rs", "tokio::time::sleep(SECOND).await;", "waits for a condition"),
        ("src/task.rs", "#[cfg(test)]\nmod tests {\n    std::thread::sleep(x);\n}", "waits for a condition"),
        ("src/key.rs", "use std::fmt;", "does not begin with"),
        ("src/worker/mod.rs", "use crate::store::Store; use crate::reduce::reduce;", ""),
        ("src/worker/mod.rs", "/// As [`crate::redis`] does.", ""),
        ("src/worker/mod.rs", "#[cfg(test)]\nmod tests { use crate::testing::model; }", ""),
        ("src/redis/mod.rs", "use crate::{store::Store, task};", ""),
        ("src/key.rs", "format!(\"changes:{{{tag}}}\")", ""),
        ("src/task.rs", "tokio::spawn(future)", ""),
        ("src/local/mod.rs", "format!(\"{host}:{port}\")", ""),
        ("src/cli/status.rs", "format!(\"state: {state}\")", ""),
        ("src/redis/link.rs", "tokio::time::sleep(pause).await;", ""),
    ];
    for (path, text, expected) in cases {
        let text =
            if expected.starts_with("does not begin") { text.to_owned() } else { format!("//! A file.\n{text}") };
        let found = check(path, &text).join("\n");
        let kept = if expected.is_empty() { found.is_empty() } else { found.contains(expected) };
        assert!(kept, "{path}: {text}\nexpected {expected:?}, found {found:?}");
    }
    assert!(!check("src/key.rs", &format!("//! A file.\n{}", "\n".repeat(LINES_MAX))).is_empty());
}
