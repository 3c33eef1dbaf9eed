//! What a face tells of each request that it has handled, for whoever keeps records. Floor 0: it knows neither JSON nor files.
//!
//! Like [`Log`](crate::log::Log), an [`Audit`] is handed what is to be kept; where that goes is the embedder's business.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// One request and what came of it. The first nine fields are those of the published SDK's audit log, in its order. Nothing
/// secret is in it: no token, no data, no environment. Texts that an agent has sent are cut after 1,024 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was answered, by the wall clock.
    pub at: SystemTime,
    /// The session's name; empty before it has one (R6).
    pub session_id: String,
    /// The request's id, as far as one could be read (R4).
    pub req_id: String,
    /// The agent's own name for what the request is part of; empty if it gave none.
    pub correlation_id: String,
    /// Whether what was asked for was done.
    pub success: bool,
    /// From the moment its line was read to its answer.
    pub duration: Duration,
    /// The code of the refusal or the error (R4, R5), or why a handshake was refused (R6); `unanswered` if the session ended
    /// first.
    pub error_code: Option<String>,
    /// Bytes of its line, without the newline.
    pub input_bytes: usize,
    /// Bytes of its answer, without the newline; 0 if there is none.
    pub output_bytes: usize,
    /// The message's `type`, as far as one could be read.
    pub kind: String,
    /// The process that it is about, or that it has spawned; empty if there is none.
    pub proc_id: String,
    /// The words of a spawn, quoted as a shell would need them.
    pub cmd: String,
    /// One word: `spawned`, `written`, `opened`, `pong`, `shutdown`, a process's status (R24), or the error's code.
    pub outcome: String,
}

/// A shared sink of entries. The sink must not block: it is called on threads that serve requests and on those that reap
/// processes, whose stacks are small. An entry comes when its request is answered, so not in the order of the requests.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Sink>>);

type Sink = dyn Fn(&Entry) + Send + Sync;

impl Audit {
    /// An audit that hands each entry to `sink`.
    pub fn new(sink: impl Fn(&Entry) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// An audit that keeps nothing.
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether anybody keeps records.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Hands an entry on.
    pub fn record(&self, entry: &Entry) {
        if let Some(sink) = &self.0 {
            sink(entry);
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.is_kept()).finish()
    }
}
