//! Events, in either dialect (R19): the specification's, whose `data` is a string that holds JSON, or the published SDK's,
//! whose `data` is the object itself, with `kind` and a counter.

use std::collections::HashMap;
use std::time::SystemTime;

use serde::Serialize;

use super::VERSION;
use super::base64;
use super::message::timestamp;
use crate::model::{Outcome, ProcId, Status, Stream, fresh_id};

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
pub enum Payload<'a> {
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

#[derive(Serialize)]
struct SpecEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    version: &'static str,
    ts: f64,
    proc_id: &'a str,
    stream_type: &'static str,
    data: &'a str,
    req_id: &'a str,
}

#[derive(Serialize)]
struct SdkEvent<'a> {
    #[serde(rename = "type")]
    message: &'static str,
    id: &'a str,
    version: &'static str,
    ts: f64,
    proc_id: &'a str,
    stream_type: &'static str,
    data: Data<'a>,
    req_id: &'a str,
    kind: &'static str,
    seq: u64,
}

/// The `data` payload. Absent keys are left out.
#[derive(Default, Serialize)]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<bool>,
}

const EVENT: &str = "proc/read/event";

/// Writes events of one connection, keeping the counters that the SDK's dialect needs.
pub struct EventEncoder {
    dialect: Dialect,
    seq: HashMap<ProcId, u64>,
    data: Vec<u8>,
}

impl EventEncoder {
    /// An encoder of this dialect.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, seq: HashMap::new(), data: Vec::new() }
    }

    /// Appends one event to `out`, as a line.
    pub fn encode(&mut self, process: &ProcId, req_id: &str, payload: Payload<'_>, out: &mut Vec<u8>) {
        let id = fresh_id();
        let ts = timestamp(SystemTime::now());
        let proc_id = process.as_str();
        let (stream_type, data) = payload.parts();
        match self.dialect {
            Dialect::Spec => {
                self.data.clear();
                write_json(&mut self.data, &data);
                let data = std::str::from_utf8(&self.data).expect("serde_json writes UTF-8");
                let event =
                    SpecEvent { kind: EVENT, id: &id, version: VERSION, ts, proc_id, stream_type, data, req_id };
                write_json(out, &event);
            }
            Dialect::Sdk => {
                let seq = self.next_seq(process, matches!(payload, Payload::Ended(_)));
                let (message, id, version, kind) = (EVENT, id.as_str(), VERSION, "status");
                let event = SdkEvent { message, id, version, ts, proc_id, stream_type, data, req_id, kind, seq };
                write_json(out, &event);
            }
        }
        out.push(b'\n');
    }

    fn next_seq(&mut self, process: &ProcId, last: bool) -> u64 {
        let next = self.seq.get(process).copied().unwrap_or(0);
        if last {
            self.seq.remove(process);
        } else {
            self.seq.insert(process.clone(), next + 1);
        }
        next
    }
}

impl<'a> Payload<'a> {
    /// `stream_type` and `data` (R17).
    fn parts(self) -> (&'static str, Data<'a>) {
        let name = |stream| match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        match self {
            Self::Text { stream, text, bytes } => {
                let base64 = bytes.map(base64::encode);
                (name(stream), Data { text: Some(text), base64, ..Data::default() })
            }
            Self::Dropped { stream } => (name(stream), Data { text: Some(""), dropped: Some(true), ..Data::default() }),
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

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("strings and numbers are JSON, and memory takes them");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Cause, Exit};

    fn lines(dialect: Dialect, payloads: &[Payload<'_>]) -> Vec<String> {
        let mut encoder = EventEncoder::new(dialect);
        let process = ProcId::fresh();
        let mut out = Vec::new();
        for payload in payloads {
            encoder.encode(&process, "p1", *payload, &mut out);
        }
        let tail = |line: &str| {
            let (_, tail) = line.split_once("\"stream_type\":").unwrap_or_else(|| panic!("{line}"));
            tail.to_owned()
        };
        String::from_utf8(out).unwrap().lines().map(tail).collect()
    }

    #[test]
    fn both_dialects_of_every_payload() {
        let ended = |exit, cause| Payload::Ended(Outcome { exit, cause });
        let payloads = [
            Payload::Text { stream: Stream::Stdout, text: "hello\n", bytes: None },
            Payload::Text { stream: Stream::Stderr, text: "\u{fffd}", bytes: Some(b"\xff") },
            Payload::Dropped { stream: Stream::Stdout },
            ended(Exit::Code(0), None),
        ];
        assert_eq!(
            lines(Dialect::Spec, &payloads),
            [
                r#""stdout","data":"{\"text\":\"hello\\n\"}","req_id":"p1"}"#,
                r#""stderr","data":"{\"text\":\"�\",\"base64\":\"/w==\"}","req_id":"p1"}"#,
                r#""stdout","data":"{\"text\":\"\",\"dropped\":true}","req_id":"p1"}"#,
                r#""stdout","data":"{\"code\":0}","req_id":"p1"}"#,
            ]
        );
        assert_eq!(
            lines(Dialect::Sdk, &payloads),
            [
                r#""stdout","data":{"text":"hello\n"},"req_id":"p1","kind":"status","seq":0}"#,
                r#""stderr","data":{"text":"�","base64":"/w=="},"req_id":"p1","kind":"status","seq":1}"#,
                r#""stdout","data":{"text":"","dropped":true},"req_id":"p1","kind":"status","seq":2}"#,
                r#""stdout","data":{"code":0},"req_id":"p1","kind":"status","seq":3}"#,
            ]
        );
        let ends = [
            (ended(Exit::Code(3), None), r#""stderr","data":"{\"code\":3}","req_id":"p1"}"#),
            (ended(Exit::Signal(15), None), r#""stderr","data":"{\"code\":-15}","req_id":"p1"}"#),
            (ended(Exit::Code(0), Some(Cause::Kill)), r#""killed","data":"{}","req_id":"p1"}"#),
            (ended(Exit::Signal(9), Some(Cause::Timeout)), r#""killed","data":"{}","req_id":"p1"}"#),
            (ended(Exit::Signal(9), Some(Cause::SessionEnd)), r#""killed","data":"{}","req_id":"p1"}"#),
        ];
        for (payload, expected) in ends {
            assert_eq!(lines(Dialect::Spec, &[payload]), [expected]);
        }
    }
}
