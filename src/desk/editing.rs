//! What stands on the desk: the commands of the project's file, as it is now, and the terminals and agents that were added.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::entry::{Kind, Status};
use super::project::{self, Command, Project};
use super::running::Order;
use super::store::{self, AgentTool, Remembered, What};
use super::watch::Watch;
use super::{Desk, Entry, MAX_ENTRIES, Refused, Shared, State, Target, View};
use crate::log::Level;

/// A terminal or an agent to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewProcess {
    /// The agent, by the id of its tool; `None` is a terminal.
    pub agent_tool_id: Option<String>,
    /// What to call it; `None` is something that fits.
    pub name: Option<String>,
    /// Arguments on top of the shell's or the agent's own.
    pub extra_args: Vec<String>,
}

/// What the files of the project looked like when they were read last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(Option<Vec<Option<(SystemTime, u64, u64)>>>);

/// The longest a name may be, in characters.
const LONGEST_NAME: usize = 128;

impl Desk {
    /// Adds a terminal or an agent, and starts it.
    ///
    /// # Errors
    /// When its name is taken or cannot be one, its tool is not there, or the desk is full.
    pub fn spawn(&self, new: NewProcess) -> Result<View, Refused> {
        self.shared.refresh();
        let id = self.shared.add(new)?;
        self.shared.order(id, Order::Start)?;
        self.view(&Target::Id(id))
    }

    /// Calls an entry something else. What it is remembered by, and its trust, stay.
    ///
    /// # Errors
    /// When there is no such entry, or the name is taken or cannot be one.
    pub fn rename(&self, target: &Target, name: &str) -> Result<View, Refused> {
        let id = self.view(target)?.id;
        // Names are given and taken under the memory's lock.
        let mut memory = self.shared.memory.lock();
        self.shared.state.lock().check_name(name, Some(id))?;
        let Some(stored) = memory.entries.iter_mut().find(|entry| entry.id == id) else {
            return Err(Refused("it has just been closed".into()));
        };
        let old = std::mem::replace(&mut stored.name, name.to_owned());
        if let Err(refused) = self.shared.save(&memory) {
            memory.entries.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.name.clone_from(&old));
            return Err(refused);
        }
        let mut state = self.shared.state.lock();
        state.entries.get_mut(&id).into_iter().for_each(|entry| name.clone_into(&mut entry.name));
        state.changed();
        drop(state);
        drop(memory);
        self.view(&Target::Id(id))
    }

    /// Makes an entry the one that is looked at.
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn select(&self, target: &Target) -> Result<View, Refused> {
        let id = self.view(target)?.id;
        let mut state = self.shared.state.lock();
        state.selected = Some(id);
        state.changed();
        drop(state);
        self.view(&Target::Id(id))
    }

    /// Forgets what an entry has shown so far.
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn clear_output(&self, target: &Target) -> Result<View, Refused> {
        self.screen(target)?.lock().clear();
        self.view(target)
    }
}

impl Shared {
    fn add(&self, new: NewProcess) -> Result<u64, Refused> {
        let (what, base) = match &new.agent_tool_id {
            None => (What::Terminal { extra_args: new.extra_args }, "Terminal".to_owned()),
            Some(tool_id) => {
                let tool = self.agent_tool(tool_id)?;
                (What::Agent { tool_id: tool.id, extra_args: new.extra_args }, tool.name)
            }
        };
        let mut memory = self.memory.lock();
        let state = self.state.lock();
        if state.is_closing {
            return Err(Refused("the desk is being closed".into()));
        }
        if state.entries.len() >= MAX_ENTRIES {
            return Err(Refused(format!(
                "the desk has {MAX_ENTRIES} entries and takes no more; close_process takes one away"
            )));
        }
        let name = match new.name {
            Some(name) => name,
            None => state.free_name(&base),
        };
        state.check_name(&name, None)?;
        drop(state);
        // Names are given and taken under the memory's lock, which is still held.
        let id = store::give_id(&self.paths, &mut memory).map_err(|e| not_saved(&e))?;
        let stored = store::Entry { id, name, what };
        memory.entries.push(stored.clone());
        if let Err(refused) = self.save(&memory) {
            memory.entries.pop();
            return Err(refused);
        }
        let mut state = self.state.lock();
        state.entries.insert(id, Entry::new(&stored));
        state.changed();
        Ok(id)
    }

