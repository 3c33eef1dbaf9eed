//! What is said to an agent over HTTP, until it has been read: lines wait here while no stream is attached, and are kept for a
//! while after they were sent, so that a stream that broke can go on after the last line that came through.
//!
//! Owner of the lines: [`Mailbox`], under its lock. The session's writer puts lines in; the thread of the attached stream
//! takes them. Memory: [`MAX_UNSENT`] and one write wait to be sent, then the writer waits (R18); [`MAX_KEPT`] of what was
//! sent is kept.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Bytes that may wait to be sent.
const MAX_UNSENT: usize = 256 * 1024;

/// Bytes that are kept after they were sent: as many as the systems on both sides may hold without the agent having read them.
const MAX_KEPT: usize = 8 * 1024 * 1024;

/// Bytes that a stream takes at once.
const BATCH: usize = 64 * 1024;

/// The lines of one session.
pub struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Sent and kept ones, then those that are to be sent.
    lines: VecDeque<Arc<[u8]>>,
    /// The number of the first in `lines`; they are counted from 1.
    first: u64,
    /// The number of the first that is to be sent.
    next: u64,
    /// The number of the first that no stream has taken.
    taken: u64,
    unsent: usize,
    kept: usize,
    /// A line whose end has not been written yet.
    partial: Vec<u8>,
    stream: Option<Attached>,
    streams: u64,
    /// Since when there has been no stream.
    alone_since: Instant,
    /// Nothing more will be put in.
    finished: bool,
    /// The writer is not to wait any more: what it still has are the last words, and there is no time.
    hurried: bool,
    /// The agent says nothing more.
    input_ended: bool,
}

/// The stream that takes lines now.
struct Attached {
    number: u64,
    socket: TcpStream,
    /// Has one byte in it when there is something to look at.
    wake: PipeWriter,
    woken: bool,
    /// Another stream waits for its place.
    leaving: bool,
}

/// A stream on its own thread.
pub struct Stream {
    mailbox: Arc<Mailbox>,
    number: u64,
    /// Readable when there is something to take.
    pub wake: PipeReader,
}

/// Why a stream cannot go on after a line.
#[derive(Debug, PartialEq, Eq)]
pub enum NoSuchLine {
    /// What came after it is not all kept any more.
    TooOld {
        /// The oldest line that is.
        oldest: u64,
    },
    /// No stream of this session has been given a line of that number.
    NeverGiven,
}

/// What a stream finds.
pub enum Taken {
    /// Lines with their numbers; say so when they are sent.
    Lines(Vec<(u64, Arc<[u8]>)>),
    /// Nothing yet.
    Nothing,
    /// Everything has been sent and nothing more will come.
    End,
    /// Another stream has taken its place.
    Replaced,
}

impl Mailbox {
    /// An empty one, without a stream.
    pub fn new() -> Self {
        let state = State {
            lines: VecDeque::new(),
            first: 1,
            next: 1,
            taken: 1,
            unsent: 0,
            kept: 0,
            partial: Vec::new(),
            stream: None,
            streams: 0,
            alone_since: Instant::now(),
            finished: false,
            hurried: false,
            input_ended: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Puts lines in, and waits for room first.
    fn put(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        while state.unsent >= MAX_UNSENT && !state.hurried {
            self.changed.wait(&mut state);
        }
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            state.partial.extend_from_slice(part);
            if state.partial.pop_if(|last| *last == b'\n').is_some() {
                let line: Arc<[u8]> = std::mem::take(&mut state.partial).into();
                state.unsent += line.len();
                state.lines.push_back(line);
            }
        }
        state.wake();
    }

    /// Attaches a stream, in the place of one that may be there. It begins after the line `after`, if that is given, else
    /// with the first that no stream has sent.
    ///
    /// Race: a stream takes over while the one before is sending.
    /// 1. The one before has handed lines to the system, and not said so yet.
    /// 2. The new one begins with the first that is not said to be sent: the agent gets them twice.
    ///
    /// So the new one waits until the one before has gone, whose socket is shut so that it cannot be stuck in a write.
    pub fn attach(self: &Arc<Self>, after: Option<u64>, socket: TcpStream) -> io::Result<Result<Stream, NoSuchLine>> {
        let (wait, wake) = io::pipe()?;
        let mut state = self.state.lock();
        // Looked at before the one that is there has to go, and again after that, since it may have sent more.
        if let Err(e) = state.find(after) {
            return Ok(Err(e));
        }
        while let Some(before) = &mut state.stream {
            before.leaving = true;
            // One that is closed already lets its thread go too.
            let _ = before.socket.shutdown(Shutdown::Both);
            state.wake();
            self.changed.wait(&mut state);
        }
        match state.find(after) {
            Ok(number) => state.rewind(number),
            Err(e) => return Ok(Err(e)),
        }
        // The agent may have had lines whole that no stream could say were sent: then there is room now.
        self.changed.notify_all();
        state.streams += 1;
        let number = state.streams;
        state.stream = Some(Attached { number, socket, wake, woken: false, leaving: false });
        state.wake();
        Ok(Ok(Stream { mailbox: Arc::clone(self), number, wake: wait }))
    }

    /// Since when there has been no stream, if there is none.
    pub fn alone_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.stream.is_none().then_some(state.alone_since)
    }

    /// Nothing more will be put in.
    fn finish(&self) {
        let mut state = self.state.lock();
        state.finished = true;
        state.wake();
        self.changed.notify_all();
    }

    /// Whether nothing more will be put in.
    pub fn is_finished(&self) -> bool {
        self.state.lock().finished
    }

    /// The writer is not to wait for room any more.
    pub fn hurry(&self) {
        self.state.lock().hurried = true;
        self.changed.notify_all();
    }

