//! The record of open questions is kept true: every ruling has its entry, and every test that an entry names is there.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

const ERRATA: &str = include_str!("../conformance/ERRATA.md");

fn rust_files(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            rust_files(&entry.path(), text);
        } else if entry.path().extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&fs::read_to_string(entry.path()).unwrap());
        }
    }
}

#[test]
fn every_ruling_has_its_five_parts() {
    for number in 1..=26 {
        let heading = format!("\n## R{number}. ");
        let entry = ERRATA.split(&heading).nth(1).unwrap_or_else(|| panic!("no entry R{number}"));
        let entry = entry.split("\n## ").next().unwrap();
        for part in ["**Question.**", "**Text.**", "**Choice.**", "**Why.**", "**Held by.**"] {
            assert!(entry.contains(part), "R{number} has no {part}");
        }
        assert!(!entry.contains("**Held by.** —"), "R{number} is held by nothing");
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    rust_files(&root.join("src"), &mut code);
    rust_files(&root.join("tests"), &mut code);
    for part in ERRATA.split("**Held by.**").skip(1) {
        let names = part.split("\n## ").next().unwrap();
        for name in names.split('`').skip(1).step_by(2) {
            assert!(code.contains(&format!("fn {name}(")), "{name} is not a test");
        }
    }
}
