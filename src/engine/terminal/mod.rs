//! Processes on a pseudo-terminal, and the screen that each has written. The desk starts them; nothing here knows why.
//!
//! Threads of a terminal: `tty PID` reads it, has the screen draw what came, and writes back what the screen answers; `wait PID`
//! observes the exit, sees the output out, reaps, and says that it has ended. The screen belongs to whoever keeps it, under its
//! own lock, and outlives the process.
//!
//! The system's line discipline stands between a write and the program. While the program has it in its canonical mode (as
//! shells do for what they start, and `cat` leaves it) a line holds at most 4,095 bytes; what is longer is cut off there by the
//! system. Programs that read keys (editors, shells with line editing, agents) have no such limit.

mod answers;
mod draw;
mod history;
mod raw;
mod reader;
mod screen;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::{fmt, io, thread};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

pub use answers::ProgramState;
pub use raw::RawTail;
pub use screen::{BadSize, Found, Page, Row, Screen, Size, Style};

use super::bus::Identity;
use super::launch::{shell_words, spare_memory};
use super::output::Cap;
use super::process::{Parts, Process, STACK};
use super::reply::Reply;
use super::stdin::Stdin;
use super::waiter::see_out;
use super::{Host, HostShared};
use crate::count::{Counter, Quota};
use crate::model::{Cause, Failure, Outcome, ProcId, Refusal, Report, SpawnError};
use crate::os;
use reader::Reader;

/// A screen that its terminal's reader draws on while others look at it.
pub type SharedScreen = Arc<Mutex<Screen>>;

/// What to start on a terminal. Whoever asks has seen to it that it may run: there is no allowlist here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalRequest {
    /// The program, as a path or a name on the host's `PATH`, and its arguments.
    pub cmd: Vec<String>,
    /// The working directory; `None` is the host's.
    pub cwd: Option<PathBuf>,
    /// Variables on top of the host's own. `TERM` is set if it is not among them.
    pub env: Vec<(String, String)>,
}

/// A process on a terminal. Dropping it kills the process and all of its session.
pub struct Terminal {
    process: Arc<Process>,
    pty: Arc<os::Pty>,
    screen: SharedScreen,
    /// Its timer counts the grace period.
    _host: Arc<HostShared>,
}

/// What the two threads of a terminal wait for.
struct Jobs {
    reader: Sender<Reader>,
    waiter: Sender<Waiter>,
}

struct Waiter {
    process: Arc<Process>,
    exited: Arc<AtomicBool>,
    ended: Arc<os::Latch>,
    on_end: Box<dyn FnOnce(Outcome) + Send>,
}

/// Variables that would tell a program of another terminal's size.
const SIZE_VARIABLES: [&str; 2] = ["LINES", "COLUMNS"];

impl Host {
    /// Starts a process on a new terminal of the size of `screen`, which goes on below what it shows. Once it has ended, all of
    /// its output is on the screen and the leader is reaped, `on_end` is called, on the thread `wait PID`; that may be before
    /// this returns.
    ///
    /// # Errors
    /// A [`Refusal`] for what is wrong with the request or a limit; or what the system said.
    pub fn open_terminal(
        &self,
        request: &TerminalRequest,
        screen: &SharedScreen,
        on_end: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Terminal, SpawnError> {
        let host = &self.shared;
        let program = program(request)?;
        if let Some(cwd) = &request.cwd
            && let Some(why) = os::check_directory(cwd)
        {
            return Err(Refusal::CwdNotFound { cwd: cwd.display().to_string(), why }.into());
        }
        let running_in_host = host.running.take().ok_or(Refusal::HostLimit { max: host.running.most() })?;
        let timer = host.timer.handle().map_err(|e| Failure::new("start the timer thread", e))?;
        spare_memory().map_err(|e| Failure::new("start one more process", e))?;
        let jobs = Jobs::start().map_err(|e| Failure::new("start a thread", e))?;
        let ended = os::Latch::new().map_err(|e| Failure::new("make a descriptor for events", e))?;

        let hidden: Vec<String> =
            SIZE_VARIABLES.iter().map(ToString::to_string).chain(host.config.hidden_env.iter().cloned()).collect();
        let mut env = vec![("TERM".to_owned(), "xterm-256color".to_owned())];
        env.extend(request.env.iter().cloned());
        let size = screen.lock().size();
        let plan = os::Plan {
            program: &program,
            arg0: &request.cmd[0],
            args: &request.cmd[1..],
            cwd: request.cwd.as_deref(),
            base_env: host.policy.base_env(),
            hidden_env: &hidden,
            env: &env,
            stdin: crate::model::StdinMode::Pipe,
            watchdog: host.watchdog.as_ref(),
        };
        let failed = |e| Failure::new("start the program on a terminal", e);
        let (mut leader, pty) = os::spawn_on_terminal(&plan, size.rows(), size.cols()).map_err(failed)?;
        let input = match pty.writer() {
            Ok(input) => input,
            Err(e) => {
                leader.abandon();
                return Err(failed(e).into());
            }
        };
        let pid = leader.pid().as_raw_nonzero().get().unsigned_abs();
        let (id, ended) = (ProcId::fresh(), Arc::new(ended));
        // These places are counted by nobody: a desk's processes are bounded by its entries.
        let of_desk = Quota::new(usize::MAX).take().ok_or(Refusal::ProcLimit { max: usize::MAX })?;
        let process = Process::new(Parts {
            identity: Arc::new(Identity { id: id.clone(), pid, tag: String::new() }),
            stdin: Arc::new(Stdin::new(Some(input), Arc::clone(&ended), id, pid)),
            cap: Arc::new(Cap::new(0)),
            leader,
            running: [of_desk, running_in_host],
            unreaped: Counter::default().take(),
            cmd: shell_words(&request.cmd),
            time_limit: None,
            kill_grace: host.config.kill_grace,
            timer,
            registry: Weak::new(),
        });
        let (pty, exited) = (Arc::new(pty), Arc::new(AtomicBool::new(false)));
        screen.lock().begin_run();
        jobs.hand_over(
            Reader {
                pty: Arc::clone(&pty),
                screen: Arc::clone(screen),
                process: Arc::clone(&process),
                exited: Arc::clone(&exited),
                ended: Arc::clone(&ended),
            },
            Waiter { process: Arc::clone(&process), exited, ended, on_end: Box::new(on_end) },
        );
        Ok(Terminal { process, pty, screen: Arc::clone(screen), _host: Arc::clone(host) })
    }
}

/// The file of the program that is asked for.
fn program(request: &TerminalRequest) -> Result<PathBuf, Refusal> {
    let name = request.cmd.first().ok_or(Refusal::EmptyCommand)?;
    let words = request.cmd.iter().map(String::as_str);
    let of_env = request.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    if words.chain(of_env).any(|word| word.contains('\0')) {
        return Err(Refusal::InvalidArgument { why: "a word of the command or its environment holds a NUL".into() });
    }
    if let Some((name, _)) = request.env.iter().find(|(name, _)| name.is_empty() || name.contains('=')) {
        return Err(Refusal::InvalidArgument { why: format!("no variable can be called {name:?}") });
    }
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    os::find_program(name, &path).ok_or_else(|| Refusal::ProgramNotFound { name: name.clone() })
}

impl Terminal {
    /// The process id of the session's leader.
    pub fn pid(&self) -> u32 {
        self.process.identity.pid
    }

