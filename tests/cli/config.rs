//! `heyday config show`, and configurations that are wrong.

use super::{heyday, run};

/// A configuration file that is removed at the end of the test.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heyday.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// Setting, value and source of each row, from the JSON.
fn rows(json: &str) -> Vec<(String, String, String)> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    rows.iter().map(|row| (text(&row["key"]), text(&row["value"]), text(&row["source"]))).collect()
}

#[test]
fn shows_each_setting_with_its_value_and_source() {
    let (_folder, path) = file("[worker]\nblock = '1s'\n");
    let variables = [("HEYDAY_WORKER__LEASE_TTL", "15s"), ("HEYDAY_REDIS__PASSWORD", "hunter2")];
    let arguments = ["--config", &path, "config", "show", "--json", "--redis", "a:1,b:2", "-v"];
    let shown = run(&arguments, &variables);
    assert_eq!((shown.code, shown.stderr.as_str()), (0, ""));
    let file_source = format!("file {path}");
    let expected = [
        ("redis.nodes", r#"["a:1","b:2"]"#, "flag --redis"),
        ("redis.password", "***", "environment variable HEYDAY_REDIS__PASSWORD"),
        ("worker.block", "1s", &file_source),
        ("worker.lease_ttl", "15s", "environment variable HEYDAY_WORKER__LEASE_TTL"),
        ("worker.heartbeat", "100ms", "default"),
        ("logging.level", "info,heyday=debug", "flag --verbose"),
    ];
    let rows = rows(&shown.stdout);
    for (key, value, source) in expected {
        let row = rows.iter().find(|row| row.0 == key).unwrap_or_else(|| panic!("no {key}"));
        assert_eq!((row.1.as_str(), row.2.as_str()), (value, source), "{key}");
    }
}

#[test]
fn table_is_plain_where_no_terminal_reads_it() {
    let shown = run(&["config", "show"], &[("HEYDAY_REDIS__PASSWORD", "hunter2")]);
    assert_eq!(shown.code, 0);
    assert!(!shown.stdout.contains('\u{1b}') && !shown.stdout.contains("hunter2"), "{}", shown.stdout);
    let lines: Vec<Vec<&str>> = shown.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["SETTING", "VALUE", "SOURCE"]);
    assert_eq!(lines[1], ["redis.nodes", r#"["127.0.0.1:6379"]"#, "default"]);
    assert_eq!(lines[2], ["redis.username", "-", "default"]);
    assert_eq!(lines[3], ["redis.password", "***", "environment", "variable", "HEYDAY_REDIS__PASSWORD"]);
}

#[test]
fn file_can_be_named_by_the_environment_too() {
    let (_folder, path) = file("[worker]\nblock = '1s'\n");
    let shown = run(&["config", "show", "--json"], &[("HEYDAY_CONFIG", &path)]);
    assert!(rows(&shown.stdout).contains(&("worker.block".to_owned(), "1s".to_owned(), format!("file {path}"))));
}

#[test]
fn wrong_configuration_ends_with_78_and_one_line_for_each_problem() {
    let (_folder, path) = file("[worker]\nblok = '1s'\nheartbeat = 'often'\n");
    let shown = heyday(&["config", "show", "--config", &path]);
    assert_eq!((shown.code, shown.stdout.as_str()), (78, ""));
    let expected = format!(
        "heyday: worker.blok: no such setting (file {path}); did you mean worker.block?\n\
         heyday: worker.heartbeat = \"often\" (file {path}): expected a duration such as 200ms or 10s\n"
    );
    assert_eq!(shown.stderr, expected);
}

#[test]
fn missing_file_and_wrong_flag_end_with_78() {
    let absent = heyday(&["config", "show", "--config", "absent.toml"]);
    assert_eq!(absent.code, 78);
    assert!(absent.stderr.starts_with("heyday: configuration file absent.toml: "), "{}", absent.stderr);
    assert_eq!(absent.stderr.lines().count(), 1);

    let wrong = heyday(&["config", "show", "--redis", "nowhere"]);
    assert_eq!(wrong.code, 78);
    assert_eq!(
        wrong.stderr,
        "heyday: redis.nodes = \"nowhere\" (flag --redis): node address \"nowhere\": expected host:port\n"
    );
}
