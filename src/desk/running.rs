//! Starting, stopping and restarting entries: orders go through the machine in `life`, and what it says is done without the
//! desk's lock.
//!
//! Race: two restarts of one entry.
//! 1. The first finds it running: its process is asked to end, and the next is to be started then.
//! 2. The second finds it stopping, with the next to be started then: there is nothing to add.
//! 3. The process ends. Its run is the one that is under way, so the next is launched, once.
//!
//! Race: a process ends before its start is heard of.
//! 1. The thread that launches is in `open_terminal`. The process starts, and ends.
//! 2. Its waiter says so. The entry is starting, so that is kept.
//! 3. The start is heard of, and with it the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::never;

use super::entry::{Kind, Status};
use super::life::{Effect, Input, Run};
use super::store::What;
use super::trust::Trust;
use super::{ASK, Desk, Entry, OVER, Refused, Shared, State, Target, View};
use crate::engine::terminal::{Terminal, TerminalRequest};
use crate::log::Level;
use crate::model::Outcome;

/// What may be asked of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Start,
    Stop,
    Restart,
    Close,
}

/// What one order to all commands came to.
#[derive(Clone, Debug, Default)]
pub struct All {
    /// Those that it reached.
    pub done: Vec<View>,
    /// Those that it did not, and why.
    pub refused: Vec<(String, Refused)>,
}

impl Desk {
    /// Has an entry run. One that does already is left as it is.
    ///
    /// # Errors
    /// When there is no such entry, or its command is not trusted.
    pub fn start(&self, target: &Target) -> Result<View, Refused> {
        self.order(target, Order::Start)
    }

    /// Has an entry not run: its whole session is asked to end, and made to after the grace period (2 s).
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn stop(&self, target: &Target) -> Result<View, Refused> {
        self.order(target, Order::Stop)
    }

    /// Has an entry run anew, in one copy, whoever else asks for it at the same time.
    ///
    /// # Errors
    /// As [`Desk::start`]; what runs goes on then.
    pub fn restart(&self, target: &Target) -> Result<View, Refused> {
        self.order(target, Order::Restart)
    }

    /// Takes a terminal or an agent off the desk, for good, once its process has ended.
    ///
    /// # Errors
    /// When there is no such entry, or it is a command of the project's file.
    pub fn close_entry(&self, target: &Target) -> Result<View, Refused> {
        if self.view(target)?.kind == Kind::Command {
            return Err(Refused(
                "a command stands in the project's file and cannot be closed; stop_process stops it, and whoever takes it \
                 out of the file takes it off the desk"
                    .into(),
            ));
        }
        self.order(target, Order::Close)
    }

    /// Starts every command of the project's file.
    pub fn start_all(&self) -> All {
        self.order_all(Order::Start, None)
    }

    /// Stops every command of the project's file, but not the one whose process asks.
    pub fn stop_all(&self, caller: Option<u64>) -> All {
        self.order_all(Order::Stop, caller)
    }

    /// Restarts every command of the project's file, but not the one whose process asks. One that does not run is started.
    pub fn restart_all(&self, caller: Option<u64>) -> All {
        self.order_all(Order::Restart, caller)
    }

    fn order_all(&self, order: Order, caller: Option<u64>) -> All {
        let mut all = All::default();
        for view in self.list().into_iter().filter(|view| view.kind == Kind::Command) {
            if Some(view.id) == caller {
                all.refused.push((view.name, Refused("it is the one that you run in".into())));
                continue;
            }
            match self.order(&Target::Id(view.id), order) {
                Ok(view) => all.done.push(view),
                Err(refused) => all.refused.push((view.name, refused)),
            }
        }
        all
    }

    fn order(&self, target: &Target, order: Order) -> Result<View, Refused> {
        // What stops something does not wait for the disk.
        if matches!(order, Order::Start | Order::Restart) {
            self.shared.refresh();
        }
        let view = self.view(target)?;
        self.shared.begin_anew(view.id);
        self.shared.order(view.id, order)?;
        // One that was closed while it did not run is there no more.
        Ok(self.view(&Target::Id(view.id)).unwrap_or(View { status: Status::Stopped, ..view }))
    }
}

/// The words that start the user's shell, or `sh`.
pub(super) fn shell(extra_args: &[String]) -> Vec<String> {
    let shell = std::env::var("SHELL").ok().filter(|shell| shell.starts_with('/')).unwrap_or_else(|| "/bin/sh".into());
    [vec![shell], extra_args.to_vec()].concat()
}

