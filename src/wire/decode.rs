//! What an agent sends: a line, then its envelope, then the body that its type asks for. In stages, so that an error can
//! always say what was wrong and, if at all, whose request it was (R4).
//!
//! No line of bytes makes this panic, and none ends the session: what cannot be read becomes a [`Rejection`].

use serde_json::Number;
use serde_json::value::RawValue;

use super::base64;
use super::code::ErrorCode;
use super::fields::{Fields, excerpt, kind_of};
use super::request::{Body, Handshake, Proc, Request, Spawn, Write};
use crate::model::{Secret, StdinMode};

/// A message that was not understood, and the `error` that answers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// The sender's id for it, as far as one could be read.
    pub req_id: String,
    /// The sender's name for what it was part of, likewise.
    pub correlation_id: String,
    /// The start of its type, likewise.
    pub kind: String,
    /// What kind of mistake it was.
    pub code: ErrorCode,
    /// What was wrong, naming the field.
    pub message: String,
    /// Whether it was about a `proc/*` message.
    pub is_proc: bool,
}

/// The types that agents send and this host serves.
const REQUEST_TYPES: [&str; 7] =
    ["handshake/req", "ping", "shutdown", "proc/spawn/req", "proc/write/req", "proc/kill/req", "proc/status/req"];

/// The types that only hosts send.
const HOST_TYPES: [&str; 8] = [
    "handshake/resp",
    "pong",
    "error",
    "proc/spawn/resp",
    "proc/write/resp",
    "proc/read/event",
    "proc/kill/resp",
    "proc/status/resp",
];

/// The seconds of a `shutdown` that does not say (base protocol).
const SHUTDOWN_TIMEOUT: f64 = 10.0;

/// The longest `id`, in bytes: a host remembers and repeats it.
const MAX_ID: usize = 1024;

/// The largest `timeout` of a spawn, in seconds (R12).
const MAX_TIMEOUT: u64 = i32::MAX as u64;

/// Reads one line, without its newline. `None` if it is blank (R1).
pub fn decode(line: &[u8]) -> Option<Result<Request, Rejection>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r')) {
        return None;
    }
    Some(read(line))
}

/// The rejection of a line that was too long to be held (R1).
pub fn too_long(limit: usize) -> Rejection {
    unreadable(format!("the line is longer than {limit} bytes and was skipped"))
}

fn unreadable(message: String) -> Rejection {
    Rejection {
        req_id: String::new(),
        correlation_id: String::new(),
        kind: String::new(),
        code: ErrorCode::ParseError,
        message,
        is_proc: false,
    }
}

fn read(line: &[u8]) -> Result<Request, Rejection> {
    let text = std::str::from_utf8(line)
        .map_err(|e| unreadable(format!("the line is not UTF-8 from byte {} on", e.valid_up_to())))?;
    let mut fields = Fields::of(text).map_err(unreadable)?;

    let text_of = |value: &RawValue| serde_json::from_str::<String>(value.get());
    let id = fields.take("id");
    let req_id = id.and_then(|id| text_of(id).ok()).unwrap_or_default();
    let kind = fields.take("type").and_then(|kind| text_of(kind).ok()).unwrap_or_default();
    let kind = kind.as_str();
    // No message of the process capability has this key, so whatever else it holds is no mistake (R4).
    let correlation_id = fields.take("correlation_id").and_then(|id| text_of(id).ok()).unwrap_or_default();
    let reject = |code, message| {
        let is_proc = kind.starts_with("proc/");
        let (req_id, correlation_id) = (req_id.clone(), correlation_id.clone());
        Rejection { req_id, correlation_id, kind: excerpt(kind).to_owned(), code, message, is_proc }
    };

    if !REQUEST_TYPES.contains(&kind) {
        let message = match kind {
            "" => "the message has no type, or one that is not a string".to_owned(),
            sent if HOST_TYPES.contains(&sent) => format!("{sent} is sent by hosts, never by agents"),
            other => format!("unknown message type {:?}", excerpt(other)),
        };
        return Err(reject(ErrorCode::InvalidMessage, message));
    }
    let violation = |message| reject(ErrorCode::SchemaViolation, message);
    match id.map(RawValue::get) {
        None => return Err(violation("id is missing".into())),
        Some(id) if !id.starts_with('"') => return Err(violation(format!("id must be a string, not {}", kind_of(id)))),
        Some("\"\"") => return Err(violation("id is empty".into())),
        Some(_) if req_id.is_empty() => return Err(violation("id cannot be read".into())),
        Some(_) if req_id.len() > MAX_ID => {
            return Err(violation(format!("id must be at most {MAX_ID} bytes long, not {}", req_id.len())));
        }
        Some(_) => {}
    }
    let version = version_of(&mut fields).map_err(violation)?;
    if !speaks(&version) {
        let message = format!("this host speaks version {}, not {:?}", super::VERSION, excerpt(&version));
        return Err(reject(ErrorCode::VersionMismatch, message));
    }
    let body = body_of(kind, &mut fields).map_err(violation)?;
    Ok(Request { id: req_id, correlation_id, body })
}

