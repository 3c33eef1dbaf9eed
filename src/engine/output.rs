//! The reader of one output stream: pipe → lines → bus. One thread per stream, `out PID` or `err PID`.
//!
//! It reads while the subscriber takes events, and blocks with it when it does not. The waiter tells it of the leader's exit
//! by opening a latch; from then on it drains what is there and gives up on a pipe that others keep open (R17).

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::bus::{Closed, Event, EventKind, GateWait, Identity, Publisher};
use super::text::{Chunk, Splitter};
use crate::model::Stream;
use crate::os;

/// A part of a line that has been quiet for so long is sent as it stands, so that a prompt is seen (R15).
const QUIET: Duration = Duration::from_millis(25);

/// How long, after the leader's exit, a pipe is read that another process holds open (R17).
pub const DRAIN: Duration = Duration::from_millis(250);

/// Bytes per read: enough that the reads do not count, and little enough that many streams take turns.
const READ: usize = 16 * 1024;

/// What the two readers of a process share.
pub struct Shared {
    /// Whose output this is.
    pub identity: Arc<Identity>,
    /// Where it goes.
    pub publisher: Publisher,
    /// Holds everything back until the spawn is answered.
    pub gate: GateWait,
    /// Opened after the leader's exit.
    pub ended: Arc<os::Latch>,
    /// Set before that, for a reader that never has to wait.
    pub exited: AtomicBool,
    /// The output cap.
    pub cap: Arc<Cap>,
}

/// Counts a process's output against its cap (R20).
pub struct Cap {
    most: u64,
    taken: AtomicU64,
    /// Bytes that were admitted, and discarded as part of a character that was not.
    cut: AtomicU64,
    said: AtomicBool,
}

impl Cap {
    /// At most so many bytes; 0 is no cap.
    pub fn new(most: u64) -> Self {
        let most = if most == 0 { u64::MAX } else { most };
        Self { most, taken: AtomicU64::new(0), cut: AtomicU64::new(0), said: AtomicBool::new(false) }
    }

    /// Bytes discarded so far.
    pub fn dropped(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).saturating_sub(self.most) + self.cut.load(Ordering::Relaxed)
    }

    /// Counts `size` more bytes and says how many of them may pass.
    fn admit(&self, size: usize) -> usize {
        let size = size as u64;
        let before = self.taken.fetch_add(size, Ordering::Relaxed);
        self.most.saturating_sub(before).min(size) as usize
    }

    /// True for the first caller.
    fn say_once(&self) -> bool {
        !self.said.swap(true, Ordering::Relaxed)
    }
}

/// Reads `pipe` to its end, or as far as R17 says, and publishes what it gives.
pub fn read(pipe: impl AsFd + Read, stream: Stream, shared: &Shared) {
    if shared.gate.wait().is_err() {
        return;
    }
    let mut reader = Reader { pipe, stream, shared, splitter: Splitter::default(), drain: None, capped: false };
    // An error is the end of the stream: a pipe gives none that could be acted on. A closed bus is the end of interest.
    let _ = reader.run();
}

struct Reader<'a, P> {
    pipe: P,
    stream: Stream,
    shared: &'a Shared,
    splitter: Splitter,
    drain: Option<Drain>,
    capped: bool,
}

/// The reading that is left after the leader's exit.
struct Drain {
    /// Bytes that were in the pipe at the exit and are not read yet: the process's own output is among them (R17).
    owed: u64,
    /// When the time for the others is over; moved on by every wait for the subscriber.
    until: Instant,
    /// Bytes that the others may still give: with a slow subscriber, one that never stops would never run out of time.
    spare: u64,
}

/// Bytes that others who hold the pipe may write after the leader's exit: a few pipes full.
const SPARE: u64 = 256 * 1024;

impl Drain {
    fn is_over(&self) -> bool {
        self.owed == 0 && (self.spare == 0 || Instant::now() >= self.until)
    }
}

