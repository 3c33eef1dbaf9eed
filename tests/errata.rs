//! The record of open questions is kept true: every ruling has its entry, and names the very cases that hold it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use serde_json::Value;

const ERRATA: &str = include_str!("../conformance/ERRATA.md");
const REQUIREMENTS: &str = include_str!("../conformance/requirements/a2e-proc-1.0.json");

/// The entry of a ruling.
fn entry(number: usize) -> &'static str {
    let heading = format!("\n## R{number}. ");
    let entry = ERRATA.split(&heading).nth(1).unwrap_or_else(|| panic!("no entry R{number}"));
    entry.split("\n## ").next().unwrap()
}

#[test]
fn every_ruling_has_its_five_parts() {
    for number in 1..=26 {
        for part in ["**Question.**", "**Text.**", "**Choice.**", "**Why.**", "**Held by.**"] {
            assert!(entry(number).contains(part), "R{number} has no {part}");
        }
    }
}

#[test]
fn every_ruling_names_the_cases_of_its_requirements() {
    let requirements: Value = serde_json::from_str(REQUIREMENTS).unwrap();
    for number in 1..=26 {
        let held_by = entry(number).split("**Held by.**").nth(1).unwrap();
        let named: BTreeSet<_> = held_by.split('`').skip(1).step_by(2).collect();
        let prefix = format!("R{number}-");
        let rows = requirements["rows"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["id"].as_str().unwrap().starts_with(&prefix));
        let cases = rows.flat_map(|row| row["cases"].as_array().into_iter().flatten());
        let cases: BTreeSet<_> = cases.map(|case| case.as_str().unwrap()).collect();
        assert!(!cases.is_empty(), "nothing holds R{number}");
        assert_eq!(named, cases, "R{number}");
    }
}