/// Whether a message of this version can be served: the same major version, any minor (R3).
fn speaks(version: &str) -> bool {
    let mut parts = version.split('.');
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    parts.next() == Some("1") && parts.all(number)
}

/// The version a message is of, and a look at its time, which this host has no use for.
fn version_of(fields: &mut Fields<'_>) -> Result<String, String> {
    fields.number("ts")?;
    let version = fields.string("version")?;
    let older_spelling = fields.string("a2e")?;
    Ok(version.or(older_spelling).unwrap_or_else(|| super::VERSION.into()))
}

fn body_of(kind: &str, fields: &mut Fields<'_>) -> Result<Body, String> {
    Ok(match kind {
        "handshake/req" => Body::Handshake(Handshake {
            agent_id: fields.string_or_empty("agent_id")?,
            agent_caps: fields.strings("agent_caps")?,
            auth_token: Secret::new(fields.string_or_empty("auth_token")?),
        }),
        "ping" => Body::Ping,
        "shutdown" => Body::Shutdown { timeout: shutdown_timeout(fields)? },
        "proc/spawn/req" => Body::Proc(Proc::Spawn(Spawn {
            session_id: fields.string_or_empty("session_id")?,
            cmd: fields.strings("cmd")?,
            cwd: fields.string_or_empty("cwd")?,
            env: fields.string_map("env")?.into_iter().collect(),
            stdin_mode: stdin_mode(fields)?,
            timeout: spawn_timeout(fields)?,
        })),
        "proc/write/req" => Body::Proc(Proc::Write(Write {
            proc_id: fields.string_or_empty("proc_id")?,
            data: data(fields)?,
            eof: fields.boolean("eof")?,
        })),
        "proc/kill/req" => Body::Proc(Proc::Kill {
            proc_id: fields.string_or_empty("proc_id")?,
            signal: fields.string("signal")?.unwrap_or_else(|| "SIGTERM".into()),
        }),
        _ => Body::Proc(Proc::Status { proc_id: fields.string_or_empty("proc_id")? }),
    })
}

fn stdin_mode(fields: &mut Fields<'_>) -> Result<StdinMode, String> {
    match fields.string("stdin_mode")?.as_deref() {
        None | Some("pipe") => Ok(StdinMode::Pipe),
        Some("null") => Ok(StdinMode::Null),
        Some(other) => Err(format!("stdin_mode must be \"pipe\" or \"null\", not {:?}", excerpt(other))),
    }
}

