//! Audit logs as tests look at them, and hosts whose standard error tests read line by line.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::binary;

const FIELDS: [&str; 13] = [
    "ts",
    "session_id",
    "req_id",
    "correlation_id",
    "success",
    "duration_ms",
    "error_code",
    "input_bytes",
    "output_bytes",
    "type",
    "proc_id",
    "cmd",
    "outcome",
];

/// A directory of the test's own, gone with it.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("a2e-proc-audit-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The lines of a log, each held to its form.
pub fn lines(file: impl AsRef<Path>) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(entry).collect()
}

pub fn entry(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    if value["type"] == "audit/lost" {
        return value;
    }
    let mut at = 0;
    for field in FIELDS {
        at += line[at..].find(&format!("\"{field}\":")).unwrap_or_else(|| panic!("{field} out of its place: {line}"));
    }
    assert_eq!(value.as_object().unwrap().len(), FIELDS.len(), "{line}");
    assert!(value["ts"].as_f64().unwrap() > 1e9 && value["duration_ms"].is_u64(), "{line}");
    assert_eq!(value["error_code"].is_null(), value["success"] == true, "{line}");
    value
}

/// Those that are missing, by the log's own account.
pub fn lost(lines: &[Value]) -> u64 {
    lines.iter().filter(|line| line["type"] == "audit/lost").map(|line| line["count"].as_u64().unwrap()).sum()
}

pub fn entries(lines: &[Value]) -> usize {
    lines.iter().filter(|line| line["type"] != "audit/lost").count()
}

/// A host whose streams the test has to itself.
pub struct Plain {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    pings: u32,
}

impl Plain {
    pub fn start(args: &[&str]) -> Self {
        let mut command = binary();
        command.arg("serve").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdout, stderr, pings: 0 }
    }

    /// Has a ping answered.
    pub fn ping(&mut self) {
        self.pings += 1;
        let line = format!("{{\"type\":\"ping\",\"id\":\"{:05}\"}}\n", self.pings);
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut pong = String::new();
        self.stdout.read_line(&mut pong).unwrap();
        assert!(pong.contains("\"pong\""), "{pong}");
    }

    pub fn stderr_line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    /// Ends the session, and returns what else was said on standard error.
    pub fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}");
        rest
    }
}
