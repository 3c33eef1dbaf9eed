//! What is done with the host at random, and what each process must come to.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Random;
use crate::agent::{Agent, Plant};
use crate::monitor::{is_terminal, payload};

/// Processes at once; the host's quota is the same.
pub const MOST: usize = 24;

pub const PROGRAMS: [&str; 5] = ["sh", "cat", "sleep", "yes", "true"];

/// In the command line of everything that sleeps, and of nothing else on this machine.
pub fn marker() -> String {
    format!("3600.{}", std::process::id())
}

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a process is for.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// Counts, and exits with a code.
    Counter { to: u64, code: i64 },
    /// Gives back what is written to it.
    Echo { written: String, eof: bool },
    /// Sleeps until it is killed.
    Sleeper,
    /// The same, deaf to SIGTERM.
    Stubborn,
    /// The same, with children.
    Tree,
    /// Sleeps until its time limit.
    Limited,
    /// Writes for ever.
    Flood,
    /// Exits, and leaves a child behind.
    Leaver,
}

struct Process {
    kind: Kind,
    id: String,
    stdout: String,
    killed: bool,
}

/// A run in progress.
pub struct Soak {
    agent: Agent,
    random: Random,
    plant: Option<Plant>,
    /// Spawned, by request id; the process id is empty until the answer is here.
    active: HashMap<String, Process>,
    /// The request ids of processes, by process id.
    by_id: HashMap<String, String>,
    /// Questions for the status of one process, by request id.
    asked: HashMap<String, String>,
    leaked: Vec<Vec<u8>>,
    spawned: u64,
    requests: u64,
    stalls: u64,
    bad_lines: u64,
    errors: u64,
    lines: u64,
}

impl Soak {
    pub fn new(agent: Agent, random: Random, plant: Option<Plant>) -> Self {
        Self {
            agent,
            random,
            plant,
            active: HashMap::new(),
            by_id: HashMap::new(),
            asked: HashMap::new(),
            leaked: Vec::new(),
            spawned: 0,
            requests: 0,
            stalls: 0,
            bad_lines: 0,
            errors: 0,
            lines: 0,
        }
    }

    /// Has every thread and table in place, so that what is measured before is what must be there after.
    pub fn warm_up(&mut self) -> Result<(), String> {
        for _ in 0..MOST {
            self.spawn(Kind::Counter { to: 100, code: 0 })?;
        }
        self.settle()
    }

