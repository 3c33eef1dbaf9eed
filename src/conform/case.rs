//! A transcript as it stands in a file: its header and its steps, checked as far as can be without a host
//! (`conformance/README.md`, The format of a case). `kit` reads them, `play` plays them.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::pattern::{self, Use};

/// The version of the format that this reads.
pub const FORMAT: u64 = 1;

/// How long a step may take, in seconds, if it does not say.
const WITHIN: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    May,
    Should,
    Must,
}

impl Level {
    pub fn named(name: &str) -> Option<Self> {
        [Self::May, Self::Should, Self::Must].into_iter().find(|level| level.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::May => "MAY",
            Self::Should => "SHOULD",
            Self::Must => "MUST",
        }
    }
}

/// Whom a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Host,
    Client,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub id: String,
    pub level: Level,
    pub role: Role,
    pub req: Vec<String>,
    pub needs: Vec<String>,
    pub setup: Option<String>,
    pub about: String,
    /// The header as it stands: what a self-test or a client's case has beside the rest.
    pub header: Map<String, Value>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub struct Step {
    /// The line of the file that it stands on, from 1.
    pub line: usize,
    /// The connection that it is about: 0 for "a", 1 for "b".
    pub on: usize,
    pub verb: Verb,
    /// Seconds, to be scaled.
    pub within: f64,
    /// Seconds, not scaled.
    pub after: f64,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Send(Value),
    SendRaw(Vec<(Vec<u8>, usize)>),
    Expect(Value),
    Collect(Collect),
    Quiet(f64),
    Par(Vec<Vec<Step>>),
    Reading(bool),
    CloseStdin,
    Signal(String),
    HostExit(Value),
    Fifo(String),
    Released(String),
    FromHost(Vec<Canned>),
}

#[derive(Clone, Debug)]
pub struct Collect {
    pub proc_id: Value,
    /// What stdout and stderr must say.
    pub streams: [Option<Value>; 2],
    pub whole_lines: bool,
}

/// What a self-test has in the place of a host.
#[derive(Clone, Debug)]
pub enum Canned {
    Line { at: f64, text: String },
    Exit { at: f64, code: i32 },
}

/// Reads a case.
///
/// # Errors
/// The line and what is wrong with it.
pub fn parse(id: &str, text: &str) -> Result<Case, String> {
    let mut lines =
        text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty());
    let object = |(number, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Ok((number, object)),
        Ok(_) => Err(format!("line {number}: is not a JSON object")),
        Err(e) => Err(format!("line {number}: {e}")),
    };
    let (number, header) = object(lines.next().ok_or("there is no header")?)?;
    let mut case = read_header(id, header).map_err(|e| format!("line {number}: {e}"))?;
    let mut reader = Reader { bound: BTreeSet::from(["tmp".to_owned()]), role: case.role, connections: 1 };
    for line in lines {
        let (number, step) = object(line)?;
        let steps = reader.steps_of(number, &step, Place::Top);
        case.steps.extend(steps.map_err(|e| format!("line {number}: {e}"))?);
    }
    if case.steps.is_empty() {
        return Err("there are no steps".to_owned());
    }
    if reader.connections > 1 && !case.needs.iter().any(|need| need == "connections") {
        return Err("it has two connections, and \"connections\" is not among its needs".to_owned());
    }
    Ok(case)
}

