//! The agent's side of the connection: requests out, lines in through the monitor, now and then with a fault in between.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use a2e_proc::crossbeam_channel::{Receiver, bounded};
use a2e_proc::transport::Connection;
use serde_json::{Value, json};

use crate::monitor::{Monitor, is_terminal, payload};

/// A fault that must be caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    LostLine,
    ChangedText,
    DuplicateAnswer,
    LostAnswer,
    EventBeforeAnswer,
    EventAfterEnd,
    LostEnd,
    SecondEnd,
    WrongCode,
    WrongStatus,
    StrayLine,
    SameId,
    Thread,
    Descriptor,
    Zombie,
    Memory,
}

impl Plant {
    pub const ALL: [Self; 16] = [
        Self::LostLine,
        Self::ChangedText,
        Self::DuplicateAnswer,
        Self::LostAnswer,
        Self::EventBeforeAnswer,
        Self::EventAfterEnd,
        Self::LostEnd,
        Self::SecondEnd,
        Self::WrongCode,
        Self::WrongStatus,
        Self::StrayLine,
        Self::SameId,
        Self::Thread,
        Self::Descriptor,
        Self::Zombie,
        Self::Memory,
    ];

    /// What the run must fail with.
    pub fn caught_by(self) -> &'static str {
        match self {
            Self::LostLine | Self::ChangedText | Self::WrongCode => " came to ",
            Self::DuplicateAnswer => "answered twice",
            Self::LostAnswer => "never answered",
            Self::EventBeforeAnswer => "an event before the spawn's answer",
            Self::EventAfterEnd | Self::SecondEnd => "an event after the terminal event",
            Self::LostEnd => "never came to an end",
            Self::WrongStatus => "says two things",
            Self::StrayLine => "not protocol",
            Self::SameId => "an id came twice",
            Self::Thread | Self::Descriptor | Self::Zombie => "Holdings",
            Self::Memory => "memory",
        }
    }

    /// Whether the fault is in what the host says, and not in what this process holds.
    fn is_on_the_wire(self) -> bool {
        !matches!(self, Self::Thread | Self::Descriptor | Self::Zombie | Self::Memory)
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plant| format!("{plant:?}").eq_ignore_ascii_case(name))
    }
}

/// One connection to a host.
pub struct Agent {
    to_host: Option<Box<dyn Write + Send>>,
    lines: Receiver<String>,
    /// Until when, in ms since `started`, the reader does not read.
    stalled_until: Arc<AtomicU64>,
    started: Instant,
    /// Whether the fault has been put in, if there is one for the wire.
    planted: Arc<AtomicBool>,
    pub monitor: Monitor,
    sent: u64,
}

impl Agent {
    pub fn new(connection: Connection, plant: Option<Plant>) -> Self {
        let Connection { input, output, .. } = connection;
        let (sender, lines) = bounded(256);
        let (started, stalled_until) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let planted = Arc::new(AtomicBool::new(plant.is_none_or(|plant| !plant.is_on_the_wire())));
        let (until, done) = (Arc::clone(&stalled_until), Arc::clone(&planted));
        std::thread::spawn(move || {
            let mut fault = Fault { plant, done, seen: 0, held: None, last_id: String::new() };
            for line in BufReader::new(input).lines() {
                let stall = Duration::from_millis(until.load(Ordering::Relaxed)).saturating_sub(started.elapsed());
                if !stall.is_zero() {
                    std::thread::sleep(stall); // not reading is what this is for
                }
                let Ok(line) = line else { return };
                for line in fault.apply(format!("{line}\n")) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            }
        });
        let mut monitor = Monitor::default();
        monitor.strict = true;
        Self { to_host: Some(output), lines, stalled_until, started, planted, monitor, sent: 0 }
    }

    /// Sends a request and returns its id.
    pub fn send(&mut self, kind: &str, fields: Value) -> Result<String, String> {
        self.sent += 1;
        let id = format!("r{}", self.sent);
        let mut message = json!({"type": kind, "id": id, "version": "1.0", "ts": 1.5});
        message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.monitor.sent(&id);
        self.raw(&format!("{message}\n"))?;
        Ok(id)
    }

    /// Sends a line as it is.
    pub fn raw(&mut self, line: &str) -> Result<(), String> {
        let to_host = self.to_host.as_mut().ok_or("the connection is closed")?;
        to_host.write_all(line.as_bytes()).map_err(|e| format!("the host does not read: {e}"))
    }

