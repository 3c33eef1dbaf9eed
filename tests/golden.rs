//! The golden lines of the conformance kit, against this host's own encoders and decoder. The runner that writes them knows
//! nothing of these, so the two hold each other.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use a2e_proc::model::{Cause, Exit, Outcome, ProcId, StdinMode, Stream};
use a2e_proc::wire::decode::decode;
use a2e_proc::wire::dialect::Dialect;
use a2e_proc::wire::event::EventEncoder;
use a2e_proc::wire::message::{
    Capability, ErrorMessage, HandshakeResp, KillResp, Message, Metadata, Pong, ProcStatus, SpawnResp, StatusResp,
    WriteResp, encode,
};
use a2e_proc::wire::request::{Body, Proc};
use serde_json::{Value, json};

/// The rows of all files.
fn rows() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/golden");
    let mut rows = Vec::new();
    for file in fs::read_dir(folder).unwrap().flatten() {
        let text = fs::read_to_string(file.path()).unwrap();
        rows.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    assert!(rows.len() > 60, "{} rows", rows.len());
    rows
}

/// A line without what differs from one message to the next: the value of these keys, as text.
fn without_chance(line: &str) -> String {
    let mut line = line.trim_end().to_owned();
    for key in ["\"id\":", "\"ts\":", "\"seq\":"] {
        let Some(start) = line.find(key).map(|at| at + key.len()) else { continue };
        let end = start + line[start..].find([',', '}']).unwrap();
        line.replace_range(start..end, "…");
    }
    line
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap().to_owned()
}

/// What lives as long as the program, as the host's own words do.
fn words(value: &Value, key: &str) -> &'static str {
    text(value, key).leak()
}

fn count(value: &Value, key: &str) -> u32 {
    u32::try_from(value[key].as_u64().unwrap()).unwrap()
}

fn proc_status(value: &Value) -> ProcStatus {
    ProcStatus {
        proc_id: text(value, "proc_id"),
        cmd: text(value, "cmd"),
        state: words(value, "state"),
        pid: count(value, "pid"),
        exit_code: value["exit_code"].as_i64().map(|code| i32::try_from(code).unwrap()),
        started_at: value["started_at"].as_f64().unwrap(),
        dropped_bytes: value["dropped_bytes"].as_u64().unwrap_or(0),
    }
}

fn capability(value: &Value) -> Capability {
    let limits = &value["metadata"];
    let strings = |key: &str| serde_json::from_value(limits[key].clone()).unwrap();
    let metadata = Metadata {
        name: words(limits, "name"),
        kind: words(limits, "type"),
        priority: count(limits, "priority"),
        exclusive: limits["exclusive"].as_bool().unwrap(),
        allowed_commands: strings("allowed_commands"),
        max_procs: count(limits, "max_procs") as usize,
        default_timeout: count(limits, "default_timeout"),
        max_timeout: count(limits, "max_timeout"),
        kill_grace: limits["kill_grace"].as_f64().unwrap(),
        max_output_bytes: limits["max_output_bytes"].as_u64().unwrap(),
        max_line_bytes: count(limits, "max_line_bytes") as usize,
        max_stdin_bytes: count(limits, "max_stdin_bytes") as usize,
        denied_env: strings("denied_env"),
        network_disabled: false,
    };
    Capability { capability: text(value, "capability"), enabled: value["enabled"].as_bool().unwrap(), metadata }
}

/// The host's own line for what a golden row says.
fn encoded(value: &Value) -> Vec<u8> {
    let list = |key: &str| value[key].as_array().unwrap().iter();
    let req_id = text(value, "req_id");
    let ok = value["ok"].as_bool().unwrap_or_default();
    fn line<M: Message>(message: M) -> Vec<u8> {
        encode(&message)
    }
    match value["type"].as_str().unwrap() {
        "handshake/resp" => line(HandshakeResp {
            req_id,
            session_id: text(value, "session_id"),
            accepted_caps: list("accepted_caps").map(capability).collect(),
            max_parallel: count(value, "max_parallel"),
            ok,
            reason: text(value, "reason"),
        }),
        "pong" => line(Pong { req_id, uptime_seconds: value["uptime_seconds"].as_f64().unwrap() }),
        "error" => line(ErrorMessage {
            req_id,
            code: words(value, "code"),
            message: text(value, "message"),
            detail: std::collections::BTreeMap::new(),
            retryable: value["retryable"].as_bool().unwrap(),
            capability_name: words(value, "capability_name"),
        }),
        "proc/spawn/resp" => {
            let pid = value.get("pid").map(|_| count(value, "pid"));
            line(SpawnResp { req_id, proc_id: text(value, "proc_id"), ok, pid, error: text(value, "error") })
        }
        "proc/write/resp" => {
            let pid = count(value, "pid");
            line(WriteResp { req_id, proc_id: text(value, "proc_id"), ok, pid, error: text(value, "error") })
        }
        "proc/kill/resp" => {
            let error = value.get("error").map(|_| text(value, "error"));
            line(KillResp { req_id, ok, state: words(value, "state"), error })
        }
        "proc/status/resp" => line(StatusResp {
            req_id,
            proc_id: text(value, "proc_id"),
            status: words(value, "status"),
            error: text(value, "error"),
            procs: list("procs").map(proc_status).collect(),
        }),
        other => panic!("what is {other}?"),
    }
}

