//! What processes write reaches the agent whole, in order, and before their end (R15–R17; faults 1–14).

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use a2e_proc::wire::base64;
use common::{Host, payload, system};
use serde_json::json;

fn numbers(to: u32) -> String {
    (1..=to).map(|n| format!("{n}\n")).collect()
}

#[test]
fn fault_01_every_line_then_the_code() {
    let mut host = Host::start(&[]);
    for code in [0, 3] {
        let proc = host.sh(&format!("seq 1 200000; exit {code}"));
        let end = host.terminal(&proc);
        assert_eq!(end["stream_type"], if code == 0 { "stdout" } else { "stderr" });
        assert_eq!(end["data"], format!("{{\"code\":{code}}}"));
        assert_eq!(host.text(&proc, "stdout"), numbers(200_000));
    }
    host.finish();
}

#[test]
fn fault_02_a_word_on_stderr_five_hundred_times() {
    let mut host = Host::start(&[]);
    for _ in 0..500 {
        let proc = host.sh("echo boom >&2; exit 1");
        let end = host.terminal(&proc);
        assert_eq!((end["stream_type"].as_str(), payload(&end)), (Some("stderr"), json!({"code": 1})));
        assert_eq!(host.text(&proc, "stderr"), "boom\n");
    }
    host.finish();
}

#[test]
fn fault_03_a_finished_process_can_be_asked_about() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    let status = host.status(&proc);
    assert_eq!((status["status"].as_str(), status["error"].as_str()), (Some("completed"), Some("")));
    assert_eq!(status["procs"][0]["exit_code"], 0);
    host.finish();
}

#[test]
fn fault_04_others_who_hold_the_pipe_do_not_hold_up_the_end() {
    let mut host = Host::start(&[]);
    for script in [
        "sleep 30.0417 & echo done",
        "sleep 30.0417 >/dev/null & echo done",
        "sleep 30.0417 2>/dev/null & echo done",
        "setsid sleep 30.0417 & echo done",
        "sleep 30.0417 >/dev/null 2>&1 </dev/null & echo done",
    ] {
        let start = Instant::now();
        let proc = host.sh(script);
        host.terminal(&proc);
        assert!(start.elapsed() < Duration::from_secs(2), "{script}: {:?}", start.elapsed());
        assert_eq!(host.text(&proc, "stdout"), "done\n", "{script}");
    }
    host.finish();
    // Whoever has left the group lives on; that is its right.
    for pid in system::alive("30.0417") {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[test]
fn fault_04_a_busy_holder_of_the_pipe_does_not_hold_up_the_end() {
    let mut host = Host::start(&[]);
    // `yes` never leaves the pipe empty, so no time is spent waiting on it.
    let proc = host.sh("echo first; setsid yes & exit 5");
    let end = host.terminal(&proc);
    assert_eq!(payload(&end), json!({"code": 5}));
    assert!(host.text(&proc, "stdout").starts_with("first\n") || host.text(&proc, "stdout").contains("\nfirst\n"));
    host.finish();
}

#[test]
fn fault_05_a_prompt_is_seen_before_any_input() {
    let mut host = Host::start(&[]);
    let proc = host.sh("printf 'name? '; read x; echo got $x");
    host.wait_text(&proc, "stdout", "name? ");
    host.write(&proc, "bob\n", false);
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "name? got bob\n");

    let python = host.spawn(&["python3", "-i"]);
    host.wait_text(&python, "stderr", ">>> ");
    host.write(&python, "print('hello')\n", false);
    let said = host.wait(|m| m["proc_id"] == python.id && m["stream_type"] == "stdout");
    assert_eq!(said["data"], "{\"text\":\"hello\\n\"}");
    host.kill(&python, "SIGTERM");
    host.finish();
}

#[test]
fn fault_06_a_partial_line_before_a_kill_is_delivered() {
    let mut host = Host::start(&[]);
    let proc = host.sh("printf partial; sleep 99");
    host.wait_text(&proc, "stdout", "partial");
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    assert_eq!(host.terminal(&proc)["data"], "{}");
    assert_eq!(host.text(&proc, "stdout"), "partial");
    host.finish();
}

#[test]
fn fault_07_a_long_silence_ends_nothing() {
    let mut host = Host::start(&[]);
    let proc = host.sh("echo a; sleep 3; echo b");
    host.wait_text(&proc, "stdout", "a\n");
    assert_eq!(host.status(&proc)["status"], "running");
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "a\nb\n");
    host.finish();
}