    /// The next message that arrives in time, past the monitor.
    pub fn next(&mut self, within: Duration) -> Result<Option<Value>, String> {
        match self.lines.recv_timeout(within) {
            Ok(line) => self.monitor.saw(&line).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Whether nothing is left to be planted.
    pub fn has_planted(&self) -> bool {
        self.planted.load(Ordering::Relaxed)
    }

    /// Does not read for a while.
    pub fn stall(&self, time: Duration) {
        let until = (self.started.elapsed() + time).as_millis();
        self.stalled_until.store(u64::try_from(until).unwrap_or(0), Ordering::Relaxed);
    }

    /// Closes the way to the host, and takes all that it still says.
    pub fn close(&mut self) -> Result<(), String> {
        self.to_host = None;
        while let Ok(line) = self.lines.recv() {
            self.monitor.saw(&line)?;
        }
        self.monitor.end()
    }
}

/// What the planted fault makes of the lines that pass.
struct Fault {
    plant: Option<Plant>,
    done: Arc<AtomicBool>,
    seen: u32,
    held: Option<(String, String)>,
    last_id: String,
}

impl Fault {
    fn apply(&mut self, line: String) -> Vec<String> {
        let Some(plant) = self.plant else { return vec![line] };
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        let is_event = message["type"] == "proc/read/event";
        let is_output = is_event && payload(&message)["text"].is_string();
        let is_counted = is_output && payload(&message)["text"].as_str().is_some_and(|text| text != "y\n");
        let is_end = is_event && is_terminal(&message);
        let has_code = is_end && message["stream_type"] != "killed";
        let is_answer = message["type"].as_str().is_some_and(|kind| kind.ends_with("/resp"));
        let is_spawn = message["type"] == "proc/spawn/resp";
        let is_status =
            message["type"] == "proc/status/resp" && message["status"] == "running" && message["proc_id"] != "";
        let other_id = |line: &str| {
            let id = message["id"].as_str().unwrap_or_default();
            line.replacen(id, &"0123456789abcdef".repeat(2), 1)
        };
        // The held answer comes right after the first event of its process.
        if is_event && self.held.as_ref().is_some_and(|(request, _)| message["req_id"] == *request) {
            return std::iter::once(line).chain(self.held.take().map(|(_, held)| held)).collect();
        }
        // The warm-up is left alone, and a fault is planted once.
        let applies = match plant {
            Plant::LostLine | Plant::ChangedText => is_counted,
            Plant::DuplicateAnswer => is_answer,
            // A spawn whose answer is lost could not be ended.
            Plant::LostAnswer => is_answer && !is_spawn,
            Plant::EventBeforeAnswer => is_spawn,
            Plant::EventAfterEnd | Plant::LostEnd | Plant::SecondEnd => is_end,
            Plant::WrongCode => has_code,
            Plant::WrongStatus => is_status,
            Plant::StrayLine => is_event,
            Plant::SameId => true,
            Plant::Thread | Plant::Descriptor | Plant::Zombie | Plant::Memory => false,
        };
        self.seen += u32::from(applies);
        let last_id = std::mem::replace(&mut self.last_id, message["id"].as_str().unwrap_or_default().to_owned());
        let when = match plant {
            Plant::WrongStatus => 2,
            // Among the first there are only processes that say something.
            Plant::EventBeforeAnswer => 10,
            _ => 30,
        };
        if !applies || self.seen != when {
            return vec![line];
        }
        self.done.store(true, Ordering::Relaxed);
        match plant {
            Plant::LostLine | Plant::LostEnd | Plant::LostAnswer => Vec::new(),
            Plant::ChangedText => vec![line.replacen("\\\"text\\\":\\\"", "\\\"text\\\":\\\"!", 1)],
            Plant::DuplicateAnswer | Plant::SecondEnd => vec![line.clone(), other_id(&line)],
            Plant::EventAfterEnd => {
                let late = other_id(&line).replace("\"stream_type\":\"killed\"", "\"stream_type\":\"stdout\"");
                vec![line, late.replace("\"data\":\"{}\"", "\"data\":\"{\\\"text\\\":\\\"late\\\"}\"")]
            }
            Plant::EventBeforeAnswer => {
                self.held = Some((message["req_id"].as_str().unwrap_or_default().to_owned(), line));
                Vec::new()
            }
            Plant::WrongCode => vec![line.replace("\\\"code\\\":", "\\\"code\\\":1")],
            Plant::WrongStatus => vec![line.replace("\"status\":\"running\"", "\"status\":\"completed\"")],
            Plant::StrayLine => vec!["warning: something\n".into(), line],
            Plant::SameId => vec![line.replacen(message["id"].as_str().unwrap_or_default(), &last_id, 1)],
            Plant::Thread | Plant::Descriptor | Plant::Zombie | Plant::Memory => vec![line],
        }
    }
}
