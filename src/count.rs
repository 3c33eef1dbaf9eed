//! Counted places, given back by being dropped. Floor 0: quotas of processes and of sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many places are taken. Clones count the same places.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicUsize>);

/// One place, given back when it is dropped.
#[derive(Debug)]
pub struct Slot(Counter);

impl Counter {
    /// Takes a place.
    pub fn take(&self) -> Slot {
        self.0.fetch_add(1, Ordering::AcqRel);
        Slot(self.clone())
    }

    /// How many are taken now.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A number of places. Clones share them.
#[derive(Clone, Debug)]
pub struct Quota {
    taken: Counter,
    most: usize,
}

impl Quota {
    /// So many places.
    pub fn new(most: usize) -> Self {
        Self { taken: Counter::default(), most }
    }

    /// Takes a place, if one is free.
    pub fn take(&self) -> Option<Slot> {
        let more = |count| (count < self.most).then_some(count + 1);
        self.taken.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Slot(self.taken.clone()))
    }

    /// How many are taken now.
    pub fn count(&self) -> usize {
        self.taken.count()
    }

    /// How many there are.
    pub fn most(&self) -> usize {
        self.most
    }
}
