//! The requests of one connection that are not answered yet, and who still may answer them. Whoever wants to answer a request
//! takes it out of here first, so that none has two answers and a cancelled one has none.
//!
//! Why an answer cannot go to the wrong request: a client may use an id again once it has cancelled the request or read its
//! answer, while the thread of the first call still runs. Each entry has a number of its own, and only who has that number
//! takes the entry out.

use std::collections::HashMap;
use std::convert::Infallible;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::message::Id;

/// The most calls that run at once, and the most subscriptions.
pub const MOST: usize = 64;

/// The most requests on the other side of a pump that are remembered; those beyond are not told if that side ends.
const MOST_REMEMBERED: usize = 10_000;

/// All open requests of a connection.
pub struct Calls {
    state: Mutex<State>,
    quiet: Sender<()>,
}

#[derive(Default)]
struct State {
    open: HashMap<Id, Open>,
    /// Threads that may still say something: of calls, and the pump's.
    running: usize,
    last_number: u64,
    over: bool,
}

struct Open {
    number: u64,
    kind: Kind,
}

/// Who owes the answer.
pub enum Kind {
    /// A call's thread. Dropping the sender tells it that nobody waits any more.
    Call(Option<Sender<Infallible>>),
    /// Nobody, until the session ends: a subscription.
    Subscription,
    /// The other side of a pump.
    There,
}

/// Why a request is not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Full {
    /// Another request with its id is open.
    InUse,
    /// As many are open as may be.
    TooMany,
    /// The session is over: nobody waits for an answer.
    Over,
}

impl Calls {
    /// None yet. `quiet` hears when no thread is left that may say something.
    pub fn new(quiet: Sender<()>) -> Self {
        Self { state: Mutex::default(), quiet }
    }

    /// Whether a request with this id is open.
    pub fn has(&self, id: &Id) -> bool {
        self.state.lock().open.contains_key(id)
    }

    /// Opens a call: its number, and what ends when it is cancelled. Its thread [leaves](Self::leave).
    ///
    /// # Errors
    /// When it cannot be.
    pub fn begin(&self, id: &Id) -> Result<(u64, Receiver<Infallible>), Full> {
        let mut state = self.state.lock();
        if state.running >= MOST {
            return Err(Full::TooMany);
        }
        let (running, cancelled) = bounded(0);
        let number = state.add(id, Kind::Call(Some(running)))?;
        state.running += 1;
        Ok((number, cancelled))
    }

    /// Opens a subscription.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn subscribe(&self, id: &Id) -> Result<(), Full> {
        let mut state = self.state.lock();
        if state.open.values().filter(|open| matches!(open.kind, Kind::Subscription)).count() >= MOST {
            return Err(Full::TooMany);
        }
        state.add(id, Kind::Subscription).map(drop)
    }

    /// Remembers a request that the other side of a pump is to answer.
    pub fn pass(&self, id: &Id) {
        let mut state = self.state.lock();
        if state.open.len() < MOST_REMEMBERED {
            // One whose id is in use is refused there.
            let _ = state.add(id, Kind::There);
        }
    }

    /// The other side has answered.
    pub fn passed_back(&self, id: &Id) {
        let mut state = self.state.lock();
        if state.open.get(id).is_some_and(|open| matches!(open.kind, Kind::There)) {
            state.open.remove(id);
        }
    }

    /// The client waits for it no more. Of what is not open nothing need be known.
    pub fn cancel(&self, id: &Id) {
        self.state.lock().open.remove(id);
    }

    /// Takes out a call that is to be answered. False if nobody waits for the answer.
    pub fn settle(&self, id: &Id, number: u64) -> bool {
        let mut state = self.state.lock();
        let is_it = state.open.get(id).is_some_and(|open| open.number == number);
        is_it && state.open.remove(id).is_some()
    }

    /// A thread that may say something has begun, which is no call's.
    pub fn enter(&self) {
        self.state.lock().running += 1;
    }

    /// A thread has said all.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.running -= 1;
        if state.running == 0 {
            // One word is enough.
            let _ = self.quiet.try_send(());
        }
    }

    /// Whether no thread is left that may say something.
    pub fn is_quiet(&self) -> bool {
        self.state.lock().running == 0
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.state.lock().over
    }

    /// Takes no more requests, and tells running calls that nobody will wait for long. What they still say is said.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.over = true;
        for open in state.open.values_mut() {
            if let Kind::Call(running) = &mut open.kind {
                *running = None;
            }
        }
    }

    /// Takes out all that have no answer yet.
    pub fn rest(&self) -> Vec<(Id, Kind)> {
        self.state.lock().open.drain().map(|(id, open)| (id, open.kind)).collect()
    }
}

impl State {
    fn add(&mut self, id: &Id, kind: Kind) -> Result<u64, Full> {
        if self.over {
            return Err(Full::Over);
        }
        if self.open.contains_key(id) {
            return Err(Full::InUse);
        }
        self.last_number += 1;
        let number = self.last_number;
        self.open.insert(id.clone(), Open { number, kind });
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::TryRecvError;

    fn id(json: &str) -> Id {
        Id::read(json).unwrap()
    }

    #[test]
    fn an_old_thread_never_answers_a_new_request() {
        let calls = Calls::new(bounded(1).0);
        let (old, cancelled) = calls.begin(&id("1")).unwrap();
        assert_eq!(calls.begin(&id("1")).unwrap_err(), Full::InUse);
        for other in ["2", "\"1\""] {
            calls.cancel(&id(other));
            assert_eq!(cancelled.try_recv(), Err(TryRecvError::Empty));
        }
        calls.cancel(&id("1"));
        calls.cancel(&id("1"));
        assert_eq!(cancelled.try_recv(), Err(TryRecvError::Disconnected));
        let (new, _cancelled) = calls.begin(&id("1")).unwrap();
        assert!(!calls.settle(&id("1"), old));
        assert!(calls.settle(&id("1"), new));
        assert!(!calls.settle(&id("1"), new));
    }

    #[test]
    fn cancelled_calls_that_still_run_count() {
        let (says, quiet) = bounded(1);
        let calls = Calls::new(says);
        for number in 0..MOST {
            calls.begin(&id(&number.to_string())).unwrap();
            calls.cancel(&id(&number.to_string()));
        }
        assert_eq!(calls.begin(&id("\"more\"")).unwrap_err(), Full::TooMany);
        calls.leave();
        calls.begin(&id("\"more\"")).unwrap();
        for _ in 0..MOST {
            assert!(quiet.is_empty() && !calls.is_quiet());
            calls.leave();
        }
        assert!(quiet.try_recv().is_ok() && calls.is_quiet());
    }

    #[test]
    fn the_end_tells_running_calls_and_lets_them_answer() {
        let calls = Calls::new(bounded(1).0);
        let (number, cancelled) = calls.begin(&id("1")).unwrap();
        calls.subscribe(&id("2")).unwrap();
        calls.pass(&id("3"));
        calls.pass(&id("4"));
        calls.passed_back(&id("4"));
        calls.passed_back(&id("2"));
        calls.close();
        assert_eq!(cancelled.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(calls.subscribe(&id("5")).unwrap_err(), Full::Over);
        assert!(calls.settle(&id("1"), number));
        let rest: Vec<bool> = calls.rest().iter().map(|(_, kind)| matches!(kind, Kind::Subscription)).collect();
        assert!(rest.len() == 2 && rest.contains(&true) && rest.contains(&false), "{rest:?}");
    }
}
