//! The desk: a project's stored entries (commands, terminals, agents), what runs of them, and who may start what. Floor 3: the
//! MCP face and the command line speak to it; it speaks to the engine.
//!
//! Who owns what: the entries, and the project's file as it was read last, are `State`, under the desk's lock, which is held
//! for moments only. What is remembered from one desk to the next is `memory`, under a lock of its own that is held while it is
//! written to the disk; whoever needs both takes that one first. One desk runs for a project at a time: it holds a lock file.
//!
//! `life` is the story of one entry, `running` has it happen; `editing` adds, renames and takes away; `typing` delivers input;
//! `waiting` waits for changes. `project`, `store`, `trust` and `paths` are its files, and `watch` sees what changes in the
//! project.

mod caller;
mod editing;
mod entry;
mod life;
pub mod paths;
pub mod project;
mod running;
pub mod store;
mod tree;
pub mod trust;
mod typing;
mod waiting;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::Mutex;

pub use crate::os::Port;
pub use caller::is_managed;
pub use editing::NewProcess;
use entry::Entry;
pub use entry::{Kind, Status, View};
pub use running::{All, ID_VARIABLE, PROJECT_VARIABLE};
pub use typing::{Delivery, Keys, Sent};
pub use waiting::Waited;

use crate::engine::terminal::{SharedScreen, Size};
use crate::engine::{Config, Host, shell_words};
use crate::log::{Level, Log};
use paths::Paths;
use project::Project;
use store::{AgentTool, Remembered, What};
use watch::Watch;

/// Entries that a desk may have. Each keeps a screen.
pub const MAX_ENTRIES: usize = 256;

/// How long the end of all processes may take when a desk is closed: asked at once, killed after the first, over after the second.
const ASK: Duration = Duration::from_millis(500);
const OVER: Duration = Duration::from_millis(900);

/// Words for somebody who asked for what cannot be: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Why a desk was not opened.
#[derive(Debug)]
pub enum NotOpened {
    /// Another desk runs for the project.
    Busy,
    /// Its files or the system do not let it; what to do.
    Failed(String),
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another desk runs for this project"),
            Self::Failed(words) => f.write_str(words),
        }
    }
}

/// Names an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its number.
    Id(u64),
    /// By its name.
    Name(String),
}

/// A project's desk. Dropping it ends all of its processes.
pub struct Desk {
    shared: Arc<Shared>,
    /// Locked until the desk is gone.
    lock: File,
}

/// What the desk's owner and the threads of its processes share.
struct Shared {
    me: Weak<Self>,
    paths: Paths,
    host: Host,
    log: Log,
    memory: Mutex<Remembered>,
    /// The project's file as it was when it was read last. Held while it is read again.
    seen: Mutex<editing::Seen>,
    watch: Mutex<Option<Watch>>,
    state: Mutex<State>,
}

struct State {
    project: Project,
    /// What was found wrong with the project's file, if it cannot be read; the last one that could is in force.
    broken: Option<String>,
    entries: BTreeMap<u64, Entry>,
    /// Counts changes.
    version: u64,
    runs: u64,
    deliveries: u64,
    selected: Option<u64>,
    is_closing: bool,
    /// Those who wait for any change.
    waiting: Vec<Sender<()>>,
}

impl Desk {
    /// Opens the desk of a project, with what is remembered of it. Nothing runs before [`Desk::begin`]. Of `config`, what is about
    /// agents' requests does not count.
    ///
    /// # Errors
    /// When another desk runs for the project, or its files cannot be used.
    pub fn open(paths: Paths, config: Config, log: Log) -> Result<Self, NotOpened> {
        let failed = |doing: &str, e: std::io::Error| NotOpened::Failed(format!("could not {doing}: {e}"));
        paths.prepare().map_err(|e| failed(&format!("make the folder {}", paths.state.display()), e))?;
        let lock = File::options().create(true).append(true).mode(0o600).open(paths.lock());
        let lock = lock.map_err(|e| failed(&format!("open {}", paths.lock().display()), e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotOpened::Busy),
            Err(TryLockError::Error(e)) => return Err(failed(&format!("lock {}", paths.lock().display()), e)),
        }
        let (memory, notices) = store::load(&paths).map_err(NotOpened::Failed)?;
        for notice in &notices {
            log.say(Level::Error, format_args!("{notice}"));
        }
        let host = Host::new(config).map_err(|e| NotOpened::Failed(e.to_string()))?;
        let shared = Arc::new_cyclic(|me| Shared {
            me: Weak::clone(me),
            host,
            log,
            state: Mutex::new(State::new(&paths, &memory)),
            memory: Mutex::new(memory),
            seen: Mutex::default(),
            watch: Mutex::default(),
            paths,
        });
        Ok(Self { shared, lock })
    }

    /// Writes down where the desk listens, for those whose environment would have them look elsewhere.
    ///
    /// # Errors
    /// What the system says.
    pub fn announce(&self) -> std::io::Result<()> {
        self.lock.set_len(0)?;
        (&self.lock).write_all(self.shared.paths.socket.as_os_str().as_bytes())
    }

