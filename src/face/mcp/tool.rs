//! What a tool is, and who does what it says. The protocol's side of this is `protocol`; the desk's side is a [`Toolbox`].

use std::cell::Cell;
use std::convert::Infallible;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use serde_json::{Map, Value, json};

use super::message::{self, Id};
use super::outbox::Outbox;

/// A tool as clients are told of it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// `[a-z0-9_]`, less than 64 characters.
    pub name: &'static str,
    /// The name that people see.
    pub title: &'static str,
    /// What it does and when to use it.
    pub description: &'static str,
    /// JSON Schema of the arguments, within what `arguments` can check; the root is an object with `properties`.
    pub input: Value,
    /// JSON Schema of [`Done::structured`]; the root is an object.
    pub output: Value,
    /// What a client may want to ask its user about.
    pub annotations: Annotations,
}

/// Hints about a tool's effects. All four are always said: what is left out has a meaning that few expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: bool,
    /// It may end or remove something.
    pub destructive: bool,
    /// A second call with the same arguments changes nothing more.
    pub idempotent: bool,
    /// It reaches beyond the desk.
    pub open_world: bool,
}

/// What a call has come to: the same twice, for who reads text and for who reads data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// For a model.
    pub text: String,
    /// What the tool's output schema promises. Integers stay within 2^53: clients read them as floating point.
    pub structured: Map<String, Value>,
}

/// Why a call has not been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The model can do something about it; the words say what.
    Refused(String),
    /// The request is malformed in a way that the input schema does not tell.
    InvalidParams(String),
}

/// Who does what the tools say.
pub trait Toolbox: Send + Sync {
    /// Does one call, and returns soon after [`Call::cancelled`] ends; what has been done by then stays done. Calls come on
    /// threads of their own, many at once. The arguments satisfy the tool's input schema.
    ///
    /// # Errors
    /// When it has not been done.
    fn call(&self, tool: &'static Tool, arguments: Map<String, Value>, call: &Call) -> Result<Done, Problem>;
}

/// One call while it runs.
pub struct Call {
    cancelled: Receiver<Infallible>,
    progress: Option<Progress>,
}

struct Progress {
    token: Id,
    outbox: Outbox,
    /// The last value said. It keeps a call to one thread, so that values go out in their order.
    last: Cell<f64>,
}

impl Call {
    /// A call that ends when the other end of `cancelled` does, and tells of its progress if the request had a token.
    pub(super) fn new(cancelled: Receiver<Infallible>, token: Option<Id>, outbox: &Outbox) -> Self {
        let progress =
            token.map(|token| Progress { token, outbox: outbox.clone(), last: Cell::new(f64::NEG_INFINITY) });
        Self { cancelled, progress }
    }

    /// A call that no client has made, for whoever uses a toolbox directly. Dropping the sender cancels it.
    pub fn alone() -> (Sender<Infallible>, Self) {
        let (running, cancelled) = bounded(0);
        (running, Self { cancelled, progress: None })
    }

    /// Nothing ever comes on it; it is disconnected once nobody waits for the call's end any more.
    pub fn cancelled(&self) -> &Receiver<Infallible> {
        &self.cancelled
    }

    /// Whether nobody waits for its end any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Says how far it has come, in any unit, to a client that wants to know. What does not go beyond the last value is not said,
    /// nor is anything of a cancelled call. May wait for the client to read.
    pub fn progress(&self, done: f64, total: Option<f64>, words: &str) {
        let Some(progress) = &self.progress else { return };
        if !done.is_finite() || done <= progress.last.get() || self.is_cancelled() {
            return;
        }
        progress.last.set(done);
        progress.outbox.send(message::progress(&progress.token, done, total.filter(|total| total.is_finite()), words));
    }
}

impl Tool {
    /// As `tools/list` shows it.
    pub(super) fn shown(&self) -> Value {
        let Annotations { read_only, destructive, idempotent, open_world } = self.annotations;
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "outputSchema": self.output,
            "annotations": {
                "readOnlyHint": read_only,
                "destructiveHint": destructive,
                "idempotentHint": idempotent,
                "openWorldHint": open_world,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::mcp::outbox;

    #[test]
    fn progress_goes_up_and_ends_with_the_call() {
        let (running, cancelled) = bounded(0);
        let (outbox, lines, _open) = outbox::lane();
        let token = Id::read(r#""t""#).unwrap();
        let call = Call::new(cancelled, Some(token), &outbox);
        for done in [1.0, 1.0, f64::NAN, 0.5, f64::INFINITY, 2.5] {
            call.progress(done, Some(f64::INFINITY), "");
        }
        call.progress(3.0, Some(4.0), "nearly");
        assert!(!call.is_cancelled());
        drop(running);
        assert!(call.is_cancelled());
        call.progress(4.0, None, "never");
        let said: Vec<Value> = lines.try_iter().map(|line| serde_json::from_slice(&line.unwrap()).unwrap()).collect();
        let expected = [
            json!({"progressToken": "t", "progress": 1.0}),
            json!({"progressToken": "t", "progress": 2.5}),
            json!({"progressToken": "t", "progress": 3.0, "total": 4.0, "message": "nearly"}),
        ];
        assert_eq!(said.iter().map(|said| said["params"].clone()).collect::<Vec<_>>(), expected);
    }
}
