//! Lines on their way to the client. The thread `writer` alone touches the output, so lines are whole and no lock is held while
//! the client does not read.
//!
//! Memory: the queue is short and whoever has a line waits for room in it, so what waits is bounded by the calls that run.

use std::convert::Infallible;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, at, bounded, select};

use crate::transport::Hangup;

/// Lines that wait for the writer.
const MOST_WAITING: usize = 16;

/// How long a client that has closed its side may take nothing before it has gone.
const GONE_AFTER: Duration = Duration::from_millis(500);

/// Where lines are put. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    queue: Sender<Option<Vec<u8>>>,
    over: Receiver<Infallible>,
}

/// A new outbox; what the writer takes lines from, of which `None` is the last; and what keeps the outbox open: dropping it
/// lets go of all who wait for room.
pub fn lane() -> (Outbox, Receiver<Option<Vec<u8>>>, Sender<Infallible>) {
    let (queue, lines) = bounded(MOST_WAITING);
    let (open, over) = bounded(0);
    (Outbox { queue, over }, lines, open)
}

/// Writes lines until the last. The output's end comes with the return.
///
/// # Errors
/// What the output says.
pub fn write(mut output: impl Write, lines: &Receiver<Option<Vec<u8>>>) -> io::Result<()> {
    while let Ok(Some(line)) = lines.recv() {
        output.write_all(&line)?;
        output.flush()?;
    }
    Ok(())
}

impl Outbox {
    /// Puts a line, newline not included, as soon as there is room.
    pub fn send(&self, line: impl Into<Vec<u8>>) {
        select! {
            send(self.queue, Some(ended(line))) -> _ => {}
            recv(self.over) -> _ => {}
        }
    }

    /// The same for the thread that reads. False if the client has closed its side and takes no answers either: then nobody
    /// else would see it go.
    pub fn send_unless_gone(&self, line: impl Into<Vec<u8>>, hangup: Option<&Hangup>) -> bool {
        let mut line = Some(ended(line));
        loop {
            select! {
                send(self.queue, line.take()) -> _ => return true,
                recv(self.over) -> _ => return false,
                recv(after(GONE_AFTER)) -> _ => {
                    if hangup.is_some_and(Hangup::is_seen) {
                        return false;
                    }
                }
            }
        }
    }

    /// Puts one of the last lines, if there is room by `deadline`. `None` ends the writer.
    pub fn send_by(&self, deadline: Instant, line: Option<String>) {
        select! {
            send(self.queue, line.map(ended)) -> _ => {}
            recv(at(deadline)) -> _ => {}
        }
    }
}

fn ended(line: impl Into<Vec<u8>>) -> Vec<u8> {
    let mut line = line.into();
    line.push(b'\n');
    line
}
