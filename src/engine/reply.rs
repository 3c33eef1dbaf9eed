//! The one answer that a request gets, perhaps later and from another thread.

use std::fmt;

use crossbeam_channel::{Receiver, bounded};

/// Takes exactly one answer, by being consumed.
#[must_use = "a request that is not answered leaves its sender waiting"]
pub struct Reply<T>(Box<dyn FnOnce(T) + Send>);

impl<T: Send + 'static> Reply<T> {
    /// Hands the answer to `take`, on whatever thread has it: the caller's, the timer's, or one of the process's, whose
    /// stacks are small. `take` must not block.
    pub fn new(take: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(take))
    }

    /// A reply and where its answer will arrive.
    pub fn channel() -> (Self, Receiver<T>) {
        let (sender, receiver) = bounded(1);
        // A receiver that is gone does not want the answer any more.
        (Self::new(move |answer| drop(sender.send(answer))), receiver)
    }
}

impl<T> Reply<T> {
    /// Gives the answer. A panic of the taker is its own affair: the thread that had the answer serves others too.
    pub fn send(self, answer: T) {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.0)(answer)));
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
