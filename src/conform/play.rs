//! Plays a case: sends what it says, holds what comes to its steps and to the monitors (`conformance/README.md`, Blocks and
//! lanes). One thread; the other end is a `Peer`.

use std::fs::File;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::canned::CannedPeer;
use super::case::{Case, Role, Step, Verb};
use super::collecting::Collecting;
use super::exchange::Exchange;
use super::kit::Dialect;
use super::monitor::{Monitor, Violation};
use super::pattern::{self, Bindings, brief, shorten};
use super::peer::{Next, Peer};
use super::program::Program;

/// Why a case failed.
#[derive(Debug)]
pub struct Failure {
    pub rule: String,
    /// The line of the case, or 0 for the time after its last.
    pub line: usize,
    pub expected: String,
    pub came: String,
}

/// A fault of the case or of this runner, not of the program under test.
#[derive(Debug)]
pub enum Stop {
    Failed(Failure),
    Harness(String),
}

/// Where the other end is.
pub enum Other {
    Program(Box<Program>),
    Canned(CannedPeer),
}

impl Other {
    pub fn peer(&mut self) -> &mut dyn Peer {
        match self {
            Self::Program(program) => program.as_mut(),
            Self::Canned(canned) => canned,
        }
    }
}

pub struct Player<'a> {
    pub case: &'a Case,
    pub dialect: Dialect,
    pub ends_by_itself: bool,
    pub time_scale: f64,
    pub other: Other,
    /// One for each connection, whether it is open or not.
    pub monitors: [Monitor<'a>; 2],
    /// How many connections are open.
    pub open: usize,
    pub exchange: Exchange,
    pub folder: PathBuf,
    pub bindings: Bindings,
    pub fifos: Vec<(String, File)>,
    /// When the last thing was sent, for each branch; the last is that of the case itself.
    pub sent: f64,
    pub ids: u64,
    pub ended: bool,
}

/// What came, of what can be held to steps.
pub enum Came {
    Line(f64, usize, Vec<u8>),
    Exit(f64, i32),
    Nothing,
}

/// A step of a block that is not over.
struct Open<'s> {
    step: &'s Step,
    collecting: Option<Collecting>,
}

/// A sequence of steps that is under way.
pub struct Branch<'s> {
    rest: &'s [Step],
    open: Vec<Open<'s>>,
    sent: f64,
}

impl<'s> Branch<'s> {
    pub fn new(rest: &'s [Step], sent: f64) -> Self {
        Self { rest, open: Vec::new(), sent }
    }
}

pub type Played = Result<(), Stop>;

