//! The one table of error codes and words (R4, R5): the only place where a refusal or a failure becomes a string.

use std::fmt;

use crate::model::{Failure, Refusal, SpawnError, Status};

/// Codes of the `error` message (base protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The line is not one JSON object.
    ParseError,
    /// The host failed while it served a request.
    RuntimeError,
    /// No type, or one that a host does not serve.
    InvalidMessage,
    /// Another major version.
    VersionMismatch,
    /// No session yet, or another's.
    Unauthorized,
    /// A field is missing, of the wrong type, or out of range.
    SchemaViolation,
}

impl ErrorCode {
    /// The code on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ParseError => "parse_error",
            Self::RuntimeError => "runtime_error",
            Self::InvalidMessage => "invalid_message",
            Self::VersionMismatch => "version_mismatch",
            Self::Unauthorized => "unauthorized",
            Self::SchemaViolation => "schema_violation",
        }
    }
}

/// The code in front of a refusal's words (R5).
pub fn refusal_code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::UnknownProc { .. } => "unknown_proc",
        Refusal::ProcDead { .. } => "proc_dead",
        Refusal::ProcLimit { .. } | Refusal::HostLimit { .. } | Refusal::Undelivered { .. } => "proc_limit",
        Refusal::EmptyCommand => "empty_command",
        Refusal::CommandNotAllowed { .. } => "command_not_allowed",
        Refusal::InvalidArgument { .. } => "invalid_argument",
        Refusal::CwdNotFound { .. } => "cwd_not_found",
        Refusal::ProgramNotFound { .. } => "program_not_found",
        Refusal::StdinClosed { .. } => "stdin_closed",
        Refusal::StdinFull { .. } => "stdin_full",
        Refusal::InvalidSignal { .. } => "invalid_signal",
    }
}

/// The code in front of a failure's words (R5).
const SPAWN_FAILED: &str = "spawn_failed";

/// A refusal as it stands in an `error` field: `code: words`.
pub fn refused(refusal: &Refusal) -> String {
    format!("{}: {refusal}", refusal_code(refusal))
}

/// The same of a spawn that did not happen.
pub fn not_spawned(error: &SpawnError) -> String {
    match error {
        SpawnError::Refused(refusal) => refused(refusal),
        SpawnError::Failed(failure) => failed(failure),
    }
}

fn failed(failure: &Failure) -> String {
    format!("{SPAWN_FAILED}: {failure}")
}

// The published SDK's tests look for "Empty command", "not allowed" and "not found" in these words (R5).
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProc { id } if id.is_empty() => f.write_str("Process not found: proc_id is missing or empty"),
            Self::UnknownProc { id } => write!(f, "Process not found: {}", Excerpt(id)),
            Self::ProcDead { id } => write!(f, "Process has already exited: {id}"),
            Self::ProcLimit { max } => {
                write!(f, "the session already runs {max} processes, its limit; kill one, or wait for one to end")
            }
            Self::HostLimit { max } => {
                write!(f, "all sessions of this host together already run {max} processes, its limit; try again later")
            }
            Self::Undelivered { max } => {
                write!(f, "{max} ended processes wait for their events to be read; read them first")
            }
            Self::EmptyCommand => f.write_str("Empty command; cmd must be a list that begins with the program's name"),
            Self::CommandNotAllowed { name, allowed } => {
                write!(f, "Command not allowed: {}; allowed: {}", Excerpt(name), list(allowed))
            }
            Self::InvalidArgument { why } => write!(f, "{}", Excerpt(why)),
            Self::CwdNotFound { cwd, why } => write!(f, "cwd not found: {}: {why}", Excerpt(cwd)),
            Self::ProgramNotFound { name } => {
                write!(f, "{name} is allowed but not found on the host's PATH; install it or extend PATH")
            }
            Self::StdinClosed { why } => write!(f, "standard input is closed: {why}"),
            Self::StdinFull { taken: 0, size, limit } if size > limit => {
                write!(f, "a write of {size} bytes is more than the {limit} that may wait; write it in smaller parts")
            }
            Self::StdinFull { taken: 0, limit, .. } => {
                write!(
                    f,
                    "the process has not read what was written before, and at most {limit} bytes may wait; \
                     nothing of this write was taken; write again later, or in smaller parts"
                )
            }
            Self::StdinFull { taken, .. } => {
                write!(f, "{taken} bytes were taken, the rest was not: the host has no thread to wait with")
            }
            Self::InvalidSignal { name } => {
                write!(f, "unknown signal {}; use SIGTERM, SIGKILL or SIGINT", Excerpt(name))
            }
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

