//! The figures, for people and for programs. Ratios come first: absolute times on shared machines mean little.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::measures::{Plan, Row};

/// One line a row, in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from("| what | ratio | asked for | host | compared with |\n|---|---|---|---|---|\n");
    for row in rows {
        let goal = match row.goal {
            crate::measures::Goal::AtLeast(least) => format!("≥ {least}"),
            crate::measures::Goal::AtMost(most) => format!("≤ {most}"),
            crate::measures::Goal::None => String::new(),
        };
        let missed = if row.goal.is_met(row.ratio) == Some(false) { " **missed**" } else { "" };
        let ratio = row.base.map(|_| format!("{:.2}", row.ratio)).unwrap_or_default();
        let base = row.base.map(|base| format!("{}: {}", row.base_name, number(base))).unwrap_or_default();
        let host = format!("{} {}", number(row.host), row.unit);
        writeln!(out, "| {} | {ratio} | {goal}{missed} | {host} | {base} |", row.name).unwrap();
    }
    out
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The same, and what it was measured on.
pub fn json(rows: &[Row], plan: &Plan) -> String {
    let rows: Vec<serde_json::Value> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "name": row.name, "unit": row.unit, "ratio": row.base.map(|_| row.ratio), "host": row.host,
                "base": row.base, "base_name": row.base_name, "met": row.goal.is_met(row.ratio),
            })
        })
        .collect();
    let report = serde_json::json!({
        "commit": commit(), "machine": machine(), "runs": plan.runs, "measures": rows,
    });
    serde_json::to_string_pretty(&report).unwrap() + "\n"
}

const BEGIN: &str = "<!-- written by the bench -->\n";
const END: &str = "<!-- end of what the bench writes -->\n";

/// Puts the table between two marks of a file that has them.
pub fn record(file: &Path, rows: &[Row], plan: &Plan) -> io::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let missing = || io::Error::other("it has no marks to write between");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    let about = format!("{}; commit {}; medians of {}.", machine(), commit(), plan.runs);
    std::fs::write(file, format!("{before}{BEGIN}\n{about}\n\n{}\n{END}{after}", table(rows)))
}

fn commit() -> String {
    let said = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = said(&["status", "--porcelain", "src", "Cargo.lock"]).is_none_or(|changes| !changes.is_empty());
    let commit = said(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".into());
    format!("{commit}{}", if changed { ", changed" } else { "" })
}

fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} × {}, Linux {}", model.unwrap_or("unknown processor"), read("/proc/sys/kernel/osrelease").trim())
}