impl Player<'_> {
    /// Plays all of it.
    pub fn play(&mut self) -> Played {
        self.bindings.bind("tmp", json!(self.folder.to_string_lossy()));
        let steps = &self.case.steps;
        self.steps(steps)?;
        self.end()
    }

    fn steps(&mut self, steps: &[Step]) -> Played {
        let mut rest = steps;
        while let Some((step, after)) = rest.split_first() {
            let block = rest.iter().take_while(|step| is_expectation(step)).count();
            if block > 0 {
                let sent = self.sent;
                self.branches(vec![Branch::new(&rest[..block], sent)])?;
                rest = &rest[block..];
                continue;
            }
            self.step(step)?;
            rest = after;
        }
        Ok(())
    }

    /// Goes on with these until all are over.
    pub fn branches(&mut self, mut branches: Vec<Branch>) -> Played {
        loop {
            for branch in &mut branches {
                self.advance(branch)?;
            }
            let open = || branches.iter().flat_map(|branch| branch.open.iter().map(|open| (branch.sent, open)));
            let due = |(sent, open): &(f64, &Open)| sent + open.step.within * self.time_scale;
            let Some(first) = open().min_by(|a, b| due(a).total_cmp(&due(b))) else { return Ok(()) };
            let deadline = due(&first);
            match self.next(deadline, first.1.step.line)? {
                Came::Line(at, on, line) => {
                    let (message, shown) = self.saw(at, on, &line, first.1.step.line)?;
                    self.take(&mut branches, at, on, &message, &shown)?;
                }
                Came::Exit(_, code) => {
                    return Err(failed(
                        "missing",
                        first.1.step.line,
                        self.words(first.1),
                        format!("it ended with code {code}"),
                    ));
                }
                Came::Nothing => {
                    let waited = format!("nothing more, {:.1} s after the last that was sent", deadline - first.0);
                    return Err(failed("missing", first.1.step.line, self.words(first.1), waited));
                }
            }
        }
    }

    /// Sends what is to be sent now, and opens the block that follows.
    fn advance(&mut self, branch: &mut Branch) -> Played {
        while branch.open.is_empty() {
            let Some((step, after)) = branch.rest.split_first() else { return Ok(()) };
            let block = branch.rest.iter().take_while(|step| is_expectation(step)).count();
            if block == 0 {
                match &step.verb {
                    Verb::Send(message) => {
                        branch.sent = self.other.peer().now();
                        self.send(message, step)?;
                    }
                    _ => self.step(step)?,
                }
                branch.rest = after;
                continue;
            }
            let (steps, rest) = branch.rest.split_at(block);
            let open = |step| Ok(Open { step, collecting: self.collecting(step)? });
            branch.open = steps.iter().map(open).collect::<Result<_, Stop>>()?;
            branch.open.retain(|open| open.collecting.as_ref().is_none_or(|collecting| !collecting.is_over()));
            branch.rest = rest;
        }
        Ok(())
    }

    fn collecting(&self, step: &Step) -> Result<Option<Collecting>, Stop> {
        let Verb::Collect(collect) = &step.verb else { return Ok(None) };
        let collecting = Collecting::new(collect, &self.bindings);
        collecting.map(Some).map_err(|e| Stop::Harness(format!("line {}: {e}", step.line)))
    }

    /// Gives a message to the step that it must fit.
    fn take(&mut self, branches: &mut [Branch], at: f64, on: usize, message: &Value, shown: &str) -> Played {
        let lane = self.lane_of(message);
        let mut refused = None;
        for branch in branches.iter_mut() {
            let mine = |open: &Open| open.step.on == on && self.lane(open.step).as_ref() == Some(&lane);
            let Some(index) = branch.open.iter().position(mine) else { continue };
            let open = &mut branch.open[index];
            let outcome = match (&open.step.verb, &mut open.collecting) {
                (Verb::Expect(pattern), _) => pattern::fits(pattern, message, &mut self.bindings).map(|()| true),
                (_, Some(collecting)) => collecting.take(message, &mut self.bindings),
                _ => Ok(true),
            };
            match outcome {
                Ok(is_over) => {
                    let (after, line) = (open.step.after, open.step.line);
                    if is_over {
                        branch.open.remove(index);
                    }
                    if is_over && after > 0.0 && at - branch.sent < after {
                        let waited = format!("after {:.3} s: {shown}", at - branch.sent);
                        return Err(failed("early", line, format!("not before {after} s"), waited));
                    }
                    return Ok(());
                }
                Err(why) => refused = Some((open.step.line, format!("{} ({why})", self.words(&branch.open[index])))),
            }
        }
        match refused {
            Some((line, expected)) => Err(failed("match", line, expected, shown.to_owned())),
            None => {
                let open: Vec<_> =
                    branches.iter().flat_map(|branch| &branch.open).map(|open| self.words(open)).collect();
                let line = branches.iter().find_map(|branch| branch.open.first()).map_or(0, |open| open.step.line);
                Err(failed(
                    "unexpected",
                    line,
                    format!("nothing of lane {lane}{}; open: {}", place(on), open.join(" and ")),
                    shown.to_owned(),
                ))
            }
        }
    }

    /// The lane that a message belongs to.
    fn lane_of(&self, message: &Value) -> String {
        let text = |key: &str| message[key].as_str().unwrap_or_default();
        match (self.case.role, text("type")) {
            (Role::Client, kind) => kind.to_owned(),
            (Role::Host, "proc/read/event") => format!("process {:?}", text("proc_id")),
            (Role::Host, _) => format!("request {:?}", text("req_id")),
        }
    }

    /// The lane that a step waits on, once it is known.
    fn lane(&self, step: &Step) -> Option<String> {
        let resolve = |value: &Value| pattern::fill(value, &self.bindings).ok()?.as_str().map(ToOwned::to_owned);
        match &step.verb {
            Verb::Collect(collect) => Some(format!("process {:?}", resolve(&collect.proc_id)?)),
            Verb::Expect(pattern) if self.case.role == Role::Client => resolve(pattern.get("type")?),
            Verb::Expect(pattern) if pattern["type"] == "proc/read/event" => {
                Some(format!("process {:?}", resolve(pattern.get("proc_id")?)?))
            }
            Verb::Expect(pattern) => Some(format!("request {:?}", resolve(pattern.get("req_id")?)?)),
            _ => None,
        }
    }

    fn words(&self, open: &Open) -> String {
        let words = match (&open.step.verb, &open.collecting) {
            (_, Some(collecting)) => collecting.words(),
            (Verb::Expect(pattern), _) => brief(pattern),
            _ => String::new(),
        };
        words + place(open.step.on)
    }

    /// What comes next. What is no line where lines are due, and what was not taken, fails the case.
    pub fn next(&mut self, deadline: f64, step: usize) -> Result<Came, Stop> {
        loop {
            return match self.other.peer().next(deadline) {
                Next::Line(at, on, line) => Ok(Came::Line(at, on, line)),
                Next::Exit(at, code) => {
                    self.ended = true;
                    Ok(Came::Exit(at, code))
                }
                Next::Nothing => Ok(Came::Nothing),
                Next::Stray(line) => {
                    let words = "it is on standard output, though the lines go over a connection".to_owned();
                    Err(violated(Violation("line", words), step, shorten(String::from_utf8_lossy(&line).into_owned())))
                }
                Next::Refused(on, words) if self.monitors[on].is_ending() => {
                    // The session may be over already.
                    self.note(&format!("({words})"));
                    continue;
                }
                Next::Refused(on, words) => {
                    let expected = format!("a line is taken, with 200{}", place(on));
                    Err(violated(Violation("http", expected), step, words))
                }
            };
        }
    }

    /// Notes a line and shows it to the monitors.
    pub fn saw(&mut self, at: f64, on: usize, line: &[u8], step: usize) -> Result<(Value, String), Stop> {
        let text = String::from_utf8_lossy(line).into_owned();
        self.exchange.note(at, ["←", "b ←"][on], &text);
        let shown = shorten(text);
        match self.monitors[on].saw(line) {
            Ok(message) => Ok((message, shown)),
            Err(violation) => Err(violated(violation, step, shown)),
        }
    }
}

fn is_expectation(step: &Step) -> bool {
    matches!(step.verb, Verb::Expect(_) | Verb::Collect(_))
}

/// Where something is, if not on the connection that every case has.
fn place(on: usize) -> &'static str {
    if on == 0 { "" } else { " on connection b" }
}

pub fn failed(rule: &str, line: usize, expected: String, came: String) -> Stop {
    Stop::Failed(Failure { rule: rule.to_owned(), line, expected, came })
}

pub fn violated(Violation(monitor, words): Violation, line: usize, shown: String) -> Stop {
    failed(&format!("monitor:{monitor}"), line, words, shown)
}
