//! One process: its state, and what requests, the timer and the end of the session may do to it.
//!
//! Owner of everything that changes: [`Process`], under its lock (`inner`). The threads of a process are the two readers
//! (`output`), the waiter (`waiter`), which alone reaps, and now and then a writer (`stdin`).
//!
//! Race: a kill arrives while the process exits by itself.
//! 1. The leader exits; the waiter is about to wake in `waitid`, with no lock held.
//! 2. A kill request takes the lock. The state still says Running.
//! 3. It looks whether the leader has left (`notice_exit`): it has, so the process has ended by itself and the kill is
//!    refused. Had it exited after the look, it would count as killed: the request came first.
//! 4. Either way the leader is unreaped, so the signal could not have met another process; the waiter's own report of the
//!    exit then finds nothing to do.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::bus::Identity;
use super::lifecycle::{Effect, Input, State};
use super::output::Cap;
use super::registry::{Registry, Slot};
use super::reply::Reply;
use super::stdin::Stdin;
use super::timer::{TimerHandle, TimerKey};
use crate::model::{Cause, Exit, Outcome, Refusal, Report, Signal, Status};
use crate::os::Leader;

/// Stack of a process's threads, in bytes: they hold little and call nothing deep.
pub const STACK: usize = 128 * 1024;

/// How long an answer to SIGINT waits to see whether the process ends of it (R22).
const INTERRUPT_ANSWER: Duration = Duration::from_millis(200);

/// Kill requests that may wait for one process's end; more are answered with the state as it is.
const MAX_WAITING: usize = 256;

/// The answer to a kill request: the state of the process, or why nothing was done.
pub type KillAnswer = Result<Status, KillRefused>;

/// A kill that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillRefused {
    /// Why.
    pub refusal: Refusal,
    /// The status of the process, if there is one of that id.
    pub status: Option<Status>,
}

/// One process of a session.
pub struct Process {
    /// What it is called.
    pub identity: Arc<Identity>,
    pub(super) stdin: Arc<Stdin>,
    cap: Arc<Cap>,
    inner: Mutex<Inner>,
    cmd: String,
    started_at: SystemTime,
    time_limit: Option<Duration>,
    kill_grace: Duration,
    timer: TimerHandle,
    registry: Weak<Registry>,
}

/// What changes, under the lock.
pub(super) struct Inner {
    state: State,
    leader: Leader,
    running: Option<Slot>,
    timers: Vec<TimerKey>,
    waiting: Vec<(u64, Reply<KillAnswer>)>,
    asked: u64,
}

/// What a process is made of.
pub(super) struct Parts {
    pub identity: Arc<Identity>,
    pub stdin: Arc<Stdin>,
    pub cap: Arc<Cap>,
    pub leader: Leader,
    pub running: Slot,
    pub cmd: String,
    pub time_limit: Option<Duration>,
    pub kill_grace: Duration,
    pub timer: TimerHandle,
    pub registry: Weak<Registry>,
}

