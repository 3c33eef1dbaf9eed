//! A session: the processes of one agent, and the one subscriber of their events.
//!
//! A face calls it for each request, on the connection's request thread. Nothing here waits for a process but what closes the
//! session, and, for at most a second, a spawn that has to be taken back.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use parking_lot::Mutex;

use super::HostShared;
use super::bus::{Closer, Event, Gate, Publisher, bus};
use super::launch::{Launch, spare_memory};
use super::process::{KillAnswer, KillRefused};
use super::registry::Registry;
use super::reply::Reply;
use super::wrap::{Exec, Launcher};
use crate::count::Quota;
use crate::model::{Cause, Failure, ProcId, Refusal, Report, Signal, SpawnError, StdinMode};
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

/// How a session's processes are brought to their end, in spans from its beginning (R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Until then they may finish by themselves, their input closed; then comes SIGTERM.
    pub ask_after: Duration,
    /// Then comes SIGKILL.
    pub kill_after: Duration,
    /// Then it is over, whether the subscriber has taken the last events or not.
    pub over_after: Duration,
}

impl Closing {
    /// After the end of the agent's input: a second to finish, a second to obey SIGTERM; under 3 s in all.
    pub const END_OF_INPUT: Self = Self {
        ask_after: Duration::from_secs(1),
        kill_after: Duration::from_secs(2),
        over_after: Duration::from_millis(2600),
    };

    /// When the host itself is asked to end: the same without the first second.
    pub const SIGNAL: Self =
        Self { ask_after: Duration::ZERO, kill_after: Duration::from_secs(1), over_after: Duration::from_millis(1600) };

    /// When the agent asks for a shutdown within `timeout`: SIGTERM now, and SIGKILL in time to be done by then. Half a
    /// second is the least that the end of everything is given; it rarely takes that.
    pub fn shutdown(timeout: Duration) -> Self {
        let over_after = timeout.clamp(Duration::from_millis(500), LONGEST);
        let kill_after = if timeout.is_zero() {
            Duration::ZERO
        } else {
            over_after.saturating_sub(Duration::from_millis(600).min(over_after / 2))
        };
        Self { ask_after: Duration::ZERO, kill_after, over_after }
    }
}

/// The longest that anything is waited for.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The end of a session on its way: when what comes.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    ask: Instant,
    kill: Instant,
    over: Instant,
}

impl Deadlines {
    /// Those of a closing that begins now.
    pub fn new(closing: Closing) -> Self {
        let now = Instant::now();
        let at = |span: Duration| now + span.min(LONGEST);
        Self { ask: at(closing.ask_after), kill: at(closing.kill_after), over: at(closing.over_after) }
    }

    /// Brings forward what a closing that begins now would do sooner.
    pub fn hurry(&mut self, closing: Closing) {
        let sooner = Self::new(closing);
        self.ask = self.ask.min(sooner.ask);
        self.kill = self.kill.min(sooner.kill);
        self.over = self.over.min(sooner.over);
    }

    /// When it is over.
    pub fn over(&self) -> Instant {
        self.over
    }

    /// A little before that.
    pub fn over_less(&self, span: Duration) -> Instant {
        self.over.checked_sub(span).unwrap_or(self.over)
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
        let registry = Arc::new(Registry::new(Quota::new(host.config.max_procs), host.running.clone()));
        (Self { host, registry, publisher, closer: Mutex::new(Some(closer)) }, events)
    }

    /// Has `act` called by whatever thread has put an event into the queue, for subscribers that have no thread of their own
    /// waiting there. It must not wait for anything. Only the first is called.
    pub fn call_when_published(&self, act: impl Fn() + Send + Sync + 'static) {
        self.publisher.call_when_published(Box::new(act));
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
        let exec = policy.exec(request)?;
        let plan = os::Plan {
            program: &exec.program,
            arg0: exec.arg0,
            args: &exec.args,
            cwd,
            base_env: policy.base_env(),
            hidden_env: &self.host.config.hidden_env,
            env: exec.env,
            stdin: request.stdin,
            watchdog: self.host.watchdog.as_ref(),
        };
        let timer = self.host.timer.handle().map_err(|e| Failure::new("start the timer thread", e))?;
        spare_memory().map_err(|e| Failure::new("start one more process", e))?;
        let child = os::spawn(&plan).map_err(|e| self.blame(request, &exec, e))?;
        let launch = Launch {
            config: &self.host.config,
            timer,
            registry: &self.registry,
            publisher: &self.publisher,
            time_limit: policy.time_limit(request.timeout),
            spare: &self.host.spare,
        };
        Ok(launch.start(request, child, place)?)
    }

    /// Makes the next spawn quicker, if there is time for that now: starts its threads, a third of its work.
    pub fn make_ready(&self) {
        self.host.spare.make_ready();
    }

    /// The launcher, with its arguments, that goes before commands of this name; empty if there is none.
    pub fn launcher(&self, name: &str) -> &[String] {
        self.host.policy.launcher(name).map_or(&[], Launcher::words)
    }

    /// Whose fault it is that a program that was found did not start: its directory's, if that has gone since (R10).
    fn blame(&self, request: &SpawnRequest, exec: &Exec<'_>, error: io::Error) -> SpawnError {
        match (self.host.policy.directory(request), error.kind()) {
            (Err(refusal), _) => refusal.into(),
            (_, kind) if exec.is_launcher => {
                let named = io::Error::new(kind, format!("{}: {error}", exec.program.display()));
                Failure::new("start the launcher", named).into()
            }
            (_, io::ErrorKind::NotFound) if !exec.program.exists() => {
                Refusal::ProgramNotFound { name: request.cmd[0].clone() }.into()
            }
            (_, io::ErrorKind::NotFound) => Failure::new("start the program (is its interpreter there?)", error).into(),
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

    /// Ends every process: [`Session::end_processes`], then [`Session::wait_published`], then [`Session::close_bus`].
    pub fn close(&self, closing: Closing) {
        let mut deadlines = Deadlines::new(closing);
        self.end_processes(&mut deadlines, |_| {});
        self.wait_published(|| Instant::now() >= deadlines.over());
        self.close_bus();
    }

    /// Brings every process to its end, and returns when all are reaped, or when it is over. Nothing can be spawned from here
    /// on. `look` is called every few milliseconds, and may bring the deadlines forward.
    pub fn end_processes(&self, deadlines: &mut Deadlines, mut look: impl FnMut(&mut Deadlines)) {
        self.registry.close();
        for process in self.registry.all() {
            process.stdin.close();
        }
        let mut asked = false;
        while !self.registry.all_reaped() {
            look(deadlines);
            let now = Instant::now();
            if now >= deadlines.over {
                break;
            }
            if now >= deadlines.kill {
                // Again and again: a spawn that was under way may come late.
                self.end_all(true);
            } else if !asked && now >= deadlines.ask {
                asked = true;
                self.end_all(false);
            }
            self.registry.wait_change();
        }
    }

    /// Waits until the last event of every process is in the subscriber's queue. False if `give_up`, which is asked every few
    /// milliseconds, says so first.
    pub fn wait_published(&self, mut give_up: impl FnMut() -> bool) -> bool {
        while !self.registry.all_published() {
            if give_up() {
                return false;
            }
            self.registry.wait_change();
        }
        true
    }

    /// Lets go of whatever still waits for room in the subscriber's queue; it is dropped.
    pub fn close_bus(&self) {
        self.closer.lock().take();
    }

    fn end_all(&self, force: bool) {
        for process in self.registry.all() {
            process.ask_to_end(Cause::SessionEnd, force);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.registry.close();
        self.end_all(true);
    }
}
