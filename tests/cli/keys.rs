//! `heyday keys`.

use heyday::key::REGISTRY;

use super::{heyday, run};

#[test]
fn lists_every_key_of_the_registry_with_the_prefix() {
    let listed = run(&["keys", "--json"], &[("HEYDAY_REDIS__PREFIX", "stage:")]);
    assert_eq!((listed.code, listed.stderr.as_str()), (0, ""));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&listed.stdout).unwrap();
    let keys: Vec<&str> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    let expected: Vec<String> = REGISTRY.iter().map(|row| format!("stage:{}", row.pattern)).collect();
    assert_eq!(keys, expected);
    assert_eq!(rows[0]["type"], REGISTRY[0].kind);
    assert_eq!(rows[0]["public"], REGISTRY[0].public);
}

#[test]
fn table_has_a_line_for_each() {
    let listed = heyday(&["keys"]);
    assert_eq!(listed.code, 0);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert!(lines[0].starts_with("KEY"), "{}", lines[0]);
    assert_eq!(lines.len(), REGISTRY.len() + 1);
    for (line, row) in lines[1..].iter().zip(REGISTRY) {
        assert!(line.starts_with(row.pattern) && line.contains(row.kind), "{line}");
    }
}
