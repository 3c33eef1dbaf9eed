//! The program under test: a child of this one, with its lines and their times. `play` talks to it; a self-test puts canned
//! lines in its place.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use wait_timeout::ChildExt;

use super::case::Canned;

/// The longest line that is looked at, in bytes. A host sends pieces of 64 KiB, and a status of a thousand processes.
const LONGEST: u64 = 64 << 20;

/// How much of what the program says on standard error is kept, from its end.
const STDERR: usize = 16 * 1024;

/// How long after its exit the output of a program may stay open before nothing more is waited for.
const HELD: Duration = Duration::from_secs(1);

/// What comes next, at a time in seconds since the start.
#[derive(Debug)]
pub enum Next {
    Line(f64, Vec<u8>),
    /// It has ended: its code, or the signal below zero.
    Exit(f64, i32),
    /// The time is up.
    Nothing,
}

/// Whoever is at the other end.
pub trait Peer {
    fn send(&mut self, bytes: &[u8]);
    fn close_input(&mut self);
    /// The next line, at `deadline` at the latest.
    fn next(&mut self, deadline: f64) -> Next;
    fn now(&self) -> f64;
    fn signal(&mut self, name: &str);
    fn set_reading(&mut self, reading: bool);
}

enum Said {
    Line(Instant, Vec<u8>),
    End,
    Exited(Instant),
}

/// Whether the output is read. The runner sets it, the reader waits for it.
type Reading = Arc<(Mutex<bool>, Condvar)>;

/// A real program.
pub struct Program {
    started: Instant,
    child: Child,
    input: Option<Sender<Vec<u8>>>,
    said: Receiver<Said>,
    reading: Reading,
    threads: Vec<JoinHandle<()>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    exited: Option<Instant>,
    ended: bool,
    code: Option<i32>,
}