impl Process {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            identity: parts.identity,
            stdin: parts.stdin,
            cap: parts.cap,
            inner: Mutex::new(Inner {
                state: State::NEW,
                leader: parts.leader,
                running: Some(parts.running),
                timers: Vec::new(),
                waiting: Vec::new(),
                asked: 0,
            }),
            cmd: parts.cmd,
            started_at: SystemTime::now(),
            time_limit: parts.time_limit,
            kill_grace: parts.kill_grace,
            timer: parts.timer,
            registry: parts.registry,
        })
    }

    /// Starts the clock of the time limit (R12).
    pub(super) fn start_time_limit(self: &Arc<Self>) {
        if let Some(limit) = self.time_limit {
            let mut inner = self.inner.lock();
            self.later(&mut inner, limit, |process| process.end(Cause::Timeout, false));
        }
    }

    /// Signals the group. Answered when the process has ended or, for SIGINT, after a while (R22).
    pub fn kill(self: &Arc<Self>, signal: Signal, reply: Reply<KillAnswer>) {
        let mut inner = self.inner.lock();
        self.notice_exit(&mut inner);
        if inner.state.outcome().is_some() {
            let status = inner.state.status();
            drop(inner);
            let refusal = Refusal::ProcDead { id: self.identity.id.clone() };
            return reply.send(Err(KillRefused { refusal, status: Some(status) }));
        }
        let input = match signal {
            Signal::Int => Input::Interrupt,
            Signal::Term => Input::End { cause: Cause::Kill, force: false },
            Signal::Kill => Input::End { cause: Cause::Kill, force: true },
        };
        self.feed(&mut inner, input);
        if inner.waiting.len() >= MAX_WAITING {
            let status = inner.state.status();
            drop(inner);
            return reply.send(Ok(status));
        }
        inner.asked += 1;
        let ticket = inner.asked;
        inner.waiting.push((ticket, reply));
        if signal == Signal::Int {
            self.later(&mut inner, INTERRUPT_ANSWER, move |process| process.answer_now(ticket));
        }
    }

    /// Asks the process to end, or makes it, for a reason other than a kill request.
    pub fn end(self: &Arc<Self>, cause: Cause, force: bool) {
        let mut inner = self.inner.lock();
        self.notice_exit(&mut inner);
        self.feed(&mut inner, Input::End { cause, force });
    }

    /// Writes to its standard input (R21).
    pub fn write(&self, data: Vec<u8>, eof: bool, reply: Reply<Result<(), Refusal>>) {
        let over = self.inner.lock().state.outcome().is_some();
        if over {
            reply.send(Err(Refusal::ProcDead { id: self.identity.id.clone() }));
        } else {
            self.stdin.write(data, eof, reply);
        }
    }

    /// All that can be asked about it (R24).
    pub fn report(&self) -> Report {
        let state = self.inner.lock().state;
        Report {
            id: self.identity.id.clone(),
            cmd: self.cmd.clone(),
            status: state.status(),
            pid: self.identity.pid,
            exit_code: state.outcome().map(|outcome| outcome.exit.code()),
            started_at: self.started_at,
            timeout: self.time_limit,
            dropped_bytes: self.cap.dropped(),
        }
    }

    /// Takes one input on behalf of the waiter.
    pub(super) fn advance(self: &Arc<Self>, input: Input) -> State {
        let mut inner = self.inner.lock();
        self.feed(&mut inner, input);
        inner.state
    }

    /// Where it stands.
    pub(super) fn state(&self) -> State {
        self.inner.lock().state
    }

    /// Ends what is left of the group, reaps the leader, and answers those who waited for that. The outcome comes once.
    pub(super) fn reap(self: &Arc<Self>) -> Option<Outcome> {
        let mut inner = self.inner.lock();
        let finished = self.feed(&mut inner, Input::Reap);
        let waiting = std::mem::take(&mut inner.waiting);
        let status = inner.state.status();
        drop(inner);
        for (_, reply) in waiting {
            reply.send(Ok(status));
        }
        finished
    }

    /// Runs the machine one step and does what it says. Signals and reaping happen under the lock, and nowhere else.
    fn feed(self: &Arc<Self>, inner: &mut MutexGuard<'_, Inner>, input: Input) -> Option<Outcome> {
        let (state, effects) = inner.state.step(input);
        inner.state = state;
        let mut finished = None;
        for effect in effects {
            match effect {
                Effect::Signal(signal) => inner.leader.signal_group(signal),
                Effect::StartGrace => {
                    let grace = self.kill_grace;
                    self.later(inner, grace, |process| {
                        process.advance(Input::GraceOver);
                    });
                }
                Effect::Settle(_) => self.settle(inner),
                Effect::Reap => inner.leader.reap(),
                Effect::Finish(outcome) => finished = Some(outcome),
            }
        }
        finished
    }

    fn settle(&self, inner: &mut Inner) {
        inner.running = None;
        for key in inner.timers.drain(..) {
            self.timer.cancel(key);
        }
        if let Some(registry) = self.registry.upgrade() {
            registry.finished(&self.identity.id);
        }
    }

    /// Sees an exit that the waiter has not reported yet, so that no request acts on a process that is gone.
    fn notice_exit(self: &Arc<Self>, inner: &mut MutexGuard<'_, Inner>) {
        if let Some(exit) = inner.leader.exited_noreap() {
            self.feed(inner, Input::LeaderExited(exit));
        }
    }

    /// Answers one waiting kill request with the state as it is, if nobody has yet.
    fn answer_now(&self, ticket: u64) {
        let mut inner = self.inner.lock();
        let Some(at) = inner.waiting.iter().position(|(waiting, _)| *waiting == ticket) else {
            return;
        };
        let (_, reply) = inner.waiting.swap_remove(at);
        let status = inner.state.status();
        drop(inner);
        reply.send(Ok(status));
    }

    /// Has the timer do something to this process later, unless it has ended by then.
    fn later(self: &Arc<Self>, inner: &mut Inner, delay: Duration, act: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let process = Arc::downgrade(self);
        let key = self.timer.after(delay, move || {
            if let Some(process) = process.upgrade() {
                act(&process);
            }
        });
        inner.timers.extend(key);
    }

    /// Blocks until the leader has left. Only the waiter calls this, and only the waiter reaps, so the pid stays its own.
    pub(super) fn wait_exit(&self) -> io::Result<Exit> {
        let pid = self.inner.lock().leader.pid();
        crate::os::wait_exit_noreap(pid)
    }

    /// Whether anybody of the group lives beside the leader that has left.
    pub(super) fn group_lives(&self) -> bool {
        let pid = self.inner.lock().leader.pid();
        crate::os::has_live_members(pid)
    }
}
