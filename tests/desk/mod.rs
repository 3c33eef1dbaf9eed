//! A project of the test's own, its desk, and MCP clients that drive the real binary over its standard streams or the desk's
//! socket. What a client and its server said to each other is printed if a test fails.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

pub mod client;
pub mod shell;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use a2e_proc::desk::paths::Paths;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub use client::Client;

/// Longer than anything takes that is sure to come, on a machine that is busy.
pub const LONG: Duration = Duration::from_secs(60);

/// Looks until there is something to see. The system has no event for most of what tests look at.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < LONG, "this does not come: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A project in folders of its own, as if nothing else were on the machine.
pub struct Place {
    folder: TempDir,
    pub project: PathBuf,
    pub paths: Paths,
}

impl Place {
    pub fn new() -> Self {
        // Short, as a socket's path has to be.
        let folder = tempfile::Builder::new().prefix("a2e").tempdir().unwrap();
        let project = folder.path().join("p");
        for name in ["p", "s", "r"] {
            fs::DirBuilder::new().mode(0o700).create(folder.path().join(name)).unwrap();
        }
        let user = fs::metadata(folder.path()).unwrap().uid();
        let env = |name: &str| match name {
            "XDG_STATE_HOME" => Some(folder.path().join("s").into()),
            "XDG_RUNTIME_DIR" => Some(folder.path().join("r").into()),
            _ => None,
        };
        let paths = Paths::of(&project, user, env).unwrap();
        Self { folder, project, paths }
    }

    /// With this as its `solo.yml`.
    pub fn with(solo: &str) -> Self {
        let place = Self::new();
        place.solo(solo);
        place
    }

    /// Replaces the project's file, all at once.
    pub fn solo(&self, text: &str) {
        fs::write(self.folder.path().join("new"), text).unwrap();
        fs::rename(self.folder.path().join("new"), self.project.join("solo.yml")).unwrap();
    }

    /// Writes a file of the project.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.project.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Names agents: the id, the words, and whether it is switched on.
    pub fn agents(&self, agents: &Value) {
        fs::create_dir_all(self.paths.agents.parent().unwrap()).unwrap();
        fs::write(&self.paths.agents, serde_json::json!({ "agents": agents }).to_string()).unwrap();
    }

    /// The binary, in this project.
    pub fn binary(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_a2e-proc"));
        let folder = self.folder.path();
        command.args(args).arg("--project").arg(&self.project).current_dir(folder);
        command.env("XDG_STATE_HOME", folder.join("s")).env("XDG_RUNTIME_DIR", folder.join("r"));
        command.env("HOME", folder).env("SHELL", "/bin/bash").env("PS1", shell::PROMPT).env("LC_ALL", "C.UTF-8");
        command
            .env("HISTFILE", "")
            .env_remove("A2E_PROC_ID")
            .env_remove("A2E_PROC_PROJECT")
            .env_remove("LESS")
            .env_remove("ENV");
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.binary(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Trusts a command, as a person does.
    pub fn trust(&self, name: &str) {
        let output = self.run(&["trust", "grant", name, "--yes"]);
        assert!(output.status.success(), "{output:?}");
    }

    /// `a2e-proc mcp`, with which nothing has been spoken yet.
    pub fn silent(&self) -> Client {
        let mut command = self.binary(&["mcp"]);
        command.stderr(self.log("mcp.log"));
        Client::start(command)
    }

    /// `a2e-proc mcp`, of an agent that is ready to work.
    pub fn mcp(&self) -> Client {
        let mut client = self.silent();
        client.initialize();
        client
    }

    fn log(&self, name: &str) -> fs::File {
        fs::File::options().create(true).append(true).open(self.folder.path().join(name)).unwrap()
    }

    /// A client at the desk's socket.
    pub fn connect(&self) -> Client {
        let mut client = Client::over(UnixStream::connect(&self.paths.socket).unwrap());
        client.initialize();
        client
    }

    /// The desk in the foreground, once it listens.
    pub fn desk(&self) -> Desk {
        let (said, log) = (self.folder.path().join("desk.log"), self.log("desk.log"));
        let child = self.binary(&["desk"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut desk = Desk { child, said };
        until("the desk listens", || {
            let ended = desk.child.try_wait().unwrap();
            assert!(ended.is_none(), "the desk has ended: {}", desk.said());
            UnixStream::connect(&self.paths.socket).ok()
        });
        desk
    }

    /// What the desk remembers.
    pub fn remembered(&self) -> Value {
        let text = fs::read_to_string(self.paths.entries()).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// Every file and folder below the folders that are not the project's, with its mode.
    pub fn files(&self) -> Vec<(PathBuf, u32)> {
        let mut folders = vec![self.folder.path().join("s"), self.folder.path().join("r")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for file in fs::read_dir(folder).unwrap().flatten() {
                let meta = file.metadata().unwrap();
                files.push((file.path(), meta.permissions().mode() & 0o777));
                if meta.is_dir() {
                    folders.push(file.path());
                }
            }
        }
        files
    }

    /// The folder that all of it is in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = fs::read_to_string(self.folder.path().join("mcp.log"));
            eprintln!("--- what servers said:\n{}", said.unwrap_or_default());
        }
    }
}

/// `a2e-proc desk`.
pub struct Desk {
    child: Child,
    said: PathBuf,
}

impl Desk {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has told the person at the desk.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Ends it as Ctrl-C does.
    pub fn end(mut self) {
        signal(self.pid(), Signal::INT);
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.said());
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the desk:\n{}", self.said());
        }
    }
}

pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// A text that stands in no other command line: seconds to sleep, say.
pub fn marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("7777.{:07}{:03}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Processes that live (zombies do not) and have a word of their command line that holds `marker`.
pub fn alive(marker: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
    };
    pids.filter(|&pid| pid != std::process::id()).filter(has).collect()
}

/// Processes that this one has started and that it has not reaped.
pub fn children(pid: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    pids.filter(|&child| parent(child) == Some(pid)).collect()
}

/// Asserts that nobody with this marker is left soon.
pub fn gone(marker: &str) {
    let start = Instant::now();
    loop {
        let left = alive(marker);
        if left.is_empty() {
            return;
        }
        // What is known of them: state, parent, group, session.
        let stat = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(start.elapsed() < LONG, "they live on: {:#?}", left.iter().map(stat).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Memory that a process has in use, in MB.
pub fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
