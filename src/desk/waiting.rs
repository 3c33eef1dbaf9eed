//! Waiting for a change of the desk: for those who asked for something that takes its time, and for whoever shows what goes on.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, bounded, select};

use super::{Desk, Refused, Shared, State, Target, View};

/// What came of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited<T> {
    /// What was waited for.
    Came(T),
    /// The time was over first.
    TimedOut,
    /// Whoever waited gave up.
    Cancelled,
}

impl Desk {
    /// Waits until `look` sees something in an entry, or for at most `time`.
    ///
    /// # Errors
    /// When there is no such entry, or not any more.
    pub fn wait<T>(
        &self,
        target: &Target,
        time: Duration,
        cancelled: &Receiver<Infallible>,
        mut look: impl FnMut(&View) -> Option<T>,
    ) -> Result<Waited<T>, Refused> {
        let id = self.view(target)?.id;
        self.shared
            .wait(time, cancelled, |state| match state.find(&Target::Id(id)) {
                Ok(entry) => look(&state.view(entry, &[])).map(Ok),
                Err(refused) => Some(Err(refused)),
            })
            .transposed()
    }

    /// Every entry, once something has changed since the number that came with the last answer; or `None`, when that takes longer
    /// than `time` or nobody wants to know any more.
    pub fn news(&self, since: u64, time: Duration, cancelled: &Receiver<Infallible>) -> Option<(u64, Vec<View>)> {
        let changed = |state: &mut State| (state.version != since).then_some(state.version);
        match self.shared.wait(time, cancelled, changed) {
            Waited::Came(version) => Some((version, self.list())),
            Waited::TimedOut | Waited::Cancelled => None,
        }
    }
}

impl<T> Waited<Result<T, Refused>> {
    fn transposed(self) -> Result<Waited<T>, Refused> {
        Ok(match self {
            Self::Came(result) => Waited::Came(result?),
            Self::TimedOut => Waited::TimedOut,
            Self::Cancelled => Waited::Cancelled,
        })
    }
}

impl Shared {
    /// Waits until `look` sees something. It is called under the desk's lock, after each change.
    pub(super) fn wait<T>(
        &self,
        time: Duration,
        cancelled: &Receiver<Infallible>,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Waited<T> {
        let (deadline, cancelled) = (Instant::now() + time, cancelled.clone());
        let over = at(deadline);
        loop {
            let mut state = self.state.lock();
            if let Some(seen) = look(&mut state) {
                return Waited::Came(seen);
            }
            let (changes, changed) = bounded(1);
            state.waiting.push(changes.clone());
            drop(state);
            let waited = select! {
                recv(changed) -> _ => continue,
                recv(cancelled) -> _ => Waited::Cancelled,
                recv(over) -> _ => Waited::TimedOut,
            };
            self.state.lock().waiting.retain(|waiting| !waiting.same_channel(&changes));
            return waited;
        }
    }
}

impl State {
    /// Tells those who wait that something has changed.
    pub(super) fn changed(&mut self) {
        self.version += 1;
        for waiting in self.waiting.drain(..) {
            // Each waits for one word; if it has stopped waiting it does not want it.
            let _ = waiting.try_send(());
        }
    }
}
