//! What holds of every line of every exchange (`conformance/README.md`, Monitors). `play` shows it each line, both ways, and
//! asks it at the end.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::case::Role;
use super::kit::{Dialect, Keys, Profile, Schema};

/// Which monitor, and what it saw.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str, pub String);

/// A process that the host has named.
struct Proc {
    req_id: String,
    ended: bool,
    events: u64,
}

/// A request that was sent: its type, and how often; and how many answers have come.
#[derive(Default)]
struct Asked {
    kind: String,
    times: usize,
    answers: usize,
    /// Sent when the session was ending, so that nobody owes an answer.
    late: bool,
}

pub struct Monitor<'a> {
    role: Role,
    profile: &'a Profile,
    schemas: &'a BTreeMap<String, Schema>,
    ids: HashSet<String>,
    asked: HashMap<String, Asked>,
    procs: HashMap<String, Proc>,
    /// Bytes were sent as they stand: what answers them is not known here.
    raw: bool,
    ending: bool,
    /// Nobody owes anything any more.
    broken_off: bool,
}

/// The types that hosts and clients send.
const FROM_HOSTS: [&str; 9] = [
    "handshake/resp",
    "pong",
    "error",
    "proc/spawn/resp",
    "proc/write/resp",
    "proc/read/event",
    "proc/kill/resp",
    "proc/status/resp",
    // A host may close a session in so many words too.
    "shutdown",
];
const FROM_CLIENTS: [&str; 7] =
    ["handshake/req", "ping", "shutdown", "proc/spawn/req", "proc/write/req", "proc/kill/req", "proc/status/req"];

impl<'a> Monitor<'a> {
    pub fn new(role: Role, profile: &'a Profile, schemas: &'a BTreeMap<String, Schema>) -> Self {
        Self {
            role,
            profile,
            schemas,
            ids: HashSet::new(),
            asked: HashMap::new(),
            procs: HashMap::new(),
            raw: false,
            ending: false,
            broken_off: false,
        }
    }

    /// A message goes to the host.
    pub fn sent(&mut self, message: &Value) {
        let (id, kind) = (text(message, "id"), text(message, "type"));
        // It has no answer, but for an error.
        self.ending |= kind == "shutdown";
        if !id.is_empty() {
            let asked = self.asked.entry(id.to_owned()).or_default();
            asked.late |= self.ending;
            kind.clone_into(&mut asked.kind);
            asked.times += 1;
        }
    }

    pub fn sent_raw(&mut self) {
        self.raw = true;
    }

    /// The session is being ended: what is asked from here on may stay unanswered.
    pub fn ends(&mut self) {
        self.ending = true;
    }

    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// The host was killed: what was asked may stay unanswered, and processes without their last event.
    pub fn broken_off(&mut self) {
        self.broken_off = true;
    }

    /// Looks at a line, and returns it as JSON with `data` as the payload that it holds.
    pub fn saw(&mut self, line: &[u8]) -> Result<Value, Violation> {
        let words = std::str::from_utf8(line).map_err(|e| Violation("line", format!("not UTF-8: {e}")))?;
        let message: Value = serde_json::from_str(words).map_err(|e| Violation("line", format!("not JSON: {e}")))?;
        let kind = message.as_object().and_then(|object| object.get("type")?.as_str()).map(ToOwned::to_owned);
        let known: &[&str] = if self.role == Role::Host { &FROM_HOSTS } else { &FROM_CLIENTS };
        let kind = match kind {
            Some(kind) if known.contains(&kind.as_str()) => kind,
            Some(kind) => return Err(Violation("line", format!("{kind:?} is no type of message that it may send"))),
            None => return Err(Violation("line", "it is not an object with a type".to_owned())),
        };
        let schema = self.schemas.get(&kind);
        if let Some(error) = schema.and_then(|schema| schema.validator.iter_errors(&message).next()) {
            return Err(Violation("schema", format!("{kind}: {error} at {}", error.instance_path())));
        }
        if self.role == Role::Host
            && let (true, Some(schema)) = (self.profile.adopts("R19"), schema)
        {
            in_order(&schema.keys, words).map_err(|e| Violation("key-order", e))?;
        }
        let id = text(&message, "id");
        if !id.is_empty() && !self.ids.insert(id.to_owned()) {
            return Err(Violation("id-unique", format!("the id {id:?} came before")));
        }
        let message = self.with_payload(message)?;
        match self.role {
            Role::Host if kind == "proc/read/event" => self.event(&message)?,
            Role::Host => self.answer(&kind, &message)?,
            Role::Client => {}
        }
        Ok(message)
    }

