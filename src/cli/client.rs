//! The agent's side of A2E, as much of it as `run` needs: requests out, lines in, each shown by the trace.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use a2e_proc::wire::message::{Message, encode_as};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::trace::{Trace, Way};

/// The sending half. Cheap to clone; threads may share it.
#[derive(Clone)]
pub struct Requests {
    trace: Trace,
    to_host: Arc<Mutex<Box<dyn Write + Send>>>,
    sent: Arc<AtomicU64>,
}

impl Requests {
    /// Requests over this output.
    pub fn new(output: Box<dyn Write + Send>, trace: Trace) -> Self {
        Self { trace, to_host: Arc::new(Mutex::new(output)), sent: Arc::default() }
    }

    /// Sends one and returns its id.
    pub fn send(&self, message: &impl Message) -> io::Result<String> {
        let id = format!("r{}", self.sent.fetch_add(1, Ordering::Relaxed) + 1);
        let line = encode_as(id.clone(), message);
        self.trace.show(Way::ToHost, String::from_utf8_lossy(&line).trim_end());
        // The lock keeps lines whole. A host always reads, so the write under it is short.
        self.to_host.lock().write_all(&line)?;
        Ok(id)
    }
}

macro_rules! requests {
    ($($kind:literal $name:ident { $($(#[$how:meta])? $field:ident: $type:ty),* })*) => {$(
        #[derive(Serialize)]
        pub struct $name { $($(#[$how])? pub $field: $type),* }
        impl Message for $name {
            const TYPE: &'static str = $kind;
        }
    )*};
}

requests! {
    "handshake/req" HandshakeReq { agent_id: &'static str, agent_caps: [&'static str; 1], auth_token: String }
    "proc/spawn/req" SpawnReq { session_id: String, cmd: Vec<String> }
    "proc/write/req" WriteReq {
        proc_id: String, data: String, eof: bool,
        #[serde(skip_serializing_if = "Option::is_none")] encoding: Option<&'static str>
    }
    "proc/kill/req" KillReq { proc_id: String, signal: &'static str }
    "proc/status/req" StatusReq { proc_id: String }
    "shutdown" Shutdown { timeout: u32 }
}

/// What a host says: the keys that `run` looks at, of all messages together.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Said {
    #[serde(rename = "type")]
    pub kind: String,
    pub req_id: String,
    pub session_id: String,
    pub proc_id: String,
    pub ok: bool,
    pub reason: String,
    pub error: String,
    pub message: String,
    pub status: String,
    pub stream_type: String,
    pub data: serde_json::Value,
    pub procs: Vec<Proc>,
}

/// The part of a `ProcStatus` that `run` looks at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Proc {
    pub exit_code: Option<i32>,
}

/// The `data` of an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Data {
    pub text: String,
    pub base64: Option<String>,
    pub code: Option<i32>,
    pub dropped: bool,
}

impl Said {
    /// The payload of an event, in either dialect.
    pub fn payload(&self) -> serde_json::Result<Data> {
        match self.data.as_str() {
            Some(text) => serde_json::from_str(text),
            None => Data::deserialize(&self.data),
        }
    }
}

/// The receiving half.
pub struct Answers {
    trace: Trace,
    from_host: BufReader<Box<dyn Read + Send>>,
    line: String,
}

impl Answers {
    /// What arrives on this input.
    pub fn new(input: Box<dyn Read + Send>, trace: Trace) -> Self {
        Self { trace, from_host: BufReader::new(input), line: String::new() }
    }

    /// The next message.
    pub fn next(&mut self) -> io::Result<Said> {
        self.line.clear();
        if self.from_host.read_line(&mut self.line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the host has ended"));
        }
        self.trace.show(Way::FromHost, self.line.trim_end());
        let said: Said = serde_json::from_str(&self.line)?;
        // An error that names no request is about a line that the host could not read: nobody would get its answer.
        if said.kind == "error" && said.req_id.is_empty() {
            return Err(io::Error::other(said.message));
        }
        Ok(said)
    }

    /// The next message that answers the request with this id.
    pub fn answer_to(&mut self, id: &str) -> io::Result<Said> {
        loop {
            let said = self.next()?;
            if said.req_id == id {
                return Ok(said);
            }
        }
    }
}
