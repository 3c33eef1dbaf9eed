//! A program under test, and the way to it: its standard streams, or connections to where it listens. `lines` and `http` carry
//! what is said.

use std::collections::VecDeque;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use wait_timeout::ChildExt;

use super::connect::{Address, Port, Socket};
use super::http;
use super::leftovers;
use super::lines::{Reading, Said, keep_tail, lines_of, lock, named, say_lines, write_all};
use super::peer::{Next, Peer};

/// How long after its exit the output of a program may stay open before nothing more is waited for.
const HELD: Duration = Duration::from_secs(1);

/// How long a host may take until it listens, and until it has exited once its connections have ended and it was asked to.
/// To be scaled.
const LISTENS: Duration = Duration::from_secs(10);
const EXITS: Duration = Duration::from_secs(5);

/// How long is waited before another try to connect, if the host does not exit first.
const RETRY: Duration = Duration::from_millis(10);

/// How long a program has for its end when nothing depends on it any more.
const FINISH: Duration = Duration::from_secs(3);

/// Lines to the program and from it.
struct Connection {
    input: Option<Sender<Vec<u8>>>,
    /// What ends it by force; none for standard streams.
    socket: Option<Socket>,
    ended: Option<Instant>,
}

/// A real program.
pub struct Program {
    started: Instant,
    time_scale: f64,
    /// None for one that somebody else has started.
    child: Option<Child>,
    /// What everybody is known by whom it has started.
    mark: String,
    /// Where it listens; none if it speaks on its standard streams.
    address: Option<Address>,
    /// The port that is kept for it.
    pub port: Option<Port>,
    connections: Vec<Connection>,
    said: Receiver<Said>,
    says: SyncSender<Said>,
    reading: Reading,
    threads: Vec<JoinHandle<()>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    /// Is disconnected when there will be no more of it.
    stderr_ends: Option<Receiver<()>>,
    exited: Option<Instant>,
    /// A step has sent it a signal.
    signalled: bool,
    /// When it was asked to exit, its connections having ended.
    asked: Option<Instant>,
    code: Option<i32>,
}

impl Program {
    /// One that runs already, and nothing else yet.
    fn elsewhere(address: Option<Address>, time_scale: f64) -> Self {
        let (says, said) = sync_channel(1024);
        Self {
            started: Instant::now(),
            time_scale,
            child: None,
            mark: leftovers::fresh_mark(),
            address,
            port: None,
            connections: Vec::new(),
            said,
            says,
            reading: Arc::new((Mutex::new(true), Condvar::new())),
            threads: Vec::new(),
            stderr: Arc::default(),
            stderr_ends: None,
            exited: None,
            signalled: false,
            asked: None,
            code: None,
        }
    }

    /// Connects to a program that somebody else has started.
    pub fn running(address: Address, time_scale: f64) -> Result<Self, String> {
        let mut this = Self::elsewhere(Some(address), time_scale);
        this.open()?;
        Ok(this)
    }

