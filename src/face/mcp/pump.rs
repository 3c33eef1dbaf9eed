//! A connection that somebody else answers: lines go there as they came, and come back as they are. Only the ids in them are
//! looked at, so that requests which that side leaves unanswered still have an answer.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use super::Word;
use super::calls::Calls;
use super::message::{self, MAX_INPUT, Message, Parcel};
use super::outbox::Outbox;
use crate::transport::{Close, Connection, Line, LineReader};

/// How the other side's connection is closed, by whoever serves: the reader may be stuck in writing to it.
pub type Closing = Arc<Mutex<Option<Box<dyn Close>>>>;

/// The way there. Dropping it ends the other side's input, if `closing` does not have to.
pub struct Pump {
    output: Box<dyn Write + Send>,
    calls: Arc<Calls>,
    says: Sender<Word>,
}

impl Pump {
    /// Starts the thread `pump` for the way back. It ends when the other side does, or when `closing` aborts.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        there: Connection,
        calls: &Arc<Calls>,
        outbox: &Outbox,
        says: &Sender<Word>,
        closing: &Closing,
    ) -> io::Result<Self> {
        let back = Back { calls: Arc::clone(calls), outbox: outbox.clone(), says: says.clone() };
        let input = there.input;
        back.calls.enter();
        thread::Builder::new().name("pump".into()).spawn(move || back.run(input))?;
        *closing.lock() = there.closing;
        // Otherwise whoever serves has still to look there.
        if calls.is_over() {
            let closing = closing.lock().take();
            closing.iter().for_each(|closing| closing.abort());
        }
        Ok(Self { output: there.output, calls: Arc::clone(calls), says: says.clone() })
    }

    /// Sends a line there, given without its newline. False if the other side takes no more.
    pub fn pass(&mut self, line: &[u8]) -> bool {
        for message in messages(message::read(line)) {
            match message {
                Message::Request { id, .. } => self.calls.pass(&id),
                Message::Notification { method, params } => {
                    message::cancelled(&method, params).iter().for_each(|id| self.calls.cancel(id));
                }
                Message::Response(_) | Message::Invalid(..) => {}
            }
        }
        let passed = self.output.write_all(&[line, b"\n"].concat()).and_then(|()| self.output.flush());
        if passed.is_err() {
            let _ = self.says.try_send(Word::DeskEnded);
        }
        passed.is_ok()
    }
}

/// The way back.
struct Back {
    calls: Arc<Calls>,
    outbox: Outbox,
    says: Sender<Word>,
}

impl Back {
    fn run(self, input: impl Read) {
        let mut lines = LineReader::new(input, MAX_INPUT);
        while let Ok(Some(line)) = lines.next_line() {
            let Line::Whole(line) = line else { continue };
            for message in messages(message::read(line)) {
                if let Message::Response(id) = message {
                    self.calls.passed_back(&id);
                }
            }
            self.outbox.send(line);
        }
        let _ = self.says.try_send(Word::DeskEnded);
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        self.calls.leave();
    }
}

fn messages(parcel: Parcel<'_>) -> Vec<Message<'_>> {
    match parcel {
        Parcel::One(message) => vec![message],
        Parcel::Batch(messages) => messages,
        Parcel::Unreadable | Parcel::TooMany => Vec::new(),
    }
}
