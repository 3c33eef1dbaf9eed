//! No signal ever reaches somebody else: kills race with exits while process ids are used again at once.
//!
//! The race runs in a namespace of few process ids, where the system allows it, so that an id is free only to be taken by the
//! next process. `A2E_PROC_RACE_SECONDS` says how long (2).
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use a2e_proc::engine::{Config, EventKind, Host, Reply, SpawnRequest};
use a2e_proc::model::{Exit, Signal};

/// Set in the copy of this program that runs inside the namespace.
const INSIDE: &str = "A2E_PROC_RACE_INSIDE";

fn seconds() -> u64 {
    std::env::var("A2E_PROC_RACE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[test]
fn no_signal_reaches_a_process_that_has_taken_a_dead_one_s_id() {
    if std::env::var_os(INSIDE).is_some() {
        return race(Duration::from_secs(seconds()));
    }
    // The fewest ids that the system allows are some three hundred.
    let script = "echo 420 >/proc/sys/kernel/pid_max && exec \"$0\" \"$@\"";
    let test = "no_signal_reaches_a_process_that_has_taken_a_dead_one_s_id";
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    inside.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    match inside.output() {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let reused = said.lines().find(|line| line.contains("used again")).unwrap_or_default().to_owned();
            assert!(!reused.starts_with("0 "), "no id was used again: {said}");
        }
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
            panic!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
        // No such namespace here: the race without the lack of ids.
        _ => race(Duration::from_secs(seconds())),
    }
}

#[test]
fn a_child_that_somebody_else_reaps_is_given_up() {
    let config = Config { allowed: vec!["sleep".into()], ..Config::default() };
    let host = Host::new(config).unwrap();
    let (session, events) = host.open_session();
    for _ in 0..20 {
        let cmd = vec!["sleep".to_owned(), "0.01".to_owned()];
        let spawned = session.spawn(&SpawnRequest { cmd, ..SpawnRequest::default() }).unwrap();
        let (id, pid) = (spawned.id.to_string(), spawned.pid);
        spawned.gate.open();
        // A program that embeds the engine must not do this.
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
        let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
        let event = events.recv_timeout(Duration::from_secs(30)).unwrap();
        let EventKind::Ended(outcome) = event.kind else { panic!("{event:?}") };
        // Whoever was first has seen how it left.
        assert!(matches!(outcome.exit, Exit::Code(0 | 255)), "{outcome:?}");
        let (reply, answer) = Reply::channel();
        session.kill(&id, Signal::Kill, reply);
        assert!(answer.recv().unwrap().is_err());
    }
}

/// A process that this host has nothing to do with: it must come to a good end.
struct Bystander(Child);

impl Bystander {
    fn start() -> Self {
        Self(Command::new("sleep").arg("0.05").process_group(0).spawn().unwrap())
    }

    fn check(&mut self) -> bool {
        let Some(status) = self.0.try_wait().unwrap() else { return false };
        assert!(status.success(), "somebody else was signalled: {status}");
        true
    }
}

fn race(time: Duration) {
    let config = Config { allowed: vec!["true".into(), "sleep".into()], watchdog: true, ..Config::default() };
    let host = Host::new(config).unwrap();
    let (session, events) = host.open_session();
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let mut bystanders: Vec<Bystander> = (0..8).map(|_| Bystander::start()).collect();
    let mut number = 7_u64;
    let mut random = move |end: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % end
    };
    let end = Instant::now() + time;
    let mut kills = Vec::new();
    while Instant::now() < end {
        let name = if random(2) == 0 { "true" } else { "sleep" };
        let cmd = vec![name.to_owned(), "0.002".to_owned()];
        let Ok(spawned) = session.spawn(&SpawnRequest { cmd, ..SpawnRequest::default() }) else {
            // Out of ids for a moment.
            while events.try_recv().is_ok() {}
            continue;
        };
        *seen.entry(spawned.pid).or_default() += 1;
        let id = spawned.id.to_string();
        spawned.gate.open();
        // Somewhere around its end.
        let wait = Instant::now() + Duration::from_micros(random(4000));
        while Instant::now() < wait {
            while events.try_recv().is_ok() {}
        }
        for _ in 0..=random(2) {
            let (reply, answer) = Reply::channel();
            session.kill(&id, [Signal::Term, Signal::Kill, Signal::Int][random(3) as usize], reply);
            kills.push(answer);
        }
        for bystander in &mut bystanders {
            if bystander.check() {
                *bystander = Bystander::start();
            }
        }
        kills.retain(|answer| answer.is_empty());
        while events.try_recv().is_ok() {}
    }
    for mut bystander in bystanders {
        while !bystander.check() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let reused: u32 = seen.values().map(|times| times - 1).sum();
    eprintln!("{reused} ids of {} were used again", seen.len());
}
