//! Processes on terminals, through the engine: their end, their sessions, their sizes, and what they leave behind.
#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use a2e_proc::crossbeam_channel::{Receiver, bounded};
use a2e_proc::engine::terminal::{Screen, SharedScreen, Size, Terminal, TerminalRequest};
use a2e_proc::engine::{Config, Host, Reply};
use a2e_proc::model::{Exit, Outcome, Refusal, SpawnError};
use parking_lot::Mutex;

/// Longer than anything here takes on a machine that is busy.
const LONG: Duration = Duration::from_secs(60);

struct Run {
    terminal: Terminal,
    screen: SharedScreen,
    ended: Receiver<Outcome>,
}

fn host() -> Host {
    Host::new(Config { kill_grace: Duration::from_secs(1), ..Config::default() }).unwrap()
}

fn screen() -> SharedScreen {
    Arc::new(Mutex::new(Screen::new(Size::new(24, 80).unwrap())))
}

fn start(host: &Host, cmd: &[&str]) -> Run {
    start_on(host, &screen(), cmd)
}

fn start_on(host: &Host, screen: &SharedScreen, cmd: &[&str]) -> Run {
    let request = TerminalRequest { cmd: cmd.iter().map(ToString::to_string).collect(), ..Default::default() };
    let (says, ended) = bounded(1);
    let terminal = host.open_terminal(&request, screen, move |outcome| says.send(outcome).unwrap()).unwrap();
    Run { terminal, screen: Arc::clone(screen), ended }
}

impl Run {
    fn types(&self, keys: &str) {
        let (reply, answer) = Reply::channel();
        self.terminal.write(keys.as_bytes().to_vec(), reply);
        answer.recv_timeout(LONG).unwrap().unwrap();
    }

    fn ends(&self) -> Outcome {
        self.ended.recv_timeout(LONG).unwrap_or_else(|_| panic!("it has not ended; it shows {:?}", self.raw()))
    }

    fn raw(&self) -> String {
        self.screen.lock().raw_tail(200, None, usize::MAX).text
    }

