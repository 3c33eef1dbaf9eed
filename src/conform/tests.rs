//! The kit's own consistency: requirement rows and cases cover each other, and everything can be read.

use std::collections::{BTreeMap, BTreeSet};

use super::case::Role;
use super::kit::{Dialect, Kit, Profile};

/// The monitors that a row may name in the place of a case.
const MONITORS: [&str; 10] =
    ["line", "http", "schema", "key-order", "id-unique", "answer-once", "event-order", "terminal-once", "seq", "exit"];

#[test]
fn no_requirement_is_uncovered_and_no_case_is_orphaned() {
    let kit = Kit::built_in();
    let rows = kit.rows().unwrap();
    let mut cases = BTreeMap::new();
    for role in [Role::Host, Role::Client] {
        for (id, case) in kit.cases(role) {
            cases.insert(id.clone(), case.unwrap_or_else(|e| panic!("{id}: {e}")));
        }
    }
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let ids: BTreeSet<_> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.len(), rows.len(), "an id stands twice");
    let mut wrong = Vec::new();
    for row in &rows {
        if row.cases.is_empty() == row.excluded.is_none() {
            wrong.push(format!("{}: has to have either cases or a reason why not", row.id));
        }
        for case in &row.cases {
            let held = match case.strip_prefix("monitor:") {
                Some(monitor) => MONITORS.contains(&monitor),
                None => cases.get(case).is_some_and(|case| case.req.contains(&row.id)),
            };
            if !held {
                wrong.push(format!("{}: {case} does not say that it holds it", row.id));
            }
        }
    }
    for case in cases.values() {
        if case.req.is_empty() {
            wrong.push(format!("{}: holds nothing", case.id));
        }
        for req in &case.req {
            if !rows.iter().any(|row| row.id == *req && row.cases.contains(&case.id)) {
                wrong.push(format!("{}: {req} does not name it", case.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for ruling in 1..=26 {
        assert!(ids.iter().any(|id| id.starts_with(&format!("R{ruling}-"))), "nothing holds R{ruling}");
    }
}

/// The self-tests are what says that this runner is right.
#[test]
fn the_self_tests_get_their_verdicts() {
    let outcome = super::selftest::run(&Kit::built_in()).unwrap();
    assert!(outcome.wrong.is_empty(), "{} wrong:\n{}", outcome.wrong.len(), outcome.wrong.join("\n"));
    assert!(outcome.pass >= 15 && outcome.fail >= 30 && outcome.invalid >= 12, "{outcome:?}");
}

#[test]
fn profiles_and_schemas_can_be_read() {
    let kit = Kit::built_in();
    let mut count = 0;
    for (name, text) in kit.files("profile", ".json") {
        Profile::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        count += 1;
    }
    assert!(count >= 3, "{count} profiles");
    for dialect in [Dialect::Spec, Dialect::Sdk] {
        assert!(kit.schemas(dialect).unwrap().len() >= 16);
    }
}