    /// What is known of it.
    pub fn report(&self) -> Report {
        self.process.report()
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<Outcome> {
        self.process.state().outcome()
    }

    /// Types `data`. Answered when the terminal has taken it, or refused once it has ended or does not take any more.
    pub fn write(&self, data: Vec<u8>, reply: Reply<Result<(), Refusal>>) {
        self.process.write(data, false, reply);
    }

    /// How many bytes have been typed that the program could have read and has not. A program that reads lines cannot read what
    /// no newline has come for, so that does not count.
    pub fn unread(&self) -> u64 {
        self.pty.unread()
    }

    /// Gives it another size.
    ///
    /// # Errors
    /// When it has ended, or what the system says.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        if self.outcome().is_some() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process on the terminal has ended"));
        }
        self.screen.lock().resize(size);
        self.pty.resize(size.rows(), size.cols())
    }

    /// Asks the whole session to end, as a terminal does that goes away; SIGKILL follows after the grace period, or comes at once.
    pub fn stop(&self, force: bool) {
        self.process.ask_to_end(Cause::Kill, force);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.process.ask_to_end(Cause::SessionEnd, true);
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl Jobs {
    /// Starts both threads; they end when nothing is handed over.
    fn start() -> io::Result<Self> {
        let (reader, readers) = bounded::<Reader>(1);
        let (waiter, waiters) = bounded::<Waiter>(1);
        let named = |name: &str| thread::Builder::new().name(name.into()).stack_size(STACK);
        // Disconnected when the reader is done.
        let (done, is_done) = bounded::<()>(0);
        let reading = named("tty").stack_size(READER_STACK).spawn(move || {
            let _done = done;
            if let Ok(reader) = readers.recv() {
                os::name_thread("tty", reader.process.identity.pid);
                reader.run();
            }
        })?;
        // The waiter is not joined: the last thing it does is to say that all is over.
        named("wait").stack_size(WAITER_STACK).spawn(move || {
            if let Ok(waiter) = waiters.recv() {
                os::name_thread("wait", waiter.process.identity.pid);
                waiter.run(&is_done, reading);
            }
        })?;
        Ok(Self { reader, waiter })
    }

    fn hand_over(self, reader: Reader, waiter: Waiter) {
        // Each thread waits for just this, so it is there to take it.
        let _ = self.reader.send(reader);
        let _ = self.waiter.send(waiter);
    }
}

/// Bytes of stack: drawing goes deeper than reading a pipe does, and whoever hears of the end may start the next process.
const READER_STACK: usize = 512 * 1024;
const WAITER_STACK: usize = 512 * 1024;

impl Waiter {
    fn run(self, reader_done: &Receiver<()>, reader: thread::JoinHandle<()>) {
        let outcome = see_out(&self.process, &self.exited, &self.ended, reader_done);
        // Nothing is sent; it ends when all is read.
        let _ = reader_done.recv();
        // A reader does not panic; if one did, its end counts all the same.
        let _ = reader.join();
        if let Some(outcome) = outcome {
            (self.on_end)(outcome);
        }
    }
}
