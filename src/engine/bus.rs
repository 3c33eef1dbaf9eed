//! Events on their way from the threads of processes to a session's one subscriber.
//!
//! The queue is bounded (R18): a subscriber that does not take events blocks the threads that publish them, which then do
//! not read, so that in the end the children block in `write`. Nothing is lost and memory stays bounded. Requests never
//! pass through here.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select};

use super::text::Chunk;
use super::timer::TimerHandle;
use crate::model::{Outcome, ProcId, Stream};

/// Events that may wait for the subscriber; each holds what one read gave: 16 KiB, and 4 bytes a line. More would not make it
/// faster, and all of it has to be delivered when a session ends (R8).
pub const CAPACITY: usize = 32;

/// Something that a process did.
#[derive(Debug)]
pub struct Event {
    /// Which process.
    pub process: Arc<Identity>,
    /// What it did.
    pub kind: EventKind,
}

/// What a process is called.
#[derive(Debug)]
pub struct Identity {
    /// Its id in the session.
    pub id: ProcId,
    /// The group leader's process id.
    pub pid: u32,
    /// The caller's own name for it, from the spawn request.
    pub tag: String,
}

/// What a process did.
#[derive(Debug)]
pub enum EventKind {
    /// It wrote something.
    Output {
        /// To which stream.
        stream: Stream,
        /// What, cut into lines.
        chunk: Chunk,
    },
    /// Its output has reached the cap; from here on it is discarded. Comes at most once (R20).
    Capped {
        /// The stream that reached it.
        stream: Stream,
    },
    /// It has ended. Comes once, and last (R17).
    Ended(Outcome),
}

/// The side that publishes.
#[derive(Clone)]
pub struct Publisher {
    events: Sender<Event>,
    closed: Receiver<Infallible>,
    published: Arc<OnceLock<Box<Act>>>,
}

type Act = dyn Fn() + Send + Sync;

/// Closes the bus when it is dropped: whoever waits to publish is let go, and what it had is dropped.
pub struct Closer {
    _closing: Sender<Infallible>,
}

/// The subscriber is gone, or the session is closed.
#[derive(Debug)]
pub struct Closed;

/// A new bus.
pub fn bus() -> (Publisher, Closer, Receiver<Event>) {
    let (sender, events) = bounded(CAPACITY);
    let (closing, closed) = bounded(0);
    (Publisher { events: sender, closed, published: Arc::default() }, Closer { _closing: closing }, events)
}

impl Publisher {
    /// Waits for a place in the queue.
    pub fn publish(&self, event: Event) -> Result<(), Closed> {
        let published = match self.events.try_send(event) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(Closed),
            Err(TrySendError::Full(event)) => select! {
                send(self.events, event) -> sent => sent.map_err(|_| Closed),
                recv(self.closed) -> _ => Err(Closed),
            },
        };
        if let (Ok(()), Some(act)) = (&published, self.published.get()) {
            act();
        }
        published
    }

    /// Has `act` called after each event. It must not wait. Only the first is.
    pub fn call_when_published(&self, act: Box<Act>) {
        let _ = self.published.set(act);
    }

    /// A closed gate for one process's events.
    pub fn gate(&self, timer: TimerHandle) -> (Gate, GateWait) {
        let (closed, gate) = bounded(0);
        (Gate { closed: Some(closed), timer, answered: None }, GateWait { gate, closed: self.closed.clone() })
    }
}

/// Keeps the events of one process back until its spawn has been answered (R13). Opens when it is dropped.
#[must_use = "the process's events wait until the gate is opened"]
pub struct Gate {
    /// Taken when it is opened later than the answer.
    closed: Option<Sender<Infallible>>,
    timer: TimerHandle,
    answered: Option<Box<dyn FnOnce() + Send>>,
}

/// The waiting side of a [`Gate`].
#[derive(Clone)]
pub struct GateWait {
    gate: Receiver<Infallible>,
    closed: Receiver<Infallible>,
}

impl Gate {
    /// Has `act` done once the spawn has been answered, or will not be: what need not hold up the answer. It must not wait.
    pub(super) fn once_answered(&mut self, act: Box<dyn FnOnce() + Send>) {
        self.answered = Some(act);
    }

    /// Lets the events through.
    pub fn open(self) {}

    /// Lets the events through after `delay` (R19).
    pub fn open_after(mut self, delay: Duration) {
        if !delay.is_zero() {
            let closed = self.closed.take();
            self.timer.after(delay, move || drop(closed));
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(act) = self.answered.take() {
            act();
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl GateWait {
    /// Waits until the gate is open, or the bus is closed.
    pub fn wait(&self) -> Result<(), Closed> {
        select! {
            recv(self.gate) -> _ => Ok(()),
            recv(self.closed) -> _ => Err(Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::timer::Timer;
    use crossbeam_channel::unbounded;

    #[test]
    fn what_waits_for_the_answer_is_done_with_it_whenever_the_events_follow() {
        let (publisher, _closer, _events) = bus();
        let timer = Timer::default();
        let (sender, done) = unbounded();
        let gate = || {
            let (mut gate, wait) = publisher.gate(timer.handle().unwrap());
            let sender = sender.clone();
            gate.once_answered(Box::new(move || sender.send(()).unwrap()));
            (gate, wait)
        };
        let (at_once, open) = gate();
        assert!(done.try_recv().is_err());
        at_once.open();
        done.try_recv().unwrap();
        open.wait().unwrap();

        let (later, waiting) = gate();
        later.open_after(Duration::from_secs(100_000));
        done.try_recv().unwrap();
        assert!(waiting.gate.try_recv().is_err_and(|e| e.is_empty()), "the events wait for the delay");

        let (unanswered, open) = gate();
        drop(unanswered);
        done.try_recv().unwrap();
        open.wait().unwrap();
    }
}
