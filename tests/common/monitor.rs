//! What must hold of every line that a host writes, whatever the test is about. The soak test plants faults to see it fail.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

/// Watches one connection.
#[derive(Default)]
pub struct Monitor {
    asked: HashMap<String, bool>,
    ids: HashSet<u128>,
    /// The ids that are known, oldest first: no more than can be held.
    known_ids: VecDeque<u128>,
    procs: HashMap<String, Proc>,
    /// Whether every request is announced, so that an answer to anything else is a fault.
    pub strict: bool,
}

struct Proc {
    req_id: String,
    ended: bool,
    seq: i64,
}

impl Monitor {
    /// A request went out.
    pub fn sent(&mut self, id: &str) {
        assert!(self.asked.insert(id.into(), false).is_none(), "an id was used twice");
    }

    /// A line came in: it is one JSON object of the envelope, its id is new, it answers a request that has no answer yet, or
    /// it is an event of a process between its spawn answer and its terminal event.
    pub fn saw(&mut self, line: &str) -> Result<Value, String> {
        let wrong = |what: &str| format!("{what}: {}", line.chars().take(400).collect::<String>());
        if !line.ends_with('\n') {
            return Err(wrong("a line was cut short"));
        }
        let message: Value = serde_json::from_str(line).map_err(|_| wrong("not protocol"))?;
        let text = |key: &str| message[key].as_str().ok_or_else(|| wrong(&format!("no string {key}")));
        let (kind, id, req_id) = (text("type")?, text("id")?, text("req_id")?);
        if text("version")? != "1.0" || !message["ts"].is_f64() {
            return Err(wrong("not the envelope"));
        }
        if id.len() != 32 || !id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong("not an id"));
        }
        let id = u128::from_str_radix(id, 16).map_err(|_| wrong("not an id"))?;
        if !self.ids.insert(id) {
            return Err(wrong("an id came twice"));
        }
        self.known_ids.push_back(id);
        if self.known_ids.len() > 100_000 {
            self.known_ids.pop_front().map(|id| self.ids.remove(&id));
        }
        if kind == "proc/read/event" {
            self.event(&message, text("proc_id")?, req_id).map_err(|what| wrong(&what))?;
            return Ok(message);
        }
        match self.asked.get_mut(req_id) {
            Some(answered) => {
                if std::mem::replace(answered, true) {
                    return Err(wrong("answered twice"));
                }
            }
            // Raw lines of a test are not announced.
            None if kind == "error" || kind == "pong" || !self.strict => {}
            None => return Err(wrong("answers nothing that was asked")),
        }
        if kind == "proc/spawn/resp" && message["ok"] == true {
            let proc = Proc { req_id: req_id.to_owned(), ended: false, seq: 0 };
            if self.procs.insert(text("proc_id")?.to_owned(), proc).is_some() {
                return Err(wrong("a proc_id came twice"));
            }
        }
        Ok(message)
    }

    fn event(&mut self, message: &Value, id: &str, req_id: &str) -> Result<(), String> {
        let proc = self.procs.get_mut(id).ok_or("an event before the spawn's answer")?;
        if proc.req_id != req_id {
            return Err("an event of another request".into());
        }
        if proc.ended {
            return Err("an event after the terminal event".into());
        }
        proc.ended = is_terminal(message);
        if let Some(seq) = message["seq"].as_i64() {
            if seq != proc.seq {
                return Err(format!("seq is not {}", proc.seq));
            }
            proc.seq += 1;
        }
        Ok(())
    }

    /// The session is over: every request was answered, and every process has had its terminal event.
    pub fn end(&self) -> Result<(), String> {
        let unanswered: Vec<&String> =
            self.asked.iter().filter(|(_, answered)| !**answered).map(|(id, _)| id).collect();
        let open: Vec<&String> = self.procs.iter().filter(|(_, proc)| !proc.ended).map(|(id, _)| id).collect();
        if unanswered.is_empty() && open.is_empty() {
            return Ok(());
        }
        Err(format!("never answered: {unanswered:?}; without a terminal event: {open:?}"))
    }
}

/// The payload of an event, in either dialect.
pub fn payload(event: &Value) -> Value {
    match event["data"].as_str() {
        Some(text) => serde_json::from_str(text).expect("data holds JSON"),
        None => event["data"].clone(),
    }
}

/// Whether a message is the last event of a process.
pub fn is_terminal(message: &Value) -> bool {
    message["type"] == "proc/read/event"
        && (message["stream_type"] == "killed" || payload(message).get("code").is_some())
}
