//! How a host is started for a test: its arguments, its environment, and the state that it finds.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
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
        // Bounded, so that a host which says more than the test can look at is held up, as by any agent.
        let (sender, lines) = bounded(1024);
        let stdout = child.stdout.take().unwrap();
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
                if stdout.read_until(b'\n', &mut line).unwrap() == 0 {
                    break;
                }
                let _ = sender.send(String::from_utf8(line).expect("the host writes UTF-8"));
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut host = Host {
            stdin: child.stdin.take(),
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
            stderr: Some(stderr),
        };
        if let Some(fields) = self.handshake {
            let hello = host.call("handshake/req", fields);
            assert_eq!(hello["ok"], json!(true), "{hello}");
            host.session_id = hello["session_id"].as_str().unwrap().to_owned();
        }
        host
    }
}