    /// Does random things for `time`; longer if the fault to be planted has not come up by then.
    pub fn run(&mut self, time: Duration) -> Result<(), String> {
        self.plant_here();
        let end = Instant::now() + time;
        while Instant::now() < end || !self.agent.has_planted() && Instant::now() < end + PATIENCE {
            match self.random.below(20) {
                0..10 if self.active.len() < MOST => {
                    let kind = self.any_kind();
                    self.spawn(kind)?;
                }
                10..15 => self.disturb()?,
                15..17 => self.ask()?,
                17 => self.bad_line()?,
                18 if self.random.below(8) == 0 => {
                    self.stalls += 1;
                    self.agent.stall(Duration::from_millis(self.random.below(300)));
                }
                _ => {}
            }
            let wait = Duration::from_micros(self.random.below(3000));
            let until = Instant::now() + wait;
            while let Some(message) = self.agent.next(until.saturating_duration_since(Instant::now()))? {
                self.take(&message)?;
                // Beside a flood there is always more.
                if Instant::now() >= until {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends whatever runs, and waits until all has come to what it must.
    pub fn settle(&mut self) -> Result<(), String> {
        let requests: Vec<String> = self.active.keys().cloned().collect();
        let end = Instant::now() + PATIENCE;
        while !self.active.is_empty() || !self.asked.is_empty() {
            for request in &requests {
                self.end(request)?;
            }
            match self.agent.next(Duration::from_millis(100))? {
                // A flood that nothing ends would go on for ever.
                Some(_) if Instant::now() > end + PATIENCE => return Err("what comes does not end".into()),
                Some(message) => self.take(&message)?,
                None if Instant::now() > end && self.active.is_empty() => {
                    return Err(format!("never answered: {:?}", self.asked));
                }
                None if Instant::now() > end => {
                    let open: Vec<_> = self.active.values().map(|process| (&process.kind, &process.id)).collect();
                    return Err(format!("never came to an end: {open:?}"));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Closes the connection; nothing may be left unsaid.
    pub fn finish(&mut self) -> Result<(), String> {
        self.agent.close()?;
        if self.errors != self.bad_lines {
            return Err(format!("{} bad lines, {} errors", self.bad_lines, self.errors));
        }
        Ok(())
    }

    pub fn summary(&self) -> String {
        format!(
            "{} processes, {} requests, {} bad lines, {} stalls, {} lines checked",
            self.spawned, self.requests, self.bad_lines, self.stalls, self.lines
        )
    }

    fn any_kind(&mut self) -> Kind {
        match self.random.below(9) {
            0 | 1 => Kind::Counter { to: self.random.below(5000), code: self.random.below(3).cast_signed() },
            2 => Kind::Echo { written: String::new(), eof: false },
            3 => Kind::Sleeper,
            4 => Kind::Stubborn,
            5 => Kind::Tree,
            6 => Kind::Limited,
            7 if self.active.values().all(|process| process.kind != Kind::Flood) => Kind::Flood,
            _ => Kind::Leaver,
        }
    }

    fn spawn(&mut self, kind: Kind) -> Result<(), String> {
        let sh = |script: String| vec!["sh".to_owned(), "-c".to_owned(), script];
        let marker = marker();
        let cmd = match &kind {
            Kind::Counter { to, code } => {
                sh(format!("i=0; while [ $i -lt {to} ]; do echo $i; i=$((i+1)); done; exit {code}"))
            }
            Kind::Echo { .. } => vec!["cat".into()],
            Kind::Sleeper | Kind::Limited => vec!["sleep".into(), marker],
            Kind::Stubborn => sh(format!("trap '' TERM; while :; do sleep {marker}; done")),
            Kind::Tree => sh(format!("sleep {marker} & (sleep {marker} & wait) & wait")),
            Kind::Flood => vec!["yes".into()],
            Kind::Leaver => sh(format!("sleep {marker} & exit 4")),
        };
        let timeout = i32::from(kind == Kind::Limited);
        let request = self.send("proc/spawn/req", json!({"cmd": cmd, "timeout": timeout}))?;
        self.spawned += 1;
        self.active.insert(request, Process { kind, id: String::new(), stdout: String::new(), killed: false });
        Ok(())
    }

    fn send(&mut self, kind: &str, fields: Value) -> Result<String, String> {
        self.requests += 1;
        self.agent.send(kind, fields)
    }

    /// Does something to a process, of whatever kind it is.
    fn disturb(&mut self) -> Result<(), String> {
        let known: Vec<String> = self.active.iter().filter(|(_, p)| !p.id.is_empty()).map(|(r, _)| r.clone()).collect();
        if known.is_empty() {
            return Ok(());
        }
        let request = known[self.random.below(known.len() as u64) as usize].clone();
        let more = self.random.below(6);
        let length = self.random.below(3000) as usize;
        let process = self.active.get_mut(&request).ok_or("a process that is known is there")?;
        let id = process.id.clone();
        match &mut process.kind {
            Kind::Echo { written, eof } if !*eof && more > 0 => {
                let data = "≤é\n".repeat(length);
                written.push_str(&data);
                self.send("proc/write/req", json!({"proc_id": id, "data": data})).map(drop)
            }
            Kind::Sleeper | Kind::Stubborn if more == 1 => {
                let data = "x".repeat(length * 60);
                self.send("proc/write/req", json!({"proc_id": id, "data": data})).map(drop)
            }
            Kind::Counter { .. } | Kind::Limited | Kind::Leaver => Ok(()),
            _ if more < 4 => self.end(&request),
            _ => Ok(()),
        }
    }

    /// Has a process end, once, if it would not do so by itself.
    fn end(&mut self, request: &str) -> Result<(), String> {
        let signal = ["SIGTERM", "SIGKILL", "SIGINT"][self.random.below(3) as usize];
        let Some(process) = self.active.get_mut(request) else { return Ok(()) };
        if process.id.is_empty() || process.killed {
            return Ok(());
        }
        let id = process.id.clone();
        match &mut process.kind {
            Kind::Counter { .. } | Kind::Limited | Kind::Leaver => Ok(()),
            Kind::Echo { eof: true, .. } => Ok(()),
            Kind::Echo { eof, .. } => {
                *eof = true;
                self.send("proc/write/req", json!({"proc_id": id, "data": "", "eof": true})).map(drop)
            }
            Kind::Stubborn | Kind::Tree => {
                process.killed = true;
                // SIGINT does not end a shell that waits for its children.
                let signal = if signal == "SIGINT" { "SIGTERM" } else { signal };
                self.send("proc/kill/req", json!({"proc_id": id, "signal": signal})).map(drop)
            }
            Kind::Sleeper | Kind::Flood => {
                process.killed = true;
                self.send("proc/kill/req", json!({"proc_id": id, "signal": signal})).map(drop)
            }
        }
    }

    fn ask(&mut self) -> Result<(), String> {
        // Of any: an old one may have ended long ago, and its end still wait behind a flood.
        let known: Vec<_> = self.active.values().map(|process| &process.id).filter(|id| !id.is_empty()).collect();
        let chosen = self.random.below(known.len().max(1) as u64) as usize;
        match known.get(chosen).map(ToString::to_string) {
            Some(id) if self.random.below(4) > 0 => {
                let request = self.send("proc/status/req", json!({"proc_id": id}))?;
                self.asked.insert(request, id);
            }
            _ => {
                self.send("proc/status/req", json!({"proc_id": ""}))?;
            }
        }
        Ok(())
    }

    fn bad_line(&mut self) -> Result<(), String> {
        let lines = ["{nope", "[]", "{\"type\":\"ping\"}", "{\"type\":\"proc/spawn/req\",\"id\":\"\"}", "\u{2028}"];
        self.bad_lines += 1;
        self.agent.raw(&format!("{}\n", lines[self.random.below(lines.len() as u64) as usize]))
    }

    /// Takes one message that has passed the monitor.
    fn take(&mut self, message: &Value) -> Result<(), String> {
        self.lines += 1;
        let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
        match text("type").as_str() {
            "error" => self.errors += 1,
            "proc/spawn/resp" => {
                if message["ok"] != true {
                    return Err(format!("not spawned: {message}"));
                }
                let process = self.active.get_mut(&text("req_id")).ok_or("a spawn that nobody asked for")?;
                process.id = text("proc_id");
                self.by_id.insert(text("proc_id"), text("req_id"));
            }
            "proc/kill/resp" if message["ok"] == true && !["killed", "running"].contains(&text("state").as_str()) => {
                return Err(format!("a kill that came to nothing: {message}"));
            }
            "proc/status/resp" => {
                if let Some(id) = self.asked.remove(&text("req_id")) {
                    // A status that says it has ended must be followed by the end; one that says it runs, by it too.
                    let ended = !self.by_id.contains_key(&id);
                    if ended && text("status") == "running" {
                        return Err(format!("runs after its end: {message}"));
                    }
                    if text("status") == "completed" && message["procs"][0]["state"] == "running" {
                        return Err(format!("says two things: {message}"));
                    }
                }
            }
            "proc/read/event" => self.take_event(message, &text("req_id"))?,
            _ => {}
        }
        Ok(())
    }

    fn take_event(&mut self, message: &Value, request: &str) -> Result<(), String> {
        let process = self.active.get_mut(request).ok_or_else(|| format!("an event of nobody: {message}"))?;
        if !is_terminal(message) {
            let payload = payload(message);
            let text = payload["text"].as_str().unwrap_or_default();
            if process.kind == Kind::Flood {
                // Its last line may be cut by the kill.
                return if ["y\n", "y"].contains(&text) { Ok(()) } else { Err(format!("a flood of {message}")) };
            }
            process.stdout.push_str(text);
            return Ok(());
        }
        let process = self.active.remove(request).ok_or("the end of nobody")?;
        self.by_id.remove(&process.id);
        let killed = message["stream_type"] == "killed";
        let code = payload(message)["code"].as_i64();
        let good = match &process.kind {
            Kind::Counter { to, code: expected } => {
                code == Some(*expected) && process.stdout == (0..*to).map(|n| format!("{n}\n")).collect::<String>()
            }
            Kind::Echo { written, .. } => code == Some(0) && process.stdout == *written,
            Kind::Sleeper | Kind::Stubborn | Kind::Tree | Kind::Flood => killed && process.killed,
            Kind::Limited => killed,
            Kind::Leaver => code == Some(4),
        };
        if good {
            Ok(())
        } else {
            Err(format!("{:?} came to {message} after {} bytes", process.kind, process.stdout.len()))
        }
    }

    /// Plants the faults that are not on the wire.
    fn plant_here(&mut self) {
        match self.plant {
            Some(Plant::Thread) => {
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
            }
            Some(Plant::Descriptor) => std::mem::forget(std::fs::File::open("/dev/null")),
            Some(Plant::Zombie) => {
                // Never waited for, on purpose.
                #[allow(clippy::zombie_processes)]
                std::mem::forget(std::process::Command::new("true").spawn());
            }
            Some(Plant::Memory) => self.leaked.push(vec![1; 128 << 20]),
            _ => {}
        }
    }
}
