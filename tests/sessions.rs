//! Handshakes, tokens, isolation, status of all, and the end of a session (R6–R8, R24, R25; faults 16, 38, 40).
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Host, Start, system};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn a_handshake_tells_the_capability_and_its_limits() {
    let mut host = Start::new(&["--max-procs", "7", "--max-timeout", "60"]).without_handshake().go();
    let hello = host.call("handshake/req", json!({"agent_id": "a", "agent_caps": ["procs"], "auth_token": "unasked"}));
    assert_eq!((hello["ok"].as_bool(), hello["max_parallel"].as_i64()), (Some(true), Some(4)));
    let cap = &hello["accepted_caps"][0];
    assert_eq!((cap["capability"].as_str(), cap["enabled"].as_bool()), (Some("proc"), Some(true)));
    let meta = &cap["metadata"];
    assert_eq!(
        (&meta["name"], &meta["type"], &meta["priority"], &meta["exclusive"]),
        (&json!("proc"), &json!("proc"), &json!(5), &json!(false))
    );
    assert_eq!((&meta["max_procs"], &meta["max_timeout"]), (&json!(7), &json!(60)));

    let again = host.call("handshake/req", json!({"agent_caps": ["proc"]}));
    assert_eq!((again["ok"].as_bool(), again["reason"].as_str()), (Some(false), Some("server_error")));
    assert_eq!((again["session_id"].as_str(), &again["accepted_caps"]), (Some(""), &json!([])));
    host.finish();
}

#[test]
fn an_agent_that_names_other_capabilities_is_served_all_the_same() {
    let mut host = Start::new(&[]).without_handshake().go();
    let hello = host.call("handshake/req", json!({"agent_caps": ["streaming", "artifacts"]}));
    assert_eq!((hello["ok"].as_bool(), &hello["accepted_caps"]), (Some(true), &json!([])));
    let proc = host.spawn_with(&["true"], json!({"session_id": hello["session_id"]}));
    host.terminal(&proc);
    host.finish();
}

#[test]
fn a_token_is_asked_for_before_anything_else() {
    let file = std::env::temp_dir().join(format!("a2e-proc-token-{}", std::process::id()));
    fs::write(&file, "s3cret\n").unwrap();
    let path = file.to_str().unwrap();
    let mut host = Start::new(&["--auth-token-file", path]).without_handshake().go();
    for (kind, fields) in [
        ("proc/spawn/req", json!({"cmd": ["true"]})),
        ("proc/status/req", json!({"proc_id": ""})),
        // A malformed one is told nothing else.
        ("proc/spawn/req", json!({"cmd": 7})),
    ] {
        let denied = host.call(kind, fields);
        assert_eq!((denied["type"].as_str(), denied["code"].as_str()), (Some("error"), Some("unauthorized")));
        assert_eq!(denied["capability_name"], "proc");
    }
    assert_eq!(host.call("ping", json!({}))["type"], "pong");
    for token in ["", "s3cre", "s3cret!"] {
        let hello = host.call("handshake/req", json!({"agent_caps": ["proc"], "auth_token": token}));
        assert_eq!((hello["ok"].as_bool(), hello["reason"].as_str()), (Some(false), Some("auth_failed")));
    }
    let hello = host.call("handshake/req", json!({"agent_caps": ["proc"], "auth_token": "s3cret"}));
    assert_eq!(hello["ok"], json!(true));
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    host.finish();
    fs::remove_file(file).unwrap();
}

#[test]
fn a_token_from_the_environment_is_not_inherited() {
    let mut host = Start::new(&[]).env("A2E_AUTH_TOKEN", "s3cret").without_handshake().go();
    let hello = host.call("handshake/req", json!({"agent_caps": ["proc"], "auth_token": "s3cret"}));
    assert_eq!(hello["ok"], json!(true));
    let proc = host.spawn(&["env"]);
    host.terminal(&proc);
    let env = host.text(&proc, "stdout");
    assert!(env.contains("PATH=") && !env.contains("s3cret"), "{env}");
    host.finish();
}

#[test]
fn an_implicit_session_takes_the_first_name_it_is_given() {
    let mut host = Start::new(&[]).without_handshake().go();
    let proc = host.spawn_with(&["true"], json!({"session_id": "s1"}));
    host.terminal(&proc);
    let other = host.try_spawn(&["true"], json!({"session_id": "s2"}));
    assert_eq!((other["type"].as_str(), other["code"].as_str()), (Some("error"), Some("unauthorized")));
    assert_eq!(host.try_spawn(&["true"], json!({"session_id": ""}))["ok"], json!(true));
    host.finish();
}

