//! Drives the release binary as a fast agent does: it looks for bytes, not for JSON, so that it is not what is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use memchr::memmem;

/// A host and both ends of its conversation.
pub struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    asked: u64,
}

/// How a terminal event looks, and nothing else here does.
const END: &[u8] = b"{\\\"code\\\":";
/// And of a process that was killed.
const KILLED: &[u8] = b"\"data\":\"{}\"";

impl Host {
    /// Starts one, and returns when it has answered the handshake.
    pub fn start() -> Self {
        let allowed = ["cat", "seq", "sleep", "true"].map(|name| ["--allow", name]);
        let mut child = Command::new(binary())
            .args(["serve", "--max-procs", "5000", "--default-timeout", "0"])
            .args(allowed.as_flattened())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::with_capacity(256 * 1024, child.stdout.take().unwrap());
        let mut host = Self { child, stdin, stdout, line: Vec::new(), asked: 0 };
        host.send(
            r#"{"type":"handshake/req","id":"h","version":"1.0","ts":0,"agent_id":"bench","agent_caps":["proc"]}"#,
        );
        host.expect(b"\"handshake/resp\"");
        host
    }

    /// The host's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn send(&mut self, message: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn request(&mut self, kind: &str, rest: &str) {
        self.asked += 1;
        let id = self.asked;
        self.send(&format!(r#"{{"type":"proc/{kind}/req","id":"{id}","version":"1.0","ts":0,{rest}}}"#));
    }

    /// The next line that holds `mark`.
    pub fn expect(&mut self, mark: &[u8]) -> &[u8] {
        loop {
            self.line.clear();
            assert!(self.stdout.read_until(b'\n', &mut self.line).unwrap() > 0, "the host has ended");
            if memmem::find(&self.line, mark).is_some() {
                return &self.line;
            }
        }
    }

    /// Asks for a process; returns its id when the answer has come.
    pub fn spawn(&mut self, cmd: &[&str]) -> String {
        self.ask_to_spawn(cmd);
        let line = self.expect(b"\"proc/spawn/resp\"");
        assert!(memmem::find(line, b"\"ok\":true").is_some(), "{}", String::from_utf8_lossy(line));
        field(line, b"\"proc_id\":\"")
    }

    /// Asks for a process.
    pub fn ask_to_spawn(&mut self, cmd: &[&str]) {
        let cmd = serde_json::to_string(cmd).unwrap();
        self.request("spawn", &format!(r#""cmd":{cmd}"#));
    }

    /// Writes a line to a process and waits until `cat` has sent it back.
    pub fn echo(&mut self, proc_id: &str) {
        self.request("write", &format!(r#""proc_id":"{proc_id}","data":"hello\n""#));
        self.expect(b"hello");
    }

    /// Asks for the status of one process, and waits for the answer.
    pub fn status(&mut self, proc_id: &str) {
        self.request("status", &format!(r#""proc_id":"{proc_id}""#));
        self.expect(b"\"proc/status/resp\"");
    }

    /// Kills a process, and waits for its terminal event.
    pub fn kill(&mut self, proc_id: &str, signal: &str) {
        self.request("kill", &format!(r#""proc_id":"{proc_id}","signal":"{signal}""#));
        self.expect(KILLED);
    }

    /// Waits for one terminal event.
    pub fn end(&mut self) {
        self.expect(END);
    }

    /// Takes everything until so many processes have ended. A sink that is never the bottleneck.
    pub fn sink(&mut self, mut ends: usize) {
        let finder = memmem::Finder::new(END);
        let mut buffer = vec![0; 1024 * 1024];
        let mut kept = self.stdout.buffer().len();
        buffer[..kept].copy_from_slice(self.stdout.buffer());
        self.stdout.consume(kept);
        while ends > 0 {
            let read = self.stdout.get_mut().read(&mut buffer[kept..]).unwrap();
            assert!(read > 0, "the host has ended");
            let held = kept + read;
            ends -= finder.find_iter(&buffer[..held]).count();
            // A mark may be cut in two.
            kept = held.min(END.len() - 1);
            buffer.copy_within(held - kept..held, 0);
        }
    }

    /// Closes its input and waits until it has ended.
    pub fn finish(&mut self) {
        self.stdin = None;
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        self.child.wait().unwrap();
    }

    /// Resident memory, in KiB.
    pub fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Processor time used so far, in clock ticks of a hundredth of a second.
    pub fn ticks(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field(line: &[u8], mark: &[u8]) -> String {
    let start = memmem::find(line, mark).unwrap() + mark.len();
    let length = memchr::memchr(b'"', &line[start..]).unwrap();
    String::from_utf8(line[start..start + length].to_vec()).unwrap()
}

/// `target/release/a2e-proc`, next to this example's folder.
fn binary() -> PathBuf {
    let example = std::env::current_exe().unwrap();
    example.parent().and_then(|folder| folder.parent()).unwrap().join("a2e-proc")
}
