//! Kills, signals, time limits, and that nobody is left (R12, R22, R23; faults 22–29).
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Host, Start, payload, system};
use serde_json::json;

#[test]
fn fault_22_a_whole_tree_is_killed() {
    let mut host = Host::start(&[]);
    for signal in ["SIGTERM", "SIGKILL"] {
        let script = "bash -c 'sleep 997.0417 & sleep 998.0417 & echo up; wait' & wait";
        let proc = host.spawn(&["bash", "-c", script]);
        host.wait_text(&proc, "stdout", "up\n");
        let kill = host.kill(&proc, signal);
        assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(true), Some("killed")));
        system::assert_gone("997.0417");
        system::assert_gone("998.0417");
        let end = host.terminal(&proc);
        assert_eq!((end["stream_type"].as_str(), end["data"].as_str()), (Some("killed"), Some("{}")));
    }
    host.finish();
}

#[test]
fn fault_23_who_ignores_sigterm_is_killed_after_the_grace() {
    let mut host = Host::start(&["--kill-grace", "0.5"]);
    let proc = host.sh("trap '' TERM; echo up; while :; do sleep 0.1; done");
    host.wait_text(&proc, "stdout", "up\n");
    let start = Instant::now();
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(500), "killed before the grace was over: {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(host.status(&proc)["procs"][0]["exit_code"], -9);
    host.finish();
}

#[test]
fn fault_24_last_words_after_sigterm_are_delivered() {
    let mut host = Host::start(&[]);
    let proc = host.sh("trap 'echo bye; exit 0' TERM; echo up; sleep 100 & wait");
    host.wait_text(&proc, "stdout", "up\n");
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    assert_eq!(host.terminal(&proc)["data"], "{}");
    assert_eq!(host.text(&proc, "stdout"), "up\nbye\n");
    let status = host.status(&proc);
    assert_eq!((status["status"].as_str(), status["error"].as_str()), (Some("killed"), Some("")));
    assert_eq!(status["procs"][0]["exit_code"], 0, "killed, whatever its code (R23)");
    host.finish();
}

/// Also those of the worst priority, which are looked for in another way, and in yet another by a host that may not change
/// priorities back.
#[test]
fn members_that_outlive_their_leader_have_the_grace_and_are_heard() {
    let without_privilege =
        "[ \"$(id -u)\" != 0 ] || exec setpriv --bounding-set=-sys_nice --inh-caps=-sys_nice \"$0\" \"$@\"";
    for prelude in [":", without_privilege] {
        let mut host = Start::under(prelude, &[]).go();
        for nice in ["", "renice -n 19 $BASHPID >/dev/null;"] {
            let member = "trap 'sleep 0.7; echo saved; exit' TERM; echo up; while :; do sleep 0.05; done";
            let proc = host.spawn(&["bash", "-c", &format!("({nice} {member}) & wait")]);
            host.wait_text(&proc, "stdout", "up\n");
            let start = Instant::now();
            assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
            assert!(start.elapsed() >= Duration::from_millis(700), "the answer came before the end: {prelude} {nice}");
            host.terminal(&proc);
            assert_eq!(host.text(&proc, "stdout"), "up\nsaved\n");
            // Nobody is left, and there is nobody of the worst priority either.
            let alone = host.spawn(&["sleep", "50"]);
            assert_eq!(host.kill(&alone, "SIGTERM")["state"], "killed");
        }
        host.finish();
    }
}

#[test]
fn members_that_ignore_sigterm_and_hold_no_pipe_are_killed_after_the_grace() {
    let mut host = Host::start(&["--kill-grace", "0.3"]);
    let script = "(trap '' TERM; exec sleep 999.0417 </dev/null >/dev/null 2>&1) & echo up; wait";
    let proc = host.spawn(&["bash", "-c", script]);
    host.wait_text(&proc, "stdout", "up\n");
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    system::assert_gone("999.0417");
    host.finish();
}

#[test]
fn what_a_leader_leaves_in_its_group_ends_with_it() {
    let mut host = Host::start(&[]);
    let proc = host.sh("sleep 989.0417 </dev/null >/dev/null 2>&1 & exit 0");
    assert_eq!(host.terminal(&proc)["data"], "{\"code\":0}");
    system::assert_gone("989.0417");
    host.finish();
}

#[test]
fn a_leader_that_leaves_its_group_is_still_killed() {
    let mut host = Host::start(&[]);
    let script =
        "import os, time; os.setpgid(0, os.getpgid(os.getppid())); print('up', flush=True); time.sleep(988.0417)";
    let proc = host.spawn(&["python3", "-c", script]);
    host.wait_text(&proc, "stdout", "up\n");
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    system::assert_gone("988.0417");
    host.finish();
}

#[test]
fn fault_25_a_child_that_signals_its_group_does_not_reach_the_host() {
    let mut host = Host::start(&[]);
    let proc = host.sh("kill 0");
    assert_eq!(payload(&host.terminal(&proc)), json!({"code": -15}));
    assert_eq!(host.call("ping", json!({}))["type"], "pong");
    host.finish();
}