impl Shared {
    /// Gives an order to an entry, and does what follows.
    pub(super) fn order(&self, id: u64, order: Order) -> Result<(), Refused> {
        if matches!(order, Order::Start | Order::Restart) {
            // What may not run is refused to whoever asks; the launch itself looks again.
            self.request(id)?;
        }
        let input = match order {
            Order::Start => Input::Start,
            Order::Stop => Input::Stop,
            Order::Restart => Input::Restart,
            Order::Close => Input::Close,
        };
        let mut state = self.state.lock();
        if state.is_closing && order != Order::Stop {
            return Err(Refused("the desk is being closed".into()));
        }
        let effect = state.feed(id, input);
        drop(state);
        self.act(id, effect);
        Ok(())
    }

    /// Somebody asks something of an entry, so what it did by itself counts no more.
    fn begin_anew(&self, id: u64) {
        if let Some(entry) = self.state.lock().entries.get_mut(&id) {
            entry.restarts.begin_anew();
        }
    }

    /// Does what the machine says. A launch that fails at once may bring the next thing to do.
    fn act(&self, id: u64, mut effect: Option<Effect>) {
        while let Some(now) = effect.take() {
            match now {
                Effect::Launch(run) => effect = self.launch(id, run),
                Effect::Stop => {
                    let terminal = self.state.lock().entries.get(&id).and_then(|entry| entry.terminal.clone());
                    if let Some(terminal) = terminal {
                        terminal.stop(false);
                    }
                }
                Effect::EndedByItself => effect = self.start_again_if_due(id),
                Effect::Remove => self.forget(id),
            }
        }
    }

    fn launch(&self, id: u64, run: u64) -> Option<Effect> {
        let screen = self.state.lock().entries.get(&id).map(|entry| Arc::clone(&entry.screen))?;
        let desk = self.me.clone();
        let on_end = move |outcome| {
            if let Some(desk) = desk.upgrade() {
                desk.hear_end(id, run, outcome);
            }
        };
        let started = self
            .request(id)
            .map_err(|refused| refused.0)
            .and_then(|request| self.host.open_terminal(&request, &screen, on_end).map_err(|e| self.words(&e)));
        let mut state = self.state.lock();
        let (effect, unused) = match started {
            Ok(terminal) => state.hear_start(id, run, terminal),
            Err(why) => (state.feed(id, Input::NotStarted(run, why)), None),
        };
        drop(state);
        // Dropped here, without the lock: a process that has ended.
        drop(unused);
        effect
    }

    fn words(&self, error: &crate::model::SpawnError) -> String {
        let words = match error {
            crate::model::SpawnError::Refused(refusal) => refused_words(refusal),
            crate::model::SpawnError::Failed(failure) => failure.to_string(),
        };
        self.log.say(Level::Error, format_args!("{words}"));
        words
    }

    fn hear_end(&self, id: u64, run: u64, outcome: Outcome) {
        let mut state = self.state.lock();
        let effect = state.feed(id, Input::Ended(run, outcome));
        let entry = state.entries.get_mut(&id);
        // The terminal is of this run unless the next has started, which it cannot have: this feed may only launch it.
        let ended = entry.and_then(|entry| entry.terminal.take());
        drop(state);
        drop(ended);
        self.act(id, effect);
    }

    /// Starts an entry again that has ended by itself, if it asks for that and has not been too often.
    fn start_again_if_due(&self, id: u64) -> Option<Effect> {
        self.refresh();
        let mut state = self.state.lock();
        let closing = state.is_closing;
        let entry = state.entries.get_mut(&id)?;
        let wants = entry.command.as_ref().is_some_and(|command| command.auto_restart);
        let due = wants && !closing && entry.restarts.take(Instant::now());
        due.then(|| state.feed(id, Input::Start)).flatten()
    }

    /// Starts what the project's file says is to be started by itself, as far as it is trusted.
    pub(super) fn start_all_due(&self) {
        let wants = |entry: &&Entry| entry.command.as_ref().is_some_and(|command| command.auto_start);
        let due: Vec<u64> = self.state.lock().entries.values().filter(wants).map(|entry| entry.id).collect();
        for id in due {
            if let Err(refused) = self.order(id, Order::Start) {
                self.log.say(Level::Error, format_args!("not started by itself: {refused}"));
            }
        }
    }

    /// Restarts a command whose files have changed, if it runs: not too often, since it may be what changes them.
    pub(super) fn files_changed(&self, id: u64) {
        self.refresh();
        let mut state = self.state.lock();
        let due = state.entries.get_mut(&id).is_some_and(|entry| {
            matches!(entry.status(), Status::Running | Status::Starting) && entry.restarts.take(Instant::now())
        });
        drop(state);
        if due && let Err(refused) = self.order(id, Order::Restart) {
            self.log.say(Level::Error, format_args!("its files have changed, and it was not restarted: {refused}"));
        }
    }

