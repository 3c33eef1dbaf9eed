//! One entry of the desk: what it is, where it stands, and what there is to say of it. The desk owns them, under its lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::life::{Idle, Run};
use super::project::Command;
use super::store::What;
use super::typing::{Sent, Stuck};
use crate::engine::terminal::{SharedScreen, Terminal};
use crate::model::Exit;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command of the project's file.
    Command,
    /// A shell.
    Terminal,
    /// A coding agent.
    Agent,
}

/// What an entry is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not started, or stopped on request.
    Stopped,
    /// Being started.
    Starting,
    /// Its process runs.
    Running,
    /// Its process has been asked to end.
    Stopping,
    /// It ended by itself, with exit code 0.
    Exited,
    /// It ended by itself with another code or by a signal, or could not be started.
    Failed,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Command, Self::Terminal, Self::Agent];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Terminal => "terminal",
            Self::Agent => "agent",
        }
    }
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Stopped, Self::Starting, Self::Running, Self::Stopping, Self::Exited, Self::Failed];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Exited => "exited",
            Self::Failed => "failed",
        }
    }

    /// Whether a process is there, or about to be.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Stopping)
    }
}

/// An entry.
pub(super) struct Entry {
    pub id: u64,
    pub name: String,
    pub what: What,
    /// Of a command: as the project's file has it; `None` once it has none any more.
    pub command: Option<Command>,
    pub run: Run,
    /// Of the run that is under way, once it has started.
    pub terminal: Option<Arc<Terminal>>,
    /// When that was.
    pub since: Option<Instant>,
    pub screen: SharedScreen,
    pub restarts: Restarts,
    /// Somebody is typing: one word and its Enter are not mixed with another's.
    pub is_typed_to: bool,
    pub deliveries: VecDeque<Sent>,
    pub stuck: Option<Stuck>,
}

/// What there is to say of an entry.
#[derive(Clone, Debug)]
pub struct View {
    /// Its number, which no other entry of the project has ever had.
    pub id: u64,
    /// Its name, which no other entry has now.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// What it is doing.
    pub status: Status,
    /// What it runs, as a shell would need it written.
    pub command: String,
    /// The leader's process id, while it runs.
    pub pid: Option<u32>,
    /// For how long it has run.
    pub uptime: Option<Duration>,
    /// How it ended, if it ended by itself: exit code or minus signal number.
    pub exit_code: Option<i32>,
    /// Why it could not be started, or is not started again.
    pub why: Option<String>,
    /// Of a command: it is started when the desk opens.
    pub auto_start: bool,
    /// Of a command: it is started again when it ends.
    pub auto_restart: bool,
    /// It is the one that was selected last.
    pub is_selected: bool,
}

impl Entry {
    pub fn kind(&self) -> Kind {
        match self.what {
            What::Command { .. } => Kind::Command,
            What::Terminal { .. } => Kind::Terminal,
            What::Agent { .. } => Kind::Agent,
        }
    }

    pub fn status(&self) -> Status {
        match &self.run {
            Run::Idle(Idle::Stopped) | Run::Closed => Status::Stopped,
            Run::Idle(Idle::Exited(Exit::Code(0))) => Status::Exited,
            Run::Idle(Idle::Exited(_) | Idle::NotStarted(_)) => Status::Failed,
            Run::Starting { .. } => Status::Starting,
            Run::Running { .. } => Status::Running,
            Run::Stopping { .. } => Status::Stopping,
        }
    }

    /// Whether it is shown: a command that is in the project's file no more is, while it runs; what has been closed is, until
    /// that is written down.
    pub fn is_there(&self) -> bool {
        self.kind() != Kind::Command || self.command.is_some() || self.status().is_active()
    }

    pub fn view(&self, command: String, is_selected: bool) -> View {
        let (mut exit_code, mut why) = (None, None);
        match &self.run {
            Run::Idle(Idle::Exited(exit)) => exit_code = Some(exit.code()),
            Run::Idle(Idle::NotStarted(words)) => why = Some(words.clone()),
            _ => {}
        }
        if self.restarts.is_paused && !self.status().is_active() {
            why = Some(PAUSED.to_owned());
        }
        View {
            id: self.id,
            name: self.name.clone(),
            kind: self.kind(),
            status: self.status(),
            command,
            pid: self.terminal.as_ref().map(|terminal| terminal.pid()),
            uptime: self.terminal.as_ref().and(self.since).map(|since| since.elapsed()),
            exit_code,
            why,
            auto_start: self.command.as_ref().is_some_and(|command| command.auto_start),
            auto_restart: self.command.as_ref().is_some_and(|command| command.auto_restart),
            is_selected,
        }
    }
}

/// Why an entry that is started again when it ends is not.
const PAUSED: &str =
    "it ended 10 times within 60 seconds, so it is not started again by itself; see what it says, then start it";

/// The automatic restarts of an entry, of which there are at most so many in a while.
#[derive(Default)]
pub(super) struct Restarts {
    recent: VecDeque<Instant>,
    pub is_paused: bool,
}

/// So many automatic restarts in so long a time are too many.
const MOST_RESTARTS: usize = 10;
const RESTARTS_WITHIN: Duration = Duration::from_secs(60);

impl Restarts {
    /// Counts one more, if it may be.
    pub fn take(&mut self, now: Instant) -> bool {
        while self.recent.front().is_some_and(|&first| now.duration_since(first) >= RESTARTS_WITHIN) {
            self.recent.pop_front();
        }
        self.is_paused = self.recent.len() >= MOST_RESTARTS;
        if !self.is_paused {
            self.recent.push_back(now);
        }
        !self.is_paused
    }

    /// Somebody has started it, and so has a new patience.
    pub fn begin_anew(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_paused_after_ten_in_a_minute() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            assert!(restarts.take(at(second)), "{second}");
        }
        assert!(!restarts.take(at(59)) && restarts.is_paused);
        assert!(restarts.take(at(60)) && !restarts.is_paused, "the first was a minute ago");
        assert!(!restarts.take(at(60)));
        restarts.begin_anew();
        assert!(restarts.take(at(61)));
    }
}
