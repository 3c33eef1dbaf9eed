//! Everything that is said to one agent: answers in a lane of their own, and events (R18). The [`Writer`] is the only one
//! that touches the output.
//!
//! Why the answer to a spawn precedes the process's events (R13), with two lanes:
//! 1. The peer queues the answer together with the process's gate.
//! 2. The writer takes it, writes it out, and only then opens the gate.
//! 3. No event of the process can be in the event lane before that.
//!
//! Events are encoded by the writer, answers by whoever gives them. Memory: the event lane is bounded by the engine; the
//! request thread stops taking requests while [`MAX_WAITING`] bytes of answers wait ([`Outbox::wait_for_room`]), and every
//! request has one answer, so the answer lane is bounded too. Those who answer never wait: the timer is among them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, select, unbounded};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Options;
use crate::engine::{Event, EventKind, Gate};
use crate::wire::dialect::{EventEncoder, Payload};
use crate::wire::message::{Message, encode};

/// Bytes of answers that may wait before no more requests are taken.
const MAX_WAITING: usize = 4 * 1024 * 1024;

/// How often somebody who waits for room looks whether the agent has gone, and for how many looks it may have taken nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOKS: u32 = 6;

/// Bytes after which the writer writes, though there is more to say.
const BATCH: usize = 64 * 1024;

/// Where answers are put. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    items: Sender<Item>,
    room: Arc<Room>,
}

enum Item {
    Answer {
        line: Vec<u8>,
        gate: Option<Gate>,
    },
    /// Nothing more will be said but what is queued.
    Finish,
}

/// The bytes of answers that wait, and whether anybody will take them.
#[derive(Default)]
struct Room {
    waiting: Mutex<Waiting>,
    freed: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: usize,
    closed: bool,
}

/// The taking side of an outbox.
pub struct Answers {
    items: Receiver<Item>,
    room: Arc<Room>,
}

/// A new outbox.
pub fn outbox() -> (Outbox, Answers) {
    let (sender, items) = unbounded();
    let room = Arc::new(Room::default());
    (Outbox { items: sender, room: Arc::clone(&room) }, Answers { items, room })
}

impl Outbox {
    /// Queues an answer, and returns its length in bytes, without the newline.
    pub fn put(&self, message: &impl Message) -> usize {
        self.put_line(encode(message), None)
    }

    /// The same of the answer to a spawn; the gate is opened when it is written.
    pub fn put_with_gate(&self, message: &impl Message, gate: Gate) -> usize {
        self.put_line(encode(message), Some(gate))
    }

    fn put_line(&self, line: Vec<u8>, gate: Option<Gate>) -> usize {
        let length = line.len().saturating_sub(1);
        self.room.waiting.lock().bytes += line.len();
        // An output that is gone takes no answers.
        let _ = self.items.send(Item::Answer { line, gate });
        length
    }

    /// Waits until there is room for more answers, or the output is gone. False if the agent has gone, as `has_gone` says, and
    /// takes no more answers either: one that has only closed its side after its last request is still owed all of them.
    pub fn wait_for_room(&self, has_gone: impl Fn() -> bool) -> bool {
        let mut waiting = self.room.waiting.lock();
        let mut taken_nothing = 0;
        while waiting.bytes > MAX_WAITING && !waiting.closed {
            let before = waiting.bytes;
            self.room.freed.wait_for(&mut waiting, LOOK_AGAIN);
            let gone = MutexGuard::unlocked(&mut waiting, &has_gone);
            taken_nothing = if gone && waiting.bytes >= before { taken_nothing + 1 } else { 0 };
            if taken_nothing == LOOKS {
                return false;
            }
        }
        true
    }

    /// Says that nothing more will be put.
    pub fn finish(&self) {
        let _ = self.items.send(Item::Finish);
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.room.waiting.lock().closed = true;
        self.room.freed.notify_all();
    }
}

/// Makes a writer leave out the output that is still to be said: there is only time for answers and ends.
#[derive(Clone)]
pub struct Hurry(Arc<AtomicBool>);

