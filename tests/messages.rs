//! Lines that are no good requests, and that a session outlives them (R1, R3, R4; faults 12, 13, 28).
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Host, system};
use serde_json::json;

/// Sends a raw line and returns the code, the words and the echoed id of the error that answers it.
fn error(host: &mut Host, line: &[u8]) -> (String, String, String) {
    let from = host.seen.len();
    host.send_raw(&[line, b"\n"].concat());
    let said = host.wait_from(from, common::PATIENCE, |message| message["type"] == "error");
    let text = |key: &str| said[key].as_str().unwrap().to_owned();
    assert_eq!(said["retryable"], json!(false));
    assert_eq!(said["detail"], json!({}));
    (text("code"), text("message"), text("req_id"))
}

#[test]
fn every_kind_of_bad_line_gets_one_named_error_and_a_good_one_still_works() {
    let mut host = Host::start(&[]);
    let deep = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
    let spawn = |rest: &str| format!(r#"{{"type":"proc/spawn/req","id":"x","cmd":["ls"],{rest}}}"#).into_bytes();
    let rows: Vec<(Vec<u8>, &str, &str, &str)> = vec![
        (b"{nope".to_vec(), "parse_error", "JSON", ""),
        (b"[1]".to_vec(), "parse_error", "a list", ""),
        (b"3".to_vec(), "parse_error", "a number", ""),
        (b"\x0c".to_vec(), "parse_error", "JSON", ""),
        (b"\xff\xfe{}".to_vec(), "parse_error", "UTF-8", ""),
        (deep, "parse_error", "a list", ""),
        (br#"{"id":"x"}"#.to_vec(), "invalid_message", "type", "x"),
        (br#"{"type":"proc/fly/req","id":"x"}"#.to_vec(), "invalid_message", "proc/fly/req", "x"),
        (br#"{"type":"proc/read/event","id":"x"}"#.to_vec(), "invalid_message", "never by agents", "x"),
        (br#"{"type":"proc/spawn/resp","id":"x"}"#.to_vec(), "invalid_message", "never by agents", "x"),
        (br#"{"type":"proc/spawn/req","cmd":["ls"]}"#.to_vec(), "schema_violation", "id", ""),
        (br#"{"type":"ping","id":"x","version":"2.0"}"#.to_vec(), "version_mismatch", "1.0", "x"),
        (spawn(r#""cmd":"ls""#), "schema_violation", "cmd", "x"),
        (spawn(r#""cmd":["ls",3]"#), "schema_violation", "cmd[1]", "x"),
        (spawn(r#""env":{"A":1}"#), "schema_violation", "env.A", "x"),
        (spawn(r#""stdin_mode":"tty""#), "schema_violation", "stdin_mode", "x"),
    ];
    for (line, code, words, req_id) in rows {
        let (got_code, got_words, got_id) = error(&mut host, &line);
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        assert_eq!((got_code.as_str(), got_id.as_str()), (code, req_id), "{shown}: {got_words}");
        assert!(got_words.contains(words), "{shown}: {got_words}");
    }
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    host.finish();
}

#[test]
fn fault_28_time_limits_that_are_none_are_refused_by_name() {
    let mut host = Host::start(&[]);
    for timeout in ["2147483648", "18446744073709551615", "-1", "1.5", "\"5\"", "null", "1e999", "[]"] {
        let line = format!(r#"{{"type":"proc/spawn/req","id":"x","cmd":["true"],"timeout":{timeout}}}"#);
        let (code, words, id) = error(&mut host, line.as_bytes());
        assert_eq!((code.as_str(), id.as_str()), ("schema_violation", "x"), "{timeout}");
        assert!(words.contains("timeout must be whole seconds from 0 to 2147483647"), "{timeout}: {words}");
    }
    for timeout in [json!(2_147_483_647), json!(0), json!(3.0)] {
        let proc = host.spawn_with(&["true"], json!({"timeout": timeout}));
        host.terminal(&proc);
    }
    host.finish();
}

#[test]
fn fault_12_carriage_returns_and_blank_lines() {
    let mut host = Host::start(&[]);
    let from = host.seen.len();
    host.send_raw(b"\r\n\n  \t\r\n{\"type\":\"ping\",\"id\":\"crlf\"}\r\n");
    let said = host.wait_from(from, common::PATIENCE, |_| true);
    assert_eq!((said["type"].as_str(), said["req_id"].as_str()), (Some("pong"), Some("crlf")));
    host.finish();
}

#[test]
fn fault_13_a_line_of_64_mib_is_refused_in_bounded_memory() {
    let mut host = Host::start(&[]);
    host.send_raw(&vec![b'x'; 64 << 20]);
    let (code, words, _) = error(&mut host, b"");
    assert_eq!(code, "parse_error");
    assert!(words.contains("8388608"), "{words}");
    assert_eq!(host.call("ping", json!({}))["type"], "pong");
    assert!(system::rss(host.pid()) < 40 * 1024, "{} KiB", system::rss(host.pid()));
    host.finish();
}

#[test]
fn a_full_line_of_small_things_is_read_in_bounded_memory() {
    let mut host = Host::start(&[]);
    // Each of these would be many times its length if it were held.
    for (key, item) in [("x", "{\"\":[0]}"), ("x", "[0]"), ("cmd", "0"), ("cmd", "\"\""), ("env", "{}")] {
        let items = vec![item; (8 << 20) / (item.len() + 1) - 100].join(",");
        host.send_raw(format!("{{\"type\":\"proc/spawn/req\",\"id\":\"big\",\"{key}\":[{items}]}}\n").as_bytes());
        let from = host.seen.len();
        host.wait_from(from, common::PATIENCE, |message| message["req_id"] == "big");
        assert!(system::peak_rss(host.pid()) < 64 * 1024, "{key} {item}: {} KiB", system::peak_rss(host.pid()));
    }
    assert!(system::rss(host.pid()) < 40 * 1024, "{} KiB", system::rss(host.pid()));
    host.finish();
}

#[test]
fn a_request_that_arrives_byte_by_byte_is_a_request() {
    let mut host = Host::start(&[]);
    for byte in b"{\"type\":\"ping\",\"id\":\"slow\"}\n" {
        host.send_raw(&[*byte]);
    }
    host.wait(|message| message["req_id"] == "slow" && message["type"] == "pong");
    host.finish();
}

#[test]
fn the_last_line_needs_no_newline() {
    let mut host = Host::start(&[]);
    host.send_raw(b"{\"type\":\"ping\",\"id\":\"last\"}");
    host.close_input();
    host.wait(|message| message["req_id"] == "last" && message["type"] == "pong");
    assert_eq!(host.wait_end().0, Some(0));
}

#[test]
fn unknown_keys_are_ignored_and_versions_of_the_same_major_are_served() {
    let mut host = Host::start(&[]);
    for fields in [json!({"extra": {"a": [1]}}), json!({"version": "1.9"}), json!({"a2e": "1.0"})] {
        assert_eq!(host.call("ping", fields)["type"], "pong");
    }
    let answer = host.try_spawn(&["true"], json!({"timeout": 5.0, "future": true}));
    assert_eq!(answer["ok"], json!(true));
    host.finish();
}

#[test]
fn fault_17_status_is_answered_beside_a_full_stdin_a_full_stdout_and_a_stalled_kill() {
    let mut host = Host::start(&[]);
    let full_stdin = host.spawn(&["sleep", "1000"]);
    for _ in 0..8 {
        host.send_write(&full_stdin, &"x".repeat(1 << 20), false);
    }
    let stalled = host.sh("trap '' TERM; echo up; while :; do sleep 0.1; done");
    host.wait_text(&stalled, "stdout", "up\n");
    host.send_kill(&stalled, "SIGTERM");
    let start = Instant::now();
    assert_eq!(host.status(&full_stdin)["status"], "running");
    assert_eq!(host.status(&stalled)["status"], "running");
    // Stated as 100 ms; the machine that tests this is shared.
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(host.kill(&full_stdin, "SIGKILL")["state"], "killed");
    host.finish();
}