fn read_header(id: &str, header: Map<String, Value>) -> Result<Case, String> {
    const KEYS: [&str; 13] = [
        "case", "format", "level", "role", "req", "needs", "setup", "about", "do", "profile", "rule", "why", "selftest",
    ];
    if let Some(key) = header.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("{key:?} is not a key of a header"));
    }
    let text = |key: &str| header.get(key).and_then(Value::as_str);
    let texts = |key: &str| -> Result<Vec<String>, String> {
        let Some(value) = header.get(key) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| format!("{key} is not a list"))?;
        items
            .iter()
            .map(|item| item.as_str().map(ToOwned::to_owned).ok_or_else(|| format!("{key} has {item}")))
            .collect()
    };
    let case = text("case").ok_or("the first line is not a header: it has no \"case\"")?;
    if case != id {
        return Err(format!("the case is called {case:?}, but stands in {id:?}"));
    }
    if header.get("format").and_then(Value::as_u64) != Some(FORMAT) {
        return Err(format!("format is {}, and this reads {FORMAT}", header.get("format").unwrap_or(&Value::Null)));
    }
    let level = text("level").and_then(Level::named).ok_or("level is not MUST, SHOULD or MAY")?;
    let role = match text("role") {
        None if header.contains_key("role") => return Err("role is not a text".to_owned()),
        None | Some("host") => Role::Host,
        Some("client") => Role::Client,
        Some(other) => return Err(format!("role is {other:?}")),
    };
    if role == Role::Client && !header.get("do").is_some_and(Value::is_array) {
        return Err("a client's case has no list \"do\"".to_owned());
    }
    Ok(Case {
        id: id.to_owned(),
        level,
        role,
        req: texts("req")?,
        needs: texts("needs")?,
        setup: text("setup").map(ToOwned::to_owned),
        about: text("about").ok_or("about is missing")?.to_owned(),
        header: header.clone(),
        steps: Vec::new(),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    Repeat,
    Par,
}

/// What reading has come to know: the names that are bound so far, and how many connections there are.
struct Reader {
    bound: BTreeSet<String>,
    role: Role,
    connections: usize,
}

impl Reader {
    /// The steps that a line stands for: itself, or the rounds of a `repeat` written out.
    fn steps_of(&mut self, line: usize, step: &Map<String, Value>, place: Place) -> Result<Vec<Step>, String> {
        let Some(times) = step.get("repeat") else { return Ok(vec![self.step(line, step, place)?]) };
        let only = step.len() == 2 && step.contains_key("do") && place == Place::Top;
        let times =
            times.as_u64().filter(|times| *times > 0 && only).ok_or("a repeat is a number, with \"do\" beside it")?;
        let mut steps = Vec::new();
        for round in 1..=times {
            steps.extend(self.steps(line, &pattern::in_round(&step["do"], round), Place::Repeat)?);
        }
        Ok(steps)
    }

    fn step(&mut self, line: usize, step: &Map<String, Value>, place: Place) -> Result<Step, String> {
        const VERBS: [&str; 13] = [
            "send",
            "send_raw",
            "expect",
            "collect",
            "quiet",
            "par",
            "reading",
            "close_stdin",
            "signal",
            "host_exit",
            "fifo",
            "released",
            "from_host",
        ];
        let verbs: Vec<_> = step.keys().filter(|key| VERBS.contains(&key.as_str())).collect();
        let [verb] = verbs[..] else {
            return Err(format!(
                "a step has one verb, this has {}: {:?}",
                verbs.len(),
                step.keys().collect::<Vec<_>>()
            ));
        };
        let may_have: &[&str] = match verb.as_str() {
            "expect" | "collect" => &["on", "within", "after"],
            "host_exit" => &["within", "after"],
            "released" => &["within"],
            "send" | "send_raw" | "close_stdin" | "from_host" => &["on"],
            _ => &[],
        };
        if let Some(key) = step.keys().find(|key| *key != verb && !may_have.contains(&key.as_str())) {
            return Err(format!("{verb} does not go with {key:?}"));
        }
        if place == Place::Par && !["send", "expect", "collect", "from_host"].contains(&verb.as_str()) {
            return Err(format!("{verb} cannot stand in a branch"));
        }
        let seconds = |key: &str, default: f64| match step.get(key) {
            None => Ok(default),
            Some(value) => value.as_f64().filter(|s| *s >= 0.0).ok_or_else(|| format!("{key} is {value}, not seconds")),
        };
        let (within, after) = (seconds("within", WITHIN)?, seconds("after", 0.0)?);
        if after > within {
            return Err("after is more than within".to_owned());
        }
        let on = match step.get("on").map_or(Some("a"), Value::as_str) {
            Some("a") => 0,
            Some("b") => 1,
            _ => return Err(format!("on is {}, not \"a\" or \"b\"", step["on"])),
        };
        self.connections = self.connections.max(on + 1);
        Ok(Step { line, on, verb: self.verb(line, verb, &step[verb])?, within, after })
    }

    fn verb(&mut self, line: usize, verb: &str, value: &Value) -> Result<Verb, String> {
        let malformed = || format!("{verb} cannot have {}", pattern::brief(value));
        let name = || value.as_str().map(ToOwned::to_owned).ok_or_else(malformed);
        Ok(match verb {
            "send" => {
                self.check(value, Use::Message)?;
                if !value.is_object() {
                    return Err(malformed());
                }
                Verb::Send(value.clone())
            }
            "send_raw" => Verb::SendRaw(raw(value)?),
            "expect" => {
                self.check(value, Use::Pattern)?;
                self.lane(value)?;
                Verb::Expect(value.clone())
            }
            "collect" => Verb::Collect(self.collect(value)?),
            "quiet" => Verb::Quiet(value.as_f64().filter(|s| *s > 0.0).ok_or_else(malformed)?),
            "par" => {
                let branches = value.as_array().filter(|list| list.len() > 1).ok_or_else(malformed)?;
                let branch = |branch: &Value| self.steps(line, branch, Place::Par);
                Verb::Par(branches.iter().map(branch).collect::<Result<_, _>>()?)
            }
            "reading" => Verb::Reading(value.as_bool().ok_or_else(malformed)?),
            "close_stdin" if *value == Value::Bool(true) => Verb::CloseStdin,
            "signal" => {
                let name = name()?;
                if !["SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"].contains(&name.as_str()) {
                    return Err(malformed());
                }
                Verb::Signal(name)
            }
            "host_exit" => {
                self.check(value, Use::Pattern)?;
                if value.as_object().is_none_or(|object| object.len() != 1 || !object.contains_key("code")) {
                    return Err(malformed());
                }
                Verb::HostExit(value.clone())
            }
            "fifo" => Verb::Fifo(name()?),
            "released" => Verb::Released(name()?),
            "from_host" => {
                let lines = value.as_array().ok_or_else(malformed)?;
                Verb::FromHost(lines.iter().map(canned).collect::<Result<_, _>>()?)
            }
            _ => return Err(malformed()),
        })
    }

    fn steps(&mut self, line: usize, list: &Value, place: Place) -> Result<Vec<Step>, String> {
        let steps = list.as_array().filter(|steps| !steps.is_empty()).ok_or("steps are a list that is not empty")?;
        let step = |step: &Value| self.steps_of(line, step.as_object().ok_or("a step is an object")?, place);
        Ok(steps.iter().map(step).collect::<Result<Vec<_>, String>>()?.concat())
    }

    fn check(&mut self, value: &Value, usage: Use) -> Result<(), String> {
        pattern::check(value, usage, &mut self.bound)
    }

    /// A pattern must say which lane it is of.
    fn lane(&self, pattern: &Value) -> Result<(), String> {
        let kind = pattern.get("type").ok_or("expect has no \"type\"")?;
        if kind.as_str().is_none() {
            return Err("the type of an expected line must be written out".to_owned());
        }
        let key = if kind == "proc/read/event" { "proc_id" } else { "req_id" };
        if self.role == Role::Host && pattern.get(key).is_none() {
            return Err(format!("expect has no {key:?}, which says what lane it is of"));
        }
        Ok(())
    }

    fn collect(&mut self, value: &Value) -> Result<Collect, String> {
        let object = value.as_object().ok_or("collect is an object")?;
        let keys = ["proc_id", "stdout", "stderr", "whole_lines"];
        if let Some(key) = object.keys().find(|key| !keys.contains(&key.as_str())) {
            return Err(format!("collect does not know {key:?}"));
        }
        let proc_id = object.get("proc_id").ok_or("collect has no \"proc_id\"")?;
        self.check(proc_id, Use::Message)?;
        let whole_lines = match object.get("whole_lines") {
            None => false,
            Some(value) => value.as_bool().ok_or("whole_lines is not true or false")?,
        };
        let streams = [object.get("stdout").cloned(), object.get("stderr").cloned()];
        if streams.iter().all(Option::is_none) {
            return Err("collect has neither stdout nor stderr".to_owned());
        }
        for stream in streams.iter().flatten() {
            match stream.get("base64") {
                Some(Value::String(bytes)) => drop(decode(bytes)?),
                Some(bytes) => self.check(bytes, Use::Message)?,
                None if stream.get("$re").is_some() => self.check(stream, Use::Pattern)?,
                None => self.check(stream, Use::Message)?,
            }
        }
        Ok(Collect { proc_id: proc_id.clone(), streams, whole_lines })
    }
}

/// Bytes from base64.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|e| format!("not base64: {e}"))
}