    /// Looks, until the program has written `words`.
    fn shows(&self, words: &str) {
        let start = Instant::now();
        while !self.raw().contains(words) {
            assert!(start.elapsed() < LONG, "{words:?} does not come: {:?}", self.raw());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_alive(pid: &str) -> bool {
    // A zombie that nobody reaps is dead too.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_dead(pid: &str) {
    let start = Instant::now();
    while is_alive(pid) {
        assert!(start.elapsed() < LONG, "{pid} lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Descriptors of this program that are terminals.
fn terminals_open() -> usize {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|link| link.starts_with("/dev/pts") || link.ends_with("ptmx")).count()
}

#[test]
fn all_that_was_written_is_there_at_the_end() {
    let run = start(&host(), &["python3", "-c", "print('hello' * 4096, end='')"]);
    assert_eq!(run.ends(), Outcome { exit: Exit::Code(0), cause: None });
    let tail = run.screen.lock().raw_tail(200, None, usize::MAX);
    assert_eq!((tail.text.len(), tail.total), (20_480, 20_480));
    assert_eq!(tail.text, "hello".repeat(4096));
}

#[test]
fn it_has_a_controlling_terminal_of_its_size_and_a_session_of_its_own() {
    let script = "tty; stty size; echo $TERM \"[$COLUMNS]\"; ps -o sid=,pid= -p $$; : >/dev/tty && echo controls";
    let run = start(&host(), &["sh", "-c", script]);
    run.ends();
    let said = run.raw();
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("/dev/pts/"), "{said}");
    assert_eq!(lines[1..3], ["24 80", "xterm-256color []"]);
    let pid = run.terminal.pid().to_string();
    assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), [&pid, &pid]);
    assert_eq!(lines[4], "controls");
}

#[test]
fn a_size_that_cannot_be_is_refused_and_another_is_told_to_the_program() {
    for (rows, cols) in [(0, 0), (65536, 1), (1, 65536), (24, 0)] {
        assert!(Size::new(rows, cols).is_err(), "{rows} x {cols}");
    }
    let run = start(&host(), &["sh", "-c", "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done"]);
    run.shows("ready");
    run.terminal.resize(Size::new(33, 99).unwrap()).unwrap();
    run.ends();
    assert!(run.raw().contains("33 99"), "{}", run.raw());
    let late = run.terminal.resize(Size::new(10, 10).unwrap()).unwrap_err();
    assert!(late.to_string().contains("has ended"), "{late}");
}

#[test]
fn a_program_that_closes_its_terminal_and_opens_it_again_is_heard() {
    let script = "exec 0<&- 1>&- 2>&-; sleep 0.3; exec >/dev/tty; seq 1 20000; echo done";
    let run = start(&host(), &["sh", "-c", script]);
    assert_eq!(run.ends().exit, Exit::Code(0));
    assert!(run.raw().ends_with("20000\r\ndone\r\n"), "{}", run.raw());
}

#[test]
fn keys_reach_the_program_and_control_c_interrupts_it() {
    let run = start(
        &host(),
        &[
            "sh",
            "-c",
            "trap 'echo caught; exit 3' INT; echo ready; read line; echo got $line; while :; do sleep 0.1; done",
        ],
    );
    run.shows("ready");
    run.types("hello\n");
    run.shows("got hello");
    run.types("\u{3}");
    assert_eq!(run.ends().exit, Exit::Code(3));
    run.shows("caught");
    let (reply, answer) = Reply::channel();
    run.terminal.write(b"x".to_vec(), reply);
    assert!(matches!(answer.recv_timeout(LONG).unwrap(), Err(Refusal::ProcDead { .. })));
}

#[test]
fn an_interactive_shell_ends_when_it_is_asked_and_takes_its_jobs_along() {
    let run = start(&host(), &["bash", "--norc", "-i"]);
    // Jobs of an interactive shell have groups of their own; one of these ignores what a terminal sends.
    run.types(
        "sleep 600 & echo job=$!= ; bash -c 'trap \"\" HUP TERM; echo stubborn=$$= ; while :; do sleep 1; done' &\n",
    );
    run.shows("stubborn=");
    let pid_after = |mark: &str| -> String {
        let start = Instant::now();
        loop {
            let said = run.raw();
            let mut found =
                said.split(mark).skip(1).filter_map(|rest| rest.split_once('=')).map(|(pid, _)| pid.to_owned());
            let found = found.find(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()));
            match found {
                Some(pid) => return pid,
                None => assert!(start.elapsed() < LONG, "{said}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let (job, stubborn) = (pid_after("job="), pid_after("stubborn="));
    assert!(is_alive(&job) && is_alive(&stubborn));
    run.terminal.stop(false);
    let outcome = run.ends();
    assert!(outcome.cause.is_some(), "{outcome:?}");
    wait_dead(&job);
    wait_dead(&stubborn);
}

#[test]
fn a_job_left_behind_does_not_keep_the_end_back_and_ends_with_its_session() {
    let run = start(&host(), &["bash", "-c", "set -m; sleep 600 & echo job=$!=; exit 5"]);
    assert_eq!(run.ends(), Outcome { exit: Exit::Code(5), cause: None });
    let said = run.raw();
    let job = said.split('=').nth(1).unwrap();
    wait_dead(job);
}

#[test]
fn dropping_it_kills_all_of_its_session() {
    let run = start(&host(), &["bash", "-c", "set -m; trap '' TERM HUP; sleep 600 & echo job=$!=; wait"]);
    run.shows("job=");
    let pid = run.terminal.pid().to_string();
    let job = run.raw().split('=').nth(1).unwrap().to_owned();
    let Run { terminal, ended, .. } = run;
    drop(terminal);
    assert_eq!(ended.recv_timeout(LONG).unwrap().exit, Exit::Signal(9));
    wait_dead(&job);
    wait_dead(&pid);
}

#[test]
fn many_terminals_leave_no_descriptor_and_no_terminal_behind() {
    let host = host();
    // Short: each takes the machine a few milliseconds.
    start(&host, &["true"]).ends();
    let before = terminals_open();
    let screen = screen();
    for _ in 0..300 {
        let run = start_on(&host, &screen, &["true"]);
        assert_eq!(run.ends().exit, Exit::Code(0));
    }
    // Other tests of this file have theirs.
    assert!(terminals_open() <= before + 40, "{before} terminals were open, now {}", terminals_open());
}

#[test]
fn the_line_discipline_cuts_a_long_line_and_goes_on() {
    let run = start(&host(), &["sh", "-c", "stty -echo; echo ready; cat | wc -c"]);
    run.shows("ready");
    run.types(&format!("{}\n", "x".repeat(8000)));
    run.types("more\n\u{4}");
    run.ends();
    let counted: usize = run.raw().lines().last().unwrap().trim().parse().unwrap();
    // 4,095 bytes and the newline of the first, five of the second.
    assert_eq!(counted, 4096 + 5);
    // Where the program reads keys, all of it arrives.
    let script = "import sys,tty; tty.setraw(0); print('ready', flush=True); print(len(sys.stdin.buffer.read(8000)))";
    let run = start(&host(), &["python3", "-c", script]);
    run.shows("ready");
    run.types(&"x".repeat(8000));
    run.ends();
    assert!(run.raw().contains("8000"), "{}", run.raw());
}

#[test]
fn what_cannot_be_started_is_refused_by_name() {
    let host = host();
    let refused = |request: &TerminalRequest| match host.open_terminal(request, &screen(), |_| {}) {
        Err(SpawnError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let of =
        |cmd: &[&str]| TerminalRequest { cmd: cmd.iter().map(ToString::to_string).collect(), ..Default::default() };
    assert_eq!(refused(&of(&[])), Refusal::EmptyCommand);
    assert_eq!(refused(&of(&["no-such-program"])), Refusal::ProgramNotFound { name: "no-such-program".into() });
    assert!(matches!(refused(&of(&["ls", "a\0b"])), Refusal::InvalidArgument { .. }));
    let nowhere = TerminalRequest { cwd: Some("/no/such".into()), ..of(&["ls"]) };
    assert!(matches!(refused(&nowhere), Refusal::CwdNotFound { .. }));
    let variable = TerminalRequest { env: vec![("A=B".into(), String::new())], ..of(&["ls"]) };
    assert!(matches!(refused(&variable), Refusal::InvalidArgument { .. }));
    match host.open_terminal(&of(&["/no/such/program"]), &screen(), |_| {}) {
        Err(SpawnError::Failed(failure)) => assert!(failure.to_string().contains("terminal"), "{failure}"),
        other => panic!("{other:?}"),
    }
}