enum Stop {
    End,
    Closed,
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl<P: AsFd + Read> Reader<'_, P> {
    fn run(&mut self) -> Result<(), Closed> {
        // Taken with the first word: most processes say nothing for most of the time, and many have nothing to say on one stream.
        let mut buffer = Vec::new();
        let mut last_read = Instant::now();
        loop {
            if self.drain.is_none() && self.shared.exited.load(Ordering::Acquire) {
                let owed = os::pending_bytes(&self.pipe).unwrap_or(0);
                self.drain = Some(Drain { owed, until: Instant::now() + DRAIN, spare: SPARE });
            }
            if self.drain.as_ref().is_some_and(Drain::is_over) {
                break;
            }
            match self.step(&mut buffer, &mut last_read) {
                Ok(()) => {}
                Err(Stop::End) => break,
                Err(Stop::Closed) => return Err(Closed),
            }
        }
        let rest = self.splitter.finish();
        self.publish_chunk(rest)
    }

    /// Reads once, or waits until there is something to read.
    fn step(&mut self, buffer: &mut Vec<u8>, last_read: &mut Instant) -> Result<(), Stop> {
        if buffer.is_empty() {
            if self.drain.is_none() && !self.wait(*last_read)? {
                return Ok(());
            }
            buffer.resize(READ, 0);
        }
        match self.pipe.read(buffer) {
            Ok(0) => Err(Stop::End),
            Ok(count) => {
                *last_read = Instant::now();
                Ok(self.take(&buffer[..count])?)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(*last_read).map(drop),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(Stop::End),
        }
    }

    fn take(&mut self, data: &[u8]) -> Result<(), Closed> {
        if let Some(drain) = &mut self.drain {
            let read = data.len() as u64;
            drain.spare = drain.spare.saturating_sub(read.saturating_sub(drain.owed));
            drain.owed = drain.owed.saturating_sub(read);
        }
        let admitted = self.shared.cap.admit(data.len());
        self.splitter.push(&data[..admitted]);
        let chunk = self.splitter.take();
        self.publish_chunk(chunk)?;
        if admitted < data.len() && !self.capped {
            self.capped = true;
            // A character that the cap cuts in two goes with what is discarded.
            let rest = self.splitter.flush();
            self.publish_chunk(rest)?;
            let cut = std::mem::take(&mut self.splitter).held();
            self.shared.cap.cut.fetch_add(cut as u64, Ordering::Relaxed);
            if self.shared.cap.say_once() {
                self.publish(EventKind::Capped { stream: self.stream })?;
            }
        }
        Ok(())
    }

    /// Waits for more to read, and says whether there is. What has been quiet for long enough is sent meanwhile.
    fn wait(&mut self, last_read: Instant) -> Result<bool, Stop> {
        let quiet = self.splitter.has_partial().then(|| last_read + QUIET);
        if let Some(drain) = &mut self.drain {
            // The pipe is empty: all that the process wrote before it ended has been read.
            drain.owed = 0;
        }
        let drained = self.drain.as_ref().map(|drain| drain.until);
        let until = [quiet, drained].into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let wake = self.drain.is_none().then(|| self.shared.ended.as_fd());
        let ready = os::wait_readable(&self.pipe, wake, timeout).map_err(|_| Stop::End)?;
        if !ready.data && quiet.is_some_and(|quiet| Instant::now() >= quiet) {
            let partial = self.splitter.flush();
            self.publish_chunk(partial)?;
        }
        Ok(ready.data)
    }

    fn publish_chunk(&mut self, chunk: Option<Chunk>) -> Result<(), Closed> {
        match chunk {
            Some(chunk) => self.publish(EventKind::Output { stream: self.stream, chunk }),
            None => Ok(()),
        }
    }

    /// Publishes, and does not count the wait for a slow subscriber against the drain (R17).
    fn publish(&mut self, kind: EventKind) -> Result<(), Closed> {
        let before = Instant::now();
        let event = Event { process: Arc::clone(&self.shared.identity), kind };
        let published = self.shared.publisher.publish(event);
        if let Some(drain) = &mut self.drain {
            drain.until += before.elapsed();
        }
        published
    }
}