    /// Takes an entry off the desk that has been closed.
    pub(super) fn forget(&self, id: u64) {
        let mut memory = self.memory.lock();
        memory.entries.retain(|entry| entry.id != id);
        // Before anybody is told: it must not come back.
        if let Err(refused) = self.save(&memory) {
            self.log.say(Level::Error, format_args!("{refused}"));
        }
        let mut state = self.state.lock();
        let entry = state.entries.remove(&id);
        state.changed();
        drop(state);
        drop(entry);
    }

    pub(super) fn agent_tool(&self, id: &str) -> Result<AgentTool, Refused> {
        let tools = store::agent_tools(&self.paths).map_err(Refused)?;
        let known: Vec<&str> = tools.iter().filter(|tool| tool.enabled).map(|tool| tool.id.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        match tools.iter().find(|tool| tool.id == id) {
            Some(tool) if tool.enabled => Ok(tool.clone()),
            Some(_) => Err(Refused(format!("the agent {id:?} is switched off in {}", self.paths.agents.display()))),
            None => Err(Refused(format!(
                "no agent has the id {id:?}; list_agent_tools shows those there are: {known}. They are configured by a person, \
                 in {}",
                self.paths.agents.display()
            ))),
        }
    }

    /// Writes down what is remembered. Called with its lock held: whoever changes it next waits for the disk.
    fn save(&self, memory: &Remembered) -> Result<(), Refused> {
        store::save(&self.paths, memory).map_err(|e| not_saved(&e))
    }

    /// Reads the project's file again if it has changed. What cannot be read leaves what was there in force.
    pub(super) fn refresh(&self) {
        let mut seen = self.seen.lock();
        let now = Seen::now(&self.paths.root);
        if *seen == now {
            return;
        }
        match Project::read(&self.paths.root) {
            // What could not be added is tried again.
            Ok(project) => *seen = if self.take_over(project) { now } else { Seen::default() },
            Err(why) => {
                *seen = now;
                self.log.say(Level::Error, format_args!("{why}"));
                self.state.lock().broken = Some(format!("{why}; what it said before is still in force"));
            }
        }
    }

    /// Has the desk show what the project's file says now. A command keeps its number as long as it has its name there. False if
    /// the disk did not let it.
    fn take_over(&self, project: Project) -> bool {
        let mut memory = self.memory.lock();
        let mut state = self.state.lock();
        let there: Vec<u64> = state.entries.values().filter(|entry| entry.is_there()).map(|entry| entry.id).collect();
        state.entries.values_mut().for_each(|entry| entry.command = None);
        let (mut fresh, mut back) = (Vec::new(), Vec::new());
        for command in &project.commands {
            let is_it = |entry: &&mut Entry| matches!(&entry.what, What::Command { key } if *key == command.name);
            match state.entries.values_mut().find(is_it) {
                Some(entry) => {
                    entry.command = Some(command.clone());
                    back.extend(Some(entry.id).filter(|id| !there.contains(id)));
                }
                None => fresh.push(command.clone()),
            }
        }
        for id in back {
            // While it was not there another may have been given its name.
            let Some(name) = state.entries.get(&id).map(|entry| entry.name.clone()) else { continue };
            if state.check_name(&name, Some(id)).is_err() {
                let name = state.free_name(&name);
                memory.entries.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.name.clone_from(&name));
                state.entries.get_mut(&id).into_iter().for_each(|entry| entry.name.clone_from(&name));
            }
        }
        drop(state);
        let refused: Vec<Refused> =
            fresh.into_iter().filter_map(|command| self.add_command(&mut memory, command).err()).collect();
        let saved = self.save(&memory);
        if let Err(refused) = &saved {
            self.log.say(Level::Error, format_args!("{refused}"));
        }
        drop(memory);
        let mut state = self.state.lock();
        state.project = project;
        state.project.notices.extend(refused.into_iter().map(|refused| refused.0));
        state.broken = None;
        state.changed();
        let patterns: Vec<(u64, Vec<String>)> = state
            .entries
            .values()
            .filter_map(|entry| Some((entry.id, entry.command.as_ref()?.restart_when_changed.clone())))
            .filter(|(_, patterns)| !patterns.is_empty())
            .collect();
        drop(state);
        self.watch(patterns);
        saved.is_ok()
    }