#[test]
fn fault_08_unbuffered_children_are_seen_at_once() {
    let mut host = Host::start(&[]);
    // Block buffering is the child's own: -u turns it off.
    let proc = host.spawn(&["python3", "-u", "-c", "import time; print(1); time.sleep(60)"]);
    host.wait_text(&proc, "stdout", "1\n");
    host.kill(&proc, "SIGKILL");
    host.finish();
}

#[test]
fn fault_09_a_character_in_three_parts_is_one_character() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["bash", "-c", r#"printf "\342"; sleep .1; printf "\211"; sleep .1; printf "\244\n""#]);
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "\u{2264}\n");
    host.finish();
}

#[test]
fn fault_10_bytes_that_are_not_text_are_kept_and_end_nothing() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["bash", "-c", r#"printf "\377\376 bad\n"; seq 1 100000; printf "\342\202""#]);
    host.terminal(&proc);
    let events = host.events(&proc);
    let bytes = |at: usize| base64::decode(payload(events[at])["base64"].as_str().unwrap()).unwrap();
    assert_eq!(payload(events[0])["text"], "\u{fffd}\u{fffd} bad\n");
    assert_eq!(bytes(0), b"\xff\xfe bad\n");
    assert_eq!(bytes(events.len() - 2), b"\xe2\x82", "a character that never became whole");
    assert_eq!(host.text(&proc, "stdout").lines().count(), 100_002);
    host.finish();
}

#[test]
fn fault_11_separators_and_nul_are_data() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["bash", "-c", r"printf 'a\342\200\250b\nc\0d\ne\r\n'"]);
    host.terminal(&proc);
    let events = host.events(&proc);
    let texts: Vec<_> = events.iter().filter_map(|event| payload(event)["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(texts, ["a\u{2028}b\n", "c\0d\n", "e\r\n"]);
    host.finish();
}

#[test]
fn fault_13_a_line_of_megabytes_comes_in_bounded_pieces() {
    let mut host = Host::start(&[]);
    let proc = host.sh("head -c 5000000 /dev/zero | tr '\\0' a; echo");
    host.terminal(&proc);
    let text = host.text(&proc, "stdout");
    assert_eq!(text.len(), 5_000_001);
    assert!(text.strip_suffix('\n').unwrap().bytes().all(|b| b == b'a'));
    for event in host.events(&proc) {
        assert!(payload(event)["text"].as_str().unwrap_or_default().len() <= 65_536);
    }
    assert!(system::rss(host.pid()) < 40 * 1024);
    host.finish();
}

#[test]
fn fault_14_twenty_floods_at_once_are_protocol_to_the_last_line() {
    let mut host = Host::start(&[]);
    let procs: Vec<_> = (0..20).map(|_| host.spawn(&["yes"])).collect();
    host.keep_output = false;
    // Ten thousand lines of it, each looked at by the monitor.
    for _ in 0..10_000 {
        host.wait_next();
    }
    let kills: Vec<_> = procs.iter().map(|proc| host.send_kill(proc, "SIGKILL")).collect();
    for id in kills {
        assert_eq!(host.answer(&id)["state"], "killed");
    }
    host.finish();
}

#[test]
fn output_is_in_order_and_whole_time_after_time() {
    let mut host = Host::start(&[]);
    let expected = numbers(20_000);
    for _ in 0..25 {
        let proc = host.sh("seq 1 20000; exit 3");
        assert_eq!(payload(&host.terminal(&proc)), json!({"code": 3}));
        assert!(host.text(&proc, "stdout") == expected);
        host.forget();
    }
    host.finish();
}

#[test]
fn the_last_words_before_a_signal_are_delivered() {
    let mut host = Host::start(&[]);
    let proc = host.sh("echo out; echo err >&2; kill -KILL $$");
    let end = host.terminal(&proc);
    assert_eq!((end["stream_type"].as_str(), payload(&end)), (Some("stderr"), json!({"code": -9})));
    assert_eq!((host.text(&proc, "stdout"), host.text(&proc, "stderr")), ("out\n".into(), "err\n".into()));
    assert_eq!(host.status(&proc)["error"], "exit code -9");
    host.finish();
}
