//! Standard input of one process: written at once if the child takes it, by a thread of its own while it does not (R21).
//!
//! Owner of the pipe and of what waits for it: [`Stdin`], under its lock. The pipe is nonblocking, so the lock is never held
//! across a wait. The thread `in PID` exists only while something waits; it ends when all is written, when the child closes
//! its end, or when the process ends. Answers are given with no lock held.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::process::STACK;
use super::reply::Reply;
use crate::model::{ProcId, Refusal};
use crate::os;

/// Bytes that may wait for a child to read them; each write counts 2,048 more (R21).
pub const MAX_QUEUED: usize = 1024 * 1024;

/// What a waiting write costs beside its bytes: its request's id, its answer. So a million empty ones are bounded too.
const WRITE_COST: usize = 2048;

/// The standard input of one process.
pub struct Stdin {
    state: Mutex<State>,
    id: ProcId,
    pid: u32,
}

enum State {
    Open(Queue),
    Closed(Refusal),
}

struct Queue {
    /// Shared with the thread that waits until it can be written to.
    pipe: Arc<File>,
    /// Opened when the process has ended.
    ended: Arc<os::Latch>,
    waiting: VecDeque<Waiting>,
    cost: usize,
    eof: bool,
    writing: bool,
    /// Nobody reads any more.
    broken: bool,
}

struct Waiting {
    data: Vec<u8>,
    written: usize,
    reply: Reply<Result<(), Refusal>>,
}

/// Answers that are due, to be given once the lock is released.
type Due = Vec<(Reply<Result<(), Refusal>>, Result<(), Refusal>)>;

fn answer(due: Due) {
    for (reply, result) in due {
        reply.send(result);
    }
}

impl Stdin {
    /// The input of a process whose pipe or terminal this is, nonblocking; `None` if it reads from the null device.
    pub fn new(pipe: Option<File>, ended: Arc<os::Latch>, id: ProcId, pid: u32) -> Self {
        let state = match pipe {
            Some(pipe) => State::Open(Queue {
                pipe: Arc::new(pipe),
                ended,
                waiting: VecDeque::new(),
                cost: 0,
                eof: false,
                writing: false,
                broken: false,
            }),
            None => State::Closed(Refusal::StdinClosed { why: "it was spawned with stdin_mode \"null\"" }),
        };
        Self { state: Mutex::new(state), id, pid }
    }

    /// Writes `data`, then closes the pipe if `eof`. Answered when the bytes are in the pipe.
    pub fn write(self: &Arc<Self>, data: Vec<u8>, eof: bool, reply: Reply<Result<(), Refusal>>) {
        let mut due = Due::new();
        let mut state = self.state.lock();
        match &mut *state {
            State::Closed(refusal) => due.push((reply, Err(refusal.clone()))),
            State::Open(queue) if queue.eof => {
                due.push((reply, Err(Refusal::StdinClosed { why: "an earlier write had eof" })));
            }
            State::Open(queue) => {
                let cost = data.len() + WRITE_COST;
                let size = data.len();
                if size > MAX_QUEUED || (queue.writing && queue.cost + cost > MAX_QUEUED) {
                    due.push((reply, Err(Refusal::StdinFull { taken: 0, size, limit: MAX_QUEUED })));
                } else {
                    queue.cost += cost;
                    queue.eof = eof;
                    queue.waiting.push_back(Waiting { data, written: 0, reply });
                    if !queue.writing {
                        self.write_or_wait(&mut state, &mut due);
                    }
                }
            }
        }
        drop(state);
        answer(due);
    }

    /// Closes the pipe once all that waits is written. Nothing more can be written.
    pub fn close(&self) {
        let mut due = Due::new();
        let mut state = self.state.lock();
        if let State::Open(queue) = &mut *state {
            queue.eof = true;
            if !queue.writing {
                state.write_now(&mut due);
                state.close_if_broken(&mut due);
            }
        }
        drop(state);
        answer(due);
    }

    /// The process has ended: what waits is refused, and the pipe is closed.
    pub fn end(&self) {
        let refusal = Refusal::ProcDead { id: self.id.clone() };
        let due = self.state.lock().close(&refusal);
        answer(due);
    }

