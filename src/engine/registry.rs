//! The processes of one session: by id, in order of age, with the quota and the memory of the dead.
//!
//! Owner of the tables: [`Registry`], under its lock, which is never held while a process's own lock is taken. (The other
//! way round is allowed: a process reports its end from under its lock.)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::process::Process;
use crate::model::{Failure, ProcId, Refusal, SpawnError};

/// Finished processes that can still be asked about (R26).
pub const RETAINED: usize = 1000;

/// Ended processes whose last event may wait for a place in the queue of a subscriber that does not read; past it nothing
/// is spawned (R18). Each holds its threads and at most two reads of output.
pub const MAX_UNPUBLISHED: usize = 256;

/// All processes of a session.
pub struct Registry {
    tables: Mutex<Tables>,
    changed: Condvar,
    running: Counter,
    unreaped: Counter,
    unpublished: Counter,
    max_procs: usize,
}

#[derive(Default)]
struct Tables {
    age_of: HashMap<ProcId, u64>,
    by_age: BTreeMap<u64, Arc<Process>>,
    spawned: u64,
    finished: VecDeque<ProcId>,
    closed: bool,
}

/// The places of a process, taken before it is spawned and given back one by one, or all at once if the spawn fails.
#[derive(Debug)]
pub struct Reservation {
    /// Given back when the process has ended (R11).
    pub running: Slot,
    /// Given back when its leader is reaped: until then a session may not be left.
    pub unreaped: Slot,
    /// Given back when its last event is in the subscriber's queue.
    pub unpublished: Slot,
}

/// One unit of a count, given back by being dropped.
#[derive(Debug)]
pub struct Slot(Counter);

#[derive(Clone, Debug, Default)]
struct Counter(Arc<AtomicUsize>);

impl Counter {
    fn take(&self, most: usize) -> Option<Slot> {
        let more = |count| (count < most).then_some(count + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Slot(self.clone()))
    }

    fn add(&self) -> Slot {
        self.0.fetch_add(1, Ordering::AcqRel);
        Slot(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Registry {
    /// An empty registry.
    pub fn new(max_procs: usize) -> Self {
        Self {
            tables: Mutex::default(),
            changed: Condvar::new(),
            running: Counter::default(),
            unreaped: Counter::default(),
            unpublished: Counter::default(),
            max_procs,
        }
    }

    /// Takes the places of a process that is about to be spawned (R11).
    ///
    /// Race: a spawn against the end of the session.
    /// 1. A spawn takes its places, under the lock, and goes on to start the program.
    /// 2. The session is closed, under the lock. From here on nobody gets a place.
    /// 3. Whoever waits for the session's end waits for the places of step 1 too, whether the program has started or not;
    ///    once it is registered it is asked to end like the others ([`Registry::insert`]).
    pub fn reserve(&self) -> Result<Reservation, SpawnError> {
        let tables = self.tables.lock();
        if tables.closed {
            let e = io::Error::other("the session is being closed");
            return Err(Failure::new("spawn", e).into());
        }
        let running = self.running.take(self.max_procs).ok_or(Refusal::ProcLimit { max: self.max_procs })?;
        // A running process is unpublished too, and this one runs already.
        if (self.unpublished.count() + 1).saturating_sub(self.running.count()) >= MAX_UNPUBLISHED {
            return Err(Refusal::Undelivered { max: MAX_UNPUBLISHED }.into());
        }
        Ok(Reservation { running, unreaped: self.unreaped.add(), unpublished: self.unpublished.add() })
    }

    /// Adds a process. False if the session has been closed meanwhile: then it is to be ended at once.
    pub fn insert(&self, process: &Arc<Process>) -> bool {
        let mut tables = self.tables.lock();
        tables.spawned += 1;
        let age = tables.spawned;
        tables.age_of.insert(process.identity.id.clone(), age);
        tables.by_age.insert(age, Arc::clone(process));
        !tables.closed
    }

    /// Notes that a process has ended, and forgets the oldest of the dead if they are too many (R26).
    pub fn finished(&self, id: &ProcId) {
        let mut tables = self.tables.lock();
        tables.finished.push_back(id.clone());
        let forgotten = if tables.finished.len() > RETAINED {
            let oldest = tables.finished.pop_front();
            oldest.and_then(|id| tables.remove(&id))
        } else {
            None
        };
        drop(tables);
        drop(forgotten);
        self.changed.notify_all();
    }

    /// Looks a process up. Ids are opaque: any string may be asked for.
    pub fn get(&self, id: &str) -> Option<Arc<Process>> {
        let tables = self.tables.lock();
        let age = tables.age_of.get(id)?;
        tables.by_age.get(age).cloned()
    }

    /// Every process that is remembered, oldest first (R25).
    pub fn all(&self) -> Vec<Arc<Process>> {
        self.tables.lock().by_age.values().cloned().collect()
    }

    /// Takes no more processes.
    pub fn close(&self) {
        self.tables.lock().closed = true;
    }

    /// Whether every process is reaped, and none is on its way to be spawned.
    pub fn all_reaped(&self) -> bool {
        self.unreaped.count() == 0
    }

    /// Whether the last event of every process is in the subscriber's queue.
    pub fn all_published(&self) -> bool {
        self.unpublished.count() == 0
    }

    /// Waits for a change that may matter to whoever closes the session, but not long.
    ///
    /// Slots are given back without this lock, by whoever drops them, so a notification can be missed: look again soon. This
    /// is on the way of a session's end only.
    pub fn wait_change(&self) {
        self.changed.wait_for(&mut self.tables.lock(), LOOK_AGAIN);
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Tables {
    fn remove(&mut self, id: &ProcId) -> Option<Arc<Process>> {
        let age = self.age_of.remove(id)?;
        self.by_age.remove(&age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(result: Result<Reservation, SpawnError>) -> Refusal {
        match result {
            Err(SpawnError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_is_given_back_whatever_becomes_of_the_spawn() {
        let registry = Registry::new(2);
        let first = registry.reserve().unwrap();
        let second = registry.reserve().unwrap();
        assert_eq!(refusal(registry.reserve()), Refusal::ProcLimit { max: 2 });
        drop(second);
        let second = registry.reserve().unwrap();
        assert!(!registry.all_reaped());
        drop((first, second));
        assert!(registry.all_reaped() && registry.all_published() && registry.running.count() == 0);
    }

    #[test]
    fn ended_processes_that_nobody_hears_of_are_bounded() {
        let registry = Registry::new(1);
        let ended: Vec<Slot> = (0..MAX_UNPUBLISHED).map(|_| registry.reserve().unwrap().unpublished).collect();
        assert_eq!(refusal(registry.reserve()), Refusal::Undelivered { max: MAX_UNPUBLISHED });
        assert_eq!(registry.running.count(), 0, "the refused spawn gave its place back");
        drop(ended);
        assert!(registry.reserve().is_ok());
    }

    #[test]
    fn threads_that_race_for_the_last_place_do_not_share_it() {
        let registry = Registry::new(10);
        let taken: Vec<Reservation> = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..40).map(|_| scope.spawn(|| registry.reserve().ok())).collect();
            tries.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 10);
    }

    #[test]
    fn a_closed_session_has_no_places() {
        let registry = Registry::new(10);
        registry.close();
        assert!(matches!(registry.reserve(), Err(SpawnError::Failed(_))));
        assert!(registry.all_reaped());
    }
}
