//! The lines of one client, one after the other: message → protocol → toolbox. Runs on the thread `requests`, which never waits
//! for a call: each has a thread `call`. It does wait for the desk to open, since what comes after may have to go elsewhere.

use std::io::Read;
use std::mem;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use super::calls::{Calls, Full, MOST};
use super::message::{self, INTERNAL, INVALID_REQUEST, Id, MAX_INPUT, MAX_OUTPUT, Message, Parcel};
use super::outbox::Outbox;
use super::protocol::{self, Era, Job, Wanted};
use super::pump::{Closing, Pump};
use super::tool::{Call, Done, Problem, Toolbox};
use super::{Opened, Server, Word};
use crate::transport::{Hangup, Line, LineReader};

/// Stack of a call's thread, in bytes.
const STACK: usize = 1 << 20;

/// Some programs begin what they write with it.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One client, as its server sees it.
pub struct Peer {
    pub server: Arc<Server>,
    pub calls: Arc<Calls>,
    pub outbox: Outbox,
    pub hangup: Option<Hangup>,
    pub says: Sender<Word>,
    pub closing: Closing,
    pub desk: Desk,
}

/// Who does what the tools say.
pub enum Desk {
    NotOpen,
    Here(Arc<dyn Toolbox>),
    There(Pump),
}

impl Peer {
    /// Serves lines until the input ends, the client has gone, or the session is over.
    pub fn run(mut self, input: impl Read) {
        // What is too long cannot be read.
        let mut lines = LineReader::new(input, MAX_INPUT);
        let mut is_first = true;
        while let Ok(Some(line)) = lines.next_line() {
            let is_first = mem::take(&mut is_first);
            let Line::Whole(line) = line else { continue };
            let line = if is_first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
            if self.calls.is_over() || !(line.trim_ascii().is_empty() || self.take(line)) {
                break;
            }
        }
    }

    /// False if there is no use in more lines.
    fn take(&mut self, line: &[u8]) -> bool {
        if let Desk::There(pump) = &mut self.desk {
            return pump.pass(line);
        }
        let (messages, batch) = match message::read(line) {
            Parcel::Unreadable => return true,
            Parcel::One(message) => (vec![message], None),
            Parcel::Batch(messages) if !messages.is_empty() => (messages, Some(Batch::new(&self.outbox))),
            Parcel::Batch(_) => return self.say(message::error(None, INVALID_REQUEST, "an empty array", None)),
            Parcel::TooMany => {
                return self.say(message::error(None, INVALID_REQUEST, "too many messages in an array", None));
            }
        };
        let in_batch = batch.is_some();
        let job = |message: Message<'_>| protocol::job(&self.server, message, in_batch);
        let jobs: Vec<Job> = messages.into_iter().map(job).collect();
        let mut refused = String::new();
        if matches!(self.desk, Desk::NotOpen) && jobs.iter().any(|job| matches!(job, Job::Call(_))) {
            match self.open() {
                Ok(desk) => self.desk = desk,
                Err(words) => refused = words,
            }
            if let Desk::There(pump) = &mut self.desk {
                return pump.pass(line);
            }
        }
        let reply = Reply { outbox: self.outbox.clone(), batch };
        jobs.into_iter().all(|job| self.act(job, &reply, &refused))
    }

    /// The first call of a tool opens the desk: a client that only looks around starts nothing.
    fn open(&self) -> Result<Desk, String> {
        Ok(match (self.server.open)()? {
            Opened::Here(toolbox) => Desk::Here(toolbox),
            Opened::There(there) => {
                let pump = Pump::start(there, &self.calls, &self.outbox, &self.says, &self.closing);
                Desk::There(pump.map_err(|e| format!("The desk cannot be reached: {e}. Try again."))?)
            }
        })
    }

    fn act(&self, job: Job, reply: &Reply, refused: &str) -> bool {
        match job {
            Job::Silence => {}
            Job::Cancel(id) => self.calls.cancel(&id),
            Job::Say(id, _) if self.calls.has(&id) => return self.reply(reply, &id, full(&id, &Full::InUse)),
            Job::Say(id, line) => return self.reply(reply, &id, line),
            Job::Subscribe(id) => {
                let line = match self.calls.subscribe(&id) {
                    Ok(()) => protocol::acknowledged(&id),
                    Err(why) => full(&id, &why),
                };
                return self.say(line);
            }
            Job::Call(wanted) => match &self.desk {
                Desk::Here(toolbox) => return self.call(toolbox, wanted, reply.clone()),
                _ => {
                    let outcome = Err(Problem::Refused(refused.to_owned()));
                    return self.reply(reply, &wanted.id, protocol::answer(&wanted.id, wanted.era, outcome));
                }
            },
        }
        true
    }