#[test]
fn an_id_that_is_not_of_this_session_is_unknown() {
    let mut first = Host::start(&[]);
    let proc = first.spawn(&["sleep", "50"]);
    let mut second = Host::start(&[]);
    let upper = common::Proc { id: proc.id.to_uppercase(), ..proc.clone() };
    for (host, proc) in [(&mut second, &proc), (&mut first, &upper)] {
        assert_eq!(host.status(proc)["status"], "not_found");
        let kill = host.kill(proc, "SIGKILL");
        assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(false), Some("not_found")));
        let write = host.write(proc, "x", false);
        assert!(write["error"].as_str().unwrap().starts_with("unknown_proc: Process not found"), "{write}");
        assert_eq!((write["ok"].as_bool(), write["pid"].as_i64()), (Some(false), Some(0)));
    }
    let wrong = second.try_spawn(&["true"], json!({"session_id": first.session_id}));
    assert_eq!(wrong["code"], "unauthorized");
    first.finish();
    second.finish();
}

#[test]
fn status_of_all_lists_every_process_oldest_first() {
    let mut host = Host::start(&[]);
    let empty = host.call("proc/status/req", json!({"proc_id": ""}));
    assert_eq!((empty["status"].as_str(), &empty["procs"]), (Some("completed"), &json!([])));
    let procs = [host.spawn(&["true"]), host.sh("exit 3"), host.spawn(&["sleep", "50"]), host.spawn(&["sleep", "60"])];
    host.terminal(&procs[0]);
    host.terminal(&procs[1]);
    host.kill(&procs[3], "SIGKILL");
    let all = host.call("proc/status/req", json!({"proc_id": ""}));
    assert_eq!(
        (all["proc_id"].as_str(), all["status"].as_str(), all["error"].as_str()),
        (Some(""), Some("running"), Some(""))
    );
    let listed: Vec<_> =
        all["procs"].as_array().unwrap().iter().map(|p| (&p["proc_id"], &p["state"], &p["exit_code"])).collect();
    let ids: Vec<_> = procs.iter().map(|proc| json!(proc.id)).collect();
    assert_eq!(
        listed,
        [
            (&ids[0], &json!("stopped"), &json!(0)),
            (&ids[1], &json!("crashed"), &json!(3)),
            (&ids[2], &json!("running"), &json!(null)),
            (&ids[3], &json!("stopped"), &json!(-9)),
        ]
    );
    assert_eq!(all["procs"][2]["cmd"], "sleep 50");
    assert_eq!(all["procs"][2]["pid"], procs[2].pid);
    assert!(all["procs"][2]["started_at"].as_f64().unwrap() > 1e9);
    host.finish();
}

#[test]
fn fault_38_the_end_of_input_lets_children_finish_and_then_ends_them() {
    let mut host = Host::start(&[]);
    host.spawn(&["sleep", "993.0417"]);
    let polite = host.sh("cat; echo end");
    let stubborn = host.sh("trap '' TERM; while :; do sleep 993.0417; done");
    host.close_input();
    let (code, took) = host.wait_end();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(host.text(&polite, "stdout"), "end\n");
    assert_eq!(host.terminal(&polite)["data"], "{\"code\":0}");
    assert_eq!(host.terminal(&stubborn)["stream_type"], "killed");
    system::assert_gone("993.0417");
}

#[test]
fn fault_38_a_host_without_input_ends_at_once() {
    let start = Instant::now();
    let output = common::binary().arg("serve").stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn fault_38_nothing_is_busy_while_a_host_waits() {
    let mut host = Host::start(&[]);
    host.spawn(&["sleep", "50"]);
    let before = system::cpu_ticks(host.pid());
    std::thread::sleep(Duration::from_secs(1)); // the passing of time is what is measured
    assert!(system::cpu_ticks(host.pid()) - before <= 5);
    host.finish();
}

#[test]
fn fault_40_signals_to_the_host_end_its_children_and_it_cleanly() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut host = Host::start(&[]);
        let procs: Vec<_> = (0..20).map(|n| host.sh(&format!("while :; do echo {n}; sleep 0.01; done"))).collect();
        for proc in &procs {
            host.wait_text(proc, "stdout", "\n");
        }
        host.signal(signal);
        let (code, took) = host.wait_end();
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs(3), "{took:?}");
        for proc in &procs {
            assert_eq!(host.terminal(proc)["stream_type"], "killed");
            assert!(system::state(proc.pid).is_none_or(|state| state == 'Z'));
        }
    }
}

