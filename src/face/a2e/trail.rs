//! The audit trail of one connection: exactly one entry for each request that is handled, when it is answered. The peer opens
//! an entry as a request comes; whoever answers completes it.
//!
//! Owner of the entries that are still open: [`Trail`], under its lock, which is not held while the sink is called. There are
//! as many as requests that wait for their answer, and those are bounded. Where nobody keeps records, nothing is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::audit::{Audit, Entry};
use crate::engine::shell_words;
use crate::wire::code::NOT_FOUND;
use crate::wire::decode::Rejection;
use crate::wire::message::{ErrorMessage, HandshakeResp, KillResp, Message, Pong, SpawnResp, StatusResp, WriteResp};
use crate::wire::request::{Body, Proc, Request};

/// The longest text of an agent's that is kept, in bytes.
const LONGEST: usize = 1024;

/// The entries of one connection. Cheap to clone.
#[derive(Clone)]
pub struct Trail(Option<Arc<Shared>>);

struct Shared {
    audit: Audit,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session_id: String,
    opened: u64,
    open: BTreeMap<u64, Unanswered>,
}

struct Unanswered {
    since: Instant,
    entry: Entry,
}

/// When a line was read, and its length in bytes.
#[derive(Clone, Copy)]
pub struct Received {
    pub at: Instant,
    pub bytes: usize,
}

/// An entry that waits for its request's answer. The first to complete it is the only one.
pub struct Open(Option<(Arc<Shared>, u64)>);

impl Trail {
    /// A trail that leads to `audit`.
    pub fn new(audit: &Audit) -> Self {
        let shared = || Arc::new(Shared { audit: audit.clone(), state: Mutex::default() });
        Self(audit.is_kept().then(shared))
    }

    /// The session has this name from now on.
    pub fn name(&self, session_id: &str) {
        if let Some(shared) = &self.0 {
            let name = cut(session_id);
            let mut state = shared.state.lock();
            if state.session_id != name {
                name.clone_into(&mut state.session_id);
            }
        }
    }

    /// Opens the entry of a request that was understood.
    pub fn request(&self, received: Received, request: &Request) -> Open {
        self.open(received, |entry| {
            cut(&request.id).clone_into(&mut entry.req_id);
            cut(&request.correlation_id).clone_into(&mut entry.correlation_id);
            request.body.name().clone_into(&mut entry.kind);
            match &request.body {
                Body::Proc(Proc::Spawn(spawn)) => entry.cmd = shell_words(&spawn.cmd),
                Body::Proc(Proc::Write(write)) => cut(&write.proc_id).clone_into(&mut entry.proc_id),
                Body::Proc(Proc::Kill { proc_id, .. } | Proc::Status { proc_id }) => {
                    cut(proc_id).clone_into(&mut entry.proc_id);
                }
                Body::Handshake(_) | Body::Ping | Body::Shutdown { .. } => {}
            }
        })
    }

    /// Opens the entry of a line that was not.
    pub fn rejection(&self, received: Received, rejection: &Rejection) -> Open {
        self.open(received, |entry| {
            cut(&rejection.req_id).clone_into(&mut entry.req_id);
            cut(&rejection.correlation_id).clone_into(&mut entry.correlation_id);
            rejection.kind.clone_into(&mut entry.kind);
        })
    }

    fn open(&self, received: Received, fill: impl FnOnce(&mut Entry)) -> Open {
        let Some(shared) = &self.0 else { return Open(None) };
        let mut entry = Entry {
            at: SystemTime::UNIX_EPOCH,
            session_id: String::new(),
            req_id: String::new(),
            correlation_id: String::new(),
            success: false,
            duration: Duration::ZERO,
            error_code: None,
            input_bytes: received.bytes,
            output_bytes: 0,
            kind: String::new(),
            proc_id: String::new(),
            cmd: String::new(),
            outcome: String::new(),
        };
        fill(&mut entry);
        let mut state = shared.state.lock();
        state.opened += 1;
        let number = state.opened;
        state.open.insert(number, Unanswered { since: received.at, entry });
        Open(Some((Arc::clone(shared), number)))
    }

