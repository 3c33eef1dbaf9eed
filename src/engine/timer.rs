//! Things to be done later, on one thread per host: time limits, grace periods, answers that wait at most so long. The thread
//! is started for the first process: a host that has none yet needs no clock, and is there sooner.
//!
//! Owner of the pending actions: [`Shared`], under its lock. Actions run on the thread `timer` with no lock held, and must
//! not block. An action that is cancelled is dropped at once, so a process that has ended holds nothing here, however long
//! its limit was.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

type Action = Box<dyn FnOnce() + Send>;

/// The thread, once it is needed; it is joined when this is dropped, and pending actions are dropped with it.
#[derive(Default)]
pub struct Timer {
    handle: TimerHandle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Lets actions be scheduled on a [`Timer`].
#[derive(Clone, Default)]
pub struct TimerHandle(Arc<Shared>);

/// Names one scheduled action, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerKey(Instant, u64);

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Default)]
struct Pending {
    actions: BTreeMap<TimerKey, Action>,
    scheduled: u64,
    closed: bool,
}

impl Timer {
    /// A handle to schedule with. The first one starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread; the next one tries again.
    pub fn handle(&self) -> io::Result<TimerHandle> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.handle.0);
            *thread = Some(thread::Builder::new().name("timer".into()).spawn(move || shared.run())?);
        }
        Ok(self.handle.clone())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.handle.0.pending.lock().closed = true;
        self.handle.0.changed.notify_one();
        if let Some(thread) = self.thread.get_mut().take() {
            // The actions do not block, so this is soon. If the last owner goes in an action, the thread ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl TimerHandle {
    /// Runs `action` after `delay`, unless it is cancelled. A delay past the clock's end never comes.
    pub fn after(&self, delay: Duration, action: impl FnOnce() + Send + 'static) -> Option<TimerKey> {
        let at = Instant::now().checked_add(delay)?;
        let mut pending = self.0.pending.lock();
        pending.scheduled += 1;
        let key = TimerKey(at, pending.scheduled);
        pending.actions.insert(key, Box::new(action));
        let first = pending.actions.first_key_value().is_some_and(|(&soonest, _)| soonest == key);
        drop(pending);
        if first {
            self.0.changed.notify_one();
        }
        Some(key)
    }

    /// Drops the action, if it has not begun.
    pub fn cancel(&self, key: TimerKey) {
        let action = self.0.pending.lock().actions.remove(&key);
        // Dropped here, without the lock: an action may own what takes locks when it goes.
        drop(action);
    }
}

impl Shared {
    fn run(&self) {
        let mut pending = self.pending.lock();
        while !pending.closed {
            let Some((&key, _)) = pending.actions.first_key_value() else {
                self.changed.wait(&mut pending);
                continue;
            };
            if key.0 > Instant::now() {
                self.changed.wait_until(&mut pending, key.0);
                continue;
            }
            let action = pending.actions.remove(&key);
            parking_lot::MutexGuard::unlocked(&mut pending, || {
                if let Some(action) = action {
                    action();
                }
            });
        }
        // Actions may hold what schedules on this timer: they are dropped without the lock.
        let left = std::mem::take(&mut pending.actions);
        drop(pending);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::unbounded;

    #[test]
    fn actions_run_in_order_of_their_times_and_cancelled_ones_do_not() {
        let timer = Timer::default();
        let (sender, receiver) = unbounded();
        let say = |word: &'static str| {
            let sender = sender.clone();
            move || sender.send(word).unwrap()
        };
        timer.handle().unwrap().after(Duration::from_millis(60), say("late"));
        let cancelled = timer.handle().unwrap().after(Duration::from_millis(30), say("cancelled")).unwrap();
        timer.handle().unwrap().after(Duration::from_millis(1), say("early"));
        timer.handle().unwrap().cancel(cancelled);
        assert_eq!(receiver.recv().unwrap(), "early");
        assert_eq!(receiver.recv().unwrap(), "late");
    }

    #[test]
    fn the_thread_is_started_with_the_first_handle_and_only_once() {
        let timer = Timer::default();
        assert!(timer.thread.lock().is_none());
        let thread = || {
            let _handle = timer.handle().unwrap();
            timer.thread.lock().as_ref().map(|thread| thread.thread().id())
        };
        let first = thread();
        assert!(first.is_some());
        assert_eq!(thread(), first);
    }

    #[test]
    fn what_is_pending_is_dropped_with_the_timer_or_when_cancelled() {
        let timer = Timer::default();
        let held = Arc::new(());
        let hold = || {
            let held = Arc::clone(&held);
            move || drop(held)
        };
        let key = timer.handle().unwrap().after(Duration::from_secs(100_000), hold()).unwrap();
        timer.handle().unwrap().after(Duration::from_secs(100_000), hold()).unwrap();
        assert_eq!(Arc::strong_count(&held), 3);
        timer.handle().unwrap().cancel(key);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(timer);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
