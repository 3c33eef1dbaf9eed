//! What must hold of every line that a host writes, whatever the test is about.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::is_terminal;

/// Watches one connection.
#[derive(Default)]
pub struct Monitor {
    asked: HashMap<String, bool>,
    ids: HashSet<String>,
    procs: HashMap<String, Proc>,
}

struct Proc {
    req_id: String,
    ended: bool,
    seq: i64,
}

impl Monitor {
    /// A request went out.
    pub fn sent(&mut self, id: &str) {
        assert!(self.asked.insert(id.into(), false).is_none(), "the test used an id twice");
    }

    /// A line came in: it is one JSON object of the envelope, its id is new, it answers a request that has no answer yet, or
    /// it is an event of a process between its spawn answer and its terminal event.
    pub fn saw(&mut self, line: &str) -> Value {
        assert!(line.ends_with('\n'), "a line was cut short: {line:?}");
        let message: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: not protocol: {line:?}"));
        let text = |key: &str| message[key].as_str().unwrap_or_else(|| panic!("no string {key}: {line}")).to_owned();
        let (kind, id, req_id) = (text("type"), text("id"), text("req_id"));
        assert_eq!(text("version"), "1.0", "{line}");
        assert!(message["ts"].is_f64(), "{line}");
        assert!(id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{line}");
        assert!(self.ids.insert(id), "an id came twice: {line}");
        if kind == "proc/read/event" {
            self.event(&message, &req_id, line);
            return message;
        }
        if let Some(answered) = self.asked.get_mut(&req_id) {
            assert!(!std::mem::replace(answered, true), "answered twice: {line}");
        } else {
            // Raw lines of a test are not announced; they are answered by errors and the like.
            assert!(kind == "error" || !self.ids.contains(&req_id), "{line}");
        }
        if kind == "proc/spawn/resp" && message["ok"] == true {
            let proc = Proc { req_id, ended: false, seq: 0 };
            assert!(self.procs.insert(text("proc_id"), proc).is_none(), "a proc_id came twice: {line}");
        }
        message
    }

    fn event(&mut self, message: &Value, req_id: &str, line: &str) {
        let id = message["proc_id"].as_str().unwrap_or_default();
        let proc = self.procs.get_mut(id).unwrap_or_else(|| panic!("an event before the spawn's answer: {line}"));
        assert_eq!(proc.req_id, req_id, "{line}");
        assert!(!proc.ended, "an event after the terminal event: {line}");
        proc.ended = is_terminal(message);
        if let Some(seq) = message["seq"].as_i64() {
            assert_eq!(seq, proc.seq, "a gap in seq: {line}");
            proc.seq += 1;
        }
    }

    /// The session is over: every request was answered, and every process has had its terminal event.
    pub fn end(&self) {
        let unanswered: Vec<&String> =
            self.asked.iter().filter(|(_, answered)| !**answered).map(|(id, _)| id).collect();
        assert!(unanswered.is_empty(), "never answered: {unanswered:?}");
        let open: Vec<&String> = self.procs.iter().filter(|(_, proc)| !proc.ended).map(|(id, _)| id).collect();
        assert!(open.is_empty(), "without a terminal event: {open:?}");
    }
}
