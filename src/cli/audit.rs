//! The audit log, for `--audit`: one JSON line for each entry of [`a2e_proc::audit`], to a file or to standard error. One
//! thread, `audit`, writes; whoever has an entry never waits for it. Entries that find no room, or that cannot be written, are
//! counted, and the next line that is written says how many they were.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use a2e_proc::audit::{Audit, Entry};
use a2e_proc::log::{Level, Log};
use a2e_proc::transport::Output;
use a2e_proc::wire::message::timestamp;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use serde::Serialize;

use super::Complaint;
use super::rotate::{self, RotatingFile, Rotation};

/// Bytes of lines that may wait to be written.
const WAITING: usize = 8 * 1024 * 1024;

/// How long the last lines may take, and for how long none of them may be written.
const LAST_LINES: Duration = Duration::from_secs(1);
const NO_LINE: Duration = Duration::from_millis(200);

/// What stands for standard error.
const STDERR: &str = "-";

/// A line of the log: the published SDK's fields in its order, then this host's.
#[derive(Serialize)]
struct Record<'a> {
    ts: f64,
    session_id: &'a str,
    req_id: &'a str,
    correlation_id: &'a str,
    success: bool,
    duration_ms: u64,
    error_code: Option<&'a str>,
    input_bytes: usize,
    output_bytes: usize,
    #[serde(rename = "type")]
    kind: &'a str,
    proc_id: &'a str,
    cmd: &'a str,
    outcome: &'a str,
}

impl<'a> From<&'a Entry> for Record<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self {
            ts: timestamp(entry.at),
            session_id: &entry.session_id,
            req_id: &entry.req_id,
            correlation_id: &entry.correlation_id,
            success: entry.success,
            duration_ms: u64::try_from(entry.duration.as_millis()).unwrap_or(u64::MAX),
            error_code: entry.error_code.as_deref(),
            input_bytes: entry.input_bytes,
            output_bytes: entry.output_bytes,
            kind: &entry.kind,
            proc_id: &entry.proc_id,
            cmd: &entry.cmd,
            outcome: &entry.outcome,
        }
    }
}

/// The line that says how many entries are missing before the next.
#[derive(Serialize)]
struct Lost {
    ts: f64,
    #[serde(rename = "type")]
    kind: &'static str,
    count: u64,
}

