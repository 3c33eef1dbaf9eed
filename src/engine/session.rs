//! A session: the processes of one agent, and the one subscriber of their events.
//!
//! A face calls it for each request, on the connection's request thread. Nothing here waits for a process but
//! [`Session::close`].

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use parking_lot::Mutex;

use super::HostShared;
use super::bus::{Closer, Event, Gate, Publisher, bus};
use super::launch::Launch;
use super::policy::AUTH_TOKEN_ENV;
use super::process::{KillAnswer, KillRefused, Process};
use super::registry::Registry;
use super::reply::Reply;
use crate::model::{Cause, Failure, ProcId, Refusal, Report, Signal, SpawnError, Status, StdinMode};
use crate::os;

/// What to spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnRequest {
    /// The program's allowed name and its arguments.
    pub cmd: Vec<String>,
    /// The working directory; empty is the host's.
    pub cwd: String,
    /// Variables on top of what is inherited.
    pub env: Vec<(String, String)>,
    /// What its standard input is.
    pub stdin: StdinMode,
    /// Seconds it may live; 0 is no limit, `None` the host's default (R12).
    pub timeout: Option<u32>,
    /// The caller's own name for the process, found again in each of its events.
    pub tag: String,
}

/// A process that has been started. Its events wait until the gate is opened or dropped.
#[derive(Debug)]
#[must_use = "the process's events wait for the gate"]
pub struct Spawned {
    /// Its id in the session.
    pub id: ProcId,
    /// The group leader's process id.
    pub pid: u32,
    /// Open it once the spawn has been answered (R13).
    pub gate: Gate,
}

/// The answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteAnswer {
    /// The process's pid; 0 if there is none of that id.
    pub pid: u32,
    /// Whether the bytes are in the pipe.
    pub result: Result<(), Refusal>,
}

/// How a session's processes are brought to their end (R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// How long they may finish by themselves, their input closed, before SIGTERM.
    pub patience: Duration,
    /// How long after that, before SIGKILL.
    pub grace: Duration,
}

impl Closing {
    /// After the end of the agent's input: a second to finish, a second to obey SIGTERM.
    pub const END_OF_INPUT: Self = Self { patience: Duration::from_secs(1), grace: Duration::from_secs(1) };

    /// When the host itself is asked to end.
    pub const SIGNAL: Self = Self { patience: Duration::ZERO, grace: Duration::from_secs(1) };

    /// When the agent asks for a shutdown within `timeout`: SIGTERM now, and SIGKILL in time to be done by then.
    pub fn shutdown(timeout: Duration) -> Self {
        Self { patience: Duration::ZERO, grace: timeout.saturating_sub(Self::LAST_EVENTS) }
    }

    /// How long the last events may take to find room after the last process has ended.
    pub const LAST_EVENTS: Duration = Duration::from_millis(400);

    /// When everything must be over.
    pub fn deadline(self) -> Instant {
        Instant::now() + self.patience + self.grace + Self::LAST_EVENTS
    }
}

/// The processes of one agent. Dropping it kills them.
pub struct Session {
    host: Arc<HostShared>,
    registry: Arc<Registry>,
    publisher: Publisher,
    closer: Mutex<Option<Closer>>,
}

impl Session {
    pub(super) fn open(host: Arc<HostShared>) -> (Self, Receiver<Event>) {
        let (publisher, closer, events) = bus();
        let registry = Arc::new(Registry::new(host.config.max_procs));
        (Self { host, registry, publisher, closer: Mutex::new(Some(closer)) }, events)
    }

    /// Spawns a process (specification, `proc/spawn/req`).
    ///
    /// # Errors
    /// A [`Refusal`] in the order of R10, or what the system said.
    pub fn spawn(&self, request: &SpawnRequest) -> Result<Spawned, SpawnError> {
        let policy = &self.host.policy;
        policy.check(request)?;
        let place = self.registry.reserve()?;
        let cwd = policy.directory(request)?;
        let program = policy.program(&request.cmd[0])?;
        let plan = os::Plan {
            program: &program,
            arg0: &request.cmd[0],
            args: &request.cmd[1..],
            cwd,
            base_env: policy.base_env(),
            hidden_env: &[AUTH_TOKEN_ENV],
            env: &request.env,
            stdin: request.stdin,
        };
        let child = os::spawn(&plan).map_err(|e| self.blame(request, e))?;
        let launch = Launch {
            config: &self.host.config,
            timer: self.host.timer.handle(),
            registry: &self.registry,
            publisher: &self.publisher,
            time_limit: policy.time_limit(request.timeout),
        };
        Ok(launch.start(request, child, place)?)
    }

    /// Whose fault it is that a program that was found did not start: its directory's, if that has gone since (R10).
    fn blame(&self, request: &SpawnRequest, error: io::Error) -> SpawnError {
        match (self.host.policy.directory(request), error.kind()) {
            (Err(refusal), _) => refusal.into(),
            (_, io::ErrorKind::NotFound) => Refusal::ProgramNotFound { name: request.cmd[0].clone() }.into(),
            _ => Failure::new("start the program", error).into(),
        }
    }

    /// Writes to a process's standard input (specification, `proc/write/req`). Never blocks.
    pub fn write(&self, id: &str, data: Vec<u8>, eof: bool, reply: Reply<WriteAnswer>) {
        match self.registry.get(id) {
            None => reply.send(WriteAnswer { pid: 0, result: Err(Refusal::UnknownProc { id: id.into() }) }),
            Some(process) => {
                let pid = process.identity.pid;
                process.write(data, eof, Reply::new(move |result| reply.send(WriteAnswer { pid, result })));
            }
        }
    }

    /// Signals a process's group (specification, `proc/kill/req`). Never blocks; the answer comes with the end (R22).
    pub fn kill(&self, id: &str, signal: Signal, reply: Reply<KillAnswer>) {
        match self.registry.get(id) {
            None => {
                let refusal = Refusal::UnknownProc { id: id.into() };
                reply.send(Err(KillRefused { refusal, status: None }));
            }
            Some(process) => process.kill(signal, reply),
        }
    }

    /// What there is to say of one process, if it is known (specification, `proc/status/req`).
    pub fn status(&self, id: &str) -> Option<Report> {
        self.registry.get(id).map(|process| process.report())
    }

    /// The same of every process that is remembered, oldest first (R25).
    pub fn status_all(&self) -> Vec<Report> {
        self.registry.all().iter().map(|process| process.report()).collect()
    }

    /// Ends every process, and returns when their last events are in the queue, or at the latest a little after the times
    /// of `closing` (R8). Nothing can be spawned from here on.
    pub fn close(&self, closing: Closing) {
        let deadline = closing.deadline();
        self.registry.close();
        let processes = self.registry.all();
        for process in &processes {
            process.stdin.close();
        }
        let ask = Instant::now() + closing.patience;
        if !self.registry.wait_ended(ask) {
            self.end_all(&processes, false);
            if !self.registry.wait_ended(Instant::now() + closing.grace) {
                self.end_all(&processes, true);
                self.registry.wait_ended(deadline);
            }
        }
        self.registry.wait_published(deadline);
        // Whoever still waits for room in the queue is let go.
        self.closer.lock().take();
    }

    fn end_all(&self, processes: &[Arc<Process>], force: bool) {
        for process in processes.iter().filter(|process| process.report().status == Status::Running) {
            process.end(Cause::SessionEnd, force);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.registry.close();
        self.end_all(&self.registry.all(), true);
    }
}