impl Program {
    /// Starts a command line, as a shell reads it, with these further arguments and variables.
    pub fn start(command: &str, args: &[String], env: &[(String, String)]) -> Result<Self, String> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec {command} \"$@\"")).arg("sh").args(args);
        shell.envs(env.iter().map(|(name, value)| (name, value)));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut child = shell.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;

        let (said_sender, said) = sync_channel(1024);
        let reading: Reading = Arc::new((Mutex::new(true), Condvar::new()));
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let mut threads = Vec::new();
        let (input, to_write) = channel();
        if let (Some(stdin), Some(stdout), Some(err)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            // Ends when the sender is dropped, or the program takes no more.
            threads.push(named("to the program", move || write_all(stdin, &to_write))?);
            let (sender, reading) = (said_sender.clone(), Arc::clone(&reading));
            // These two end with the streams, or when nobody listens any more: whoever holds a stream beyond that is not waited for.
            named("from the program", move || read_lines(stdout, &sender, &reading))?;
            let kept = Arc::clone(&stderr);
            named("its stderr", move || keep_tail(err, &kept))?;
        }
        let pid = Pid::from_raw(child.id().cast_signed());
        let wait = move || {
            // Without reaping, so that the id stays the program's own until this process has seen its end.
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            let _ = said_sender.send(Said::Exited(Instant::now()));
        };
        threads.push(named("its end", wait)?);
        let started = Instant::now();
        let (exited, ended, code) = (None, false, None);
        Ok(Self { started, child, input: Some(input), said, reading, threads, stderr, exited, ended, code })
    }

    /// The end of what the program said on standard error.
    pub fn stderr(&self) -> String {
        let mut tail = lock(&self.stderr);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The exit code. The program has exited, so this does not wait.
    fn reap(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait();
        let code = status.ok().and_then(|status| status.code().or(status.signal().map(|signal| -signal)));
        *self.code.insert(code.unwrap_or(-1))
    }

    /// Ends the program, by force if it has to be, and everything that this has started for it.
    pub fn finish(mut self) {
        self.close_input();
        self.set_reading(true);
        // Nobody listens from here on, so that whoever waits to say something goes on.
        drop(std::mem::replace(&mut self.said, channel().1));
        if self.code.is_none() {
            let ended_by_itself = matches!(self.child.wait_timeout(Duration::from_secs(3)), Ok(Some(_)));
            if !ended_by_itself {
                let _ = killpg(self.pid(), Signal::SIGKILL);
                let _ = self.child.wait();
            }
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Peer for Program {
    fn send(&mut self, bytes: &[u8]) {
        if let Some(input) = &self.input {
            // A program that has ended takes nothing; its end is seen elsewhere.
            let _ = input.send(bytes.to_vec());
        }
    }

    fn close_input(&mut self) {
        self.input = None;
    }

    fn next(&mut self, deadline: f64) -> Next {
        let at = |instant: Instant| instant.duration_since(self.started).as_secs_f64();
        if let (Some(exited), true) = (self.exited, self.ended || self.code.is_some()) {
            let when = at(exited);
            let code = self.code.unwrap_or_else(|| self.reap());
            return Next::Exit(when, code);
        }
        let mut until = self.started + Duration::from_secs_f64(deadline);
        if !*lock(&self.reading.0) {
            // What the reader had begun to take when it was stopped waits too.
            thread::sleep(until.saturating_duration_since(Instant::now()));
            return Next::Nothing;
        }
        loop {
            if let Some(exited) = self.exited {
                until = until.min(exited + HELD);
            }
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Said::Line(when, line)) => return Next::Line(at(when), line),
                Ok(Said::End) => self.ended = true,
                Ok(Said::Exited(when)) => self.exited = Some(when),
                Err(RecvTimeoutError::Disconnected) => self.ended = true,
                Err(RecvTimeoutError::Timeout) if self.exited.is_some_and(|exited| exited + HELD <= Instant::now()) => {
                    self.ended = true;
                }
                Err(RecvTimeoutError::Timeout) => return Next::Nothing,
            }
            if let (Some(exited), true) = (self.exited, self.ended) {
                let code = self.reap();
                return Next::Exit(exited.duration_since(self.started).as_secs_f64(), code);
            }
        }
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn signal(&mut self, name: &str) {
        // Not reaped before its end was seen, so the id is still its own.
        if let (None, Ok(signal)) = (self.code, name.parse::<Signal>()) {
            let _ = kill(self.pid(), signal);
        }
    }

    fn set_reading(&mut self, reading: bool) {
        *lock(&self.reading.0) = reading;
        self.reading.1.notify_all();
    }
}

fn named(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|e| format!("no thread: {e}"))
}

/// A lock that a panic elsewhere does not take away.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write_all(mut stdin: ChildStdin, to_write: &Receiver<Vec<u8>>) {
    for bytes in to_write {
        if stdin.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn read_lines(stdout: impl Read, said: &SyncSender<Said>, reading: &Reading) {
    let mut stdout = BufReader::with_capacity(64 * 1024, stdout);
    loop {
        let mut allowed = lock(&reading.0);
        while !*allowed {
            allowed = reading.1.wait(allowed).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        drop(allowed);
        let mut line = Vec::new();
        match (&mut stdout).take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if said.send(Said::Line(Instant::now(), line)).is_err() {
            return;
        }
    }
    let _ = said.send(Said::End);
}

fn keep_tail(mut stream: impl Read, kept: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut kept = lock(kept);
        kept.extend(&buffer[..count]);
        let over = kept.len().saturating_sub(STDERR);
        kept.drain(..over);
    }
}

/// What a self-test has in the place of a program: lines on a clock that only they move.
#[derive(Default)]
pub struct CannedPeer {
    now: f64,
    waiting: VecDeque<(f64, Canned)>,
    exited: Option<(f64, i32)>,
    /// The self-test says when the host ends; otherwise it does when its input is closed.
    says_when: bool,
    is_stopped: bool,
    is_closed: bool,
}

impl CannedPeer {
    pub fn new(says_when: bool) -> Self {
        Self { says_when, ..Self::default() }
    }

    /// Lines that come from now on.
    pub fn will_say(&mut self, lines: &[Canned]) {
        for line in lines {
            let (Canned::Line { at, .. } | Canned::Exit { at, .. }) = line;
            self.waiting.push_back((self.now + at, line.clone()));
        }
    }
}

impl Peer for CannedPeer {
    fn send(&mut self, _: &[u8]) {}

    fn close_input(&mut self) {
        self.is_closed = true;
    }

    fn next(&mut self, deadline: f64) -> Next {
        if let Some((at, code)) = self.exited {
            return Next::Exit(at, code);
        }
        if self.waiting.is_empty() && self.is_closed && !self.says_when {
            self.exited = Some((self.now, 0));
            return Next::Exit(self.now, 0);
        }
        match self.waiting.front() {
            Some((at, _)) if *at <= deadline && !self.is_stopped => {}
            _ => {
                self.now = deadline;
                return Next::Nothing;
            }
        }
        match self.waiting.pop_front() {
            Some((at, Canned::Line { text, .. })) => {
                self.now = self.now.max(at);
                Next::Line(self.now, text.into_bytes())
            }
            Some((at, Canned::Exit { code, .. })) => {
                self.now = self.now.max(at);
                self.exited = Some((self.now, code));
                Next::Exit(self.now, code)
            }
            None => Next::Nothing,
        }
    }

    fn now(&self) -> f64 {
        self.now
    }

    fn signal(&mut self, _: &str) {}

    fn set_reading(&mut self, reading: bool) {
        self.is_stopped = !reading;
    }
}