    /// Writes what the pipe takes now, and has a thread wait to write the rest.
    fn write_or_wait(self: &Arc<Self>, state: &mut State, due: &mut Due) {
        state.write_now(due);
        state.close_if_broken(due);
        let State::Open(queue) = state else { return };
        if queue.waiting.is_empty() {
            return;
        }
        let stdin = Arc::clone(self);
        let (pipe, ended) = (Arc::clone(&queue.pipe), Arc::clone(&queue.ended));
        let name = format!("in {}", self.pid);
        match thread::Builder::new().name(name).stack_size(STACK).spawn(move || stdin.run(&pipe, &ended)) {
            Ok(_) => queue.writing = true,
            Err(_) => {
                // Only the write that has just come can be waiting: say how much of it went.
                queue.cost = 0;
                queue.eof = false;
                due.extend(queue.waiting.drain(..).map(|left| {
                    let (taken, size) = (left.written, left.data.len());
                    let refusal = Refusal::StdinFull { taken, size, limit: MAX_QUEUED };
                    (left.reply, Err(refusal))
                }));
            }
        }
    }

    /// The thread: waits until the pipe takes more, for as long as something waits.
    fn run(&self, pipe: &File, ended: &os::Latch) {
        loop {
            let ready = os::wait_writable(pipe, Some(ended.as_fd()));
            let mut due = Due::new();
            let mut state = self.state.lock();
            if !matches!(ready, Ok(ready) if !ready.woken) {
                due = state.close(&Refusal::ProcDead { id: self.id.clone() });
            }
            state.write_now(&mut due);
            if state.is_broken() {
                // The process has closed its end, or it is dying: the system closes its descriptors first. In that case the
                // waiter is about to say so.
                drop(state);
                answer(std::mem::take(&mut due));
                let dying = os::wait_readable(ended, None, Some(DYING)).is_ok_and(|ready| ready.data);
                state = self.state.lock();
                if dying {
                    due = state.close(&Refusal::ProcDead { id: self.id.clone() });
                }
                state.close_if_broken(&mut due);
            }
            let done = match &mut *state {
                State::Closed(_) => true,
                State::Open(queue) => {
                    queue.writing = !queue.waiting.is_empty();
                    !queue.writing
                }
            };
            drop(state);
            answer(due);
            if done {
                break;
            }
        }
    }
}

/// How long a process that has closed its standard input is given to turn out to be dying.
const DYING: Duration = Duration::from_millis(100);

impl State {
    fn is_broken(&self) -> bool {
        matches!(self, Self::Open(Queue { broken: true, .. }))
    }

    fn close_if_broken(&mut self, due: &mut Due) {
        if self.is_broken() {
            due.extend(self.close(&Refusal::StdinClosed { why: "the process closed its end" }));
        }
    }

    /// Writes what the pipe takes now; closes it after the last byte if that was asked for.
    fn write_now(&mut self, due: &mut Due) {
        let Self::Open(queue) = self else { return };
        while let Some(first) = queue.waiting.front_mut() {
            match write_some(&queue.pipe, &first.data[first.written..]) {
                Ok(count) => first.written += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    queue.broken = true;
                    return;
                }
            }
            if first.written == first.data.len()
                && let Some(whole) = queue.waiting.pop_front()
            {
                queue.cost -= whole.data.len() + WRITE_COST;
                due.push((whole.reply, Ok(())));
            }
        }
        if queue.eof {
            due.extend(self.close(&Refusal::StdinClosed { why: "an earlier write had eof" }));
        }
    }

    /// Closes the pipe, if it is open, and refuses what waits.
    fn close(&mut self, refusal: &Refusal) -> Due {
        match std::mem::replace(self, Self::Closed(refusal.clone())) {
            Self::Open(queue) => queue.waiting.into_iter().map(|left| (left.reply, Err(refusal.clone()))).collect(),
            closed @ Self::Closed(_) => {
                *self = closed;
                Due::new()
            }
        }
    }
}

fn write_some(mut pipe: &File, data: &[u8]) -> io::Result<usize> {
    loop {
        match pipe.write(data) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
