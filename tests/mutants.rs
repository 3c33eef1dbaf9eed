//! Every case can fail: a proxy between the runner and this host breaks exactly one thing, and the kit says no, each time.
//! `tests/mutants.txt` has a line for each mutant of `examples/mutant`, and the cases that must fail by it; `@sdk` behind its
//! name puts it into that dialect.
//!
//! `A2E_MUTANT_RUNS` says how often each is tried, once if it is not set.
#![cfg(feature = "conform")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

const TABLE: &str = include_str!("mutants.txt");

/// A mutant, and the cases that catch it. `#` begins a remark.
fn table() -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = TABLE.lines().map(|line| line.split('#').next().unwrap().trim()).filter(|line| !line.is_empty());
    let mutant = |line: &'static str| {
        let mut words = line.split_whitespace();
        (words.next().unwrap(), words.collect())
    };
    lines.map(mutant).collect()
}

/// The proxy, which is built with the tests.
fn proxy() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/mutant")
}

/// Which of these cases a mutant fails, and by which rule.
fn failed(mutant: &str, cases: &[&str], time_scale: &str) -> Vec<(String, String)> {
    let (mutant, dialect) = mutant.split_once('@').unwrap_or((mutant, "spec"));
    let profile = if dialect == "sdk" { "a2e-proc-sdk" } else { "a2e-proc" };
    let host = format!("{} {mutant} {} serve --wire {dialect}", proxy().display(), env!("CARGO_BIN_EXE_a2e-proc"));
    let mut conform = Command::new(env!("CARGO_BIN_EXE_a2e-proc"));
    conform.args(["conform", "--host", &host, "--report", "jsonl", "--jobs", "8", "--time-scale", time_scale]);
    conform.args(["--profile", &format!("{}/conformance/profile/{profile}.json", env!("CARGO_MANIFEST_DIR"))]);
    for case in cases {
        conform.args(["--filter", case]);
    }
    let output = conform.output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let judgements: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(judgements.len(), cases.len(), "{mutant}: {}", String::from_utf8_lossy(&output.stderr));
    let text = |judgement: &Value, key: &str| judgement.pointer(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let fails = |judgement: &&Value| ["fail", "warn"].contains(&judgement["verdict"].as_str().unwrap());
    judgements
        .iter()
        .filter(fails)
        .map(|judgement| (text(judgement, "/case"), text(judgement, "/failure/rule")))
        .collect()
}

fn runs() -> usize {
    std::env::var("A2E_MUTANT_RUNS").ok().map_or(1, |runs| runs.parse().unwrap())
}

#[test]
fn every_mutant_is_in_the_table() {
    let output = Command::new(proxy()).arg("--list").output().unwrap();
    let all = String::from_utf8(output.stdout).unwrap();
    let in_table: BTreeSet<_> = table().into_iter().map(|(mutant, _)| mutant.trim_end_matches("@sdk")).collect();
    assert_eq!(in_table, all.lines().collect(), "the table and the mutants differ");
    assert!(table().iter().all(|(_, cases)| !cases.is_empty()));
}

/// The MUSTs that cases hold and no mutant here breaks, and why.
const UNBROKEN: &[(&str, &str)] = &[
    ("QUOTA-4", TWO),
    ("SEC-51", TWO),
    ("SEC-52", TWO),
    ("R7-1", TWO),
    ("R7-2", TWO),
    ("R8-7", "its case measures the time of a shutdown, and the short times of this test would cut that"),
    ("R8-11", "its case needs a reader that keeps up, which a proxy on a busy machine is not"),
    ("R8-13", "as R8-7"),
    ("R8-16", "as R8-7"),
    ("R8-20", "a proxy that is killed in the place of the host does not take the host along"),
    ("R12-7", "its case measures a time from the spawn, and the short times of this test would cut that"),
];

const TWO: &str =
    "it takes two connections, and a mutant stands before one; tests/conform_connect.rs has a host that mixes them up";

#[test]
fn every_must_is_broken_by_a_mutant() {
    let requirements = include_str!("../conformance/requirements/a2e-proc-1.0.json");
    let requirements: Value = serde_json::from_str(requirements).unwrap();
    let in_table: BTreeSet<_> = table().into_iter().flat_map(|(_, cases)| cases).collect();
    let mut unbroken = Vec::new();
    for row in requirements["rows"].as_array().unwrap().iter().filter(|row| row["level"] == "MUST") {
        let cases = row["cases"].as_array().into_iter().flatten().map(|case| case.as_str().unwrap());
        let of_hosts: Vec<_> =
            cases.filter(|case| !case.starts_with("monitor:") && !case.starts_with("client/")).collect();
        if !of_hosts.is_empty() && !of_hosts.iter().any(|case| in_table.contains(case)) {
            unbroken.push(row["id"].as_str().unwrap());
        }
    }
    let explained: Vec<_> = UNBROKEN.iter().map(|(id, _)| *id).collect();
    assert_eq!(unbroken, explained);
}

#[test]
fn every_mutant_is_caught_every_time() {
    let (table, next) = (table(), AtomicUsize::new(0));
    let (escaped, rules) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    let take = || {
        while let Some((mutant, cases)) = table.get(next.fetch_add(1, Ordering::Relaxed)) {
            for run in 1..=runs() {
                // What never comes is not waited for long.
                let caught = failed(mutant, cases, "0.5");
                for case in cases.iter().filter(|case| !caught.iter().any(|(caught, _)| caught == *case)) {
                    escaped.lock().unwrap().push(format!("{mutant} passed {case} in run {run}"));
                }
                rules.lock().unwrap().extend(caught.into_iter().map(|(_, rule)| rule));
            }
        }
    };
    // They wait more than they work.
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(take))));
    let (escaped, rules) = (escaped.into_inner().unwrap(), rules.into_inner().unwrap());
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
    for monitor in
        ["line", "schema", "key-order", "id-unique", "answer-once", "event-order", "terminal-once", "seq", "exit"]
    {
        assert!(rules.contains(&format!("monitor:{monitor}")), "no mutant was caught by the monitor {monitor}");
    }
}

/// The same cases, the same proxy, nothing broken.
#[test]
fn what_is_not_broken_passes_every_time() {
    let cases: BTreeSet<_> = table().into_iter().flat_map(|(_, cases)| cases).collect();
    let cases: Vec<_> = cases.into_iter().collect();
    for run in 1..=runs() {
        assert_eq!(failed("none", &cases, "4"), [], "in run {run}");
    }
}