fn raw(value: &Value) -> Result<Vec<(Vec<u8>, usize)>, String> {
    let part = |part: &Value| match part {
        Value::String(text) => Ok((decode(text)?, 1)),
        Value::Object(object) => {
            let bytes = object.get("base64").and_then(Value::as_str).ok_or("a part of send_raw has no base64")?;
            let times = object.get("times").map_or(Some(1), Value::as_u64).and_then(|n| usize::try_from(n).ok());
            Ok((decode(bytes)?, times.ok_or("times is not a number")?))
        }
        other => Err(format!("send_raw cannot have {}", pattern::brief(other))),
    };
    match value {
        Value::Array(parts) => parts.iter().map(part).collect(),
        one => Ok(vec![part(one)?]),
    }
}

fn canned(value: &Value) -> Result<Canned, String> {
    let malformed = || format!("from_host cannot have {}", pattern::brief(value));
    if let Some(text) = value.as_str() {
        return Ok(Canned::Line { at: 0.0, text: text.to_owned() });
    }
    let at = value.get("at").map_or(Some(0.0), Value::as_f64).ok_or_else(malformed)?;
    match (value.get("line").and_then(Value::as_str), value.get("exit").and_then(Value::as_i64)) {
        (Some(text), None) => Ok(Canned::Line { at, text: text.to_owned() }),
        (None, Some(code)) => Ok(Canned::Exit { at, code: i32::try_from(code).map_err(|_| malformed())? }),
        _ => Err(malformed()),
    }
}
