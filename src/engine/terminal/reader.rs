//! The reader of one terminal, on the thread `tty PID`: terminal → screen, and what the screen answers back to the terminal.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::super::output::DRAIN;
use super::super::process::Process;
use super::super::reply::Reply;
use super::SharedScreen;
use crate::os;

/// Bytes per read.
const READ: usize = 16 * 1024;

/// Bytes that are drawn before others may look at the screen: some sequences take long to draw, and a flood never ends.
const DRAWN_AT_ONCE: usize = 4 * 1024;

/// Bytes that are read after the leader's exit, if others hold the terminal open and go on writing. What the leader wrote is among
/// the first of them: a terminal holds less.
const SPARE: usize = 256 * 1024;

/// How long a terminal that nobody has open is left alone, unless the leader ends. The system does not tell of one that opens it.
const CLOSED_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Reader {
    pub pty: Arc<os::Pty>,
    pub screen: SharedScreen,
    pub process: Arc<Process>,
    /// Set after the leader's exit, and then `ended` is opened.
    pub exited: Arc<AtomicBool>,
    pub ended: Arc<os::Latch>,
}

/// The reading that is left after the leader's exit.
struct Drain {
    until: Instant,
    spare: usize,
}

impl Reader {
    /// Reads until nobody has the terminal open any more, or, after the leader's exit, as far as that is waited for.
    pub fn run(&self) {
        let mut buffer = vec![0; READ];
        let mut drain = None;
        loop {
            if drain.is_none() && self.exited.load(Ordering::Acquire) {
                drain = Some(Drain { until: Instant::now() + DRAIN, spare: SPARE });
            }
            match (&*self.pty).read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    self.take(&buffer[..count]);
                    if let Some(drain) = &mut drain {
                        drain.spare = drain.spare.saturating_sub(count);
                        if drain.spare == 0 {
                            break;
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait(drain.as_ref()) {
                        break;
                    }
                }
                // EIO: nobody has it open, and all is read. The leader may have closed it and open it again while it lives.
                Err(_) if drain.is_some() => break,
                Err(_) => {
                    let _ = os::wait_readable(&*self.ended, None, Some(CLOSED_PAUSE));
                }
            }
        }
    }

    /// Waits for more, or for the leader's exit. False if there is no more time for that.
    fn wait(&self, drain: Option<&Drain>) -> bool {
        match drain {
            None => os::wait_readable(&*self.pty, Some(self.ended.as_fd()), None).is_ok(),
            Some(drain) => {
                let left = drain.until.saturating_duration_since(Instant::now());
                !left.is_zero() && os::wait_readable(&*self.pty, None, Some(left)).is_ok()
            }
        }
    }

    fn take(&self, data: &[u8]) {
        for part in data.chunks(DRAWN_AT_ONCE) {
            let mut screen = self.screen.lock();
            let answer = screen.feed(part);
            MutexGuard::unlock_fair(screen);
            if !answer.is_empty() {
                // A program that asks and does not read the answers loses some.
                self.process.stdin.write(answer, false, Reply::new(|_| {}));
            }
        }
    }
}
