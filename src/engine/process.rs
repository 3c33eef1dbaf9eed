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

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::bus::Identity;
use super::lifecycle::{Effect, Input, State};
use super::output::Cap;
use super::registry::Registry;
use super::reply::Reply;
use super::stdin::Stdin;
use super::timer::{TimerHandle, TimerKey};
use crate::count::Slot;
use crate::model::{Cause, Outcome, Refusal, Report, Signal, Status};
use crate::os::Leader;

/// Stack of a process's threads, in bytes: they hold little and call nothing deep.
pub const STACK: usize = 128 * 1024;

/// How long an answer to SIGINT waits to see whether the process ends of it (R22).
const INTERRUPT_ANSWER: Duration = Duration::from_millis(200);

/// Kill requests that may wait for one process's end; more are answered with the state as it is.
const MAX_WAITING: usize = 1024;

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

impl std::fmt::Display for KillRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.refusal.fmt(f)
    }
}

impl std::error::Error for KillRefused {}

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
    running: Option<[Slot; 2]>,
    unreaped: Option<Slot>,
    timers: Vec<TimerKey>,
    waiting: Vec<Waiting>,
    last_ticket: u64,
}

/// A kill request that waits for the end, or for SIGINT's time to be over.
struct Waiting {
    ticket: u64,
    reply: Reply<KillAnswer>,
    timer: Option<TimerKey>,
}

/// What a process is made of.
pub(super) struct Parts {
    pub identity: Arc<Identity>,
    pub stdin: Arc<Stdin>,
    pub cap: Arc<Cap>,
    pub leader: Leader,
    pub running: [Slot; 2],
    pub unreaped: Slot,
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
                unreaped: Some(parts.unreaped),
                timers: Vec::new(),
                waiting: Vec::new(),
                last_ticket: 0,
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
        let mut inner = self.inner.lock();
        if let (Some(limit), None) = (self.time_limit, inner.state.outcome()) {
            let key = self.schedule(limit, |process| process.ask_to_end(Cause::Timeout, false));
            inner.timers.extend(key);
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
        inner.last_ticket += 1;
        let ticket = inner.last_ticket;
        let timer = match signal {
            Signal::Int => self.schedule(INTERRUPT_ANSWER, move |process| process.answer_now(ticket)),
            Signal::Term | Signal::Kill => None,
        };
        inner.waiting.push(Waiting { ticket, reply, timer });
    }

    /// Asks the process to end, or makes it, for a reason other than a kill request.
    pub fn ask_to_end(self: &Arc<Self>, cause: Cause, force: bool) {
        let mut inner = self.inner.lock();
        self.notice_exit(&mut inner);
        self.feed(&mut inner, Input::End { cause, force });
    }

    /// Writes to its standard input (R21).
    pub fn write(self: &Arc<Self>, data: Vec<u8>, eof: bool, reply: Reply<Result<(), Refusal>>) {
        let mut inner = self.inner.lock();
        self.notice_exit(&mut inner);
        let has_ended = inner.state.outcome().is_some();
        drop(inner);
        if has_ended {
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

    /// Ends what is left of the group, reaps the leader, and answers those who waited for that.
    pub(super) fn reap(self: &Arc<Self>) -> Option<Outcome> {
        let mut inner = self.inner.lock();
        self.feed(&mut inner, Input::Reap);
        let waiting = std::mem::take(&mut inner.waiting);
        let state = inner.state;
        drop(inner);
        for Waiting { reply, timer, .. } in waiting {
            timer.into_iter().for_each(|key| self.timer.cancel(key));
            reply.send(Ok(state.status()));
        }
        state.outcome()
    }

    /// Runs the machine one step and does what it says. Signals and reaping happen under the lock, and nowhere else.
    fn feed(self: &Arc<Self>, inner: &mut MutexGuard<'_, Inner>, input: Input) {
        let (state, effects) = inner.state.step(input);
        inner.state = state;
        for effect in effects {
            match effect {
                Effect::Signal(signal) => inner.leader.signal_group(signal),
                Effect::StartGrace => {
                    let key = self.schedule(self.kill_grace, |process| {
                        process.advance(Input::GraceOver);
                    });
                    inner.timers.extend(key);
                }
                Effect::Settle => self.settle(inner),
                Effect::Reap => {
                    inner.leader.reap();
                    inner.unreaped = None;
                }
                // Answers and the terminal event are given without the lock, by `reap` and the waiter.
                Effect::Finish => {}
            }
        }
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
        let Some(at) = inner.waiting.iter().position(|waiting| waiting.ticket == ticket) else {
            return;
        };
        let reply = inner.waiting.swap_remove(at).reply;
        let status = inner.state.status();
        drop(inner);
        reply.send(Ok(status));
    }

    /// Has the timer do something to this process later, unless it has ended by then.
    fn schedule(self: &Arc<Self>, delay: Duration, act: impl FnOnce(&Arc<Self>) + Send + 'static) -> Option<TimerKey> {
        let process = Arc::downgrade(self);
        self.timer.after(delay, move || {
            if let Some(process) = process.upgrade() {
                act(&process);
            }
        })
    }

    /// Blocks until the leader has left. Only the waiter calls this, and only the waiter reaps, so the pid stays its own.
    pub(super) fn wait_exit(self: &Arc<Self>) -> State {
        let pid = self.inner.lock().leader.pid();
        // How it left, or that somebody else has reaped it, is then seen under the lock.
        let _ = crate::os::wait_exit_noreap(pid);
        let mut inner = self.inner.lock();
        self.notice_exit(&mut inner);
        inner.state
    }

    /// Whether anybody of the group lives beside the leader that has left.
    pub(super) fn group_lives(&self) -> bool {
        let inner = self.inner.lock();
        let others = inner.leader.others();
        drop(inner);
        // Only the waiter reaps, and only the waiter asks.
        others.live()
    }

    /// Replaces a watchdog that was found dead, for those who still run.
    pub(super) fn keep_watchdog(&self) {
        let watchdog = self.inner.lock().leader.watchdog();
        if let Some(watchdog) = watchdog {
            watchdog.keep();
        }
    }
}
