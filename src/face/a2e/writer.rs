//! Says answers and events to one agent: the only one that touches the output. Who has it, and when, is settled by `turns`.
//!
//! Answers come first, and again each [`BATCH`]: a flood of output does not delay them.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};

use super::Options;
use super::outbox::{Answers, Item};
use crate::engine::{Event, EventKind, Gate};
use crate::transport::{AT_ONCE, Room};
use crate::wire::event::EventEncoder;

/// Bytes after which it writes, though there is more to say.
const BATCH: usize = 64 * 1024;

/// The most output, in bytes and in lines, that is taken for little: on the wire a line has some 250 bytes more. Even if every byte
/// of it and of the spawn request's id (1 KiB) is escaped, it stays below [`BATCH`], at which saying an event may wait.
const LITTLE: (usize, usize) = (1024, 4);

/// Makes a writer leave out the output that is still to be said: there is only time for answers and ends.
#[derive(Clone)]
pub struct Hurry(Arc<AtomicBool>);

impl Hurry {
    /// From now on.
    pub fn now(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What came of saying a little.
pub enum Said {
    /// All that waited; by now there may be more.
    All,
    /// The rest takes the thread that may wait.
    NotAll,
}

/// Writes both lanes to the output.
pub struct Writer {
    output: Box<dyn Write + Send>,
    /// Tells whether a little can be written without waiting; `None` if that cannot be told.
    room: Option<Room>,
    answers: Answers,
    events: Receiver<Event>,
    encoder: EventEncoder,
    first_event_delay: Duration,
    /// Whole lines that are not written yet.
    buffer: Vec<u8>,
    /// An event that was too much to say without waiting.
    put_aside: Option<Event>,
    /// To be opened once what is in the buffer is written.
    gates: Vec<Gate>,
    finishing: bool,
    hurry: Hurry,
}

impl Writer {
    /// A writer of these lanes.
    pub fn new(
        output: Box<dyn Write + Send>,
        room: Option<Room>,
        answers: Answers,
        events: Receiver<Event>,
        options: &Options,
    ) -> Self {
        Self {
            output,
            room,
            answers,
            events,
            encoder: EventEncoder::new(options.dialect),
            first_event_delay: options.first_event_delay(),
            buffer: Vec::new(),
            put_aside: None,
            gates: Vec::new(),
            finishing: false,
            hurry: Hurry(Arc::new(AtomicBool::new(false))),
        }
    }

    /// What makes it hurry.
    pub fn hurry(&self) -> Hurry {
        self.hurry.clone()
    }

    /// Whether there is anything to say, or to end.
    pub fn has_more(&self) -> bool {
        !self.buffer.is_empty()
            || self.finishing
            || self.put_aside.is_some()
            || !self.answers.is_empty()
            || !self.events.is_empty()
    }

    /// Says what waits if it is little, and the output takes it at once. What is left is for [`Writer::say_all`].
    pub fn say_little(&mut self) -> io::Result<Said> {
        if !self.room.as_ref().is_some_and(Room::is_there) {
            return Ok(Said::NotAll);
        }
        while self.buffer.len() < AT_ONCE && self.put_aside.is_none() && !self.finishing {
            if let Some(item) = self.answers.take() {
                self.take_answer(item);
            } else if let Ok(event) = self.events.try_recv() {
                if is_little(&event) {
                    self.take_event(&event)?;
                } else {
                    self.put_aside = Some(event);
                }
            } else {
                break;
            }
        }
        if self.buffer.len() > AT_ONCE {
            return Ok(Said::NotAll);
        }
        self.flush()?;
        Ok(if self.put_aside.is_none() && !self.finishing { Said::All } else { Said::NotAll })
    }

    /// Says all that waits, however long the output takes. True if nothing more is to be said.
    pub fn say_all(&mut self) -> io::Result<bool> {
        loop {
            self.take_answers()?;
            let event = self.put_aside.take().map_or_else(|| self.events.try_recv(), Ok);
            match event {
                Ok(event) => {
                    self.take_event(&event)?;
                    continue;
                }
                Err(TryRecvError::Disconnected) => self.events = crossbeam_channel::never(),
                Err(TryRecvError::Empty) => {}
            }
            if !self.answers.is_empty() {
                continue;
            }
            self.flush()?;
            return Ok(self.finishing);
        }
    }

    /// Takes the answers that wait, but not so many that events would never have their turn.
    fn take_answers(&mut self) -> io::Result<()> {
        let mut taken = 0;
        while taken < BATCH
            && let Some(item) = self.answers.take()
        {
            taken += self.take_answer(item);
            if self.buffer.len() >= BATCH {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Its size in bytes.
    fn take_answer(&mut self, item: Item) -> usize {
        match item {
            Item::Finish => {
                self.finishing = true;
                0
            }
            Item::Answer { line, gate } => {
                self.buffer.extend_from_slice(&line);
                self.gates.extend(gate);
                line.len()
            }
        }
    }

    /// Encodes an event of the engine, which may be many on the wire. Answers go in between.
    fn take_event(&mut self, event: &Event) -> io::Result<()> {
        let Event { process, kind } = event;
        match kind {
            EventKind::Output { stream, chunk } => {
                let mut pieces = chunk.pieces().peekable();
                while pieces.peek().is_some() && !self.hurry.0.load(Ordering::Relaxed) {
                    let mut lines = self.encoder.lines(&process.id, &process.tag, *stream);
                    while self.buffer.len() < BATCH
                        && let Some(piece) = pieces.next()
                    {
                        let text = piece.text();
                        let bytes = matches!(text, Cow::Owned(_)).then_some(piece.bytes());
                        lines.text(&text, bytes, &mut self.buffer);
                    }
                    drop(lines);
                    if self.buffer.len() >= BATCH {
                        self.flush()?;
                        self.take_answers()?;
                    }
                }
            }
            EventKind::Capped { stream } => {
                self.encoder.dropped(&process.id, &process.tag, *stream, &mut self.buffer);
            }
            EventKind::Ended(outcome) => {
                self.encoder.ended(&process.id, &process.tag, *outcome, &mut self.buffer);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.output.write_all(&self.buffer)?;
            self.output.flush()?;
            // A single answer may have been large.
            self.buffer.clear();
            self.buffer.shrink_to(2 * BATCH);
        }
        for gate in self.gates.drain(..) {
            gate.open_after(self.first_event_delay);
        }
        Ok(())
    }
}

/// Whether an event is so little that saying it hardly ever takes more than [`AT_ONCE`] bytes.
fn is_little(event: &Event) -> bool {
    match &event.kind {
        EventKind::Output { chunk, .. } => chunk.bytes().len() <= LITTLE.0 && chunk.pieces().count() <= LITTLE.1,
        EventKind::Capped { .. } | EventKind::Ended(_) => true,
    }
}
