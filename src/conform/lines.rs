//! The threads that carry bytes and lines between this process and a program under test, over pipes or sockets. `peer` starts
//! them and hears from them.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// The longest line that is looked at, in bytes. A host sends pieces of 64 KiB, and a status of a thousand processes.
pub const LONGEST: u64 = 64 << 20;

/// How much of what the program says on standard error is kept, from its end.
const STDERR: usize = 16 * 1024;

/// What the threads have to say. The number is the connection's.
pub enum Said {
    Line(usize, Instant, Vec<u8>),
    /// Nothing more comes on this connection.
    End(usize, Instant),
    /// The program has exited.
    Exited(Instant),
    /// Text on standard output, though the lines go over a connection.
    Stray(Vec<u8>),
    /// What was sent could not be delivered, and why.
    Refused(usize, String),
}

/// Whether the output is read. The runner sets it, the readers wait for it.
pub type Reading = Arc<(Mutex<bool>, Condvar)>;

pub fn named(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|e| format!("no thread: {e}"))
}

/// A lock that a panic elsewhere does not take away.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what there is to write, to the end; then hands back what it wrote to, whose input it is to close.
pub fn write_all<W: Write>(mut to: W, to_write: &Receiver<Vec<u8>>) -> Option<W> {
    for bytes in to_write {
        if to.write_all(&bytes).is_err() {
            return None;
        }
    }
    Some(to)
}

/// Says each line that `next` finds, and the end.
pub fn say_lines(on: usize, mut next: impl FnMut() -> Option<Vec<u8>>, said: &SyncSender<Said>, reading: &Reading) {
    loop {
        let mut allowed = lock(&reading.0);
        while !*allowed {
            allowed = reading.1.wait(allowed).unwrap_or_else(PoisonError::into_inner);
        }
        drop(allowed);
        let Some(line) = next() else { break };
        if said.send(Said::Line(on, Instant::now(), line)).is_err() {
            return;
        }
    }
    let _ = said.send(Said::End(on, Instant::now()));
}

/// What finds the lines of a stream, without their newlines.
pub fn lines_of(stream: impl Read) -> impl FnMut() -> Option<Vec<u8>> {
    let mut stream = BufReader::with_capacity(64 * 1024, stream);
    move || {
        let mut line = Vec::new();
        match (&mut stream).take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        line.pop_if(|last| *last == b'\n');
        Some(line)
    }
}

pub fn keep_tail(mut stream: impl Read, kept: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut kept = lock(kept);
        kept.extend(&buffer[..count]);
        let over = kept.len().saturating_sub(STDERR);
        kept.drain(..over);
    }
}
