//! When the host is killed, so are its children and theirs (R8; fault 37).
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Host, Start, system};
use rustix::process::{Pid, Signal, kill_process};

/// The watchdog of a host, if it lives.
fn watchdog(host: &Host) -> Option<i32> {
    let is_watchdog = |&pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("\0a2e-proc-watchdog\0"))
    };
    system::children(host.pid()).into_iter().find(is_watchdog)
}

/// One that is another than `first`, soon: the list of children is not read all at once.
fn next_watchdog(host: &Host, first: i32) -> i32 {
    let mut found = None;
    let other = || {
        found = watchdog(host).filter(|&pid| pid != first);
        found.is_some()
    };
    assert!(system::eventually(common::PATIENCE, other), "there is no new watchdog");
    found.unwrap()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn wait_alive(marker: &str, count: usize) {
    assert!(system::eventually(common::PATIENCE, || system::alive(marker).len() >= count), "{marker} did not start");
}

#[test]
fn fault_37_children_and_grandchildren_die_with_the_host() {
    let mut host = Host::start(&[]);
    host.spawn(&["sleep", "971.0417"]);
    host.sh("sleep 972.0417 & wait");
    host.sh("trap '' HUP TERM INT PIPE; while :; do sleep 973.0417; done");
    let stopped = host.spawn(&["sleep", "974.0417"]);
    // A leader that has ended by itself takes its group along at once; one that was asked to may leave members.
    for (marker, count) in [("971.0417", 1), ("972.0417", 2), ("973.0417", 2), ("974.0417", 1)] {
        wait_alive(marker, count);
    }
    signal(stopped.pid, Signal::STOP);
    let watchdog = next_watchdog(&host, 0);
    host.signal(Signal::KILL);
    for marker in ["971.0417", "972.0417", "973.0417", "974.0417"] {
        system::assert_gone(marker);
    }
    assert!(system::eventually(Duration::from_secs(2), || system::state(watchdog).is_none_or(|state| state == 'Z')));
}

#[test]
fn a_watchdog_that_was_killed_is_replaced_with_all_it_knew() {
    let mut host = Host::start(&[]);
    host.spawn(&["sleep", "975.0417"]);
    wait_alive("975.0417", 1);
    let first = next_watchdog(&host, 0);
    signal(first, Signal::KILL);
    assert!(system::eventually(Duration::from_secs(5), || system::state(first).is_none_or(|state| state == 'Z')));
    host.spawn(&["sleep", "976.0417"]);
    wait_alive("976.0417", 1);
    next_watchdog(&host, first);
    host.signal(Signal::KILL);
    system::assert_gone("975.0417");
    system::assert_gone("976.0417");
}

#[test]
fn a_watchdog_that_was_killed_is_replaced_though_nothing_is_spawned() {
    let mut host = Host::start(&[]);
    host.spawn(&["sleep", "979.0417"]);
    let other = host.spawn(&["cat"]);
    wait_alive("979.0417", 1);
    let first = next_watchdog(&host, 0);
    signal(first, Signal::KILL);
    assert!(system::eventually(Duration::from_secs(5), || system::state(first).is_none_or(|state| state == 'Z')));
    // The end of another process is when it is found dead.
    host.write(&other, "", true);
    host.terminal(&other);
    next_watchdog(&host, first);
    host.signal(Signal::KILL);
    system::assert_gone("979.0417");
}

fn ignores(pid: i32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn the_watchdog_is_not_reached_by_what_is_meant_for_the_host_s_group() {
    let mut host = Host::start(&[]);
    host.spawn(&["sleep", "977.0417"]);
    let watchdog = next_watchdog(&host, 0);
    // It is a shell, and deaf once that has read its first line.
    assert!(system::eventually(common::PATIENCE, || ignores(watchdog, Signal::TERM)), "it does not ignore SIGTERM");
    for deaf in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        signal(watchdog, deaf);
    }
    let group = std::fs::read_to_string(format!("/proc/{watchdog}/stat")).unwrap();
    assert_eq!(group.rsplit_once(") ").unwrap().1.split(' ').nth(2), Some(watchdog.to_string().as_str()));
    wait_alive("977.0417", 1);
    host.signal(Signal::KILL);
    system::assert_gone("977.0417");
}

#[test]
fn what_has_ended_is_forgotten_by_the_watchdog() {
    let mut host = Host::start(&[]);
    for _ in 0..50 {
        let proc = host.spawn(&["true"]);
        host.terminal(&proc);
    }
    let last = host.spawn(&["sleep", "978.0417"]);
    // Whatever the watchdog still knows of is in its memory as a number between spaces.
    let watchdog = next_watchdog(&host, 0);
    assert!(system::eventually(Duration::from_secs(5), || system::state(watchdog) == Some('S')));
    host.kill(&last, "SIGKILL");
    host.signal(Signal::KILL);
    system::assert_gone("978.0417");
    assert!(system::eventually(Duration::from_secs(2), || system::state(watchdog).is_none_or(|state| state == 'Z')));
}

#[test]
fn a_host_may_be_started_without_one() {
    let mut host = Start::new(&["--no-watchdog"]).go();
    assert_eq!(watchdog(&host), None);
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    host.finish();
}

#[test]
fn a_host_that_ends_takes_its_watchdog_along() {
    let mut host = Host::start(&[]);
    assert_eq!(watchdog(&host), None, "it is started for the first process");
    let proc = host.spawn(&["true"]);
    let watchdog = next_watchdog(&host, 0);
    host.terminal(&proc);
    host.finish();
    assert!(system::eventually(Duration::from_secs(2), || system::state(watchdog).is_none_or(|state| state == 'Z')));
}
