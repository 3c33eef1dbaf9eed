//! Events, in either dialect (R19): the specification's, whose `data` is a string that holds JSON, or the published SDK's,
//! whose `data` is the object itself, with `kind` and a counter. The bytes are put together in `event`.

use serde::Serialize;

use super::base64;
use crate::model::{Outcome, Status, Stream};

/// Which form events have on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Exactly the specification's keys.
    #[default]
    Spec,
    /// What the published Python SDK reads.
    Sdk,
}

/// What an event says, by reference.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// A piece of output; `bytes` if the text is not exact (R16).
    Text {
        /// Where it came from.
        stream: Stream,
        /// The text.
        text: &'a str,
        /// The exact bytes, if the text is not.
        bytes: Option<&'a [u8]>,
    },
    /// Output is discarded from here on (R20).
    Dropped {
        /// The stream that reached the cap.
        stream: Stream,
    },
    /// The terminal event (R17).
    Ended(Outcome),
}

/// The `data` payload. Absent keys are left out.
#[derive(Default, Serialize)]
pub(super) struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<bool>,
}

impl<'a> Payload<'a> {
    /// `stream_type` and `data` (R17).
    pub(super) fn parts(self) -> (&'static str, Data<'a>) {
        match self {
            Self::Text { stream, text, bytes } => {
                let base64 = bytes.map(base64::encode);
                (stream_type(stream), Data { text: Some(text), base64, ..Data::default() })
            }
            Self::Dropped { stream } => {
                (stream_type(stream), Data { text: Some(""), dropped: Some(true), ..Data::default() })
            }
            Self::Ended(outcome) => {
                let code = Data { code: Some(outcome.exit.code()), ..Data::default() };
                match outcome.status() {
                    Status::Completed => ("stdout", code),
                    Status::Killed | Status::TimedOut => ("killed", Data::default()),
                    Status::Failed | Status::Running => ("stderr", code),
                }
            }
        }
    }
}

/// What a stream is called.
pub(super) fn stream_type(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}
