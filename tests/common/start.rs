//! How a host is started for a test: its arguments, its environment, and the state that it finds.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::bounded;
use serde_json::{Value, json};

use super::monitor::Monitor;
use super::{Host, PROGRAMS, binary};

/// How a host is started.
pub struct Start {
    command: Command,
    handshake: Option<Value>,
}

impl Start {
    /// `serve`, with every program of the tests allowed.
    pub fn new(flags: &[&str]) -> Self {
        let mut start = Self::bare(&["serve"]);
        for program in PROGRAMS {
            start.command.args(["--allow", program]);
        }
        start.command.args(flags);
        start
    }

    /// These arguments and no others.
    pub fn bare(args: &[&str]) -> Self {
        let mut command = binary();
        command.args(args);
        Self { command, handshake: Some(json!({"agent_id": "test", "agent_caps": ["proc"], "auth_token": ""})) }
    }

    /// Through `sh -c PRELUDE; exec host …`, for limits and descriptors that a shell can set.
    pub fn under(prelude: &str, flags: &[&str]) -> Self {
        let inner = Self::new(flags);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{prelude}; exec \"$0\" \"$@\"")).arg(env!("CARGO_BIN_EXE_a2e-proc"));
        command.args(inner.command.get_args());
        Self { command, handshake: inner.handshake }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn without_handshake(mut self) -> Self {
        self.handshake = None;
        self
    }

    pub fn go(mut self) -> Host {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let stdin = child.stdin.take().map(|stdin| OwnedFd::from(stdin).into());
        let stdout = child.stdout.take().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut host = Host::over(stdin, stdout, Some(child));
        host.stderr = Some(std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        }));
        if let Some(fields) = self.handshake {
            host.shake_hands(fields);
        }
        host
    }
}

impl Host {
    /// A host that reads from `stdin` and writes to `stdout`, whatever they are.
    pub fn over(stdin: Option<File>, stdout: impl Read + Send + 'static, child: Option<Child>) -> Self {
        // Bounded, so that a host which says more than the test can look at is held up, as by any agent.
        let (sender, lines) = bounded(1024);
        let paused = Arc::new(AtomicBool::new(false));
        let (resume, resumed) = bounded(1);
        let is_paused = Arc::clone(&paused);
        let reader = std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                if is_paused.load(Ordering::Acquire) {
                    let _ = resumed.recv();
                }
                let mut line = Vec::new();
                // A connection may be broken off.
                if !matches!(stdout.read_until(b'\n', &mut line), Ok(1..)) {
                    break;
                }
                let _ = sender.send(String::from_utf8(line).expect("the host writes UTF-8"));
            }
        });
        Self {
            stdin,
            child,
            lines,
            reader: Some(reader),
            paused,
            resume,
            seen: Vec::new(),
            lines_seen: Vec::new(),
            texts: HashMap::new(),
            keep_output: true,
            monitor: Monitor::default(),
            exchange: Vec::new(),
            started: Instant::now(),
            sent: 0,
            session_id: String::new(),
            stderr: None,
        }
    }

    /// Opens the session by a handshake with these fields.
    pub fn shake_hands(&mut self, fields: Value) {
        let hello = self.call("handshake/req", fields);
        assert_eq!(hello["ok"], json!(true), "{hello}");
        self.session_id = hello["session_id"].as_str().unwrap().to_owned();
    }
}