    /// Reads the project's file, and starts what is to be started by itself and is trusted.
    pub fn begin(&self) {
        self.shared.refresh();
        self.shared.start_all_due();
    }

    /// The project's name, as its file has it.
    pub fn project(&self) -> String {
        self.shared.state.lock().project.name.clone()
    }

    /// Where its files are.
    pub fn paths(&self) -> &Paths {
        &self.shared.paths
    }

    /// What is wrong with the project's file, entry by entry.
    pub fn notices(&self) -> Vec<String> {
        let trouble = self.shared.watch.lock().as_ref().and_then(Watch::trouble);
        let state = self.shared.state.lock();
        state.broken.iter().chain(&state.project.notices).chain(&trouble).cloned().collect()
    }

    /// Every entry, in the order of their numbers.
    pub fn list(&self) -> Vec<View> {
        self.shared.refresh();
        let (tools, state) = (self.agent_tools().unwrap_or_default(), self.shared.state.lock());
        state.entries.values().filter(|entry| entry.is_there()).map(|entry| state.view(entry, &tools)).collect()
    }

    /// One entry.
    ///
    /// # Errors
    /// When there is none of that name or number.
    pub fn view(&self, target: &Target) -> Result<View, Refused> {
        let (tools, state) = (self.agent_tools().unwrap_or_default(), self.shared.state.lock());
        state.find(target).map(|entry| state.view(entry, &tools))
    }

    /// The screen of an entry, which is there whether it runs or not.
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn screen(&self, target: &Target) -> Result<SharedScreen, Refused> {
        let state = self.shared.state.lock();
        state.find(target).map(|entry| Arc::clone(&entry.screen))
    }

    /// The agents that a person has configured.
    ///
    /// # Errors
    /// When the file that they stand in cannot be read.
    pub fn agent_tools(&self) -> Result<Vec<AgentTool>, Refused> {
        store::agent_tools(&self.shared.paths).map_err(Refused)
    }

    /// Ends every process, all at the same time, and starts no more. Takes at most a second; what is left then is killed by the watchdog when this program ends.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.shared.close();
        // Its thread may hold the desk while it restarts something.
        let watch = self.shared.watch.lock().take();
        drop(watch);
    }
}

impl State {
    fn new(paths: &Paths, memory: &Remembered) -> Self {
        let entries = memory.entries.iter().map(|stored| (stored.id, Entry::new(stored)));
        Self {
            project: Project {
                root: paths.root.clone(),
                name: String::new(),
                commands: Vec::new(),
                notices: Vec::new(),
                file: None,
            },
            broken: None,
            entries: entries.collect(),
            version: 1,
            runs: 0,
            deliveries: 0,
            selected: None,
            is_closing: false,
            waiting: Vec::new(),
        }
    }

    fn find(&self, target: &Target) -> Result<&Entry, Refused> {
        let there = || self.entries.values().filter(|entry| entry.is_there());
        let found = match target {
            Target::Id(id) => self.entries.get(id).filter(|entry| entry.is_there()),
            Target::Name(name) => there().find(|entry| entry.name == *name).or_else(|| {
                let mut alike = there().filter(|entry| entry.name.to_lowercase() == name.to_lowercase());
                alike.next().filter(|_| alike.next().is_none())
            }),
        };
        found.ok_or_else(|| {
            let asked = match target {
                Target::Id(id) => format!("no process has the id {id}"),
                Target::Name(name) => format!("no process is called {name:?}"),
            };
            let some: Vec<String> = there().take(20).map(|entry| format!("{} (id {})", entry.name, entry.id)).collect();
            let some = if some.is_empty() { "none".to_owned() } else { some.join(", ") };
            Refused(format!("{asked}; list_processes shows those there are: {some}"))
        })
    }

    fn view(&self, entry: &Entry, tools: &[AgentTool]) -> View {
        let command = match &entry.what {
            What::Command { .. } => entry.command.as_ref().map(|command| command.command.clone()).unwrap_or_default(),
            What::Terminal { extra_args } => shell_words(&running::shell(extra_args)),
            What::Agent { tool_id, extra_args } => {
                let tool = tools.iter().find(|tool| tool.id == *tool_id).map(|tool| tool.command.clone());
                let words: Vec<String> = tool.unwrap_or_else(|| vec![tool_id.clone()]);
                shell_words(&[words, extra_args.clone()].concat())
            }
        };
        entry.view(command, self.selected == Some(entry.id))
    }
}

impl Entry {
    fn new(stored: &store::Entry) -> Self {
        let screen = crate::engine::terminal::Screen::new(Size::default());
        Self {
            id: stored.id,
            name: stored.name.clone(),
            what: stored.what.clone(),
            command: None,
            run: life::Run::Idle(life::Idle::Stopped),
            terminal: None,
            since: None,
            screen: Arc::new(Mutex::new(screen)),
            restarts: entry::Restarts::default(),
            is_typed_to: false,
            deliveries: std::collections::VecDeque::new(),
            stuck: None,
        }
    }
}