impl Hurry {
    /// From now on.
    pub fn now(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writes both lanes to the output.
pub struct Writer {
    output: Box<dyn Write + Send>,
    answers: Answers,
    events: Receiver<Event>,
    encoder: EventEncoder,
    first_event_delay: Duration,
    /// Whole lines that are not written yet.
    buffer: Vec<u8>,
    /// To be opened once they are.
    gates: Vec<Gate>,
    finishing: bool,
    hurry: Hurry,
}

impl Writer {
    /// A writer of these lanes.
    pub fn new(output: Box<dyn Write + Send>, answers: Answers, events: Receiver<Event>, options: &Options) -> Self {
        Self {
            output,
            answers,
            events,
            encoder: EventEncoder::new(options.dialect),
            first_event_delay: options.first_event_delay(),
            buffer: Vec::with_capacity(BATCH),
            gates: Vec::new(),
            finishing: false,
            hurry: Hurry(Arc::new(AtomicBool::new(false))),
        }
    }

    /// What makes it hurry.
    pub fn hurry(&self) -> Hurry {
        self.hurry.clone()
    }

    /// Writes until it is told to finish and all that was queued by then is written.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            self.take_answers()?;
            match self.events.try_recv() {
                Ok(event) => {
                    self.take_event(&event)?;
                    continue;
                }
                Err(TryRecvError::Disconnected) => self.events = crossbeam_channel::never(),
                Err(TryRecvError::Empty) => {}
            }
            if !self.answers.items.is_empty() {
                continue;
            }
            self.flush()?;
            if self.finishing {
                break;
            }
            self.wait()?;
        }
        Ok(())
    }

    /// Waits until either lane has something.
    fn wait(&mut self) -> io::Result<()> {
        select! {
            recv(self.answers.items) -> item => self.take_answer(item.unwrap_or(Item::Finish)),
            recv(self.events) -> event => match event {
                Ok(event) => self.take_event(&event),
                Err(_) => {
                    self.events = crossbeam_channel::never();
                    Ok(())
                }
            },
        }
    }

    /// Takes the answers that wait, but not so many that events would never have their turn.
    fn take_answers(&mut self) -> io::Result<()> {
        let mut taken = 0;
        while taken < BATCH {
            let Ok(item) = self.answers.items.try_recv() else { break };
            if let Item::Answer { line, .. } = &item {
                taken += line.len();
            }
            self.take_answer(item)?;
        }
        Ok(())
    }

    fn take_answer(&mut self, item: Item) -> io::Result<()> {
        match item {
            Item::Finish => self.finishing = true,
            Item::Answer { line, gate } => {
                self.buffer.extend_from_slice(&line);
                self.gates.extend(gate);
                self.answers.room.waiting.lock().bytes -= line.len();
                self.answers.room.freed.notify_all();
                if self.buffer.len() >= BATCH {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    /// Encodes an event of the engine, which may be many on the wire. Answers go in between.
    fn take_event(&mut self, event: &Event) -> io::Result<()> {
        let Event { process, kind } = event;
        let say = |writer: &mut Self, payload: Payload<'_>| {
            writer.encoder.encode(&process.id, &process.tag, payload, &mut writer.buffer);
        };
        match kind {
            EventKind::Output { stream, chunk } => {
                for piece in chunk.pieces() {
                    if self.hurry.0.load(Ordering::Relaxed) {
                        break;
                    }
                    let text = piece.text();
                    let bytes = matches!(text, std::borrow::Cow::Owned(_)).then_some(piece.bytes());
                    say(self, Payload::Text { stream: *stream, text: &text, bytes });
                    if self.buffer.len() >= BATCH {
                        self.flush()?;
                        self.take_answers()?;
                    }
                }
            }
            EventKind::Capped { stream } => say(self, Payload::Dropped { stream: *stream }),
            EventKind::Ended(outcome) => say(self, Payload::Ended(*outcome)),
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