    fn call(&self, toolbox: &Arc<dyn Toolbox>, wanted: Wanted, reply: Reply) -> bool {
        let Wanted { id, era, tool, arguments, token } = wanted;
        let (number, cancelled) = match self.calls.begin(&id) {
            Ok(begun) => begun,
            Err(why) => return self.reply(&reply, &id, full(&id, &why)),
        };
        let call = Call::new(cancelled, token, &self.outbox);
        let owed = Owed { id, era, number, outcome: None, reply: Some(reply), calls: Arc::clone(&self.calls) };
        let toolbox = Arc::clone(toolbox);
        // A thread that the system does not give drops what is owed, which answers.
        let _ = thread::Builder::new().name("call".into()).stack_size(STACK).spawn(move || {
            let mut owed = owed;
            owed.outcome = Some(toolbox.call(tool, arguments, &call));
        });
        true
    }

    fn reply(&self, reply: &Reply, id: &Id, line: String) -> bool {
        match &reply.batch {
            Some(batch) => {
                batch.put(id, line);
                true
            }
            None => self.say(line),
        }
    }

    fn say(&self, line: String) -> bool {
        self.outbox.send_unless_gone(line, self.hangup.as_ref())
    }
}

impl Drop for Peer {
    /// However its thread has ended.
    fn drop(&mut self) {
        let _ = self.says.try_send(Word::InputEnded);
    }
}

fn full(id: &Id, why: &Full) -> String {
    match why {
        Full::InUse => message::error(Some(id), INVALID_REQUEST, "a request with this id is still open", None),
        Full::TooMany => {
            let words = format!("{MOST} requests of this kind are open; retry when one of them has ended");
            message::error(Some(id), INTERNAL, &words, None)
        }
        Full::Over => message::error(Some(id), INTERNAL, "the server is ending", None),
    }
}

/// Where the answers to a line go.
#[derive(Clone)]
struct Reply {
    outbox: Outbox,
    batch: Option<Arc<Batch>>,
}

impl Reply {
    fn put(&self, id: &Id, line: String) {
        match &self.batch {
            Some(batch) => batch.put(id, line),
            None => self.outbox.send(within(id, line, 0)),
        }
    }
}

/// The line, or an error in its place if the client would choke on it.
fn within(id: &Id, line: String, before: usize) -> String {
    if before + line.len() <= MAX_OUTPUT {
        return line;
    }
    let words = format!("the answer has {} bytes, more than clients take; ask for less", line.len());
    message::error(Some(id), INTERNAL, &words, None)
}

/// The answers to an array of requests. They are said when the last that may come has come: everybody who may still give one
/// holds the batch.
struct Batch {
    outbox: Outbox,
    answers: Mutex<(Vec<String>, usize)>,
}

impl Batch {
    fn new(outbox: &Outbox) -> Arc<Self> {
        Arc::new(Self { outbox: outbox.clone(), answers: Mutex::default() })
    }

    fn put(&self, id: &Id, line: String) {
        let mut answers = self.answers.lock();
        let line = within(id, line, answers.1);
        answers.1 += line.len() + 1;
        answers.0.push(line);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let answers = &self.answers.get_mut().0;
        // Notifications alone have none.
        if !answers.is_empty() {
            self.outbox.send(format!("[{}]", answers.join(",")));
        }
    }
}

/// The one answer that a call is owed. It is given when this is dropped, whatever has become of the call.
struct Owed {
    id: Id,
    era: Era,
    number: u64,
    /// None if the toolbox has panicked, or was not asked.
    outcome: Option<Result<Done, Problem>>,
    reply: Option<Reply>,
    calls: Arc<Calls>,
}

impl Drop for Owed {
    fn drop(&mut self) {
        let reply = self.reply.take();
        if let Some(reply) = &reply
            && self.calls.settle(&self.id, self.number)
        {
            let line = match self.outcome.take() {
                Some(outcome) => protocol::answer(&self.id, self.era, outcome),
                None => message::error(Some(&self.id), INTERNAL, "the server has lost this call", None),
            };
            reply.put(&self.id, line);
        }
        // Before the thread counts as gone: this may be what says a batch.
        drop(reply);
        self.calls.leave();
    }
}