    /// What to start for an entry, if it may be.
    fn request(&self, id: u64) -> Result<TerminalRequest, Refused> {
        let state = self.state.lock();
        let entry = state.find(&Target::Id(id))?;
        let (name, what, command) = (entry.name.clone(), entry.what.clone(), entry.command.clone());
        drop(state);
        let root = &self.paths.root;
        let mut env = vec![
            (ID_VARIABLE.to_owned(), id.to_string()),
            (PROJECT_VARIABLE.to_owned(), root.to_string_lossy().into_owned()),
        ];
        let (cmd, cwd): (Vec<String>, PathBuf) = match what {
            What::Command { .. } => {
                let command = command.ok_or_else(|| {
                    Refused(format!("{name:?} stands in the project's file no more, so it cannot be started"))
                })?;
                let (trust, notices) = Trust::load(&self.paths);
                for notice in notices {
                    self.log.say(Level::Error, format_args!("{notice}"));
                }
                if !trust.is_trusted(&command.variant()) {
                    return Err(Refused(format!(
                        "the command {name:?} is not trusted as it stands in the project's file now. Only a person can change \
                         that, at a terminal: a2e-proc trust grant {key} --project {project}",
                        key = crate::engine::shell_words(std::slice::from_ref(&command.name)),
                        project = crate::engine::shell_words(&[root.to_string_lossy().into_owned()]),
                    )));
                }
                env.splice(0..0, command.env.clone());
                let cwd = command.directory(root).map_err(Refused)?;
                (["/bin/sh", "-c", &command.command].map(str::to_owned).to_vec(), cwd)
            }
            What::Terminal { extra_args } => (shell(&extra_args), root.clone()),
            What::Agent { tool_id, extra_args } => {
                let tool = self.agent_tool(&tool_id)?;
                ([tool.command, extra_args].concat(), root.clone())
            }
        };
        Ok(TerminalRequest { cmd, cwd: Some(cwd), env })
    }

    pub(super) fn close(&self) {
        let start = Instant::now();
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_closing, true) {
            return;
        }
        let ids: Vec<u64> = state.entries.keys().copied().collect();
        let effects: Vec<_> = ids.into_iter().map(|id| (id, state.feed(id, Input::Stop))).collect();
        drop(state);
        for (id, effect) in effects {
            self.act(id, effect);
        }
        let left = |span: Duration| span.saturating_sub(start.elapsed());
        let is_over = |state: &mut State| state.entries.values().all(|entry| !entry.status().is_active()).then_some(());
        if let super::Waited::Came(()) = self.wait(left(ASK), &never(), is_over) {
            return;
        }
        while left(OVER) > Duration::ZERO {
            // Again and again: one that was being started may come late.
            let running: Vec<Arc<Terminal>> =
                self.state.lock().entries.values().filter_map(|entry| entry.terminal.clone()).collect();
            running.iter().for_each(|terminal| terminal.stop(true));
            drop(running);
            if let super::Waited::Came(()) = self.wait(left(OVER).min(KILL_AGAIN), &never(), is_over) {
                return;
            }
        }
    }
}

/// How often those that a closing desk has killed are looked at.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// The variables by which a process of the desk knows its entry.
pub const ID_VARIABLE: &str = "A2E_PROC_ID";
/// The project that it belongs to.
pub const PROJECT_VARIABLE: &str = "A2E_PROC_PROJECT";

/// What cannot be started, in words for whoever has asked through the desk.
fn refused_words(refusal: &crate::model::Refusal) -> String {
    use crate::model::Refusal;
    match refusal {
        Refusal::ProgramNotFound { name } => format!("there is no program {name:?} on the desk's PATH"),
        Refusal::CwdNotFound { cwd, why } => format!("the directory {cwd} cannot be used: {why}"),
        Refusal::InvalidArgument { why } => why.clone(),
        other => format!("it cannot be started: {other}"),
    }
}

impl State {
    /// Runs the machine of an entry one step.
    pub(super) fn feed(&mut self, id: u64, input: Input) -> Option<Effect> {
        let next = self.runs + 1;
        let entry = self.entries.get_mut(&id)?;
        let (run, effect) = std::mem::replace(&mut entry.run, Run::Closed).step(input, next);
        entry.run = run;
        if matches!(effect, Some(Effect::Launch(_))) {
            self.runs = next;
        }
        self.changed();
        effect
    }

    /// Hears that a process has started. Returns its terminal if it has ended since.
    fn hear_start(&mut self, id: u64, run: u64, terminal: Terminal) -> (Option<Effect>, Option<Terminal>) {
        let effect = self.feed(id, Input::Started(run));
        match self.entries.get_mut(&id) {
            Some(entry) if matches!(entry.run, Run::Running { run: of } | Run::Stopping { run: of, .. } if of == run) =>
            {
                entry.terminal = Some(Arc::new(terminal));
                entry.since = Some(Instant::now());
                self.changed();
                (effect, None)
            }
            _ => (effect, Some(terminal)),
        }
    }
}
