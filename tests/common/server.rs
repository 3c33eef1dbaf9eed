//! A host that listens, for tests with many agents: over Unix and TCP sockets, and over HTTP as the published SDK speaks it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use wait_timeout::ChildExt;

use super::{Host, PATIENCE, PROGRAMS, binary};

/// A running host at an address.
pub struct Server {
    child: Child,
    /// As it has said: with its port.
    pub address: String,
    stderr: Option<JoinHandle<String>>,
}

/// What an agent says first.
pub fn hello() -> Value {
    json!({"agent_id": "test", "agent_caps": ["proc"], "auth_token": ""})
}

impl Server {
    /// Listens at `address`, with every program of the tests allowed and these further flags.
    pub fn start(address: &str, flags: &[&str]) -> Self {
        let mut command = binary();
        command.args(["serve", "--listen", address]).args(flags);
        command.args(PROGRAMS.iter().flat_map(|program| ["--allow", program]));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address =
            line.trim_end().strip_prefix("a2e-proc: listening at ").unwrap_or_else(|| panic!("{line}")).into();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Self { child, address, stderr: Some(stderr) }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// The place to connect to, without its kind.
    pub fn place(&self) -> &str {
        self.address.split_once(':').unwrap().1
    }

    /// A TCP connection, of whatever is spoken there.
    pub fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.place()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A new agent, which has said nothing yet.
    pub fn connect(&self) -> Host {
        if self.address.starts_with("unix:") {
            let stream = UnixStream::connect(self.place()).unwrap();
            let input = stream.try_clone().unwrap();
            return Host::over(Some(OwnedFd::from(stream).into()), input, None);
        }
        let stream = TcpStream::connect(self.place()).unwrap();
        let input = stream.try_clone().unwrap();
        Host::over(Some(OwnedFd::from(stream).into()), input, None)
    }

    /// A new agent, after its handshake.
    pub fn agent(&self) -> Host {
        let mut agent = self.connect();
        agent.shake_hands(hello());
        agent
    }

    /// Ends the host by a signal; its exit code, how long it took, and what it has said on standard error.
    pub fn stop(mut self) -> (Option<i32>, Duration, String) {
        let start = std::time::Instant::now();
        self.signal(Signal::TERM);
        let code = self.child.wait_timeout(PATIENCE).unwrap().expect("the host ends").code();
        (code, start.elapsed(), self.stderr.take().unwrap().join().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One HTTP request on a connection of its own: the status, the head and the body.
pub fn request(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    exchange(server, format!("{head}{body}").as_bytes())
}

/// Sends bytes as they are, and reads the answer to the end.
pub fn exchange(server: &Server, bytes: &[u8]) -> (u16, String, String) {
    let mut stream = server.tcp();
    // A host that refuses may have closed its side before all is sent.
    let _ = stream.write_all(bytes);
    read_answer(&mut stream)
}

/// Reads an answer to the end of the connection.
pub fn read_answer(stream: &mut TcpStream) -> (u16, String, String) {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head.to_owned(), body.to_owned())
}

/// Opens a session and returns the header that names it.
pub fn open_session(server: &Server) -> String {
    let (status, _, body) = request(server, "POST", "/session", "", "");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    format!("X-Session-Id: {}\r\n", answer["session_id"].as_str().unwrap())
}

/// Sends one message in a session.
pub fn send(server: &Server, session: &str, message: &Value) {
    let (status, _, body) = request(server, "POST", "/send", session, &message.to_string());
    assert_eq!((status, body.as_str()), (200, r#"{"ok":true}"#));
}

/// A stream of events.
pub struct Events {
    stream: BufReader<Chunks>,
}

/// A body that comes in chunks.
struct Chunks {
    stream: BufReader<TcpStream>,
    left: u64,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut size = String::new();
            self.stream.read_line(&mut size)?;
            // The end of the connection is an end too.
            self.left = u64::from_str_radix(size.trim_end(), 16).unwrap_or(0);
            if self.left == 0 {
                return Ok(0);
            }
        }
        let count = (&mut self.stream).take(self.left).read(buffer)?;
        self.left -= count as u64;
        if self.left == 0 {
            self.stream.read_line(&mut String::new())?;
        }
        Ok(count)
    }
}

impl Events {
    /// Attaches a stream, after the event `after` if that is not empty.
    pub fn open(server: &Server, session: &str, after: &str) -> Self {
        let mut stream = server.tcp();
        let after = if after.is_empty() { String::new() } else { format!("Last-Event-ID: {after}\r\n") };
        write!(stream, "GET /stream HTTP/1.1\r\nHost: localhost\r\n{session}{after}\r\n").unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("Content-Type: text/event-stream; charset=utf-8\r\n"), "{head}");
        // The SDK's client sees nothing in time of a body that comes otherwise.
        assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
        Self { stream: BufReader::new(Chunks { stream, left: 0 }) }
    }

    /// The next event: its id and its line. `None` at the end of the stream.
    pub fn next(&mut self) -> Option<(String, String)> {
        let (mut id, mut data) = (String::new(), None);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            match line.trim_end_matches('\n') {
                "" if data.is_some() => return data.map(|data| (id, data)),
                "" => {}
                line if line.starts_with(':') => {}
                line => match line.split_once(": ") {
                    Some(("id", value)) => id = value.into(),
                    Some(("data", value)) => data = Some(value.to_owned()),
                    _ => panic!("not an event: {line}"),
                },
            }
        }
    }

    /// The next message.
    pub fn message(&mut self) -> Value {
        let (_, line) = self.next().expect("the stream goes on");
        serde_json::from_str(&line).unwrap()
    }

    /// The first message from here on that fits.
    pub fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.message();
            if fits(&message) {
                return message;
            }
        }
    }

    /// Breaks the stream off.
    pub fn break_off(self) {
        let _ = self.stream.get_ref().stream.get_ref().shutdown(Shutdown::Both);
    }
}

/// A host that speaks HTTP at a port of its own.
pub fn http(flags: &[&str]) -> Server {
    Server::start("http:127.0.0.1:0", flags)
}

/// Opens a session with a stream.
pub fn http_agent(server: &Server) -> (String, Events) {
    let session = open_session(server);
    let events = Events::open(server, &session, "");
    (session, events)
}

/// A request for a process.
pub fn spawn(cmd: &[&str]) -> Value {
    json!({"type": "proc/spawn/req", "id": "spawn", "version": "1.0", "ts": 1.0, "cmd": cmd})
}

/// Whether it is a terminal event.
pub fn is_end(message: &Value) -> bool {
    message["type"] == "proc/read/event" && super::is_terminal(message)
}
