//! What the host costs, measured side by side with what the same work costs without it, in one run on one machine.
//!
//! `cargo run --release --example bench -- [--quick] [--runs N] [--only NAME] [--json FILE] [--record FILE]`
//!
//! `--quick` is one short run; otherwise each figure is the median of five. `--json` writes the figures, `--record` puts
//! them into a Markdown file between two marks, `BENCHMARKS.md` as a rule. `host` drives the release binary, `floor` is the
//! work without a host, `measures` says what is compared with what, `report` says it to people.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

mod floor;
mod host;
mod measures;
mod report;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use measures::{Plan, Row};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut plan, mut json, mut record) = (Plan::full(), None, None);
    while let Some(flag) = args.next() {
        let mut value = |what: &str| args.next().unwrap_or_else(|| panic!("{flag} takes {what}"));
        match flag.as_str() {
            floor::FLAG => return floor::main(&value("a number of readers"), args),
            floor::RELAY => return floor::relay(),
            "--quick" => plan = Plan::quick(),
            "--runs" => plan.runs = value("a number").parse().expect("--runs takes a number"),
            "--only" => plan.only = Some(value("a part of a measure's name")),
            "--json" => json = Some(PathBuf::from(value("a file"))),
            "--record" => record = Some(PathBuf::from(value("a file"))),
            other => {
                eprintln!("bench: unknown flag {other}; see the head of examples/bench/main.rs");
                return ExitCode::from(2);
            }
        }
    }
    build_host();
    let rows: Vec<Row> = measures::all(&plan);
    print!("{}", report::table(&rows));
    if let Some(file) = json {
        std::fs::write(&file, report::json(&rows, &plan)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
    if let Some(file) = record {
        report::record(&file, &rows, &plan).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
    ExitCode::SUCCESS
}

/// What is measured is the release binary of this very source.
fn build_host() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let built = Command::new(cargo).args(["build", "--release", "--quiet", "--bin", "a2e-proc"]).status().unwrap();
    assert!(built.success(), "the host could not be built");
}
