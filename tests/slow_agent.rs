//! An agent that does not read holds up output, and nothing else (R18, R20; faults 15, 16).
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use common::{Host, payload, system};
use serde_json::json;

/// The most that a host may hold, in KiB.
const MOST_RSS: u64 = 40 * 1024;

fn file(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("a2e-proc-{name}-{}", std::process::id()))
}

#[test]
fn fault_15_a_flood_leaves_memory_flat() {
    let mut host = Host::start(&[]);
    host.keep_output = false;
    let procs = [host.spawn(&["yes"]), host.spawn(&["sh", "-c", "base64 /dev/zero"])];
    for _ in 0..20_000 {
        host.wait_next();
    }
    let before = system::rss(host.pid());
    for _ in 0..100_000 {
        host.wait_next();
    }
    let after = system::rss(host.pid());
    assert!(after < MOST_RSS && after < before + 8 * 1024, "{before} KiB, then {after} KiB");
    for proc in &procs {
        assert_eq!(host.kill(proc, "SIGKILL")["state"], "killed");
    }
    host.finish();
}

#[test]
fn fault_16_others_go_on_and_then_everything_arrives() {
    let done = file("done");
    let mut host = Host::start(&[]);
    let long = host.sh("seq 1 300000");
    let flood = host.spawn(&["yes"]);
    host.pause();
    let script = format!("sleep 0.3; touch {}", done.display());
    host.send("proc/spawn/req", json!({"session_id": host.session_id, "cmd": ["sh", "-c", script]}));
    let limited = host.send("proc/spawn/req", json!({"cmd": ["yes", "961.0417"], "timeout": 1}));
    let killed = host.send_kill(&flood, "SIGTERM");
    // All of this happens though nobody reads.
    assert!(system::eventually(common::PATIENCE, || done.exists()), "the other process did not run");
    assert!(system::eventually(common::PATIENCE, || !system::alive("961.0417").is_empty()));
    system::assert_gone_within("961.0417", common::PATIENCE);
    assert!(system::eventually(common::PATIENCE, || system::state(flood.pid).is_none()), "the kill waited for output");
    assert!(system::rss(host.pid()) < MOST_RSS, "{} KiB", system::rss(host.pid()));

    host.unpause();
    assert_eq!(host.answer(&killed)["state"], "killed");
    assert_eq!(host.answer(&limited)["ok"], json!(true));
    assert_eq!(payload(&host.terminal(&long)), json!({"code": 0}));
    let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert!(host.text(&long, "stdout") == expected, "output was lost while nobody read");
    assert_eq!(host.terminal(&flood)["stream_type"], "killed");
    host.finish();
    std::fs::remove_file(done).unwrap();
}

#[test]
fn answers_overtake_a_flood() {
    let mut host = Host::start(&[]);
    host.keep_output = false;
    for _ in 0..4 {
        host.spawn(&["yes"]);
    }
    for _ in 0..20 {
        let from = host.seen.len();
        let id = host.send("ping", json!({}));
        host.wait_from(from, Duration::from_secs(10), |message| message["req_id"] == *id);
    }
    host.finish();
}

#[test]
fn an_agent_that_reads_nothing_and_asks_for_ever_is_bounded() {
    let mut host = Host::start(&[]);
    host.pause();
    let line = b"{\"type\":\"proc/status/req\",\"id\":\"s\",\"proc_id\":\"\"}\n".repeat(1000);
    // The host stops reading at some point; what it has not read stays in the pipe, and the rest with the agent.
    let mut sent = 0;
    let stop = host.write_until_full(&line, 40 << 20, &mut sent);
    assert!(stop, "the host read {sent} bytes of requests and kept all the answers");
    assert!(system::rss(host.pid()) < MOST_RSS, "{} KiB", system::rss(host.pid()));
    // Its end is noticed all the same.
    host.close_input();
    assert!(system::eventually(Duration::from_secs(10), || system::state(host.pid()).is_none_or(|state| state == 'Z')));
}

