//! The engine's vocabulary: what a process is called, how it can end, and why a request can be refused.
//!
//! Floor 0: every other file speaks these words, and none of them knows about JSON.

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::ids::fresh_id;

/// The name of one process. Opaque: two ids are the same only if their bytes are (R2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcId(Arc<str>);

impl ProcId {
    /// An id that no other process of any host has.
    pub fn fresh() -> Self {
        Self(fresh_id().into())
    }

    /// The id as it is written on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ProcId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` from being shown.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// One of a process's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
}

/// The signals an agent may ask for (specification, `proc/kill/req`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Ask to end; SIGKILL follows after the grace period (R22).
    Term,
    /// End at once.
    Kill,
    /// Interrupt; no escalation (R22).
    Int,
}

/// How a process's standard input is set up (specification, `stdin_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StdinMode {
    /// A pipe that the host writes to.
    #[default]
    Pipe,
    /// The null device: reads give end of file at once.
    Null,
}

/// How a group leader left, as the system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// One number for both: the exit code, or minus the signal's number (R17).
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => -signal,
        }
    }
}

/// Who asked for a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A kill request (R22).
    Kill,
    /// Its own time limit (R12).
    Timeout,
    /// The end of its session (R8).
    SessionEnd,
}

/// The final word on a process: how it left, and whether somebody had asked for that (R23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How the group leader left.
    pub exit: Exit,
    /// Who asked for it; `None` if it ended by itself.
    pub cause: Option<Cause>,
}

impl Outcome {
    /// The status that a process with this outcome has from now on (R24).
    pub fn status(self) -> Status {
        match (self.cause, self.exit) {
            (Some(Cause::Timeout), _) => Status::TimedOut,
            (Some(Cause::Kill | Cause::SessionEnd), _) => Status::Killed,
            (None, Exit::Code(0)) => Status::Completed,
            (None, _) => Status::Failed,
        }
    }
}

/// What a process is doing, or how it ended (R24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has not ended.
    Running,
    /// It exited with code 0.
    Completed,
    /// It exited with another code, or by a signal that nobody asked for.
    Failed,
    /// A kill request or the end of its session ended it.
    Killed,
    /// Its time limit ended it.
    TimedOut,
}

/// Everything that can be asked about one process (specification, `ProcStatus`).
#[derive(Clone, Debug)]
pub struct Report {
    /// The process.
    pub id: ProcId,
    /// Its command, words quoted as a shell would need them, at most about 1 KiB.
    pub cmd: String,
    /// What it is doing, or how it ended.
    pub status: Status,
    /// The group leader's process id.
    pub pid: u32,
    /// Exit code or minus signal number, once it has ended.
    pub exit_code: Option<i32>,
    /// When it was spawned, by the wall clock.
    pub started_at: SystemTime,
    /// Its time limit, if it has one.
    pub timeout: Option<Duration>,
    /// Bytes of output read and discarded because of the output cap (R20).
    pub dropped_bytes: u64,
}

/// A request that cannot be granted, by the caller's fault. [`crate::wire::code`] has the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such process in this session.
    UnknownProc {
        /// The id that was asked for.
        id: String,
    },
    /// The process has already ended.
    ProcDead {
        /// The process.
        id: ProcId,
    },
    /// The session runs as many processes as it may.
    ProcLimit {
        /// The limit (R11).
        max: usize,
    },
    /// All sessions together run as many processes as the host may.
    HostLimit {
        /// The limit.
        max: usize,
    },
    /// So many ended processes wait for their last output to be read that no more may start (R18).
    Undelivered {
        /// The limit.
        max: usize,
    },
    /// `cmd` has no words.
    EmptyCommand,
    /// `cmd[0]` is not on the allowlist (R9).
    CommandNotAllowed {
        /// `cmd[0]`.
        name: String,
        /// The allowlist.
        allowed: Vec<String>,
    },
    /// An argument, a variable or the directory cannot be passed to a process.
    InvalidArgument {
        /// What is wrong with which.
        why: String,
    },
    /// The working directory is missing, not a directory, or may not be entered.
    CwdNotFound {
        /// The directory.
        cwd: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The program is allowed, but the host's `PATH` has none of that name.
    ProgramNotFound {
        /// `cmd[0]`.
        name: String,
    },
    /// Standard input is closed: by `eof`, by `stdin_mode:"null"`, or by the process.
    StdinClosed {
        /// What closed it.
        why: &'static str,
    },
    /// The process has not read what was written before (R21).
    StdinFull {
        /// Bytes that were taken of this write, 0 but for a shortage of threads.
        taken: usize,
        /// Bytes of this write.
        size: usize,
        /// Bytes that may wait per process.
        limit: usize,
    },
    /// A signal that cannot be asked for.
    InvalidSignal {
        /// Its name, as given.
        name: String,
    },
}

impl std::error::Error for Refusal {}

/// Something the host could not do, by nobody's fault but the system's.
#[derive(Debug)]
pub struct Failure {
    /// What was being done, in lower case, to follow "could not".
    pub doing: &'static str,
    /// What the system said.
    pub source: io::Error,
}

impl Failure {
    /// `source` with what was being done.
    pub fn new(doing: &'static str, source: io::Error) -> Self {
        Self { doing, source }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}", self.doing, self.source)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Why a spawn did not happen.
#[derive(Debug)]
pub enum SpawnError {
    /// The caller's fault.
    Refused(Refusal),
    /// The system's.
    Failed(Failure),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for SpawnError {}

impl From<Refusal> for SpawnError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for SpawnError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
