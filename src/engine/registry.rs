//! The processes of one session: by id, in order of age, with the quota and the memory of the dead.
//!
//! Owner of the tables: [`Registry`], under its lock, which is never held while a process's own lock is taken. (The other
//! way round is allowed: a process reports its end from under its lock.)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::process::Process;
use crate::model::{ProcId, Refusal};

/// Finished processes that can still be asked about (R26).
pub const RETAINED: usize = 1000;

/// Ended processes whose last event may wait for a place in the queue of a subscriber that does not read; past it nothing
/// is spawned (R18). Each holds its threads and at most two reads of output.
pub const MAX_UNDELIVERED: usize = 256;

/// All processes of a session.
pub struct Registry {
    tables: Mutex<Tables>,
    changed: Condvar,
    running: Counter,
    undelivered: Counter,
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

/// The places of a new process: one in the quota, one among those whose end is not delivered.
pub struct Place {
    /// Given back when the process has ended (R11).
    pub running: Slot,
    /// Given back when its last event is in the subscriber's queue.
    pub undelivered: Slot,
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
            undelivered: Counter::default(),
            max_procs,
        }
    }

    /// Takes a place for a process that is about to be spawned; it is given back if that fails (R11).
    pub fn reserve(&self) -> Result<Place, Refusal> {
        let running = self.running.take(self.max_procs).ok_or(Refusal::ProcLimit { max: self.max_procs })?;
        // A running process is undelivered too: those that have ended may number MAX_UNDELIVERED on top of the quota.
        let most = self.max_procs.saturating_add(MAX_UNDELIVERED);
        let undelivered = self.undelivered.take(most).ok_or(Refusal::Undelivered { max: MAX_UNDELIVERED })?;
        Ok(Place { running, undelivered })
    }

    /// Adds a process. False if the session is closed.
    pub fn insert(&self, process: &Arc<Process>) -> bool {
        let mut tables = self.tables.lock();
        if tables.closed {
            return false;
        }
        tables.spawned += 1;
        let age = tables.spawned;
        tables.age_of.insert(process.identity.id.clone(), age);
        tables.by_age.insert(age, Arc::clone(process));
        true
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

    /// Waits until no process runs, or until `deadline`. True if none does.
    pub fn wait_ended(&self, deadline: Instant) -> bool {
        self.wait_until(deadline, || self.running.count() == 0)
    }

    /// Waits until the last event of every process is in the subscriber's queue, or until `deadline`.
    pub fn wait_published(&self, deadline: Instant) -> bool {
        self.wait_until(deadline, || self.undelivered.count() == 0)
    }

    fn wait_until(&self, deadline: Instant, mut done: impl FnMut() -> bool) -> bool {
        let mut tables = self.tables.lock();
        while !done() {
            // Slots are given back without this lock, by whoever drops them, so a notification can be missed: look again
            // soon. This is on the way of a session's end only.
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            self.changed.wait_until(&mut tables, deadline.min(now + LOOK_AGAIN));
        }
        true
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

    #[test]
    fn a_place_is_given_back_whatever_becomes_of_the_spawn() {
        let registry = Registry::new(2);
        let first = registry.reserve().unwrap();
        let second = registry.reserve().unwrap();
        assert_eq!(registry.reserve().err(), Some(Refusal::ProcLimit { max: 2 }));
        drop(second);
        let second = registry.reserve().unwrap();
        drop((first, second));
        assert_eq!((registry.running.count(), registry.undelivered.count()), (0, 0));
    }

    #[test]
    fn ended_processes_that_nobody_hears_of_are_bounded() {
        let registry = Registry::new(1);
        let ended: Vec<Slot> = (0..MAX_UNDELIVERED).map(|_| registry.reserve().unwrap().undelivered).collect();
        let running = registry.reserve().unwrap();
        drop(running.running);
        assert_eq!(registry.reserve().err(), Some(Refusal::Undelivered { max: MAX_UNDELIVERED }));
        assert_eq!(registry.running.count(), 0, "the refused spawn gave its place back");
        drop(ended);
        assert!(registry.reserve().is_ok());
    }

    #[test]
    fn threads_that_race_for_the_last_place_do_not_share_it() {
        let registry = Registry::new(10);
        let taken: Vec<Place> = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..40).map(|_| scope.spawn(|| registry.reserve().ok())).collect();
            tries.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 10);
    }
}
