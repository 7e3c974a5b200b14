//! Lists in the documentation are the tables of the code.

use heyday::{admin, cli::exit, metrics};

const OPERATIONS: &str = include_str!("../docs/operations.md");

/// What stands between the two marks that carry this name.
fn listed(name: &str) -> &'static str {
    let between = OPERATIONS.split_once(&format!("<!-- {name}: begin -->\n"));
    let (_, after) = between.unwrap_or_else(|| panic!("docs/operations.md has no list {name:?}"));
    let (list, _) = after.split_once(&format!("<!-- {name}: end -->")).expect("the list ends");
    list
}

fn check(name: &str, expected: &str) {
    assert_eq!(listed(name), expected, "docs/operations.md differs from the code; put this there:\n{expected}");
}

#[test]
fn operations_lists_every_metric() {
    check("metrics", &metrics::markdown());
}

#[test]
fn operations_lists_every_endpoint() {
    let rows = admin::ENDPOINTS.iter().map(|endpoint| format!("| `{}` | {} |\n", endpoint.path, endpoint.what));
    check("endpoints", &format!("| path | answers |\n|---|---|\n{}", rows.collect::<String>()));
}

#[test]
fn operations_lists_every_exit_code() {
    let rows = exit::TABLE.iter().map(|(_, code, meaning)| format!("| {code} | {meaning} |\n"));
    check("exit codes", &format!("| code | meaning |\n|---|---|\n{}", rows.collect::<String>()));
}
