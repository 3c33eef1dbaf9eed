//! The audit log: one line for each request, with the published SDK's fields.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::audit::{Dir, Plain, entry, lines};
use common::{Host, Start};
use serde_json::{Value, json};

#[test]
fn each_kind_of_request_and_of_error_has_its_line() {
    let dir = Dir::new();
    let file = dir.file("audit.log");
    let mut host = Host::start(&["--audit", &file, "--allow", "no-such-program-0417", "--max-procs", "2"]);
    let session = host.session_id.clone();
    let cat = host.spawn_with(&["cat", "it's"], json!({"correlation_id": "turn-1"}));
    host.terminal(&cat);
    let cat = host.spawn(&["cat"]);
    let deaf = host.spawn_with(&["sleep", "50"], json!({"stdin_mode": "null"}));
    let (running, none) = (cat.id.as_str(), "no-such-process");
    // What is asked, and of the line: what it succeeds with, or how it fails.
    let rows: Vec<(&str, Value, Result<&str, &str>)> = vec![
        ("ping", json!({"correlation_id": 7}), Ok("pong")),
        ("handshake/req", json!({}), Err("server_error")),
        ("proc/write/req", json!({"proc_id": running, "data": "x\n"}), Ok("written")),
        ("proc/write/req", json!({"proc_id": none, "data": "x\n"}), Err("unknown_proc")),
        ("proc/write/req", json!({"proc_id": deaf.id, "data": "x\n"}), Err("stdin_closed")),
        ("proc/write/req", json!({"proc_id": running, "data": "x".repeat(1_048_577)}), Err("stdin_full")),
        ("proc/write/req", json!({"proc_id": running, "data": "!", "encoding": "base64"}), Err("schema_violation")),
        ("proc/status/req", json!({"proc_id": running}), Ok("running")),
        ("proc/status/req", json!({}), Ok("running")),
        ("proc/status/req", json!({"proc_id": none}), Err("unknown_proc")),
        ("proc/kill/req", json!({"proc_id": running, "signal": "SIGHUP"}), Err("invalid_signal")),
        ("proc/kill/req", json!({"proc_id": none}), Err("unknown_proc")),
        ("proc/spawn/req", json!({"cmd": ["ls"]}), Err("proc_limit")),
        ("proc/kill/req", json!({"proc_id": running}), Ok("killed")),
        ("proc/kill/req", json!({"proc_id": running}), Err("proc_dead")),
        ("proc/write/req", json!({"proc_id": running, "data": "x\n"}), Err("proc_dead")),
        ("proc/status/req", json!({"proc_id": running}), Ok("killed")),
        ("proc/spawn/req", json!({"cmd": ["ls"], "session_id": "another"}), Err("unauthorized")),
        ("proc/spawn/req", json!({"cmd": []}), Err("empty_command")),
        ("proc/spawn/req", json!({"cmd": ["rm", "-rf", "/"]}), Err("command_not_allowed")),
        ("proc/spawn/req", json!({"cmd": ["ls", "\0"]}), Err("invalid_argument")),
        ("proc/spawn/req", json!({"cmd": ["ls"], "cwd": "/no/such"}), Err("cwd_not_found")),
        ("proc/spawn/req", json!({"cmd": ["no-such-program-0417"]}), Err("program_not_found")),
        ("proc/spawn/req", json!({"cmd": "ls"}), Err("schema_violation")),
        ("proc/fly/req", json!({"correlation_id": "turn-2"}), Err("invalid_message")),
        ("ping", json!({"version": "2.0"}), Err("version_mismatch")),
    ];
    let mut asked = Vec::new();
    for (kind, fields, expected) in rows {
        let proc_id = fields["proc_id"].as_str().unwrap_or_default().to_owned();
        let id = host.send(kind, fields);
        host.answer(&id);
        let answer = host.wait_line(|message| message["req_id"] == id.as_str());
        asked.push((id, kind, proc_id, expected, answer.len() - 1));
    }
    host.send_raw(b"{nope\n\n");
    host.wait(|message| message["type"] == "error" && message["req_id"] == "");
    host.send("shutdown", json!({"timeout": 1}));
    assert_eq!(host.wait_end().0, Some(0));

    let lines = lines(&file);
    let by_id: HashMap<&str, &Value> = lines.iter().map(|line| (line["req_id"].as_str().unwrap(), line)).collect();
    assert_eq!(by_id.len(), lines.len(), "a request has two lines");
    assert_eq!(lines.len(), 4 + asked.len() + 2);
    for (id, kind, proc_id, expected, output_bytes) in asked {
        let line = by_id[id.as_str()];
        let got = line["error_code"].as_str().map_or_else(|| Ok(line["outcome"].as_str().unwrap()), Err);
        assert_eq!(got, expected, "{line}");
        assert_eq!(line["outcome"], expected.unwrap_or_else(|code| code), "{line}");
        assert_eq!((&line["type"], &line["output_bytes"]), (&json!(kind), &json!(output_bytes)), "{line}");
        assert_eq!(line["session_id"], session, "{line}");
        // What could not be understood is not told in part.
        if !matches!(expected, Err("schema_violation")) {
            assert_eq!(line["proc_id"], proc_id, "{line}");
        }
    }
    let (hello, spawned) = (&lines[0], by_id["r2"]);
    assert_eq!((&hello["type"], &hello["outcome"]), (&json!("handshake/req"), &json!("opened")));
    assert_eq!((&spawned["cmd"], &spawned["outcome"]), (&json!(r#"cat 'it'"'"'s'"#), &json!("spawned")));
    assert_eq!((&spawned["correlation_id"], spawned["proc_id"].as_str().unwrap().len()), (&json!("turn-1"), 32));
    let refused = lines.iter().find(|line| line["error_code"] == "command_not_allowed").unwrap();
    assert_eq!(refused["cmd"], "rm -rf /");
    assert!(lines.iter().any(|line| line["correlation_id"] == "turn-2"));
    let bad = by_id[""];
    assert_eq!((&bad["error_code"], &bad["type"], &bad["input_bytes"]), (&json!("parse_error"), &json!(""), &json!(5)));
    let last = lines.last().unwrap();
    assert_eq!((&last["type"], &last["outcome"]), (&json!("shutdown"), &json!("shutdown")));
    assert_eq!((&last["success"], &last["output_bytes"]), (&json!(true), &json!(0)));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_answered_later_is_told_then_and_once() {
    let dir = Dir::new();
    let file = dir.file("audit.log");
    let mut host = Host::start(&["--audit", &file, "--kill-grace", "0.3"]);
    let stubborn = host.sh("trap '' TERM; echo up; while :; do sleep 0.1; done");
    host.wait_text(&stubborn, "stdout", "up");
    let written = host.send_write(&stubborn, &"x".repeat(500_000), false);
    let killed = host.send_kill(&stubborn, "SIGTERM");
    let pong = host.send("ping", json!({}));
    host.answer(&killed);
    host.answer(&written);
    host.finish();
    let lines = lines(&file);
    let of = |id: &str| {
        let at: Vec<usize> = (0..lines.len()).filter(|&at| lines[at]["req_id"] == id).collect();
        assert_eq!(at.len(), 1, "{id}");
        (at[0], &lines[at[0]])
    };
    let ((killed_at, killed), (_, written), (pong_at, _)) = (of(&killed), of(&written), of(&pong));
    assert!(pong_at < killed_at, "the ping was answered first");
    assert!(killed["outcome"] == "killed" && killed["duration_ms"].as_u64().unwrap() >= 250, "{killed}");
    assert!(written["error_code"] == "proc_dead" && written["duration_ms"].as_u64().unwrap() >= 250, "{written}");
}

#[test]
fn a_line_too_long_to_be_held_is_told_with_its_length_and_long_texts_are_cut() {
    let dir = Dir::new();
    let (file, config) = (dir.file("audit.log"), dir.file("config.json"));
    fs::write(&config, json!({"audit": file, "max_line_bytes": 100_000}).to_string()).unwrap();
    let mut host = Start::bare(&["serve", "--config", &config]).go();
    host.send_raw(&[&b"x".repeat(200_000)[..], b"\n"].concat());
    host.wait(|message| message["type"] == "error");
    host.try_spawn(&["no", &"é".repeat(10_000)], json!({"correlation_id": "c".repeat(10_000)}));
    host.finish();
    let lines = lines(&file);
    assert_eq!((&lines[1]["error_code"], &lines[1]["input_bytes"]), (&json!("parse_error"), &json!(200_000)));
    let (cmd, correlation) = (lines[2]["cmd"].as_str().unwrap(), lines[2]["correlation_id"].as_str().unwrap());
    assert!(cmd.starts_with("no 'éé") && cmd.len() <= 1024 + '…'.len_utf8(), "{}", cmd.len());
    assert_eq!(correlation.len(), 1024);
}

#[test]
fn no_token_no_data_and_no_variable_is_ever_told() {
    let dir = Dir::new();
    let file = dir.file("audit.log");
    let mut host = Start::new(&["--audit", &file]).env("A2E_AUTH_TOKEN", "t0ken-0417").without_handshake().go();
    let early = host.call("proc/status/req", json!({}));
    assert_eq!(early["code"], "unauthorized");
    let mistaken = host.send("handshake/req", json!({"auth_token": ["t0ken-0417"]}));
    host.answer(&mistaken);
    assert_eq!(host.call("handshake/req", json!({"auth_token": "wr0ng-0417"}))["reason"], "auth_failed");
    assert_eq!(host.call("handshake/req", json!({"auth_token": "t0ken-0417"}))["ok"], true);
    let cat = host.spawn_with(&["cat"], json!({"env": {"NAME": "va1ue-0417"}}));
    host.write(&cat, "d4ta-0417\n", true);
    host.terminal(&cat);
    host.finish();
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("0417"), "{text}");
    let codes: Vec<Value> = lines(&file).iter().map(|line| line["error_code"].clone()).collect();
    assert_eq!(
        codes,
        [json!("unauthorized"), json!("schema_violation"), json!("auth_failed"), json!(null), json!(null), json!(null)]
    );
    assert!(lines(&file)[..3].iter().all(|line| line["session_id"] == ""));
}

#[test]
fn a_flood_of_requests_has_a_line_each() {
    const PINGS: usize = 20_000;
    let dir = Dir::new();
    let file = dir.file("audit.log");
    let mut host = Host::start(&["--audit", &file]);
    let flood: String = (0..PINGS).map(|n| format!("{{\"type\":\"ping\",\"id\":\"p{n}\"}}\n")).collect();
    host.send_raw(flood.as_bytes());
    host.wait(|message| message["req_id"] == format!("p{}", PINGS - 1));
    host.finish();
    let lines = lines(&file);
    assert_eq!(lines.len(), PINGS + 1);
    assert!(lines[1..].iter().enumerate().all(|(n, line)| line["req_id"] == format!("p{n}")));
}

#[test]
fn a_dash_is_standard_error() {
    let mut host = Plain::start(&["--audit", "-"]);
    host.ping();
    let said = host.end();
    assert_eq!(said.lines().map(entry).map(|line| line["outcome"].clone()).collect::<Vec<_>>(), [json!("pong")]);
}