    /// The session is over: completes what nobody has answered.
    pub fn end(&self) {
        let Some(shared) = &self.0 else { return };
        let left: Vec<u64> = shared.state.lock().open.keys().copied().collect();
        for number in left {
            shared.complete(number, |entry| judge(entry, false, "", "unanswered"));
        }
    }
}

impl Shared {
    fn complete(&self, number: u64, finish: impl FnOnce(&mut Entry)) {
        let mut state = self.state.lock();
        let Some(Unanswered { since, mut entry }) = state.open.remove(&number) else { return };
        entry.session_id.clone_from(&state.session_id);
        drop(state);
        (entry.at, entry.duration) = (SystemTime::now(), since.elapsed());
        finish(&mut entry);
        self.audit.record(&entry);
    }
}

impl Open {
    /// The request has this answer, of so many bytes.
    pub fn answered(&self, answer: &impl Answer, bytes: usize) {
        self.complete(|entry| {
            entry.output_bytes = bytes;
            answer.tell(entry);
        });
    }

    /// The request has been done, and has no answer.
    pub fn done(&self, outcome: &str) {
        self.complete(|entry| judge(entry, true, outcome, ""));
    }

    fn complete(&self, finish: impl FnOnce(&mut Entry)) {
        if let Some((shared, number)) = &self.0 {
            shared.complete(*number, finish);
        }
    }
}

/// The start of a text that an agent sent.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Notes whether it went well. What is wrong is told as `code: words` (R5), of which the code is kept.
fn judge(entry: &mut Entry, ok: bool, outcome: &str, error: &str) {
    let code = error.split(':').next().unwrap_or_default();
    entry.success = ok;
    entry.error_code = (!ok).then(|| code.to_owned());
    entry.outcome = if ok { outcome } else { code }.to_owned();
}

/// What an answer tells of its request.
pub trait Answer: Message {
    /// Notes it.
    fn tell(&self, entry: &mut Entry);
}

impl Answer for HandshakeResp {
    fn tell(&self, entry: &mut Entry) {
        judge(entry, self.ok, "opened", &self.reason);
    }
}

impl Answer for Pong {
    fn tell(&self, entry: &mut Entry) {
        judge(entry, true, "pong", "");
    }
}

impl Answer for ErrorMessage {
    fn tell(&self, entry: &mut Entry) {
        judge(entry, false, "", self.code);
    }
}

impl Answer for SpawnResp {
    fn tell(&self, entry: &mut Entry) {
        entry.proc_id.clone_from(&self.proc_id);
        judge(entry, self.ok, "spawned", &self.error);
    }
}

impl Answer for WriteResp {
    fn tell(&self, entry: &mut Entry) {
        judge(entry, self.ok, "written", &self.error);
    }
}

impl Answer for KillResp {
    fn tell(&self, entry: &mut Entry) {
        judge(entry, self.ok, self.state, self.error.as_deref().unwrap_or_default());
    }
}

impl Answer for StatusResp {
    fn tell(&self, entry: &mut Entry) {
        judge(entry, self.status != NOT_FOUND, self.status, &self.error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_one_entry_whoever_completes_it() {
        let (sender, entries) = crossbeam_channel::unbounded();
        let trail = Trail::new(&Audit::new(move |entry: &Entry| sender.send(entry.clone()).unwrap()));
        let received = Received { at: Instant::now(), bytes: 7 };
        let ping = |id: &str| Request { id: id.into(), correlation_id: "é".repeat(LONGEST), body: Body::Ping };
        let (first, second) = (trail.request(received, &ping("1")), trail.request(received, &ping("2")));
        trail.name("s1");
        first.answered(&Pong { req_id: "1".into(), uptime_seconds: 0.0 }, 9);
        first.done("again");
        trail.end();
        trail.end();
        second.answered(&Pong { req_id: "2".into(), uptime_seconds: 0.0 }, 9);
        let entries: Vec<Entry> = entries.try_iter().collect();
        let told: Vec<_> = entries.iter().map(|e| (e.req_id.as_str(), e.outcome.as_str(), e.success)).collect();
        assert_eq!(told, [("1", "pong", true), ("2", "unanswered", false)]);
        let entry = &entries[0];
        assert_eq!((entry.input_bytes, entry.output_bytes, entry.session_id.as_str()), (7, 9, "s1"));
        assert_eq!(entry.correlation_id.len(), LONGEST);
    }
}
