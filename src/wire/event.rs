//! Events as bytes, straight into the writer's buffer. This is the way of every line of output, so it does by hand what
//! `serde_json` does for the other messages; the tests hold it to what `serde_json` would write.
//!
//! What it buys, measured (BENCHMARKS.md): what is the same for all lines of one read is put together once, ids take
//! no system call, and text is escaped once, not written as JSON and then again as a JSON string.

use std::collections::HashMap;
use std::time::SystemTime;

use serde::Serialize;

use super::VERSION;
#[cfg(test)]
use super::dialect::Data;
use super::dialect::{Dialect, Payload, stream_type};
use super::json_text::escape;
use super::message::timestamp;
use crate::ids::Ids;
use crate::model::{Outcome, ProcId, Stream};

/// Writes events of one connection, keeping the counters that the SDK's dialect needs.
pub struct EventEncoder {
    dialect: Dialect,
    seq: HashMap<ProcId, u64>,
    ids: Ids,
    data: Vec<u8>,
    frame: Frame,
}

/// What the lines of one read have in common.
#[derive(Default)]
struct Frame {
    /// From the end of the id to `data`.
    middle: Vec<u8>,
    /// From the end of `data`.
    tail: Vec<u8>,
}

const HEAD: &[u8] = br#"{"type":"proc/read/event","id":""#;

