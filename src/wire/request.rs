//! What an agent may ask, typed. `decode` makes these of lines; the A2E face serves them.

use crate::model::{Secret, StdinMode};

/// A message that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The sender's id for it, which its answer echoes.
    pub id: String,
    /// The sender's name for what it is part of, for the audit log alone; empty if it gave none.
    pub correlation_id: String,
    /// What is asked.
    pub body: Body,
}

/// What an agent may ask.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// `handshake/req`
    Handshake(Handshake),
    /// `ping`
    Ping,
    /// `shutdown`
    Shutdown {
        /// Seconds until the host must have closed.
        timeout: f64,
    },
    /// `proc/*`
    Proc(Proc),
}

impl Body {
    /// The type of the message it came in.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Handshake(_) => "handshake/req",
            Self::Ping => "ping",
            Self::Shutdown { .. } => "shutdown",
            Self::Proc(Proc::Spawn(_)) => "proc/spawn/req",
            Self::Proc(Proc::Write(_)) => "proc/write/req",
            Self::Proc(Proc::Kill { .. }) => "proc/kill/req",
            Self::Proc(Proc::Status { .. }) => "proc/status/req",
        }
    }
}

/// What an agent may ask of processes.
#[derive(Clone, Debug, PartialEq)]
pub enum Proc {
    /// `proc/spawn/req`
    Spawn(Spawn),
    /// `proc/write/req`
    Write(Write),
    /// `proc/kill/req`
    Kill {
        /// The process.
        proc_id: String,
        /// The signal's name.
        signal: String,
    },
    /// `proc/status/req`
    Status {
        /// The process, or empty for all.
        proc_id: String,
    },
}

/// `handshake/req`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handshake {
    /// What the agent calls itself.
    pub agent_id: String,
    /// The capabilities it names.
    pub agent_caps: Vec<String>,
    /// Its token.
    pub auth_token: Secret,
}

/// `proc/spawn/req`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spawn {
    /// The session, or empty.
    pub session_id: String,
    /// Program and arguments.
    pub cmd: Vec<String>,
    /// Working directory, or empty.
    pub cwd: String,
    /// Additional variables.
    pub env: Vec<(String, String)>,
    /// What its standard input is.
    pub stdin_mode: StdinMode,
    /// Seconds, if the request says.
    pub timeout: Option<u32>,
}

/// `proc/write/req`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Write {
    /// The process.
    pub proc_id: String,
    /// The bytes, decoded.
    pub data: Vec<u8>,
    /// Close standard input after them.
    pub eof: bool,
}