    /// Notes that the agent says nothing more.
    pub fn end_input(&self) {
        self.state.lock().input_ended = true;
    }

    /// Whether the agent says nothing more.
    pub fn input_has_ended(&self) -> bool {
        self.state.lock().input_ended
    }

    /// Waits until the attached stream has sent everything, or has gone, but not past `deadline`.
    pub fn wait_drained(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while state.stream.is_some() && !self.changed.wait_until(&mut state, deadline).timed_out() {}
    }
}

impl State {
    /// The number of the first line that a stream is to send which goes on after the line `after`.
    fn find(&self, after: Option<u64>) -> Result<u64, NoSuchLine> {
        match after.map(|after| after.saturating_add(1)) {
            None => Ok(self.next),
            Some(number) if number < self.first => Err(NoSuchLine::TooOld { oldest: self.first }),
            Some(number) if number > self.taken => Err(NoSuchLine::NeverGiven),
            Some(number) => Ok(number),
        }
    }

    fn wake(&mut self) {
        if let Some(stream) = &mut self.stream
            && !std::mem::replace(&mut stream.woken, true)
        {
            // The pipe is empty, so this does not wait; a stream that has gone will be replaced.
            let _ = stream.wake.write(&[1]);
        }
    }

    /// Makes `number` the first that is to be sent.
    fn rewind(&mut self, number: u64) {
        let size = |lines: &VecDeque<Arc<[u8]>>, from: u64, to: u64| -> usize {
            let index = |number: u64| usize::try_from(number - self.first).unwrap_or(usize::MAX);
            lines.range(index(from)..index(to)).map(|line| line.len()).sum()
        };
        if number < self.next {
            let again = size(&self.lines, number, self.next);
            (self.kept, self.unsent) = (self.kept - again, self.unsent + again);
        } else {
            let done = size(&self.lines, self.next, number);
            (self.kept, self.unsent) = (self.kept + done, self.unsent - done);
        }
        self.next = number;
    }
}

impl Stream {
    /// The next lines.
    pub fn take(&self) -> Taken {
        let mut state = self.mailbox.state.lock();
        let has_all = state.next == state.first + state.lines.len() as u64;
        match &mut state.stream {
            Some(attached) if attached.number == self.number && !attached.leaving => {
                if std::mem::take(&mut attached.woken) {
                    // One byte is there, so this does not wait.
                    let _ = (&self.wake).read(&mut [0]);
                }
            }
            _ => return Taken::Replaced,
        }
        if has_all {
            return if state.finished { Taken::End } else { Taken::Nothing };
        }
        let from = usize::try_from(state.next - state.first).unwrap_or(usize::MAX);
        let mut size = 0;
        let fits = |line: &&Arc<[u8]>| {
            let before = size;
            size += line.len();
            before < BATCH
        };
        let lines = state.lines.range(from..).take_while(fits).cloned();
        let lines: Vec<_> = (state.next..).zip(lines).collect();
        state.taken = state.taken.max(state.next + lines.len() as u64);
        Taken::Lines(lines)
    }

    /// Notes that every line up to and with `number` has been handed to the system.
    pub fn sent(&self, number: u64) {
        let mut state = self.mailbox.state.lock();
        if state.stream.as_ref().is_none_or(|attached| attached.number != self.number) {
            return;
        }
        state.rewind(number + 1);
        while state.kept > MAX_KEPT {
            let Some(line) = state.lines.pop_front() else { break };
            state.kept -= line.len();
            state.first += 1;
        }
        self.mailbox.changed.notify_all();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.mailbox.state.lock();
        if state.stream.as_ref().is_some_and(|attached| attached.number == self.number) {
            state.stream = None;
            state.alone_since = Instant::now();
            self.mailbox.changed.notify_all();
        }
    }
}

/// The writing side, for a session. Nothing more will be said once it is dropped.
pub struct Output(pub Arc<Mailbox>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn socket() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    /// A stream was given a line that fills the mailbox, the agent had it whole, and the stream broke before it could say so:
    /// the next one says it, and the writer, which waits for room, goes on.
    #[test]
    fn a_stream_that_goes_on_after_a_line_makes_room() {
        let mailbox = Arc::new(Mailbox::new());
        mailbox.put(&[vec![b'x'; MAX_UNSENT], b"\n".to_vec()].concat());
        let broken = mailbox.attach(None, socket()).unwrap().ok().unwrap();
        assert!(matches!(broken.take(), Taken::Lines(lines) if lines.len() == 1));
        drop(broken);
        let writer = Arc::clone(&mailbox);
        let (done, is_done) = std::sync::mpsc::channel();
        let writing = std::thread::spawn(move || {
            writer.put(b"more\n");
            done.send(()).unwrap();
        });
        let next = mailbox.attach(Some(1), socket()).unwrap().ok().unwrap();
        assert!(is_done.recv_timeout(std::time::Duration::from_secs(30)).is_ok(), "the writer still waits");
        writing.join().unwrap();
        assert!(matches!(next.take(), Taken::Lines(lines) if lines[0].0 == 2 && *lines[0].1 == *b"more"));
    }

    #[test]
    fn a_stream_goes_on_only_after_what_a_stream_was_given() {
        let mailbox = Arc::new(Mailbox::new());
        mailbox.put(b"1\n2\n");
        for after in [1, 2, 3, u64::MAX] {
            assert_eq!(mailbox.attach(Some(after), socket()).unwrap().err(), Some(NoSuchLine::NeverGiven));
        }
        let first = mailbox.attach(Some(0), socket()).unwrap().ok().unwrap();
        assert!(matches!(first.take(), Taken::Lines(lines) if lines.len() == 2));
        drop(first);
        assert!(mailbox.attach(Some(2), socket()).unwrap().is_ok());
    }
}
