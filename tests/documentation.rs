//! Lists in the documentation are the tables of the code.

use heyday::{admin, change, cli::exit, invariant, key, metrics};

const OPERATIONS: (&str, &str) = ("docs/operations.md", include_str!("../docs/operations.md"));
const KEYS: (&str, &str) = ("docs/keys.md", include_str!("../docs/keys.md"));

/// What stands between the two marks that carry this name must be what the code says.
fn check((page, text): (&str, &str), name: &str, expected: &str) {
    let between = text.split_once(&format!("<!-- {name}: begin -->\n"));
    let (_, after) = between.unwrap_or_else(|| panic!("{page} has no list {name:?}"));
    let (list, _) = after.split_once(&format!("<!-- {name}: end -->")).expect("the list ends");
    assert_eq!(list, expected, "{page} differs from the code; put this there:\n{expected}");
}

#[test]
fn keys_lists_every_key() {
    let row = |row: &key::Row| {
        let format = if row.public { "public" } else { "private" };
        format!("| `{}` | {} | {} | {} | {format} |\n", row.pattern, row.kind, row.content, row.life)
    };
    let rows: String = key::REGISTRY.iter().map(row).collect();
    check(KEYS, "keys", &format!("| key | type | content | life | format |\n|---|---|---|---|---|\n{rows}"));
}

#[test]
fn operations_lists_every_metric() {
    check(OPERATIONS, "metrics", &metrics::markdown());
}

#[test]
fn operations_lists_every_endpoint() {
    let rows = admin::ENDPOINTS.iter().map(|endpoint| format!("| `{}` | {} |\n", endpoint.path, endpoint.what));
    check(OPERATIONS, "endpoints", &format!("| path | answers |\n|---|---|\n{}", rows.collect::<String>()));
}

#[test]
fn operations_lists_every_kind_of_dead_letter() {
    let rows: String = change::KINDS.iter().map(|kind| format!("- `{kind}`\n")).collect();
    check(OPERATIONS, "kinds", &rows);
}

#[test]
fn operations_lists_every_kind_of_violation() {
    check(OPERATIONS, "violations", &invariant::markdown());
}

#[test]
fn operations_lists_every_exit_code() {
    let rows = exit::TABLE.iter().map(|(_, code, meaning)| format!("| {code} | {meaning} |\n"));
    check(OPERATIONS, "exit codes", &format!("| code | meaning |\n|---|---|\n{}", rows.collect::<String>()));
}

#[test]
fn operations_shows_answers_that_are_json() {
    let (page, text) = OPERATIONS;
    let blocks: Vec<&str> = text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty(), "{page} shows no answer");
    for block in blocks {
        let answers = serde_json::Deserializer::from_str(block).into_iter::<serde_json::Value>();
        for answer in answers {
            assert!(answer.is_ok_and(|answer| answer.is_object()), "{page}: not JSON:\n{block}");
        }
    }
}
