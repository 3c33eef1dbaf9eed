//! Nothing of a finished process stays but what can be asked about it, and that not for ever (R26; faults 36, 39).
#![allow(clippy::unwrap_used)]

mod common;

use common::{Host, Proc, system};
use serde_json::json;

/// Runs `count` short processes, some at a time, and returns them.
fn run_many(host: &mut Host, count: usize) -> Vec<Proc> {
    let mut procs = Vec::new();
    while procs.len() < count {
        let batch: Vec<_> = (0..20).map(|_| host.spawn(&["true"])).collect();
        for proc in &batch {
            host.terminal(proc);
        }
        procs.extend(batch);
        host.forget();
    }
    procs
}

#[test]
fn fault_36_a_thousand_processes_leave_nothing_behind() {
    let mut host = Host::start(&[]);
    run_many(&mut host, 20);
    let before = system::holdings(host.pid());
    run_many(&mut host, 1000);
    let settled = system::eventually(common::PATIENCE, || system::holdings(host.pid()).is_within(&before));
    assert!(settled, "{before:?}, then {:?}", system::holdings(host.pid()));
    host.finish();
}

#[test]
fn fault_39_memory_is_flat_and_the_oldest_are_forgotten() {
    let mut host = Host::start(&[]);
    let first = host.sh("exit 3");
    host.terminal(&first);
    let procs = run_many(&mut host, 2000);
    let before = system::rss(host.pid());
    run_many(&mut host, 2000);
    let after = system::rss(host.pid());
    assert!(after < before + 4 * 1024, "{before} KiB, then {after} KiB");
    assert_eq!(host.status(&first)["status"], "not_found");
    assert_eq!(host.status(&procs[0])["status"], "not_found");
    let all = host.call("proc/status/req", json!({"proc_id": ""}));
    assert_eq!(all["procs"].as_array().unwrap().len(), 1000);
    host.finish();
}

#[test]
fn fault_39_memory_is_flat_whatever_they_say() {
    let mut host = Host::start(&[]);
    host.keep_output = false;
    let talk = |host: &mut Host, count: usize| {
        for _ in 0..count {
            let proc = host.spawn(&["seq", "1", "100000"]);
            assert_eq!(common::payload(&host.terminal(&proc)), json!({"code": 0}));
            host.forget();
        }
        system::rss(host.pid())
    };
    let before = talk(&mut host, 3);
    let after = talk(&mut host, 15);
    assert!(after < before + 4 * 1024, "{before} KiB, then {after} KiB");
    host.finish();
}

#[test]
fn a_thousand_are_remembered_exactly() {
    let mut host = Host::start(&[]);
    // It counts who has finished first: so the first two finish one after the other.
    let first = host.spawn(&["true"]);
    host.terminal(&first);
    let second = host.spawn(&["true"]);
    host.terminal(&second);
    run_many(&mut host, 980);
    for _ in 0..18 {
        let proc = host.spawn(&["true"]);
        host.terminal(&proc);
    }
    assert_eq!(host.status(&first)["status"], "completed");
    let proc = host.sh("exit 3");
    host.terminal(&proc);
    assert_eq!(host.status(&first)["status"], "not_found");
    let kill = host.kill(&first, "SIGTERM");
    assert_eq!((kill["ok"].as_bool(), kill["state"].as_str()), (Some(false), Some("not_found")));
    assert_eq!(host.status(&second)["status"], "completed");
    assert_eq!(host.status(&proc)["status"], "failed");
    host.finish();
}

#[test]
fn long_commands_and_ids_are_not_remembered_whole() {
    let mut host = Host::start(&[]);
    run_many(&mut host, 20);
    let before = system::rss(host.pid());
    let long = "x".repeat(100_000);
    for _ in 0..300 {
        let proc = host.spawn(&["true", &long]);
        host.terminal(&proc);
        host.forget();
    }
    let after = system::rss(host.pid());
    assert!(after < before + 8 * 1024, "{before} KiB, then {after} KiB");
    host.finish();
}