impl EventEncoder {
    /// An encoder of this dialect.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, seq: HashMap::new(), ids: Ids::new(), data: Vec::new(), frame: Frame::default() }
    }

    /// The lines that one read gave. They have the time of the read's encoding.
    pub fn lines<'e>(&'e mut self, process: &ProcId, req_id: &str, stream: Stream) -> Lines<'e> {
        self.begin(process, req_id, stream_type(stream));
        let seq = match self.dialect {
            Dialect::Spec => 0,
            Dialect::Sdk => self.seq.get(process).copied().unwrap_or(0),
        };
        let process = (self.dialect == Dialect::Sdk).then(|| process.clone());
        Lines { encoder: self, stream, process, seq }
    }

    /// Appends the event that output is discarded from here on (R20).
    pub fn dropped(&mut self, process: &ProcId, req_id: &str, stream: Stream, out: &mut Vec<u8>) {
        let mut lines = self.lines(process, req_id, stream);
        lines.payload(Payload::Dropped { stream }, out);
    }

    /// Appends the terminal event (R17).
    pub fn ended(&mut self, process: &ProcId, req_id: &str, outcome: Outcome, out: &mut Vec<u8>) {
        let payload = Payload::Ended(outcome);
        let seq = self.seq.remove(process).unwrap_or(0);
        self.begin(process, req_id, payload.parts().0);
        self.line(payload, seq, out);
    }

    fn begin(&mut self, process: &ProcId, req_id: &str, stream_type: &str) {
        let Frame { middle, tail } = &mut self.frame;
        middle.clear();
        tail.clear();
        middle.extend_from_slice(br#"","version":""#);
        middle.extend_from_slice(VERSION.as_bytes());
        middle.extend_from_slice(br#"","ts":"#);
        write_json(middle, &timestamp(SystemTime::now()));
        middle.extend_from_slice(br#","proc_id":"#);
        write_json(middle, &process.as_str());
        middle.extend_from_slice(br#","stream_type":""#);
        middle.extend_from_slice(stream_type.as_bytes());
        middle.extend_from_slice(br#"","data":"#);
        tail.extend_from_slice(br#","req_id":"#);
        write_json(tail, &req_id);
        match self.dialect {
            Dialect::Spec => tail.extend_from_slice(b"}\n"),
            Dialect::Sdk => tail.extend_from_slice(br#","kind":"status","seq":"#),
        }
    }

    /// Any payload, in the frame that has begun.
    fn line(&mut self, payload: Payload<'_>, seq: u64, out: &mut Vec<u8>) {
        self.data.clear();
        write_json(&mut self.data, &payload.parts().1);
        self.open(out);
        match self.dialect {
            Dialect::Spec => {
                out.push(b'"');
                escape(&self.data, false, out);
                out.push(b'"');
            }
            Dialect::Sdk => out.extend_from_slice(&self.data),
        }
        self.close(seq, out);
    }

    /// The payload of nearly every line.
    fn text(&mut self, text: &str, seq: u64, out: &mut Vec<u8>) {
        self.open(out);
        match self.dialect {
            Dialect::Spec => {
                out.extend_from_slice(br#""{\"text\":\""#);
                escape(text.as_bytes(), true, out);
                out.extend_from_slice(br#"\"}""#);
            }
            Dialect::Sdk => {
                out.extend_from_slice(br#"{"text":""#);
                escape(text.as_bytes(), false, out);
                out.extend_from_slice(br#""}"#);
            }
        }
        self.close(seq, out);
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(HEAD);
        self.ids.write(out);
        out.extend_from_slice(&self.frame.middle);
    }

    fn close(&mut self, seq: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.frame.tail);
        if self.dialect == Dialect::Sdk {
            write_json(out, &seq);
            out.extend_from_slice(b"}\n");
        }
    }
}

/// The lines of one read, on their way.
pub struct Lines<'e> {
    encoder: &'e mut EventEncoder,
    stream: Stream,
    /// Whose counter is to be kept.
    process: Option<ProcId>,
    seq: u64,
}

impl Lines<'_> {
    /// Appends one; `bytes` if the text is not exact (R16).
    pub fn text(&mut self, text: &str, bytes: Option<&[u8]>, out: &mut Vec<u8>) {
        match bytes {
            None => {
                self.encoder.text(text, self.seq, out);
                self.seq += 1;
            }
            Some(_) => self.payload(Payload::Text { stream: self.stream, text, bytes }, out),
        }
    }

    fn payload(&mut self, payload: Payload<'_>, out: &mut Vec<u8>) {
        self.encoder.line(payload, self.seq, out);
        self.seq += 1;
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            self.encoder.seq.insert(process, self.seq);
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

    /// Says one payload, as the writer would.
    fn say(encoder: &mut EventEncoder, process: &ProcId, req_id: &str, payload: Payload<'_>, out: &mut Vec<u8>) {
        match payload {
            Payload::Text { stream, text, bytes } => encoder.lines(process, req_id, stream).text(text, bytes, out),
            Payload::Dropped { stream } => encoder.dropped(process, req_id, stream, out),
            Payload::Ended(outcome) => encoder.ended(process, req_id, outcome, out),
        }
    }

    fn lines(dialect: Dialect, payloads: &[Payload<'_>]) -> Vec<String> {
        let mut encoder = EventEncoder::new(dialect);
        let process = ProcId::fresh();
        let mut out = Vec::new();
        for payload in payloads {
            say(&mut encoder, &process, "p1", *payload, &mut out);
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

    /// What `serde_json` writes of the same event, with the id and the time of `line`.
    fn reference(dialect: Dialect, process: &ProcId, req_id: &str, payload: Payload<'_>, line: &[u8]) -> String {
        let read: serde_json::Value = serde_json::from_slice(line).unwrap();
        let id = read["id"].as_str().unwrap();
        // Read by std, which gives the very number back; `serde_json` may be off by the last bit.
        let (_, rest) = std::str::from_utf8(line).unwrap().split_once(r#""ts":"#).unwrap();
        let ts: f64 = rest.split(',').next().unwrap().parse().unwrap();
        let (proc_id, version, kind) = (process.as_str(), VERSION, "proc/read/event");
        let (stream_type, data) = payload.parts();
        let text = match dialect {
            Dialect::Spec => {
                let data = &serde_json::to_string(&data).unwrap();
                serde_json::to_string(&SpecEvent { kind, id, version, ts, proc_id, stream_type, data, req_id })
            }
            Dialect::Sdk => {
                let (message, kind, seq) = (kind, "status", read["seq"].as_u64().unwrap());
                serde_json::to_string(&SdkEvent {
                    message,
                    id,
                    version,
                    ts,
                    proc_id,
                    stream_type,
                    data,
                    req_id,
                    kind,
                    seq,
                })
            }
        };
        text.unwrap() + "\n"
    }

    proptest::proptest! {
        #[test]
        fn every_event_is_what_serde_json_writes(
            text in "(?s)(.|[\\x00-\\x1f\"\\\\\x7f/]){0,40}",
            req_id in "(?s)(.|[\\x00-\\x1f\"\\\\]){0,6}",
            inexact in proptest::option::of(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20)),
            which in 0..3,
        ) {
            for dialect in [Dialect::Spec, Dialect::Sdk] {
                let stream = Stream::Stderr;
                let payload = match which {
                    0 => Payload::Text { stream, text: &text, bytes: inexact.as_deref() },
                    1 => Payload::Dropped { stream },
                    _ => Payload::Ended(Outcome { exit: Exit::Code(text.len() as i32), cause: None }),
                };
                let process = ProcId::fresh();
                let mut out = Vec::new();
                say(&mut EventEncoder::new(dialect), &process, &req_id, payload, &mut out);
                assert_eq!(String::from_utf8_lossy(&out), reference(dialect, &process, &req_id, payload, &out));
            }
        }
    }
}