/// The time limit of a spawn: whole seconds from 0 to [`MAX_TIMEOUT`] (R12). `5.0` is a whole number too.
fn spawn_timeout(fields: &mut Fields<'_>) -> Result<Option<u32>, String> {
    let Some(value) = fields.take("timeout") else {
        return Ok(None);
    };
    let number: Option<Number> = serde_json::from_str(value.get()).ok();
    let from_float = |number: &Number| number.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e12).contains(n));
    let whole = number.and_then(|number| number.as_u64().or_else(|| from_float(&number).map(|float| float as u64)));
    match whole.filter(|&seconds| seconds <= MAX_TIMEOUT) {
        Some(seconds) => Ok(u32::try_from(seconds).ok()),
        None => {
            let got = if kind_of(value.get()) == "a number" { excerpt(value.get()) } else { kind_of(value.get()) };
            Err(format!("timeout must be whole seconds from 0 to {MAX_TIMEOUT}, not {got}"))
        }
    }
}

/// The time limit of a shutdown, which need not be whole.
fn shutdown_timeout(fields: &mut Fields<'_>) -> Result<f64, String> {
    match fields.number("timeout")? {
        None => Ok(SHUTDOWN_TIMEOUT),
        Some(seconds) if seconds >= 0.0 => Ok(seconds),
        Some(seconds) => Err(format!("timeout must be 0 seconds or more, not {seconds}")),
    }
}

