//! What `heyday check` answers, for people and for programs.

use serde::Serialize;

use crate::cli::output;
use crate::invariant::Violation;
use crate::redis::inspect::Findings;

#[derive(Serialize)]
pub(super) struct Answer {
    /// Whether all was looked at, or the check broke off.
    complete: bool,
    checked: Checked,
    not_rolled: u64,
    violations_total: u64,
    violations: Vec<Row>,
    repaired_total: u64,
    repaired: Vec<Row>,
    undecided_total: u64,
    undecided: Vec<UndecidedRow>,
}

#[derive(Serialize)]
struct Checked {
    shards: u64,
    keys: u64,
    users: u64,
    friends: u64,
    versions: u64,
    activity: u64,
    producers: u64,
    day_members: u64,
    log_entries: u64,
}

#[derive(Serialize)]
struct Row {
    kind: &'static str,
    key: String,
    expected: String,
    found: String,
    repairable: bool,
}

#[derive(Serialize)]
struct UndecidedRow {
    key: String,
    why: &'static str,
}

impl Row {
    fn new(violation: &Violation) -> Row {
        Row {
            kind: violation.kind.row().name,
            key: violation.key.clone(),
            expected: violation.expected.clone(),
            found: violation.found.clone(),
            repairable: violation.repair.is_some(),
        }
    }

    fn line(&self) -> String {
        format!("{} {}: expected {}, found {}\n", self.kind, self.key, self.expected, self.found)
    }
}

impl Answer {
    pub fn new(findings: &Findings, complete: bool) -> Answer {
        let counts = findings.counts;
        let undecided = |undecided: &crate::redis::inspect::Undecided| UndecidedRow {
            key: undecided.key.clone(),
            why: undecided.why,
        };
        Answer {
            complete,
            checked: Checked {
                shards: counts.shards,
                keys: counts.keys,
                users: counts.users,
                friends: counts.friends,
                versions: counts.versions,
                activity: counts.activity,
                producers: counts.producers,
                day_members: counts.day_members,
                log_entries: counts.log_entries,
            },
            not_rolled: counts.not_rolled,
            violations_total: findings.violations.count(),
            violations: findings.violations.list.iter().map(Row::new).collect(),
            repaired_total: findings.repaired.count(),
            repaired: findings.repaired.list.iter().map(Row::new).collect(),
            undecided_total: findings.undecided.count(),
            undecided: findings.undecided.list.iter().map(undecided).collect(),
        }
    }

    /// Each violation in a line, then what was looked at.
    pub fn print(&self) -> std::io::Result<()> {
        for row in &self.violations {
            output::print(&row.line())?;
        }
        for row in &self.repaired {
            output::print(&format!("repaired {}", row.line()))?;
        }
        for row in &self.undecided {
            output::print(&format!("undecided {}: {}\n", row.key, row.why))?;
        }
        let named = self.violations.len() + self.repaired.len() + self.undecided.len();
        let more = self.violations_total + self.repaired_total + self.undecided_total - named as u64;
        if more > 0 {
            output::print(&format!("and {more} more\n"))?;
        }
        if named > 0 {
            output::print("\n")?;
        }
        self.print_checked()?;
        let repaired =
            if self.repaired_total > 0 { format!(", {} repaired", self.repaired_total) } else { String::new() };
        let undecided =
            if self.undecided_total > 0 { format!(", {} undecided", self.undecided_total) } else { String::new() };
        let broken = if self.complete { "" } else { "; the check broke off" };
        output::print(&format!(
            "{}{repaired}{undecided}{broken}\n",
            output::counted(self.violations_total, "violation")
        ))
    }

    fn print_checked(&self) -> std::io::Result<()> {
        let Checked { shards, keys, users, friends, versions, activity, producers, day_members, log_entries } =
            &self.checked;
        let mut table = output::table(&["checked", "number"]);
        for (what, number) in [
            ("shards", shards),
            ("keys", keys),
            ("users", users),
            ("friends", friends),
            ("versions", versions),
            ("activity", activity),
            ("producers", producers),
            ("day members", day_members),
            ("log entries", log_entries),
            ("not rolled", &self.not_rolled),
        ] {
            table.add_row([what.to_owned(), number.to_string()]);
        }
        output::right(&mut table, &[1]);
        output::print_table(&table)?;
        output::print("\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::invariant::{Kind, Repair};

    /// Names of fields, with those of the first object in each list.
    fn shape(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
            Value::Array(items) => items.first().map(shape).into_iter().collect(),
            _ => Value::Null,
        }
    }

    #[test]
    fn answer_is_public_and_as_documented() {
        let mut findings = Findings::default();
        let violation = Violation::new(Kind::Index, "users:{0.0}", "a", "b");
        findings.violations.note(violation.clone());
        findings.repaired.note(violation.with(Repair::Listing { user: "a".to_owned() }));
        findings.undecided.note(crate::redis::inspect::Undecided { key: "state:{0.0}".to_owned(), why: "it moves" });
        let answer = serde_json::to_value(Answer::new(&findings, true)).unwrap();
        assert_eq!(
            (&answer["violations"][0]["repairable"], &answer["repaired"][0]["repairable"]),
            (&false.into(), &true.into())
        );
        let page = include_str!("../../../docs/operations.md");
        let (_, after) = page.split_once("**`check`**").expect("docs/operations.md describes the answer of check");
        let example = after.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(shape(&serde_json::from_str(example).unwrap()), shape(&answer));
    }
}