/// One line of JSON, newline included.
fn line_of(value: &impl Serialize) -> Vec<u8> {
    // Strings and numbers are always JSON.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

enum Message {
    /// A line, and how many entries before it found no room.
    Line(Vec<u8>, u64),
    /// All that came before is written, if it could be: say so.
    Flush(Sender<()>),
}

/// The bytes that wait to be written, and the entries that found no room since the last that did.
#[derive(Default)]
struct Counts {
    waiting: AtomicUsize,
    lost: AtomicU64,
}

/// Has what was recorded written when it is dropped, at the end of the program; but not for ever.
pub struct Flush {
    messages: Sender<Message>,
    counts: Arc<Counts>,
}

impl Drop for Flush {
    fn drop(&mut self) {
        let (written, is_written) = bounded(1);
        let deadline = Instant::now() + LAST_LINES;
        if self.messages.send(Message::Flush(written)).is_err() {
            return;
        }
        let waiting = || self.counts.waiting.load(Ordering::Relaxed);
        loop {
            let before = waiting();
            let end = is_written.recv_deadline(deadline.min(Instant::now() + NO_LINE));
            if end != Err(RecvTimeoutError::Timeout) || waiting() >= before || Instant::now() >= deadline {
                break;
            }
        }
    }
}

/// An audit log in `file`, or on standard error if that is `-`. What goes wrong later is said in `log`.
pub fn open(file: &Path, rotation: Rotation, log: Log) -> Result<(Audit, Flush), Complaint> {
    let target = if file == Path::new(STDERR) {
        let stderr = Output::stderr().map_err(|e| Complaint::failure(format!("could not use standard error: {e}")))?;
        Target::Stderr(stderr)
    } else {
        Target::File(RotatingFile::open(file, rotation).map_err(|e| cannot_open(file, &e))?)
    };
    let counts = Arc::new(Counts::default());
    let (messages, waiting) = unbounded();
    let name = file.display();
    let writer = Writer {
        target,
        counts: Arc::clone(&counts),
        log,
        writing: Trouble::new(&name, "cannot be written, and entries are lost", "is written again"),
        rotating: Trouble::new(&name, "cannot be rotated, and grows", "is rotated again"),
        missing: 0,
    };
    thread::Builder::new()
        .name("audit".into())
        .spawn(move || writer.run(&waiting))
        .map_err(|e| Complaint::failure(format!("could not start the audit log's thread: {e}")))?;
    let flush = Flush { messages: messages.clone(), counts: Arc::clone(&counts) };
    let audit = Audit::new(move |entry| {
        let line = line_of(&Record::from(entry));
        let length = line.len();
        let is_full = counts.waiting.fetch_add(length, Ordering::Relaxed) + length > WAITING;
        if is_full {
            counts.waiting.fetch_sub(length, Ordering::Relaxed);
            counts.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            // The thread ends with the program.
            let _ = messages.send(Message::Line(line, counts.lost.swap(0, Ordering::Relaxed)));
        }
    });
    Ok((audit, flush))
}

/// Whether [`open`] would take this file, which is left as it is.
pub fn probe(file: &Path) -> Result<(), Complaint> {
    if file == Path::new(STDERR) { Ok(()) } else { rotate::probe(file).map_err(|e| cannot_open(file, &e)) }
}

fn cannot_open(file: &Path, error: &io::Error) -> Complaint {
    Complaint::usage(format!("audit: {}: cannot be opened: {error}", file.display()))
}

enum Target {
    Stderr(Output),
    File(RotatingFile),
}

/// The thread that writes.
struct Writer {
    target: Target,
    counts: Arc<Counts>,
    log: Log,
    writing: Trouble,
    rotating: Trouble,
    /// Entries that are missing since the last line that was written.
    missing: u64,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Line(line, lost) => {
                    self.missing += lost;
                    if !(self.tell_lost() && self.write(&line)) {
                        self.missing += 1;
                    }
                    self.counts.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Message::Flush(written) => {
                    self.missing += self.counts.lost.swap(0, Ordering::Relaxed);
                    self.tell_lost();
                    let _ = written.send(());
                }
            }
        }
    }

    /// Says how many entries are missing, if any are. False if that cannot be written.
    fn tell_lost(&mut self) -> bool {
        let count = self.missing;
        if count == 0 {
            return true;
        }
        let told = self.write(&line_of(&Lost { ts: timestamp(SystemTime::now()), kind: "audit/lost", count }));
        if told {
            self.missing = 0;
        }
        told
    }

    /// Writes one line. False if it could not.
    fn write(&mut self, line: &[u8]) -> bool {
        let written = match &mut self.target {
            Target::Stderr(stderr) => stderr.write_all(line),
            Target::File(file) => {
                let appended = file.append(line);
                // A file that is not there says nothing of how it can be rotated.
                if appended.written.is_ok() {
                    self.rotating.note(&self.log, &appended.rotated);
                }
                appended.written
            }
        };
        self.writing.note(&self.log, &written);
        written.is_ok()
    }
}

/// Something that goes wrong again and again, and is said once; and once more when it is over.
struct Trouble {
    begins: String,
    ends: String,
    is_said: bool,
}

impl Trouble {
    fn new(name: &impl Display, begins: &str, ends: &str) -> Self {
        let of_log = |words| format!("the audit log {name} {words}");
        Self { begins: of_log(begins), ends: of_log(ends), is_said: false }
    }

    fn note(&mut self, log: &Log, result: &io::Result<()>) {
        match result {
            Err(e) if !self.is_said => log.say(Level::Error, format_args!("{}: {e}", self.begins)),
            Ok(()) if self.is_said => log.say(Level::Error, format_args!("{}", self.ends)),
            _ => return,
        }
        self.is_said = !self.is_said;
    }
}