#[test]
fn what_was_asked_before_the_end_of_input_is_answered_however_late() {
    const COUNT: usize = 8000;
    let mut child = common::binary().arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let asks = std::thread::spawn(move || {
        // More than may wait for an agent: from some point on the host does not read, and this is held up.
        let id = "x".repeat(900);
        for n in 0..COUNT {
            stdin.write_all(format!("{{\"type\":\"ping\",\"id\":\"{id}{n}\"}}\n").as_bytes()).unwrap();
        }
    });
    // Nothing is read until the host holds all that it may.
    let pid = child.id().cast_signed();
    assert!(system::eventually(common::PATIENCE, || system::rss(pid) > 8 * 1024));
    let pongs =
        BufReader::new(child.stdout.take().unwrap()).lines().filter(|line| line.as_ref().unwrap().contains("pong"));
    assert_eq!(pongs.count(), COUNT);
    asks.join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn events_have_their_turn_among_answers_without_end() {
    let mut host = Host::start(&[]);
    let proc = host.sh("echo hi");
    let mut asked = 0;
    // The agent asks more than it reads, as long as it takes.
    while !host.seen.iter().any(|message| message["proc_id"] == proc.id && common::is_terminal(message)) {
        asked += 40;
        for _ in 0..40 {
            host.send("ping", json!({}));
        }
        for _ in 0..20 {
            host.wait_next();
        }
        assert!(asked < 100_000, "the event never came");
    }
    host.finish();
}

#[test]
fn ended_processes_that_nobody_hears_of_are_bounded() {
    let mut host = Host::start(&["--max-procs", "8"]);
    let flood = host.spawn(&["yes"]);
    host.pause();
    let ids: Vec<_> = (0..600).map(|_| host.send("proc/spawn/req", json!({"cmd": ["true"]}))).collect();
    let ping = host.send("ping", json!({}));
    // Threads of ended processes wait for the agent; there is a limit to how many.
    let all_reaped = || {
        let held = system::holdings(host.pid());
        assert!(held.threads < 8 + 4 * (8 + 256), "{held:?}");
        held.zombies == 0 && system::children(host.pid()).len() <= 2
    };
    assert!(system::eventually(common::PATIENCE, all_reaped));
    host.unpause();
    host.keep_output = false;
    let mut started = Vec::new();
    for id in &ids {
        let answer = host.answer(id);
        if answer["ok"] == json!(true) {
            started.push(answer["proc_id"].clone());
        } else {
            assert!(answer["error"].as_str().unwrap().starts_with("proc_limit"), "{answer}");
        }
    }
    assert!(started.len() >= 8, "{}", started.len());
    host.answer(&ping);
    host.kill(&flood, "SIGKILL");
    // Once they are heard of there is room again.
    for id in &started {
        host.wait(|message| message["proc_id"] == *id && common::is_terminal(message));
    }
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    host.finish();
}

#[test]
fn output_past_the_cap_is_discarded_said_once_and_counted() {
    let mut host = Host::start(&["--max-output-bytes", "1000"]);
    let proc = host.sh("head -c 600 /dev/zero | tr '\\0' a; head -c 5000 /dev/zero | tr '\\0' b; exit 3");
    assert_eq!(payload(&host.terminal(&proc)), json!({"code": 3}));
    assert_eq!(host.text(&proc, "stdout").len(), 1000);
    let dropped =
        host.events(&proc).iter().filter(|event| payload(event) == json!({"text": "", "dropped": true})).count();
    assert_eq!(dropped, 1);
    assert_eq!(host.status(&proc)["procs"][0]["dropped_bytes"], 4600);

    // Both streams count, and a character is not cut in two.
    let proc = host.sh("for n in $(seq 200); do printf '≤≤≤≤\\n'; printf '≤≤≤≤\\n' >&2; done");
    host.terminal(&proc);
    let (out, err) = (host.text(&proc, "stdout"), host.text(&proc, "stderr"));
    assert!(out.len() + err.len() <= 1000 && !out.contains('\u{fffd}') && !err.contains('\u{fffd}'));
    assert_eq!(host.status(&proc)["procs"][0]["dropped_bytes"], 200 * 26 - out.len() - err.len());

    let exact = host.sh("head -c 1000 /dev/zero | tr '\\0' a");
    host.terminal(&exact);
    assert!(host.events(&exact).iter().all(|event| payload(event).get("dropped").is_none()));
    host.finish();
}