#[test]
fn fault_26_kills_of_the_dead_and_kills_at_once() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    for signal in ["SIGTERM", "SIGKILL", "SIGINT", "SIGTERM"] {
        let kill = host.kill(&proc, signal);
        assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(false), Some("completed")));
        assert!(kill["error"].as_str().unwrap().starts_with("proc_dead"), "{kill}");
    }

    let proc = host.sh("trap '' TERM; echo up; while :; do sleep 0.1; done");
    host.wait_text(&proc, "stdout", "up\n");
    let start = Instant::now();
    let kills = ["SIGTERM", "SIGTERM", "SIGKILL"].map(|signal| host.send_kill(&proc, signal));
    for id in kills {
        let kill = host.answer(&id);
        assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(true), Some("killed")));
    }
    assert!(start.elapsed() < Duration::from_millis(1900), "SIGKILL did not cut the grace short");
    host.finish();
}

#[test]
fn fault_27_a_time_limit_ends_the_whole_group() {
    let mut host = Host::start(&[]);
    let start = Instant::now();
    let plain = host.spawn_with(&["sleep", "10"], json!({"timeout": 1}));
    let group = host.spawn_with(&["sh", "-c", "sleep 987.0417 & wait"], json!({"timeout": 1}));
    for proc in [&plain, &group] {
        let end = host.terminal(proc);
        assert_eq!((end["stream_type"].as_str(), end["data"].as_str()), (Some("killed"), Some("{}")));
        let status = host.status(proc);
        assert_eq!((status["status"].as_str(), status["error"].as_str()), (Some("timedout"), Some("timeout of 1 s")));
        assert_eq!(status["procs"][0]["state"], "timedout");
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(4), "{took:?}");
    system::assert_gone("987.0417");
    host.finish();
}

#[test]
fn default_and_greatest_time_limits_are_the_operator_s() {
    let mut host = Host::start(&["--default-timeout", "1", "--max-timeout", "1"]);
    for fields in [json!({}), json!({"timeout": 0}), json!({"timeout": 100_000})] {
        let proc = host.spawn_with(&["sleep", "50"], fields);
        host.terminal(&proc);
        assert_eq!(host.status(&proc)["status"], "timedout");
    }
    host.finish();
}

#[test]
fn fault_29_an_interrupt_may_be_survived() {
    let mut host = Host::start(&[]);
    let python = host.spawn(&["python3", "-i"]);
    host.wait_text(&python, "stderr", ">>> ");
    let kill = host.kill(&python, "SIGINT");
    assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(true), Some("running")));
    host.write(&python, "print(6 * 7)\n", false);
    host.wait_text(&python, "stdout", "42\n");

    let sleep = host.spawn(&["sleep", "50"]);
    let kill = host.kill(&sleep, "SIGINT");
    assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(true), Some("killed")));
    assert_eq!(host.terminal(&sleep)["stream_type"], "killed");

    let own = host.sh("trap 'exit 5' INT; echo up; while :; do sleep 0.05; done");
    host.wait_text(&own, "stdout", "up\n");
    let kill = host.kill(&own, "SIGINT");
    assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(true), Some("failed")));
    assert_eq!(payload(&host.terminal(&own)), json!({"code": 5}), "it ended by its own choice (R23)");
    host.finish();
}

#[test]
fn a_stopped_process_dies_of_sigterm() {
    let mut host = Host::start(&["--kill-grace", "30"]);
    let proc = host.sh("trap 'echo bye; exit' TERM; echo up; kill -STOP $$; sleep 50");
    host.wait_text(&proc, "stdout", "up\n");
    assert!(system::eventually(Duration::from_secs(5), || system::state(proc.pid) == Some('T')));
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    assert_eq!(host.text(&proc, "stdout"), "up\nbye\n");
    host.finish();
}

#[test]
fn other_signals_are_refused_by_name() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["sleep", "50"]);
    for signal in ["SIGHUP", "sigterm", "15", ""] {
        let kill = host.kill(&proc, signal);
        assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(false), Some("running")), "{signal}");
        assert!(kill["error"].as_str().unwrap().starts_with("invalid_signal"), "{kill}");
    }
    let plain = host.call("proc/kill/req", json!({"proc_id": proc.id}));
    assert_eq!(plain["state"], "killed", "SIGTERM is the default");
    host.finish();
}

#[test]
fn a_kill_and_a_natural_end_that_race_agree() {
    let mut host = Host::start(&[]);
    for n in 0..300 {
        let proc = host.sh(if n % 2 == 0 { "exit 0" } else { "exit 9" });
        let ids = [host.send_kill(&proc, "SIGTERM"), host.send_kill(&proc, "SIGKILL")];
        let end = host.terminal(&proc);
        let status = host.status(&proc);
        for id in ids {
            let kill = host.answer(&id);
            assert_eq!(kill["state"], status["status"]);
            if kill["ok"] == json!(true) {
                assert_eq!(end["stream_type"], "killed");
            }
        }
        let expected = if end["stream_type"] == "killed" {
            "killed"
        } else if n % 2 == 0 {
            "completed"
        } else {
            "failed"
        };
        assert_eq!(status["status"], expected);
    }
    host.finish();
}
