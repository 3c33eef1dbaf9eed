//! What a host sends, but for events: each message's keys in the specification's order, additive keys last.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

use super::VERSION;
use super::code::{self, ErrorCode};
use super::decode::Rejection;
use crate::ids::fresh_id;
use crate::model::{Report, Status};

/// A message with its envelope: type, id, version, ts, then the body's own keys.
#[derive(Serialize)]
struct Envelope<'a, B> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: String,
    version: &'static str,
    ts: f64,
    #[serde(flatten)]
    body: &'a B,
}

/// A kind of message, with its type.
pub trait Message: Serialize {
    /// The value of `type`.
    const TYPE: &'static str;
}

/// Seconds since the epoch, with fractions.
pub fn timestamp(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The message as one line, newline included, stamped with a new id and the time (R1).
pub fn encode<M: Message>(message: &M) -> Vec<u8> {
    encode_as(fresh_id(), message)
}

/// The same with an id that the sender has chosen, as agents do.
pub fn encode_as<M: Message>(id: String, message: &M) -> Vec<u8> {
    let envelope = Envelope { kind: M::TYPE, id, version: VERSION, ts: timestamp(SystemTime::now()), body: message };
    let mut line = serde_json::to_vec(&envelope).expect("strings, numbers and maps with string keys are JSON");
    line.push(b'\n');
    line
}

macro_rules! message {
    ($name:ident, $kind:literal) => {
        impl Message for $name {
            const TYPE: &'static str = $kind;
        }
    };
}

/// `handshake/resp`
#[derive(Clone, Debug, Serialize)]
pub struct HandshakeResp {
    /// The request's id.
    pub req_id: String,
    /// The session, empty if it was refused.
    pub session_id: String,
    /// The capabilities that both sides have.
    pub accepted_caps: Vec<Capability>,
    /// How many requests a client may have under way; this host does not care.
    pub max_parallel: u32,
    /// Whether the session is open.
    pub ok: bool,
    /// Why not.
    pub reason: String,
}
message!(HandshakeResp, "handshake/resp");

/// One accepted capability.
#[derive(Clone, Debug, Serialize)]
pub struct Capability {
    /// Its name.
    pub capability: String,
    /// Always true.
    pub enabled: bool,
    /// The plugin's properties, then the limits in force.
    pub metadata: Metadata,
}

/// What the process capability says of itself (R6): the plugin's four properties, then, additive, the limits in force.
#[derive(Clone, Debug, Serialize)]
pub struct Metadata {
    /// `proc`
    pub name: &'static str,
    /// `proc`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// 5
    pub priority: u32,
    /// false
    pub exclusive: bool,
    /// What `cmd[0]` may be (R9).
    pub allowed_commands: Vec<String>,
    /// Running processes per session (R11).
    pub max_procs: usize,
    /// Seconds; 0 is no limit (R12).
    pub default_timeout: u32,
    /// Seconds; 0 is no limit (R12).
    pub max_timeout: u32,
    /// Seconds between SIGTERM and SIGKILL (R22).
    pub kill_grace: f64,
    /// Bytes of output per process; 0 is no cap (R20).
    pub max_output_bytes: u64,
    /// Bytes of the longest request line (R1).
    pub max_line_bytes: usize,
    /// Bytes that may wait for a child to read them (R21).
    pub max_stdin_bytes: usize,
    /// Variables that `env` may not set (R9).
    pub denied_env: Vec<String>,
    /// Whether processes are cut off the network; left out if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub network_disabled: bool,
}

/// `pong`
#[derive(Clone, Debug, Serialize)]
pub struct Pong {
    /// The request's id.
    pub req_id: String,
    /// How long the host has served.
    pub uptime_seconds: f64,
}
message!(Pong, "pong");

/// `error`
#[derive(Clone, Debug, Serialize)]
pub struct ErrorMessage {
    /// The id of the message it answers, empty if none could be read.
    pub req_id: String,
    /// One of the base protocol's codes.
    pub code: &'static str,
    /// What was wrong.
    pub message: String,
    /// Nothing more.
    pub detail: BTreeMap<String, Value>,
    /// Whether the same message might succeed later.
    pub retryable: bool,
    /// `proc` for a `proc/*` message.
    pub capability_name: &'static str,
}
message!(ErrorMessage, "error");

impl From<Rejection> for ErrorMessage {
    fn from(rejection: Rejection) -> Self {
        Self::new(rejection.req_id, rejection.code, rejection.message, rejection.is_proc)
    }
}

impl ErrorMessage {
    /// An error that answers the message with this id.
    pub fn new(req_id: String, code: ErrorCode, message: String, is_proc: bool) -> Self {
        let capability_name = if is_proc { "proc" } else { "" };
        let (code, detail) = (code.as_str(), BTreeMap::new());
        Self { req_id, code, message, detail, retryable: false, capability_name }
    }
}

/// `proc/spawn/resp`
#[derive(Clone, Debug, Serialize)]
pub struct SpawnResp {
    /// The request's id.
    pub req_id: String,
    /// The process; empty if there is none.
    pub proc_id: String,
    /// Whether it runs.
    pub ok: bool,
    /// Its pid; absent if there is none (R10).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Why not (R5).
    pub error: String,
}
message!(SpawnResp, "proc/spawn/resp");

/// `proc/write/resp`
#[derive(Clone, Debug, Serialize)]
pub struct WriteResp {
    /// The request's id.
    pub req_id: String,
    /// The process.
    pub proc_id: String,
    /// Whether the bytes are in its pipe.
    pub ok: bool,
    /// Its pid, 0 if there is no such process.
    pub pid: u32,
    /// Why not (R5).
    pub error: String,
}
message!(WriteResp, "proc/write/resp");

/// `proc/kill/resp`
#[derive(Clone, Debug, Serialize)]
pub struct KillResp {
    /// The request's id.
    pub req_id: String,
    /// Whether the signal was sent.
    pub ok: bool,
    /// The status of the process (R22).
    pub state: &'static str,
    /// Additive: why it was not (R22).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
message!(KillResp, "proc/kill/resp");

/// `proc/status/resp`
#[derive(Clone, Debug, Serialize)]
pub struct StatusResp {
    /// The request's id.
    pub req_id: String,
    /// The process; empty for all.
    pub proc_id: String,
    /// Its status (R24, R25).
    pub status: &'static str,
    /// What there is to say of it (R24).
    pub error: String,
    /// Additive: each process that was asked about (R24).
    pub procs: Vec<ProcStatus>,
}
message!(StatusResp, "proc/status/resp");

/// `ProcStatus`
#[derive(Clone, Debug, Serialize)]
pub struct ProcStatus {
    /// The process.
    pub proc_id: String,
    /// Its command.
    pub cmd: String,
    /// Its `ProcState`.
    pub state: &'static str,
    /// Its pid.
    pub pid: u32,
    /// Exit code or minus signal number; null while it runs.
    pub exit_code: Option<i32>,
    /// When it was spawned.
    pub started_at: f64,
    /// Additive: output that was discarded past the cap (R20).
    #[serde(skip_serializing_if = "is_zero")]
    pub dropped_bytes: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl From<&Report> for ProcStatus {
    fn from(report: &Report) -> Self {
        Self {
            proc_id: report.id.to_string(),
            cmd: report.cmd.clone(),
            state: code::proc_state(report.status),
            pid: report.pid,
            exit_code: report.exit_code,
            started_at: timestamp(report.started_at),
            dropped_bytes: report.dropped_bytes,
        }
    }
}

impl StatusResp {
    /// The answer about one process (R24).
    pub fn one(req_id: String, report: &Report) -> Self {
        let error = match (report.status, report.exit_code, report.timeout) {
            (Status::Failed, Some(code), _) => format!("exit code {code}"),
            (Status::TimedOut, _, Some(limit)) => format!("timeout of {} s", limit.as_secs()),
            _ => String::new(),
        };
        let status = code::status(report.status);
        Self { req_id, proc_id: report.id.to_string(), status, error, procs: vec![report.into()] }
    }

    /// The answer about all processes of a session (R25).
    pub fn all(req_id: String, reports: &[Report]) -> Self {
        let any_runs = reports.iter().any(|report| report.status == Status::Running);
        let status = code::status(if any_runs { Status::Running } else { Status::Completed });
        let procs = reports.iter().map(ProcStatus::from).collect();
        Self { req_id, proc_id: String::new(), status, error: String::new(), procs }
    }

    /// The answer about a process that nobody knows (R24).
    pub fn unknown(req_id: String, proc_id: String, error: String) -> Self {
        Self { req_id, proc_id, status: code::NOT_FOUND, error, procs: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows the envelope, whose four keys are checked here.
    fn shape<M: Message>(message: &M) -> String {
        let line = String::from_utf8(encode(message)).unwrap();
        let (head, rest) = line.split_once(",\"version\":\"1.0\",\"ts\":").unwrap_or_else(|| panic!("{line}"));
        let id =
            head.strip_prefix(&format!("{{\"type\":\"{}\",\"id\":\"", M::TYPE)).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(id.trim_end_matches('"').len(), 32, "{line}");
        let (ts, body) = rest.split_once(',').unwrap_or_else(|| panic!("{line}"));
        assert!(ts.parse::<f64>().unwrap() > 1e9, "{line}");
        body.to_owned()
    }

    #[test]
    fn keys_stand_in_the_specification_s_order() {
        let spawned = SpawnResp {
            req_id: "p1".into(),
            proc_id: "proc_abc123".into(),
            ok: true,
            pid: Some(12345),
            error: String::new(),
        };
        assert_eq!(
            shape(&spawned),
            "\"req_id\":\"p1\",\"proc_id\":\"proc_abc123\",\"ok\":true,\"pid\":12345,\"error\":\"\"}\n"
        );
        let refused = SpawnResp { proc_id: String::new(), ok: false, pid: None, error: "e: w".into(), ..spawned };
        assert_eq!(shape(&refused), "\"req_id\":\"p1\",\"proc_id\":\"\",\"ok\":false,\"error\":\"e: w\"}\n");
        let killed = KillResp { req_id: "p5".into(), ok: true, state: "killed", error: None };
        assert_eq!(shape(&killed), "\"req_id\":\"p5\",\"ok\":true,\"state\":\"killed\"}\n");
        let unknown = StatusResp::unknown("r".into(), "p".into(), "e".into());
        assert_eq!(
            shape(&unknown),
            "\"req_id\":\"r\",\"proc_id\":\"p\",\"status\":\"not_found\",\"error\":\"e\",\"procs\":[]}\n"
        );
        let error = ErrorMessage::new("r".into(), ErrorCode::ParseError, "m".into(), true);
        assert_eq!(
            shape(&error),
            "\"req_id\":\"r\",\"code\":\"parse_error\",\"message\":\"m\",\"detail\":{},\"retryable\":false,\
             \"capability_name\":\"proc\"}\n"
        );
    }
}