/// What is to be written: text, or bytes if `encoding` is `base64` (R21).
fn data(fields: &mut Fields<'_>) -> Result<Vec<u8>, String> {
    let data = fields.string_or_empty("data")?;
    match fields.string("encoding")?.as_deref() {
        None | Some("utf-8" | "utf8" | "") => Ok(data.into_bytes()),
        Some("base64") => base64::decode(&data).map_err(|e| format!("data is not base64: {e}")),
        Some(other) => Err(format!("encoding must be \"utf-8\" or \"base64\", not {:?}", excerpt(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(line: &[u8]) -> (String, &'static str, String) {
        match decode(line) {
            Some(Err(rejection)) => (rejection.req_id, rejection.code.as_str(), rejection.message),
            other => panic!("{}: {other:?}", String::from_utf8_lossy(line)),
        }
    }

    #[test]
    fn each_bad_line_is_rejected_by_name() {
        let spawn = |rest: &str| format!(r#"{{"type":"proc/spawn/req","id":"x","cmd":["ls"],{rest}}}"#);
        let long_id = "x".repeat(1025);
        let rows: Vec<(Vec<u8>, &str, &str, &str)> = vec![
            (b"{nope".to_vec(), "", "parse_error", "not JSON"),
            (b"\xff{}".to_vec(), "", "parse_error", "not UTF-8 from byte 0"),
            (b"[1]".to_vec(), "", "parse_error", "a list"),
            (b"3".to_vec(), "", "parse_error", "a number"),
            (b"{} {}".to_vec(), "", "parse_error", "not JSON"),
            ([b"[".repeat(10_000), b"]".repeat(10_000)].concat(), "", "parse_error", "a list"),
            (br#"{"type":"ping","id":"x","ts":1e999}"#.to_vec(), "x", "schema_violation", "ts is out of range"),
            (br#"{"type":"ping","id":"\ud800"}"#.to_vec(), "", "schema_violation", "id cannot be read"),
            (spawn(r#""cwd":"\udcff""#).into(), "x", "schema_violation", "cwd cannot be read"),
            (spawn(r#""cmd":["\udcff"]"#).into(), "x", "schema_violation", "cmd[0] cannot be read"),
            (
                spawn(&format!(r#""cmd":["ls"{}]"#, r#","""#.repeat(100_000))).into(),
                "x",
                "schema_violation",
                "cmd has more",
            ),
            (spawn(r#""env":{"A":"\ud800"}"#).into(), "x", "schema_violation", "env.A cannot be read"),
            (spawn(r#""timeout":1e999"#).into(), "x", "schema_violation", "timeout"),
            (b"{}".to_vec(), "", "invalid_message", "no type"),
            (br#"{"id":"x"}"#.to_vec(), "x", "invalid_message", "no type"),
            (br#"{"type":7,"id":"x"}"#.to_vec(), "x", "invalid_message", "not a string"),
            (br#"{"type":"proc/fly/req","id":"x"}"#.to_vec(), "x", "invalid_message", "proc/fly/req"),
            (br#"{"type":"proc/read/event","id":"x"}"#.to_vec(), "x", "invalid_message", "never by agents"),
            (br#"{"type":"pong","id":"x"}"#.to_vec(), "x", "invalid_message", "never by agents"),
            (br#"{"type":"ping"}"#.to_vec(), "", "schema_violation", "id is missing"),
            (br#"{"type":"ping","id":""}"#.to_vec(), "", "schema_violation", "id is empty"),
            (format!(r#"{{"type":"ping","id":"{long_id}"}}"#).into(), &long_id, "schema_violation", "1025"),
            (br#"{"type":"ping","id":7}"#.to_vec(), "", "schema_violation", "id must be a string"),
            (br#"{"type":"ping","id":"x","version":1}"#.to_vec(), "x", "schema_violation", "version"),
            (br#"{"type":"ping","id":"x","ts":"now"}"#.to_vec(), "x", "schema_violation", "ts must be"),
            (br#"{"type":"ping","id":"x","version":"2.0"}"#.to_vec(), "x", "version_mismatch", "2.0"),
            (br#"{"type":"ping","id":"x","a2e":"2.0"}"#.to_vec(), "x", "version_mismatch", "2.0"),
            (br#"{"type":"ping","id":"x","version":"one"}"#.to_vec(), "x", "version_mismatch", "one"),
            (spawn(r#""cmd":"ls""#).into(), "x", "schema_violation", "cmd must be a list"),
            (spawn(r#""cmd":["ls",3]"#).into(), "x", "schema_violation", "cmd[1]"),
            (spawn(r#""cwd":null"#).into(), "x", "schema_violation", "cwd"),
            (spawn(r#""env":["A"]"#).into(), "x", "schema_violation", "env"),
            (spawn(r#""env":{"A":1}"#).into(), "x", "schema_violation", "env.A"),
            (spawn(r#""stdin_mode":"tty""#).into(), "x", "schema_violation", "stdin_mode"),
            (spawn(r#""session_id":1"#).into(), "x", "schema_violation", "session_id"),
            (spawn(r#""timeout":-1"#).into(), "x", "schema_violation", "timeout"),
            (spawn(r#""timeout":1.5"#).into(), "x", "schema_violation", "timeout"),
            (spawn(r#""timeout":"5""#).into(), "x", "schema_violation", "timeout"),
            (spawn(r#""timeout":null"#).into(), "x", "schema_violation", "timeout"),
            (spawn(r#""timeout":2147483648"#).into(), "x", "schema_violation", "timeout"),
            (spawn(r#""timeout":18446744073709551615"#).into(), "x", "schema_violation", "timeout"),
            (spawn(r#""timeout":1e300"#).into(), "x", "schema_violation", "timeout"),
            (br#"{"type":"shutdown","id":"x","timeout":-1}"#.to_vec(), "x", "schema_violation", "timeout"),
            (br#"{"type":"handshake/req","id":"x","agent_caps":"proc"}"#.to_vec(), "x", "schema_violation", "caps"),
            (br#"{"type":"proc/write/req","id":"x","data":7}"#.to_vec(), "x", "schema_violation", "data"),
            (br#"{"type":"proc/write/req","id":"x","eof":"yes"}"#.to_vec(), "x", "schema_violation", "eof"),
            (
                br#"{"type":"proc/write/req","id":"x","data":"*","encoding":"base64"}"#.to_vec(),
                "x",
                "schema_violation",
                "not base64",
            ),
            (
                br#"{"type":"proc/write/req","id":"x","data":"","encoding":"rot13"}"#.to_vec(),
                "x",
                "schema_violation",
                "encoding",
            ),
            (br#"{"type":"proc/kill/req","id":"x","signal":15}"#.to_vec(), "x", "schema_violation", "signal"),
            (br#"{"type":"proc/status/req","id":"x","proc_id":1}"#.to_vec(), "x", "schema_violation", "proc_id"),
        ];
        for (line, req_id, code, words) in rows {
            let got = rejected(&line);
            let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            assert_eq!((got.0.as_str(), got.1), (req_id, code), "{shown}: {}", got.2);
            assert!(got.2.contains(words), "{shown}: {}", got.2);
            assert!(got.2.len() < 400, "{shown}: {}", got.2.len());
        }
    }

    /// Pieces of messages, well and badly formed.
    const PIECES: &str = r#"\{|\}|\[|\]|,|:|"type"|"id"|"cmd"|"env"|"timeout"|"proc/spawn/req"|"ping"|"x"|-?[0-9]{1,20}|1e9{1,3}|null|true|"\\\\u[0-9a-f]{4}"|[ \t]|\PC"#;

    proptest::proptest! {
        #[test]
        fn no_line_of_bytes_panics_or_goes_unanswered(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let blank = bytes.iter().all(|b| b" \t\r".contains(b));
            assert_eq!(decode(&bytes).is_none(), blank);
        }

        #[test]
        fn no_line_of_pieces_panics(pieces in proptest::collection::vec(PIECES, 0..40)) {
            let _ = decode(pieces.concat().as_bytes());
        }

        #[test]
        fn no_change_of_a_good_line_panics(at in 0..140_usize, with in proptest::prelude::any::<u8>()) {
            let mut line = br#"{"type":"proc/spawn/req","id":"p1","version":"1.0","ts":1.5,"cmd":["ls"],"env":{"A":"b"},"stdin_mode":"pipe","timeout":0}"#.to_vec();
            let at = at % line.len();
            line[at] = with;
            assert!(decode(&line).is_some());
        }
    }

    #[test]
    fn good_lines() {
        let body = |line: &str| match decode(line.as_bytes()) {
            Some(Ok(request)) => request.body,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(decode(b""), None);
        assert_eq!(decode(b" \t\r"), None);
        assert_eq!(body("{\"type\":\"ping\",\"id\":\"x\"}\r"), Body::Ping);
        assert_eq!(body(r#"{"type":"ping","id":"x","a2e":"1.99999999999","extra":{"a":[1]}}"#), Body::Ping);
        // What is skipped is not held, however deep or strange it is.
        let deep = ["[".repeat(10_000), "]".repeat(10_000)].concat();
        let strange = format!(r#"{{"type":"ping","id":"x","x":{deep},"y":1e999,"z":"\ud800","id":"z"}}"#);
        assert_eq!(body(&strange), Body::Ping);
        assert_eq!(body(r#"{"type":"shutdown","id":"x"}"#), Body::Shutdown { timeout: 10.0 });
        assert_eq!(
            body(r#"{"type":"proc/kill/req","id":"x","proc_id":"p"}"#),
            Body::Proc(Proc::Kill { proc_id: "p".into(), signal: "SIGTERM".into() })
        );
        assert_eq!(
            body(r#"{"type":"proc/write/req","id":"x","proc_id":"p","data":"/wA=","encoding":"base64","eof":true}"#),
            Body::Proc(Proc::Write(Write { proc_id: "p".into(), data: vec![255, 0], eof: true }))
        );
        let timeout = |number: &str| match body(&format!(r#"{{"type":"proc/spawn/req","id":"x","timeout":{number}}}"#))
        {
            Body::Proc(Proc::Spawn(spawn)) => spawn.timeout,
            other => panic!("{other:?}"),
        };
        assert_eq!([timeout("0"), timeout("5.0"), timeout("2147483647")], [Some(0), Some(5), Some(2_147_483_647)]);
    }
}
