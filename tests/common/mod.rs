//! Drives the real binary as an agent does, and watches every line it writes. When a test fails, the whole exchange is
//! printed.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

pub mod audit;
pub mod folder;
pub mod monitor;
pub mod server;
mod start;
pub mod system;

pub use start::Start;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rustix::net::Shutdown;
use serde_json::{Value, json};
use wait_timeout::ChildExt;

use monitor::Monitor;
pub use monitor::{is_terminal, payload};

/// How long a test waits for something that is sure to come: long, since machines are shared.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Lines of an exchange that are shown, at least, when a test fails.
const SHOWN: usize = 200;

/// The programs that tests use.
pub const PROGRAMS: [&str; 16] = [
    "sh", "bash", "python3", "ls", "cat", "true", "seq", "sleep", "yes", "wc", "env", "printf", "base64", "head",
    "sort", "pwd",
];

/// The binary under test.
pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_a2e-proc"))
}

/// A running host and what it has said.
pub struct Host {
    /// Absent of a host that others use too.
    child: Option<Child>,
    stdin: Option<File>,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    paused: Arc<AtomicBool>,
    resume: crossbeam_channel::Sender<()>,
    pub seen: Vec<Value>,
    /// The messages of `seen` as they stood on the wire.
    lines_seen: Vec<String>,
    /// The text of each process's stream so far.
    texts: HashMap<(String, String), String>,
    /// Whether output is kept for the test to look at; a flood is only watched.
    pub keep_output: bool,
    monitor: Monitor,
    exchange: Vec<String>,
    started: Instant,
    sent: u64,
    pub session_id: String,
    stderr: Option<JoinHandle<String>>,
}

/// A process that a host has spawned.
#[derive(Clone, Debug)]
pub struct Proc {
    pub id: String,
    pub pid: i32,
    pub req: String,
}

