//! Writing to processes (R21; faults 17–21).
#![allow(clippy::unwrap_used)]

mod common;

use common::Host;
use serde_json::{Value, json};

fn error(answer: &Value) -> &str {
    assert_eq!(answer["ok"], json!(false), "{answer}");
    answer["error"].as_str().unwrap()
}

#[test]
fn fault_18_a_million_bytes_then_eof() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["wc", "-c"]);
    let answer = host.write(&proc, &"x".repeat(1_000_000), true);
    assert_eq!((answer["ok"].as_bool(), answer["pid"].as_i64()), (Some(true), Some(i64::from(proc.pid))));
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout").trim(), "1000000");
    host.finish();
}

#[test]
fn what_is_written_comes_back_in_order() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["cat"]);
    let lines: Vec<String> = (0..500).map(|n| format!("{n} {}\n", "é".repeat(n))).collect();
    for line in &lines {
        host.send_write(&proc, line, false);
    }
    let last = host.send_write(&proc, "", true);
    assert_eq!(host.answer(&last)["ok"], json!(true));
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), lines.concat());
    host.finish();
}

#[test]
fn bytes_are_written_as_base64() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["base64"]);
    let write = json!({"proc_id": proc.id, "data": "/wAK", "encoding": "base64", "eof": true});
    assert_eq!(host.call("proc/write/req", write)["ok"], json!(true));
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "/wAK\n");
    host.finish();
}

#[test]
fn fault_17_a_child_that_does_not_read_holds_nobody_up_and_memory_is_bounded() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["sleep", "1000"]);
    let too_big = host.write(&proc, &"x".repeat(6 << 20), false);
    assert!(error(&too_big).starts_with("stdin_full: a write of 6291456 bytes"), "{too_big}");
    let pending: Vec<_> = (0..16).map(|_| host.send_write(&proc, &"x".repeat(512 * 1024), false)).collect();
    assert_eq!(host.status(&proc)["status"], "running");
    // One or two fit; the others are refused at once.
    let refused = host.answer(&pending[15]);
    assert!(error(&refused).starts_with("stdin_full"), "{refused}");
    assert!(common::system::rss(host.pid()) < 40 * 1024);
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    for id in &pending {
        assert_eq!(host.answer(id)["ok"], json!(false));
    }
    host.finish();
}

#[test]
fn a_write_that_waits_when_its_process_is_killed_is_told_so() {
    let mut host = Host::start(&[]);
    for _ in 0..20 {
        let proc = host.spawn(&["sleep", "1000"]);
        let id = host.send_write(&proc, &"x".repeat(200_000), false);
        host.kill(&proc, "SIGKILL");
        let answer = host.answer(&id);
        assert!(error(&answer).starts_with("proc_dead"), "{answer}");
    }
    host.finish();
}

#[test]
fn many_small_writes_to_a_child_that_does_not_read_are_bounded_too() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["sleep", "1000"]);
    host.send_write(&proc, &"x".repeat(100_000), false);
    let ids: Vec<_> = (0..5000).map(|_| host.send_write(&proc, "", false)).collect();
    assert!(error(&host.answer(&ids[4999])).starts_with("stdin_full"));
    host.kill(&proc, "SIGKILL");
    host.finish();
}

#[test]
fn fault_19_a_child_that_exits_without_reading_answers_with_an_error() {
    let mut host = Host::start(&[]);
    let proc = host.sh("exit 7");
    let ids: Vec<_> = (0..4).map(|_| host.send_write(&proc, &"x".repeat(300_000), false)).collect();
    let end = host.terminal(&proc);
    assert_eq!(end["data"], "{\"code\":7}");
    for id in &ids {
        let answer = host.answer(id);
        // The pipe takes the first bytes if the child has not gone yet.
        if answer["ok"] == json!(false) {
            let error = error(&answer);
            assert!(error.starts_with("stdin_closed") || error.starts_with("proc_dead"), "{error}");
        }
    }
    host.finish();
}

#[test]
fn a_child_that_closes_its_input_lives_on() {
    let mut host = Host::start(&[]);
    let proc = host.sh("exec <&-; echo closed; sleep 50");
    host.wait_text(&proc, "stdout", "closed\n");
    let answer = host.write(&proc, "x", false);
    assert!(error(&answer).starts_with("stdin_closed"), "{answer}");
    assert_eq!(answer["pid"], proc.pid);
    assert_eq!(host.status(&proc)["status"], "running");
    host.finish();
}

#[test]
fn fault_20_a_write_to_the_dead() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    assert!(error(&host.write(&proc, "x", false)).starts_with("proc_dead"));
    host.finish();
}

#[test]
fn fault_21_null_is_the_end_at_once_and_the_host_s_own_input_is_untouched() {
    let mut host = Host::start(&[]);
    let proc = host.spawn_with(&["cat"], json!({"stdin_mode": "null"}));
    assert_eq!(host.terminal(&proc)["data"], "{\"code\":0}");
    let proc = host.spawn_with(&["sleep", "50"], json!({"stdin_mode": "null"}));
    assert!(error(&host.write(&proc, "x", false)).starts_with("stdin_closed"));
    host.finish();
}

#[test]
fn nothing_is_written_after_eof() {
    let mut host = Host::start(&[]);
    let proc = host.sh("cat; sleep 50");
    assert_eq!(host.write(&proc, "last\n", true)["ok"], json!(true));
    host.wait_text(&proc, "stdout", "last\n");
    assert!(error(&host.write(&proc, "x", false)).starts_with("stdin_closed"));
    host.finish();
}

#[test]
fn eof_reaches_the_child_though_others_were_spawned_while_its_pipe_was_open() {
    let mut host = Host::start(&[]);
    let first = host.spawn(&["cat"]);
    let second = host.spawn(&["sleep", "50"]);
    assert_eq!(host.write(&first, "", true)["ok"], json!(true));
    assert_eq!(host.terminal(&first)["data"], "{\"code\":0}");
    assert_eq!(host.status(&second)["status"], "running");
    host.finish();
}

#[test]
fn what_waits_is_written_before_the_pipe_is_closed_at_the_end_of_the_session() {
    let mut host = Host::start(&[]);
    let proc = host.sh("sleep 0.3; wc -c; echo done");
    // Exactly as much as may wait: the end of input must not need room of its own.
    host.send_write(&proc, &"x".repeat(1 << 20), false);
    host.close_input();
    assert_eq!(host.wait_end().0, Some(0));
    assert_eq!(host.text(&proc, "stdout").split_whitespace().collect::<Vec<_>>(), ["1048576", "done"]);
}
