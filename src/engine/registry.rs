//! The processes of one session: by id, in order of age, with the quota and the memory of the dead.
//!
//! Owner of the tables: [`Registry`], under its lock, which is never held while a process's own lock is taken. (The other
//! way round is allowed: a process reports its end from under its lock.)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::process::Process;
use crate::count::{Counter, Quota, Slot};
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
    running: Quota,
    /// Running processes of all sessions of the host.
    running_in_host: Quota,
    unreaped: Counter,
    unpublished: Counter,
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
    /// Given back when the process has ended (R11): its places in the session and in the host.
    pub running: [Slot; 2],
    /// Given back when its leader is reaped: until then a session may not be left.
    pub unreaped: Slot,
    /// Given back when its last event is in the subscriber's queue.
    pub unpublished: Slot,
}

impl Registry {
    /// An empty registry, with the places of its session and of all sessions together.
    pub fn new(running: Quota, running_in_host: Quota) -> Self {
        Self {
            tables: Mutex::default(),
            changed: Condvar::new(),
            running,
            running_in_host,
            unreaped: Counter::default(),
            unpublished: Counter::default(),
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
        let running = self.running.take().ok_or(Refusal::ProcLimit { max: self.running.most() })?;
        let limit = Refusal::HostLimit { max: self.running_in_host.most() };
        let running_in_host = self.running_in_host.take().ok_or(limit)?;
        // A running process is unpublished too, and this one runs already.
        if (self.unpublished.count() + 1).saturating_sub(self.running.count()) >= MAX_UNPUBLISHED {
            return Err(Refusal::Undelivered { max: MAX_UNPUBLISHED }.into());
        }
        let running = [running, running_in_host];
        Ok(Reservation { running, unreaped: self.unreaped.take(), unpublished: self.unpublished.take() })
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

    fn registry(max_procs: usize) -> Registry {
        Registry::new(Quota::new(max_procs), Quota::new(usize::MAX))
    }

    fn refusal(result: Result<Reservation, SpawnError>) -> Refusal {
        match result {
            Err(SpawnError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_is_given_back_whatever_becomes_of_the_spawn() {
        let registry = registry(2);
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
    fn sessions_of_a_host_share_its_places() {
        let everywhere = Quota::new(3);
        let [one, other] = [(); 2].map(|()| Registry::new(Quota::new(2), everywhere.clone()));
        let places = [one.reserve().unwrap(), one.reserve().unwrap(), other.reserve().unwrap()];
        assert_eq!(refusal(one.reserve()), Refusal::ProcLimit { max: 2 }, "the session's own limit is told first");
        assert_eq!(refusal(other.reserve()), Refusal::HostLimit { max: 3 });
        assert_eq!(other.running.count(), 1, "the refused spawn gave its place back");
        drop(places);
        assert_eq!(everywhere.count(), 0);
    }

    #[test]
    fn ended_processes_that_nobody_hears_of_are_bounded() {
        let registry = registry(1);
        let ended: Vec<Slot> = (0..MAX_UNPUBLISHED).map(|_| registry.reserve().unwrap().unpublished).collect();
        assert_eq!(refusal(registry.reserve()), Refusal::Undelivered { max: MAX_UNPUBLISHED });
        assert_eq!(registry.running.count(), 0, "the refused spawn gave its place back");
        drop(ended);
        assert!(registry.reserve().is_ok());
    }

    #[test]
    fn threads_that_race_for_the_last_place_do_not_share_it() {
        let registry = registry(10);
        let taken: Vec<Reservation> = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..40).map(|_| scope.spawn(|| registry.reserve().ok())).collect();
            tries.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 10);
    }

    #[test]
    fn a_closed_session_has_no_places() {
        let registry = registry(10);
        registry.close();
        assert!(matches!(registry.reserve(), Err(SpawnError::Failed(_))));
        assert!(registry.all_reaped());
    }
}
