//! The sessions that agents have opened over HTTP, and their input: what they send, until they end it or have no stream for
//! too long.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded, never, select};
use parking_lot::Mutex;

use super::mailbox::{Mailbox, Output};
use crate::count::{Quota, Slot};
use crate::ids::fresh_id;
use crate::transport::{Close, Connection, Hangup};

/// How long a message may wait for a host that is busy with those before it.
const PATIENCE: Duration = Duration::from_secs(10);

/// One agent's session.
pub struct Session {
    /// What it is said.
    pub mailbox: Arc<Mailbox>,
    lines: Sender<Vec<u8>>,
    look: Sender<()>,
    _slot: Slot,
}

/// Why a message was not taken.
pub enum NotTaken {
    /// The session has ended.
    Ended,
    /// The host does not take messages now.
    Busy,
}

impl Session {
    /// Hands one line to the host, and waits until it takes it.
    pub fn send(&self, line: Vec<u8>) -> Result<(), NotTaken> {
        if self.mailbox.input_has_ended() {
            return Err(NotTaken::Ended);
        }
        self.lines.send_timeout(line, PATIENCE).map_err(|e| match e {
            SendTimeoutError::Timeout(_) => NotTaken::Busy,
            SendTimeoutError::Disconnected(_) => NotTaken::Ended,
        })
    }

    /// Ends the session as the end of its input does (R8).
    pub fn end_input(&self) {
        self.mailbox.end_input();
        self.look_again();
    }

    /// Has the input look whether there still is a stream.
    pub fn look_again(&self) {
        // If it is to look already, that will do.
        let _ = self.look.try_send(());
    }
}

/// All sessions, by id. Owned by the server; never locked while anything is waited for.
pub struct Table {
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    places: Quota,
    resume: Duration,
}

impl Table {
    /// No sessions, and so many places. A session without a stream is kept for `resume`.
    pub fn new(places: Quota, resume: Duration) -> Self {
        Self { sessions: Mutex::default(), places, resume }
    }

    /// A new session: its id, and its connection for whoever serves it. `None` if there is no place.
    pub fn open(self: &Arc<Self>) -> Option<(String, Connection)> {
        self.sweep();
        let slot = self.places.take().or_else(|| {
            self.forget_unread();
            self.places.take()
        })?;
        let id = fresh_id();
        let (lines, taken) = bounded(0);
        let (look, looks) = bounded(1);
        let mailbox = Arc::new(Mailbox::new());
        let input = Input { taken, looks, mailbox: Arc::clone(&mailbox), resume: self.resume, rest: Vec::new(), at: 0 };
        let (seen, resume) = (Arc::clone(&mailbox), self.resume);
        let closing = Closing { id: id.clone(), table: Arc::clone(self), mailbox: Arc::clone(&mailbox) };
        let connection = Connection {
            hangup: Some(Hangup::new(move || has_gone(&seen, resume))),
            closing: Some(Box::new(closing)),
            ..Connection::new(input, Output(Arc::clone(&mailbox)))
        };
        let session = Session { mailbox, lines, look, _slot: slot };
        self.sessions.lock().insert(id.clone(), Arc::new(session));
        Some((id, connection))
    }

    /// The session of this id.
    pub fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.sweep();
        self.sessions.lock().get(id).cloned()
    }

    /// Forgets the sessions that have ended, and whose agents have had their time to come back for the last words.
    fn sweep(&self) {
        let has_gone = |session: &Session| {
            session.mailbox.is_finished()
                && given_up_at(&session.mailbox, self.resume).is_some_and(|at| at <= Instant::now())
        };
        self.sessions.lock().retain(|_, session| !has_gone(session));
    }

    /// Forgets a session.
    pub fn forget(&self, id: &str) {
        let session = self.sessions.lock().remove(id);
        drop(session);
    }

    /// Forgets the sessions that have ended, and whose last words nobody is reading.
    fn forget_unread(&self) {
        let is_read = |session: &Session| !session.mailbox.is_finished() || session.mailbox.alone_since().is_none();
        self.sessions.lock().retain(|_, session| is_read(session));
    }

    /// Waits until the streams that are there have sent everything, but not past `deadline`.
    pub fn drain(&self, deadline: Instant) {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        for session in sessions {
            session.mailbox.wait_drained(deadline);
        }
    }
}

/// When an agent without a stream is given up; `None` while it has one.
fn given_up_at(mailbox: &Mailbox, resume: Duration) -> Option<Instant> {
    // A span that ends past the end of time has none.
    mailbox.alone_since().and_then(|since| since.checked_add(resume))
}

fn has_gone(mailbox: &Mailbox, resume: Duration) -> bool {
    mailbox.input_has_ended() || given_up_at(mailbox, resume).is_some_and(|at| at <= Instant::now())
}

/// What an agent sends. At its end when the agent ends it, or has had no stream for too long.
struct Input {
    taken: Receiver<Vec<u8>>,
    looks: Receiver<()>,
    mailbox: Arc<Mailbox>,
    resume: Duration,
    rest: Vec<u8>,
    at: usize,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.rest.len() {
            let given_up = given_up_at(&self.mailbox, self.resume);
            let given_up = given_up.map_or(never(), crossbeam_channel::at);
            select! {
                recv(self.taken) -> line => match line {
                    Ok(line) => (self.rest, self.at) = (line, 0),
                    // Everybody has forgotten the session.
                    Err(_) => return Ok(0),
                },
                recv(self.looks) -> _ => if self.mailbox.input_has_ended() {
                    return Ok(0);
                },
                recv(given_up) -> _ => if has_gone(&self.mailbox, self.resume) {
                    self.mailbox.end_input();
                    return Ok(0);
                },
            }
        }
        let mut rest = &self.rest[self.at..];
        let count = rest.read(buffer)?;
        self.at += count;
        Ok(count)
    }
}

/// The end of a session, for whoever serves it.
struct Closing {
    id: String,
    table: Arc<Table>,
    mailbox: Arc<Mailbox>,
}

impl Close for Closing {
    fn hurry(&self) {
        self.mailbox.hurry();
    }

    fn finish(&self) {
        self.mailbox.end_input();
        self.mailbox.hurry();
        if has_gone_for_good(&self.mailbox, self.table.resume) {
            self.table.forget(&self.id);
        } else if let Some(session) = self.table.get(&self.id) {
            session.look_again();
        }
    }

    // The input is at its end already, and the writer does not wait.
    fn abort(&self) {}
}

/// Nobody will read the last words.
fn has_gone_for_good(mailbox: &Mailbox, resume: Duration) -> bool {
    given_up_at(mailbox, resume).is_some_and(|at| at <= Instant::now())
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Also if nobody has served it.
        self.finish();
    }
}
