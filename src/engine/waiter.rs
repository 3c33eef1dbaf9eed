//! The waiter of one process, on the thread `wait PID`: sees the leader leave, sees to it that the group has ended and the
//! output is read, reaps, and publishes the last event.
//!
//! Race: output against the end (R17).
//! 1. The process writes its last bytes and exits; they are in the pipe.
//! 2. The waiter wakes, sees to it that the group has ended if that was asked for, and opens the readers' latch.
//! 3. Each reader reads what is in its pipe, publishes it, and ends: at the end of the stream, or when the time that it may
//!    wait for other holders of the pipe is over.
//! 4. The waiter waits until both are done and only then publishes the terminal event, into the same queue.
//!
//! The leader is reaped, and those who wait for the end are answered, at most [`DRAIN`] after step 2, even if a reader is
//! still held up by a subscriber that does not read: nothing of what the process wrote is lost by that, since it is in the
//! pipe, and until then whoever is left of the group lives on with nobody to stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::bus::{Event, EventKind};
use super::lifecycle::{Input, State};
use super::output::{self, DRAIN};
use super::process::Process;
use super::threads::Readers;
use crate::count::Slot;
use crate::model::Outcome;
use crate::os;

/// What the waiter owns.
pub(super) struct Waiter {
    pub process: Arc<Process>,
    pub output: Arc<output::Shared>,
    pub readers: Readers,
    /// Given back when the last event is in the queue.
    pub unpublished: Slot,
}

/// How long a group that has been sent SIGKILL is looked at before it is taken for gone: a process that is stuck in the
/// kernel must not keep the answers back.
const KILL_SETTLES: Duration = Duration::from_millis(200);

/// The pauses between two looks at a group that has been asked to end: an eighth of the time so far, within bounds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

impl Waiter {
    pub(super) fn run(self) {
        let process = &self.process;
        let outcome = see_out(process, &self.output.exited, &self.output.ended, &self.readers.done);

        // Nothing is sent; it ends when both have read all they will.
        let _ = self.readers.done.recv();
        if let (Some(outcome), Ok(())) = (outcome, self.output.gate.wait()) {
            let event = Event { process: Arc::clone(&process.identity), kind: EventKind::Ended(outcome) };
            let _ = self.output.publisher.publish(event);
        }
        drop(self.readers.stay);
        for reader in self.readers.threads {
            // A reader does not panic; if one did, its end counts all the same.
            let _ = reader.join();
        }
        drop(self.unpublished);
    }
}

/// Waits for the leader's exit, and for its group's end if that was asked for; has the readers drain what there is, and reaps.
/// Returns what it came to.
pub(super) fn see_out(
    process: &Arc<Process>,
    exited: &AtomicBool,
    ended: &os::Latch,
    readers_done: &Receiver<()>,
) -> Option<Outcome> {
    if matches!(process.wait_exit(), State::Leaderless { .. }) {
        // Output goes on meanwhile: the others of the group may have last words too.
        wait_for_group(process);
        process.advance(Input::GroupGone);
    }
    process.stdin.end();
    exited.store(true, Ordering::Release);
    ended.open();
    let _ = readers_done.recv_timeout(DRAIN);
    let outcome = process.reap();
    process.keep_watchdog();
    outcome
}

/// Waits until the group has ended by itself, or of the SIGKILL that comes after the grace period (R22).
///
/// The system has no event for the end of a group, so this looks, with growing pauses.
fn wait_for_group(process: &Arc<Process>) {
    let start = Instant::now();
    let mut killed_at = None;
    while process.group_lives() {
        if process.state().forced() {
            let killed_at = *killed_at.get_or_insert_with(Instant::now);
            if killed_at.elapsed() >= KILL_SETTLES {
                break;
            }
        }
        thread::sleep((start.elapsed() / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}
