//! Answers on their way to one agent, in a lane of their own (R18). The `writer` says them, and events.
//!
//! Why the answer to a spawn precedes the process's events (R13), with two lanes:
//! 1. The peer queues the answer together with the process's gate.
//! 2. The writer takes it, writes it out, and only then opens the gate.
//! 3. No event of the process can be in the event lane before that.
//!
//! Events are encoded by the writer, answers by whoever gives them. Memory: the event lane is bounded by the engine; the
//! request thread stops taking requests while [`MAX_WAITING`] bytes of answers wait ([`Outbox::wait_for_room`]), and every
//! request has one answer, so the answer lane is bounded too. Those who answer never wait: the timer is among them.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::turns::Turns;
use crate::engine::Gate;
use crate::wire::message::{Message, encode};

/// Bytes of answers that may wait before no more requests are taken.
const MAX_WAITING: usize = 4 * 1024 * 1024;

/// How often somebody who waits for room looks whether the agent has gone, and for how many looks it may have taken nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOKS: u32 = 6;

/// Where answers are put. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    items: Sender<Item>,
    room: Arc<Room>,
    turns: Arc<Turns>,
}

/// Something that waits to be said.
pub enum Item {
    /// A line, newline included, and the gate that it opens.
    Answer {
        /// The line.
        line: Vec<u8>,
        /// To be opened when it is written.
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

/// Where answers wait.
pub struct Lane(Sender<Item>, Arc<Room>);

/// A new lane, and its end.
pub fn lane() -> (Lane, Answers) {
    let (sender, items) = unbounded();
    let room = Arc::new(Room::default());
    (Lane(sender, Arc::clone(&room)), Answers { items, room })
}

impl Outbox {
    /// Puts answers into `lane`, whose end the writer of `turns` has.
    pub fn new(lane: Lane, turns: &Arc<Turns>) -> Self {
        Self { items: lane.0, room: lane.1, turns: Arc::clone(turns) }
    }

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
        self.put_item(Item::Answer { line, gate });
        length
    }

    fn put_item(&self, item: Item) {
        // An output that is gone takes no answers.
        let _ = self.items.send(item);
        self.turns.take_one();
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
        self.put_item(Item::Finish);
    }
}

impl Answers {
    /// The next, if one waits.
    pub fn take(&self) -> Option<Item> {
        let item = self.items.try_recv().ok()?;
        if let Item::Answer { line, .. } = &item {
            self.room.waiting.lock().bytes -= line.len();
            self.room.freed.notify_all();
        }
        Some(item)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.room.waiting.lock().closed = true;
        self.room.freed.notify_all();
    }
}
