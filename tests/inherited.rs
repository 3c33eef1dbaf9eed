//! Whatever state a host is started in, its children start clean and it behaves (R14).
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use common::{Host, Proc, Start, payload};
use serde_json::json;

fn signal_sets(host: &mut Host) -> (u64, u64) {
    let proc = host.spawn(&["cat", "/proc/self/status"]);
    host.terminal(&proc);
    let text = host.text(&proc, "stdout");
    let set = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // 32 and 33 belong to the C library; nobody else can set them.
    (set("SigIgn:") & !(0b11 << 31), set("SigBlk:"))
}

#[test]
fn ignored_signals_are_not_passed_on() {
    let mut host = Start::under("trap '' HUP INT QUIT TERM CHLD USR1 TSTP PIPE", &[]).go();
    assert_eq!(signal_sets(&mut host), (0, 0));
    let proc = host.sh("exit 7");
    assert_eq!(payload(&host.terminal(&proc)), json!({"code": 7}), "the exit code is not lost");
    for signal in ["SIGINT", "SIGTERM"] {
        let proc: Proc = host.spawn(&["sleep", "50"]);
        assert_eq!(host.kill(&proc, signal)["state"], "killed");
    }
    host.signal(rustix::process::Signal::HUP);
    assert_eq!(host.wait_end().0, Some(0));
}

/// `nohup a2e-proc serve --listen …` is to stay when the terminal goes.
#[test]
fn a_host_that_listens_stays_when_it_was_started_to_ignore_a_hangup() {
    for (prelude, stays) in [("trap '' HUP INT", true), (":", false)] {
        let mut child = std::process::Command::new("sh")
            .args(["-c", &format!("{prelude}; exec \"$0\" serve --listen tcp:127.0.0.1:0 --log info")])
            .arg(env!("CARGO_BIN_EXE_a2e-proc"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
        signal(rustix::process::Signal::HUP);
        if stays {
            signal(rustix::process::Signal::INT);
            // What must not happen has no event.
            std::thread::sleep(Duration::from_millis(300));
            assert!(child.try_wait().unwrap().is_none(), "{said}");
            signal(rustix::process::Signal::TERM);
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "{prelude}");
    }
}

#[test]
fn blocked_signals_are_not_passed_on() {
    let script = "import os, signal, sys\n\
                  signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n\
                  os.execv(sys.argv[1], sys.argv[1:])";
    let prelude = format!("set -- -c '{script}' \"$0\" \"$@\"; exec python3 \"$@\"");
    let mut host = Start::under(&prelude, &[]).go();
    assert_eq!(signal_sets(&mut host), (0, 0));
    let proc = host.spawn(&["sleep", "50"]);
    assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
    host.signal(rustix::process::Signal::TERM);
    assert_eq!(host.wait_end().0, Some(0));
}

#[test]
fn open_descriptors_are_not_passed_on() {
    let mut host = Start::under("exec 3</etc/passwd 7</etc/passwd 9>/dev/null", &[]).go();
    // The last one is the listing itself.
    let proc = host.spawn(&["ls", "/proc/self/fd"]);
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "0\n1\n2\n3\n");
    host.finish();
}

#[test]
fn a_closed_standard_stream_is_no_descriptor_of_somebody_else() {
    // Nobody hears what a host without an output says; it still serves, ends and leaves nothing.
    for prelude in ["exec <&-", "exec >&-", "exec 2>&-", "exec <&- >&- 2>&-"] {
        let script = format!("{prelude}; exec {} serve --allow true", env!("CARGO_BIN_EXE_a2e-proc"));
        let mut child = std::process::Command::new("sh")
            .arg("-c")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = "{\"type\":\"proc/spawn/req\",\"id\":\"1\",\"cmd\":[\"true\"]}\n";
        let _ = std::io::Write::write_all(child.stdin.as_mut().unwrap(), line.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{prelude}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.contains("{\\\"code\\\":0}"), prelude == "exec 2>&-", "{prelude}: {said}");
    }
}

#[test]
fn nonblocking_standard_streams_are_waited_for() {
    let script = "import fcntl, os, sys\n\
                  for fd in (0, 1): fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)\n\
                  os.execv(sys.argv[1], sys.argv[1:])";
    let prelude = format!("set -- -c '{script}' \"$0\" \"$@\"; exec python3 \"$@\"");
    let mut host = Start::under(&prelude, &[]).go();
    let proc = host.spawn(&["seq", "1", "100000"]);
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout").lines().count(), 100_000);
    host.finish();
}
