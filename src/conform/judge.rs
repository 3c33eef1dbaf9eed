//! One case against one program: starts it, has the case played, and says what came of it.

use std::collections::BTreeMap;
use std::path::Path;

use super::canned::CannedPeer;
use super::case::{Canned, Case, Level, Role, Step, Verb};
use super::connect::{self, Connect};
use super::exchange::Exchange;
use super::kit::{Profile, Schema, Setup};
use super::monitor::Monitor;
use super::pattern::Bindings;
use super::play::{Failure, Other, Player, Stop};
use super::program::Program;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    /// A SHOULD or MAY that failed.
    Warn,
    /// The profile, or the way to the host, does not grant what the case needs.
    Untestable,
    HarnessError,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Warn => "warn",
            Self::Untestable => "untestable",
            Self::HarnessError => "harness-error",
        }
    }
}

/// What came of a case, with all that is needed to understand it.
#[derive(Debug)]
pub struct Judgement {
    pub case: String,
    pub about: String,
    pub level: Option<Level>,
    pub req: Vec<String>,
    pub verdict: Verdict,
    pub seconds: f64,
    pub failure: Option<Failure>,
    /// Why it is untestable, or what went wrong here.
    pub words: String,
    pub exchange: Vec<String>,
    pub stderr: String,
}

impl Judgement {
    fn of(case: &Case, verdict: Verdict, words: String) -> Self {
        Self {
            case: case.id.clone(),
            about: case.about.clone(),
            level: Some(case.level),
            req: case.req.clone(),
            verdict,
            seconds: 0.0,
            failure: None,
            words,
            exchange: Vec::new(),
            stderr: String::new(),
        }
    }

    /// A case that could not be read.
    pub fn malformed(id: &str, words: String) -> Self {
        Self {
            case: id.to_owned(),
            about: String::new(),
            level: None,
            req: Vec::new(),
            verdict: Verdict::HarnessError,
            seconds: 0.0,
            failure: None,
            words,
            exchange: Vec::new(),
            stderr: String::new(),
        }
    }
}

/// What is under test, and how.
pub struct Bench<'a> {
    pub command: String,
    /// How the program is reached, if not on its standard streams.
    pub connect: Option<Connect>,
    pub profile: &'a Profile,
    pub schemas: &'a BTreeMap<String, Schema>,
    pub time_scale: f64,
}

impl Bench<'_> {
    /// Judges one case.
    pub fn judge(&self, case: &Case) -> Judgement {
        let lacks = if case.role == Role::Host { self.profile.lacks(case) } else { Vec::new() };
        if !lacks.is_empty() {
            return Judgement::of(
                case,
                Verdict::Untestable,
                format!("the profile does not grant {}", lacks.join(", ")),
            );
        }
        let lacks = connect::lacks(self.connect.as_ref(), case);
        if !lacks.is_empty() {
            return Judgement::of(case, Verdict::Untestable, format!("there is not {}", lacks.join(", nor ")));
        }
        let none = Setup::default();
        let setup = case.setup.as_ref().and_then(|name| self.profile.setups.get(name)).unwrap_or(&none);
        let mut env = setup.env.clone();
        if case.role == Role::Client {
            let what = case.header.get("do").map(ToString::to_string);
            env.push(("A2E_CONFORM_DO".to_owned(), what.unwrap_or_default()));
        }
        let folder = match tempfile::tempdir() {
            Ok(folder) => folder,
            Err(e) => return Judgement::of(case, Verdict::HarnessError, format!("no temporary folder: {e}")),
        };
        let program = match self.start(setup, &env, folder.path()) {
            Ok(program) => program,
            Err((words, stderr)) => {
                return Judgement { stderr, ..Judgement::of(case, Verdict::HarnessError, words) };
            }
        };
        let other = Other::Program(Box::new(program));
        let (judgement, other) = self.play(case, other, folder.path().to_path_buf());
        if let Other::Program(program) = other {
            program.finish();
        }
        judgement
    }

    /// The program, ready to be talked to; or why there is none, and what it said on standard error.
    fn start(&self, setup: &Setup, env: &[(String, String)], folder: &Path) -> Result<Program, (String, String)> {
        let silent = |words: String| (words, String::new());
        let (address, command, port) = match &self.connect {
            None => (None, self.command.clone(), None),
            Some(connect) => {
                let (address, command, port) = connect.filled(&self.command, folder).map_err(silent)?;
                if connect.running {
                    return Program::running(address, self.time_scale).map_err(silent);
                }
                (Some(address), command, Some(port))
            }
        };
        let mut program = Program::start(&command, &setup.args, env, address, self.time_scale).map_err(silent)?;
        program.port = port;
        match program.connect() {
            Ok(()) => Ok(program),
            Err(words) => {
                let stderr = program.stderr();
                program.finish();
                Err((words, stderr))
            }
        }
    }

    fn play(&self, case: &Case, other: Other, folder: std::path::PathBuf) -> (Judgement, Other) {
        let started = std::time::Instant::now();
        let mut player = Player {
            case,
            dialect: self.profile.dialect,
            ends_by_itself: case.role == Role::Client || self.profile.adopts("R8"),
            time_scale: self.time_scale,
            other,
            monitors: [(); 2].map(|()| Monitor::new(case.role, self.profile, self.schemas)),
            open: 1,
            exchange: Exchange::default(),
            folder,
            bindings: Bindings::default(),
            fifos: Vec::new(),
            sent: 0.0,
            ids: 0,
            ended: false,
        };
        let outcome = player.play();
        let Player { exchange, other, .. } = player;
        let mut judgement = match outcome {
            Ok(()) => Judgement::of(case, Verdict::Pass, String::new()),
            Err(Stop::Harness(words)) => Judgement::of(case, Verdict::HarnessError, words),
            Err(Stop::Failed(failure)) => {
                let verdict = if case.level == Level::Must { Verdict::Fail } else { Verdict::Warn };
                Judgement { failure: Some(failure), ..Judgement::of(case, verdict, String::new()) }
            }
        };
        judgement.seconds = started.elapsed().as_secs_f64();
        if judgement.verdict != Verdict::Pass {
            judgement.exchange = exchange.lines();
            judgement.stderr = if let Other::Program(program) = &other { program.stderr() } else { String::new() };
        }
        (judgement, other)
    }

    /// Judges a self-test: no program is started.
    pub fn judge_canned(&self, case: &Case) -> Judgement {
        let is_exit = |line: &Canned| matches!(line, Canned::Exit { .. });
        let says_when = |step: &Step| matches!(&step.verb, Verb::FromHost(lines) if lines.iter().any(is_exit));
        let peer = CannedPeer::new(case.steps.iter().any(says_when));
        self.play(case, Other::Canned(peer), std::path::PathBuf::from("/nowhere")).0
    }
}