    /// Starts a command line, as a shell reads it, with these further arguments and variables. With an address the program is
    /// to listen there, and `connect` goes on.
    pub fn start(
        command: &str,
        args: &[String],
        env: &[(String, String)],
        address: Option<Address>,
        time_scale: f64,
    ) -> Result<Self, String> {
        let mut this = Self::elsewhere(address, time_scale);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec {command} \"$@\"")).arg("sh").args(args);
        shell.envs(env.iter().map(|(name, value)| (name, value))).env(leftovers::VARIABLE, &this.mark);
        shell.stdin(if this.address.is_some() { Stdio::null() } else { Stdio::piped() });
        shell.stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut child = shell.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());

        this.child = Some(child);
        if let Some(stdin) = stdin {
            // Ends when the sender is dropped, or the program takes no more.
            let (input, to_write) = channel();
            this.threads.push(named("to the program", move || drop(write_all(stdin, &to_write)))?);
            this.connections.push(Connection { input: Some(input), socket: None, ended: None });
        }
        // These two end with the streams, or when nobody listens any more: whoever holds a stream beyond that is not waited for.
        if let Some(stdout) = stdout {
            let (says, reading, is_stray) = (this.says.clone(), Arc::clone(&this.reading), this.address.is_some());
            let mut lines = lines_of(stdout);
            named("from the program", move || match is_stray {
                false => say_lines(0, lines, &says, &reading),
                true => while lines().is_some_and(|line| says.send(Said::Stray(line)).is_ok()) {},
            })?;
        }
        if let Some(stderr) = stderr {
            let (kept, (over, ends)) = (Arc::clone(&this.stderr), channel());
            this.stderr_ends = Some(ends);
            named("its stderr", move || {
                keep_tail(stderr, &kept);
                drop::<Sender<()>>(over);
            })?;
        }
        let says = this.says.clone();
        let wait = move || {
            // Without reaping, so that the id stays the program's own until this process has seen its end.
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            let _ = says.send(Said::Exited(Instant::now()));
        };
        this.threads.push(named("its end", wait)?);
        Ok(this)
    }

    /// Connects, as soon as the program listens.
    ///
    /// # Errors
    /// That it exited first, took too long, or did not answer as it should.
    pub fn connect(&mut self) -> Result<(), String> {
        let (Some(address), Some(child)) = (&self.address, &mut self.child) else { return Ok(()) };
        let limit = LISTENS.mul_f64(self.time_scale);
        let socket = loop {
            let refusal = match address.dial() {
                Ok(socket) => break socket,
                Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => return Err(format!("{address}: {e}")),
                Err(e) => e,
            };
            // No event says that somebody listens; but one says that nobody will.
            if let Ok(Some(status)) = child.wait_timeout(RETRY) {
                self.code = Some(code_of(&status));
                return Err(format!("the host exited, {status}, before it listened at {address}: {refusal}"));
            }
            if self.started.elapsed() > limit {
                return Err(format!("the host does not listen at {address} after {limit:.1?}: {refusal}"));
            }
        };
        self.speak(socket)?;
        self.started = Instant::now();
        Ok(())
    }

    /// Makes a connection of a socket: starts what writes to it and what reads from it.
    fn speak(&mut self, socket: Socket) -> Result<(), String> {
        let broken = |e: std::io::Error| format!("a connection is broken: {e}");
        let on = self.connections.len();
        let (input, to_write) = channel();
        let (says, reading) = (self.says.clone(), Arc::clone(&self.reading));
        let held = socket.try_clone().map_err(broken)?;
        let writer = match &self.address {
            Some(address @ Address::Http(_)) => {
                let (session, events) = http::open(address, socket)?;
                named("from the program", move || say_lines(on, events, &says, &reading))?;
                let says = self.says.clone();
                let refused = move |words| drop(says.send(Said::Refused(on, words)));
                named("to the program", move || session.send_all(&to_write, refused))?
            }
            _ => {
                let lines = lines_of(socket.try_clone().map_err(broken)?);
                named("from the program", move || say_lines(on, lines, &says, &reading))?;
                named("to the program", move || {
                    if let Some(socket) = write_all(socket, &to_write) {
                        let _ = socket.shutdown(std::net::Shutdown::Write);
                    }
                })?
            }
        };
        self.threads.push(writer);
        self.connections.push(Connection { input: Some(input), socket: Some(held), ended: None });
        Ok(())
    }

    /// The end of what the program said on standard error.
    pub fn stderr(&self) -> String {
        let has_exited = self.exited.is_some() || self.code.is_some();
        if let (true, Some(ends)) = (has_exited, &self.stderr_ends) {
            let _ = ends.recv_timeout(HELD);
        }
        let mut tail = lock(&self.stderr);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }

    fn kill(&self, signal: Signal) {
        // Not reaped before its end was seen, so the id is still its own.
        if let (None, Some(child)) = (self.code, &self.child) {
            let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        }
    }

    /// How it ended, if it has: by now all connections have, and whoever was started here has exited.
    fn exit(&mut self) -> Option<Next> {
        let ends: Option<Vec<_>> = self.connections.iter().map(|connection| connection.ended).collect();
        let last = ends?.into_iter().max()?;
        let at = |instant: Instant| instant.duration_since(self.started).as_secs_f64();
        let Some(child) = &mut self.child else { return Some(Next::Exit(at(last), 0)) };
        if let (Some(_), None, None, false) = (&self.address, self.exited, self.asked, self.signalled) {
            // A host that listens goes on without connections; that it exits is what it is asked for here.
            self.asked = Some(Instant::now());
            self.kill(Signal::SIGTERM);
            return None;
        }
        let exited = self.exited?;
        let when = at(if self.asked.is_some() { last } else { exited });
        // The program has exited, so this does not wait.
        let code = self.code.unwrap_or_else(|| child.wait().map_or(-1, |status| code_of(&status)));
        self.code = Some(code);
        Some(Next::Exit(when, code))
    }

    /// Takes what a thread says.
    fn take(&mut self, said: Said) -> Option<Next> {
        match said {
            Said::Line(on, when, line) => {
                return Some(Next::Line(when.duration_since(self.started).as_secs_f64(), on, line));
            }
            Said::Stray(line) => return Some(Next::Stray(line)),
            Said::Refused(on, words) => return Some(Next::Refused(on, words)),
            Said::Exited(when) => self.exited = Some(when),
            Said::End(on, when) => {
                if let Some(connection) = self.connections.get_mut(on) {
                    connection.ended = Some(when);
                }
            }
        }
        None
    }

    /// Ends the program, by force if it has to be, and everything that this has started for it.
    pub fn finish(mut self) {
        self.connections.iter_mut().for_each(|connection| connection.input = None);
        self.set_reading(true);
        if self.child.is_none() {
            // Somebody else's host: it has its time to end the sessions.
            let until = self.now() + FINISH.as_secs_f64();
            while !matches!(self.next(until), Next::Exit(..) | Next::Nothing) {}
        }
        // Nobody listens from here on, so that whoever waits to say something goes on.
        drop(std::mem::replace(&mut self.said, channel().1));
        if self.address.is_some() {
            self.kill(Signal::SIGTERM);
        }
        if let (None, Some(child)) = (self.code, &mut self.child) {
            let ended_by_itself = matches!(child.wait_timeout(FINISH), Ok(Some(_)));
            if !ended_by_itself {
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                let _ = child.wait();
            }
        }
        if self.child.is_some() {
            leftovers::kill_marked(&self.mark);
        }
        for socket in self.connections.drain(..).filter_map(|connection| connection.socket) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Peer for Program {
    fn open(&mut self) -> Result<(), String> {
        let address = self.address.as_ref().ok_or("standard streams are one connection")?;
        let socket = address.dial().map_err(|e| format!("cannot connect to {address}: {e}"))?;
        self.speak(socket)
    }

    fn send(&mut self, on: usize, bytes: &[u8]) {
        if let Some(input) = self.connections.get(on).and_then(|connection| connection.input.as_ref()) {
            // A program that has ended takes nothing; its end is seen elsewhere.
            let _ = input.send(bytes.to_vec());
        }
    }

    fn close_input(&mut self, on: usize) {
        if let Some(connection) = self.connections.get_mut(on) {
            connection.input = None;
        }
    }

    fn next(&mut self, deadline: f64) -> Next {
        let mut until = self.started + Duration::from_secs_f64(deadline);
        if !*lock(&self.reading.0) {
            // What the reader had begun to take when it was stopped waits too.
            thread::sleep(until.saturating_duration_since(Instant::now()));
            return Next::Nothing;
        }
        loop {
            if let Some(exit) = self.exit() {
                return exit;
            }
            if let Some(asked) = self.asked {
                until = until.max(asked + EXITS.mul_f64(self.time_scale));
            }
            if let Some(exited) = self.exited {
                until = until.min(exited + HELD);
            }
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(said) => {
                    if let Some(next) = self.take(said) {
                        return next;
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.exited.is_some_and(|exited| exited + HELD <= Instant::now()) => {
                    let now = Instant::now();
                    self.connections
                        .iter_mut()
                        .for_each(|connection| connection.ended = connection.ended.or(Some(now)));
                }
                Err(_) => return Next::Nothing,
            }
        }
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn signal(&mut self, name: &str) {
        if let Ok(signal) = name.parse::<Signal>() {
            self.signalled = true;
            self.kill(signal);
        }
    }

    fn set_reading(&mut self, reading: bool) {
        *lock(&self.reading.0) = reading;
        self.reading.1.notify_all();
    }
}

/// The exit code, or the signal below zero.
fn code_of(status: &std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or(status.signal().map(|signal| -signal)).unwrap_or(-1)
}