    fn with_payload(&self, mut message: Value) -> Result<Value, Violation> {
        let Some(data) = message.get_mut("data").filter(|_| self.role == Role::Host) else { return Ok(message) };
        if let Some(words) = data.as_str() {
            *data = serde_json::from_str(words).map_err(|e| Violation("schema", format!("data is not JSON: {e}")))?;
        }
        let data = message.get("data").unwrap_or(&Value::Null);
        let form = format!("data-payload/{}", text(&message, "stream_type"));
        match self.schemas.get(&form).and_then(|schema| schema.validator.iter_errors(data).next()) {
            Some(error) => Err(Violation("schema", format!("data: {error}"))),
            None => Ok(message),
        }
    }

    fn answer(&mut self, kind: &str, message: &Value) -> Result<(), Violation> {
        let wrong = |words: String| Err(Violation("answer-once", words));
        let req_id = text(message, "req_id");
        let Some(asked) = self.asked.get_mut(req_id) else {
            return if self.raw || req_id.is_empty() { Ok(()) } else { wrong(format!("nobody asked {req_id:?}")) };
        };
        if kind != "error" && Some(kind) != answer_to(&asked.kind).as_deref() {
            return wrong(format!("{kind} is no answer to {}", asked.kind));
        }
        asked.answers += 1;
        if asked.answers > asked.times {
            return wrong(format!("{req_id:?} was answered before"));
        }
        if kind == "proc/spawn/resp" && message["ok"] == true {
            let proc = Proc { req_id: req_id.to_owned(), ended: false, events: 0 };
            if self.procs.insert(text(message, "proc_id").to_owned(), proc).is_some() {
                return Err(Violation("id-unique", format!("the proc_id {} came before", message["proc_id"])));
            }
        }
        Ok(())
    }

    fn event(&mut self, message: &Value) -> Result<(), Violation> {
        let wrong = |words: String| Err(Violation("event-order", words));
        let Some(proc) = self.procs.get_mut(text(message, "proc_id")) else {
            return wrong("an event of a process that no answer has named".to_owned());
        };
        if text(message, "req_id") != proc.req_id {
            return wrong(format!("its req_id is not {:?}, that of its spawn", proc.req_id));
        }
        if proc.ended {
            let what = if is_terminal(message) { "terminal-once" } else { "event-order" };
            return Err(Violation(what, "an event after the terminal event".to_owned()));
        }
        let is_counted = self.profile.dialect == Dialect::Sdk && self.profile.adopts("R19");
        if is_counted && message["seq"].as_u64() != Some(proc.events) {
            return Err(Violation("seq", format!("seq is {}, not {}", message["seq"], proc.events)));
        }
        proc.events += 1;
        proc.ended = is_terminal(message);
        Ok(())
    }

    /// Asked at the end of a session.
    pub fn at_the_end(&self) -> Result<(), Violation> {
        if self.broken_off {
            return Ok(());
        }
        let owed = |asked: &Asked| !asked.late && asked.answers < asked.times;
        if let Some((id, asked)) = self.asked.iter().find(|(_, asked)| owed(asked)) {
            return Err(Violation("answer-once", format!("{} {id:?} was never answered", asked.kind)));
        }
        let tells_all = self.profile.adopts("R8") && self.profile.adopts("R17");
        match self.procs.iter().find(|(_, proc)| tells_all && !proc.ended) {
            Some((id, _)) => Err(Violation("terminal-once", format!("process {id} has had no terminal event"))),
            None => Ok(()),
        }
    }
}

fn text<'a>(message: &'a Value, key: &str) -> &'a str {
    message.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an event, with its payload decoded, is the last of its process.
pub fn is_terminal(event: &Value) -> bool {
    event["stream_type"] == "killed" || event["data"].get("code").is_some()
}

fn answer_to(kind: &str) -> Option<String> {
    match kind {
        "ping" => Some("pong".to_owned()),
        _ => kind.strip_suffix("/req").map(|stem| format!("{stem}/resp")),
    }
}

/// Whether the keys that have an order stand in it, and before all others.
fn in_order(order: &[String], line: &str) -> Result<(), String> {
    let Keys(keys) = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let place = |key: &String| order.iter().position(|known| known == key).unwrap_or(order.len());
    match keys.windows(2).find(|pair| place(&pair[0]) > place(&pair[1])) {
        Some(pair) => Err(format!("{:?} stands before {:?}", pair[0], pair[1])),
        None => Ok(()),
    }
}