    /// Adds a command that the project's file has not had before, in the place of one that it has no more if the desk is full.
    fn add_command(&self, memory: &mut Remembered, command: Command) -> Result<(), Refused> {
        let mut state = self.state.lock();
        if state.entries.len() >= MAX_ENTRIES {
            let gone = state.entries.values().find(|entry| !entry.is_there()).map(|entry| entry.id);
            let Some(gone) = gone else {
                return Err(Refused(format!("the desk is full: there is no room for the command {:?}", command.name)));
            };
            memory.entries.retain(|entry| entry.id != gone);
            drop(state.entries.remove(&gone));
        }
        let name = state.free_name(&command.name);
        drop(state);
        let id = store::give_id(&self.paths, memory).map_err(|e| not_saved(&e))?;
        let stored = store::Entry { id, name, what: What::Command { key: command.name.clone() } };
        memory.entries.push(stored.clone());
        self.state.lock().entries.insert(id, Entry { command: Some(command), ..Entry::new(&stored) });
        Ok(())
    }

    /// Watches the files of the commands that ask for that.
    fn watch(&self, patterns: Vec<(u64, Vec<String>)>) {
        // Ended without the lock: its thread may be waiting for something of the desk.
        let old = self.watch.lock().take();
        drop(old);
        if patterns.is_empty() {
            return;
        }
        let desk = self.me.clone();
        let on_change = move |id| {
            if let Some(desk) = desk.upgrade() {
                desk.files_changed(id);
            }
        };
        match Watch::start(&self.paths.root, patterns, Box::new(on_change)) {
            Ok(watch) => *self.watch.lock() = Some(watch),
            Err(why) => {
                self.log.say(Level::Error, format_args!("{why}"));
                self.state.lock().project.notices.push(why);
            }
        }
    }
}

fn not_saved(e: &std::io::Error) -> Refused {
    Refused(format!("what the desk remembers could not be written down: {e}"))
}

impl Seen {
    fn now(root: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let stamp = |name: &str| -> Option<(SystemTime, u64, u64)> {
            let path: PathBuf = root.join(name);
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len(), meta.ino()))
        };
        Self(Some(project::FILES.iter().map(|name| stamp(name)).collect()))
    }
}

impl State {
    /// Whether an entry may be called that.
    fn check_name(&self, name: &str, own: Option<u64>) -> Result<(), Refused> {
        let length = name.chars().count();
        if name.trim().is_empty() || length > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(Refused(format!(
                "{name:.40?} cannot be a name: it takes 1 to {LONGEST_NAME} characters, and none that steer a terminal"
            )));
        }
        let taken = self.entries.values().find(|entry| entry.name == name && Some(entry.id) != own && entry.is_there());
        match taken {
            Some(entry) => {
                Err(Refused(format!("{name:?} is the name of the entry with the id {}; take another", entry.id)))
            }
            None => Ok(()),
        }
    }

    /// `base`, or the first of `base 2`, `base 3`, … that nobody is called.
    fn free_name(&self, base: &str) -> String {
        let is_free = |name: &String| self.entries.values().all(|entry| entry.name != *name);
        // Room for the number.
        let short: String = base.chars().take(LONGEST_NAME - 4).collect();
        let numbered = (2..).map(|number| format!("{short} {number}"));
        std::iter::once(base.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
    }
}

impl View {
    /// Whether its process can be written to.
    pub fn is_running(&self) -> bool {
        self.status == Status::Running
    }

    /// Whether it stands in the project's file.
    pub fn is_command(&self) -> bool {
        self.kind == Kind::Command
    }
}