/// The start of a text that an agent sent: an error never repeats megabytes.
struct Excerpt<'a>(&'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 200;
        if self.0.len() <= MOST {
            f.write_str(self.0)
        } else {
            write!(f, "{}…", &self.0[..self.0.floor_char_boundary(MOST)])
        }
    }
}

/// A status in the words of R24.
pub fn status(status: Status) -> &'static str {
    match status {
        Status::Running => "running",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Killed => "killed",
        Status::TimedOut => "timedout",
    }
}

/// The status of a process that nobody knows (R22, R24).
pub const NOT_FOUND: &str = "not_found";

/// A status as a `ProcState` (R24).
pub fn proc_state(status: Status) -> &'static str {
    match status {
        Status::Running => "running",
        Status::Completed | Status::Killed => "stopped",
        Status::Failed => "crashed",
        Status::TimedOut => "timedout",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProcId;

    #[test]
    fn every_refusal_has_its_code_and_the_words_that_clients_look_for() {
        let id = ProcId::fresh();
        let rows = [
            (Refusal::UnknownProc { id: "x".into() }, "unknown_proc: Process not found: x"),
            (Refusal::ProcDead { id }, "proc_dead: "),
            (Refusal::ProcLimit { max: 3 }, "proc_limit: "),
            (Refusal::HostLimit { max: 3 }, "proc_limit: "),
            (Refusal::Undelivered { max: 3 }, "proc_limit: "),
            (Refusal::EmptyCommand, "empty_command: Empty command"),
            (
                Refusal::CommandNotAllowed { name: "rm".into(), allowed: vec!["ls".into(), "cat".into()] },
                "command_not_allowed: Command not allowed: rm; allowed: ls, cat",
            ),
            (Refusal::InvalidArgument { why: "env".into() }, "invalid_argument: env"),
            (
                Refusal::CwdNotFound { cwd: "/x".into(), why: "not a directory" },
                "cwd_not_found: cwd not found: /x: not a directory",
            ),
            (Refusal::ProgramNotFound { name: "x".into() }, "program_not_found: x is allowed but not found"),
            (Refusal::StdinClosed { why: "w" }, "stdin_closed: standard input is closed: w"),
            (Refusal::StdinFull { taken: 0, size: 3, limit: 5 }, "stdin_full: the process has not read"),
            (Refusal::StdinFull { taken: 0, size: 6, limit: 5 }, "stdin_full: a write of 6 bytes"),
            (Refusal::StdinFull { taken: 7, size: 9, limit: 5 }, "stdin_full: 7 bytes were taken"),
            (Refusal::InvalidSignal { name: "SIGX".into() }, "invalid_signal: unknown signal SIGX"),
        ];
        for (refusal, expected) in rows {
            let text = refused(&refusal);
            assert!(text.starts_with(expected), "{text}");
        }
        let failure = Failure::new("start a thread", std::io::Error::other("no more"));
        assert_eq!(not_spawned(&failure.into()), "spawn_failed: could not start a thread: no more");
        let long = refused(&Refusal::UnknownProc { id: "é".repeat(100_000) });
        assert!(long.len() < 300, "{}", long.len());
    }
}