impl Host {
    /// A host with all programs and these further flags, after a handshake.
    pub fn start(flags: &[&str]) -> Self {
        Start::new(flags).go()
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("the host is this test's own").id()).unwrap()
    }

    fn note(&mut self, way: &str, text: &str) {
        if self.exchange.len() >= 2 * SHOWN {
            self.exchange.drain(..SHOWN);
        }
        let mut shown: String = text.chars().take(400).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        self.exchange.push(format!("{:>9.3} {way} {shown}", self.started.elapsed().as_secs_f64()));
    }

    /// Writes bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.note("→", String::from_utf8_lossy(bytes).trim_end());
        self.stdin.as_mut().expect("the input is open").write_all(bytes).unwrap();
    }

    /// Writes `bytes` again and again, up to `most` in all, without ever waiting for the host. True if it takes no more.
    pub fn write_until_full(&mut self, bytes: &[u8], most: usize, sent: &mut usize) -> bool {
        let stdin = self.stdin.as_mut().unwrap();
        rustix::io::ioctl_fionbio(&*stdin, true).unwrap();
        let mut last = Instant::now();
        let mut at = 0;
        while *sent < most {
            match stdin.write(&bytes[at..]) {
                Ok(count) => {
                    (*sent, at) = (*sent + count, (at + count) % bytes.len());
                    last = Instant::now();
                }
                // A host that has taken nothing for so long has stopped.
                Err(_) if last.elapsed() > Duration::from_secs(3) => return true,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        false
    }

    /// Sends one request and returns its id.
    pub fn send(&mut self, kind: &str, fields: Value) -> String {
        self.sent += 1;
        let id = format!("r{}", self.sent);
        let mut message = json!({"type": kind, "id": id, "version": "1.0", "ts": 1.0});
        message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.monitor.sent(&id);
        self.send_raw(format!("{message}\n").as_bytes());
        id
    }

    /// The next line, or `None` at the end of the output.
    fn next(&mut self, deadline: Instant) -> Option<Value> {
        match self.lines.recv_deadline(deadline) {
            Ok(line) => {
                self.note("←", line.trim_end());
                let message = self.monitor.saw(&line).unwrap_or_else(|fault| panic!("{fault}"));
                let is_output = message["type"] == "proc/read/event" && !is_terminal(&message);
                if is_output && self.keep_output {
                    let key = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
                    let text = self.texts.entry((key("proc_id"), key("stream_type"))).or_default();
                    text.push_str(payload(&message)["text"].as_str().unwrap_or_default());
                }
                if !is_output || self.keep_output {
                    self.seen.push(message.clone());
                    self.lines_seen.push(line);
                }
                Some(message)
            }
            Err(RecvTimeoutError::Timeout) => panic!("nothing more came in time"),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Takes one more line, whatever it says.
    pub fn wait_next(&mut self) {
        assert!(self.next(Instant::now() + PATIENCE).is_some(), "the host has ended");
    }

    /// The first message from `from` on that fits.
    pub fn wait_from(&mut self, from: usize, within: Duration, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + within;
        let mut at = from;
        loop {
            while at < self.seen.len() {
                if fits(&self.seen[at]) {
                    return self.seen[at].clone();
                }
                at += 1;
            }
            assert!(self.next(deadline).is_some(), "the host has ended before it said what was waited for");
        }
    }

    /// The first message of all that fits.
    pub fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        self.wait_from(0, PATIENCE, fits)
    }

    /// The first message of all that fits, as it stood on the wire.
    pub fn wait_line(&mut self, fits: impl Fn(&Value) -> bool) -> String {
        self.wait(&fits);
        let at = self.seen.iter().position(fits).unwrap();
        self.lines_seen[at].clone()
    }

    /// The answer to the request with this id.
    pub fn answer(&mut self, id: &str) -> Value {
        self.wait(|message| message["req_id"] == id && message["type"] != "proc/read/event")
    }

    pub fn call(&mut self, kind: &str, fields: Value) -> Value {
        let id = self.send(kind, fields);
        self.answer(&id)
    }

    /// The answer to a spawn with these fields beside the command.
    pub fn try_spawn(&mut self, cmd: &[&str], fields: Value) -> Value {
        let mut all = json!({"session_id": self.session_id, "cmd": cmd});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.call("proc/spawn/req", all)
    }

    pub fn spawn_with(&mut self, cmd: &[&str], fields: Value) -> Proc {
        self.proc_or_error(cmd, fields).unwrap_or_else(|error| panic!("not spawned: {error}"))
    }

    /// The process, or the words with which it was refused.
    pub fn proc_or_error(&mut self, cmd: &[&str], fields: Value) -> Result<Proc, String> {
        let answer = self.try_spawn(cmd, fields);
        let text = |key: &str| answer[key].as_str().unwrap().to_owned();
        if answer["ok"] != json!(true) {
            return Err(text("error"));
        }
        let pid = i32::try_from(answer["pid"].as_i64().unwrap()).unwrap();
        Ok(Proc { id: text("proc_id"), pid, req: text("req_id") })
    }

    pub fn spawn(&mut self, cmd: &[&str]) -> Proc {
        self.spawn_with(cmd, json!({}))
    }

    pub fn sh(&mut self, script: &str) -> Proc {
        self.spawn(&["sh", "-c", script])
    }

    pub fn send_write(&mut self, proc: &Proc, data: &str, eof: bool) -> String {
        self.send("proc/write/req", json!({"proc_id": proc.id, "data": data, "eof": eof}))
    }

    pub fn write(&mut self, proc: &Proc, data: &str, eof: bool) -> Value {
        let id = self.send_write(proc, data, eof);
        self.answer(&id)
    }

    pub fn send_kill(&mut self, proc: &Proc, signal: &str) -> String {
        self.send("proc/kill/req", json!({"proc_id": proc.id, "signal": signal}))
    }

    pub fn kill(&mut self, proc: &Proc, signal: &str) -> Value {
        let id = self.send_kill(proc, signal);
        self.answer(&id)
    }

    pub fn status(&mut self, proc: &Proc) -> Value {
        self.call("proc/status/req", json!({"proc_id": proc.id}))
    }

    /// The terminal event of a process.
    pub fn terminal(&mut self, proc: &Proc) -> Value {
        self.wait(|message| message["proc_id"] == proc.id && is_terminal(message))
    }

    /// Waits until the text of a process's stream contains `part`.
    pub fn wait_text(&mut self, proc: &Proc, stream: &str, part: &str) {
        let deadline = Instant::now() + PATIENCE;
        let key = (proc.id.clone(), stream.to_owned());
        let mut searched = 0_usize;
        loop {
            if let Some(text) = self.texts.get(&key) {
                // What was searched before needs no second look, but for a part that had only begun.
                let from = text.floor_char_boundary(searched.saturating_sub(part.len()));
                if text[from..].contains(part) {
                    return;
                }
                searched = text.len();
            }
            assert!(self.next(deadline).is_some(), "the host has ended before {part:?} came");
        }
    }

    /// The events of a process so far.
    pub fn events(&self, proc: &Proc) -> Vec<&Value> {
        let own = |message: &&Value| message["type"] == "proc/read/event" && message["proc_id"] == proc.id;
        self.seen.iter().filter(own).collect()
    }

    /// The text of a process's stream so far.
    pub fn text(&self, proc: &Proc, stream: &str) -> String {
        self.texts.get(&(proc.id.clone(), stream.to_owned())).cloned().unwrap_or_default()
    }

    /// Forgets the output that was seen.
    pub fn forget(&mut self) {
        self.seen.clear();
        self.lines_seen.clear();
        self.texts.clear();
    }

    /// Stops reading what the host writes, after at most one more line.
    pub fn pause(&mut self) {
        self.paused.store(true, Ordering::Release);
        // The reader sits in a read: a pong makes it see the pause. Its line is taken with the others later.
        self.send("ping", json!({}));
    }

    /// Reads on.
    pub fn unpause(&mut self) {
        self.paused.store(false, Ordering::Release);
        let _ = self.resume.try_send(());
    }

    /// Waits for the host to be gone, though nobody reads what it says.
    pub fn wait_gone(&mut self, within: Duration) -> Option<i32> {
        self.exit_code(within)
    }

    fn exit_code(&mut self, within: Duration) -> Option<i32> {
        let child = self.child.as_mut()?;
        child.wait_timeout(within).unwrap().expect("the host ends in time").code()
    }

    /// Sends a signal to the host itself.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// Closes the host's input.
    pub fn close_input(&mut self) {
        self.note("→", "(end of input)");
        self.shut(Shutdown::Write);
        self.stdin = None;
    }

    /// Breaks a connection off, both ways.
    pub fn break_off(&mut self) {
        self.note("→", "(broken off)");
        self.shut(Shutdown::Both);
        self.stdin = None;
    }

    /// The reader has a handle of its own on a socket, so closing this one would not be seen.
    fn shut(&self, how: Shutdown) {
        if let (Some(socket), None) = (&self.stdin, &self.child) {
            let _ = rustix::net::shutdown(socket, how);
        }
    }

    /// Takes everything up to the end of the output, and returns the exit code and how long that took.
    pub fn wait_end(&mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        while self.next(start + PATIENCE).is_some() {}
        let code = self.exit_code(PATIENCE);
        self.reader.take().map(JoinHandle::join);
        (code, start.elapsed())
    }

    /// What an ended host has said on its standard error.
    pub fn take_stderr(&mut self) -> String {
        self.stderr.take().map(|reader| reader.join().unwrap()).unwrap_or_default()
    }

    /// Closes the input, waits for the end, and checks that it was a good one.
    pub fn finish(mut self) {
        self.close_input();
        let (code, took) = self.wait_end();
        assert_eq!(code, self.child.as_ref().map(|_| 0));
        assert!(took < Duration::from_secs(3), "the host took {took:?} to end");
        self.monitor.end().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the last of the exchange ---\n{}", self.exchange.join("\n"));
        }
        self.unpause();
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.shut(Shutdown::Both);
    }
}