/// The host's own line for a golden event, with the golden `proc_id`, which a host cannot choose.
fn encoded_event(value: &Value, dialect: Dialect) -> String {
    let data = &value["data"];
    let stream = if value["stream_type"] == "stderr" { Stream::Stderr } else { Stream::Stdout };
    let string = data["text"].as_str().unwrap_or_default();
    let bytes = data.get("base64").map(|_| b"a\xff\n".as_slice());
    let exit = match data["code"].as_i64().map(|code| i32::try_from(code).unwrap()) {
        Some(code @ 0..) => Exit::Code(code),
        Some(signal) => Exit::Signal(-signal),
        None => Exit::Signal(15),
    };
    let cause = (value["stream_type"] == "killed").then_some(Cause::Kill);
    let (process, req_id) = (ProcId::fresh(), value["req_id"].as_str().unwrap());
    let (mut encoder, mut line) = (EventEncoder::new(dialect), Vec::new());
    if data.get("dropped").is_some() {
        encoder.dropped(&process, req_id, stream, &mut line);
    } else if data.get("text").is_some() {
        encoder.lines(&process, req_id, stream).text(string, bytes, &mut line);
    } else {
        encoder.ended(&process, req_id, Outcome { exit, cause }, &mut line);
    }
    String::from_utf8(line).unwrap().replace(process.as_str(), value["proc_id"].as_str().unwrap())
}

#[test]
fn hosts_lines_are_written_byte_for_byte() {
    for row in rows().iter().filter(|row| row["from"] == "host") {
        let golden = row["line"].as_str().unwrap();
        let own = match (row["value"]["type"].as_str().unwrap(), row["dialect"].as_str().unwrap()) {
            ("proc/read/event", "sdk") => encoded_event(&row["value"], Dialect::Sdk),
            ("proc/read/event", _) => encoded_event(&row["value"], Dialect::Spec),
            _ => String::from_utf8(encoded(&row["value"])).unwrap(),
        };
        assert_eq!(without_chance(&own), without_chance(golden), "{}", row["name"]);
    }
}

/// What the decoder has read, as a golden row says it.
fn read(body: Body) -> Value {
    match body {
        Body::Handshake(handshake) => json!({
            "agent_id": handshake.agent_id,
            "agent_caps": handshake.agent_caps,
            "auth_token": handshake.auth_token.reveal(),
        }),
        Body::Ping => json!({}),
        Body::Shutdown { timeout } => json!({"timeout": timeout}),
        Body::Proc(Proc::Spawn(spawn)) => json!({
            "session_id": spawn.session_id,
            "cmd": spawn.cmd,
            "cwd": spawn.cwd,
            "env": spawn.env.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "stdin_mode": if spawn.stdin_mode == StdinMode::Null { "null" } else { "pipe" },
            "timeout": spawn.timeout,
        }),
        Body::Proc(Proc::Write(write)) => {
            json!({"proc_id": write.proc_id, "bytes": write.data, "eof": write.eof})
        }
        Body::Proc(Proc::Kill { proc_id, signal }) => json!({"proc_id": proc_id, "signal": signal}),
        Body::Proc(Proc::Status { proc_id }) => json!({"proc_id": proc_id}),
    }
}

#[test]
fn agents_lines_are_read_as_they_are_meant() {
    for row in rows().iter().filter(|row| row["from"] == "agent" && row.get("value").is_some()) {
        let request = decode(row["line"].as_str().unwrap().as_bytes()).unwrap();
        let request = request.unwrap_or_else(|e| panic!("{}: {}", row["name"], e.message));
        let mut golden = row["value"].clone();
        if let Some(bytes) = golden.get("bytes").and_then(Value::as_str).map(a2e_proc::wire::base64::decode) {
            golden["bytes"] = json!(bytes.unwrap());
        }
        let (own, golden) = (read(request.body), golden);
        // 10 and 10.0 are the same number.
        let same = own == golden || own["timeout"].as_f64().is_some_and(|t| golden["timeout"].as_f64() == Some(t));
        assert!(same, "{}: {own} is not {golden}", row["name"]);
    }
}

#[test]
fn lines_that_are_refused_are_refused_by_their_code() {
    for row in rows().iter().filter(|row| row.get("error").is_some() && row.get("value").is_none()) {
        let rejection = decode(row["line"].as_str().unwrap().as_bytes()).unwrap().unwrap_err();
        assert_eq!(json!(rejection.code.as_str()), row["error"], "{}", row["name"]);
        assert_eq!(json!(rejection.req_id), row["req_id"], "{}", row["name"]);
    }
}