#[test]
fn fault_40_a_flood_does_not_take_the_terminal_events_along() {
    let mut host = Host::start(&[]);
    host.keep_output = false;
    let procs: Vec<_> = (0..20).map(|_| host.spawn(&["yes"])).collect();
    host.signal(Signal::TERM);
    let (code, took) = host.wait_end();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(3), "{took:?}");
    for proc in &procs {
        assert_eq!(host.terminal(proc)["stream_type"], "killed");
    }
}

#[test]
fn a_shutdown_ends_everything_within_its_timeout() {
    for timeout in [0.0, 0.5, 2.0] {
        let mut host = Host::start(&[]);
        let proc = host.sh("trap '' TERM; echo up; while :; do sleep 994.0417; done");
        host.wait_text(&proc, "stdout", "up\n");
        host.send_raw(format!("{{\"type\":\"shutdown\",\"id\":\"s\",\"timeout\":{timeout}}}\n").as_bytes());
        let (code, took) = host.wait_end();
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs_f64(timeout + 1.0), "{timeout}: {took:?}");
        assert_eq!(host.terminal(&proc)["stream_type"], "killed");
        system::assert_gone("994.0417");
    }
}

#[test]
fn a_signal_or_the_end_of_input_cuts_a_long_shutdown_short() {
    for by_signal in [true, false] {
        let mut host = Host::start(&["--kill-grace", "60"]);
        let proc = host.sh("trap '' TERM; echo up; while :; do sleep 0.1; done");
        host.wait_text(&proc, "stdout", "up\n");
        host.send_raw(b"{\"type\":\"shutdown\",\"id\":\"s\",\"timeout\":1000}\n");
        if by_signal {
            host.signal(Signal::TERM);
        } else {
            host.close_input();
        }
        let (code, took) = host.wait_end();
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(host.terminal(&proc)["stream_type"], "killed");
    }
}

#[test]
fn a_signal_or_the_end_of_input_cuts_a_shutdown_short_though_nobody_reads() {
    for by_signal in [true, false] {
        let mut host = Host::start(&[]);
        let proc = host.spawn(&["yes"]);
        host.pause();
        host.send_raw(b"{\"type\":\"shutdown\",\"id\":\"s\",\"timeout\":1000}\n");
        assert!(system::eventually(common::PATIENCE, || system::state(proc.pid).is_none()));
        if by_signal {
            host.signal(Signal::TERM);
        } else {
            host.close_input();
        }
        assert_eq!(host.wait_gone(Duration::from_secs(5)), Some(0));
    }
}

#[test]
fn spawns_that_arrive_while_the_host_ends_leave_nobody_behind() {
    for _ in 0..5 {
        let mut host = Host::start(&["--max-procs", "1000"]);
        let line = format!(
            "{{\"type\":\"proc/spawn/req\",\"id\":\"n\",\"session_id\":\"{}\",\"cmd\":[\"sleep\",\"995.0417\"]}}\n",
            host.session_id
        );
        host.send_raw(line.repeat(300).as_bytes());
        host.wait(|message| message["type"] == "proc/spawn/resp");
        host.signal(Signal::TERM);
        assert_eq!(host.wait_end().0, Some(0));
        system::assert_gone("995.0417");
    }
}

#[test]
fn a_broken_output_ends_the_children_and_the_host_says_so() {
    let mut child = common::binary()
        .args(["serve", "--allow", "sleep"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let stdin = child.stdin.as_mut().unwrap();
    let spawn = "{\"type\":\"proc/spawn/req\",\"id\":\"1\",\"cmd\":[\"sleep\",\"996.0417\"]}\n";
    std::io::Write::write_all(stdin, spawn.as_bytes()).unwrap();
    let output = {
        // The input stays open: it is the output that ends the host.
        let _stdin = child.stdin.take();
        child.wait_with_output().unwrap()
    };
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("standard output is broken"), "{stderr}");
    system::assert_gone("996.0417");
}
