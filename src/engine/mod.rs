//! The engine: processes, sessions and their events, for whatever protocol a face speaks, or for an embedder.
//!
//! Floor 2. It knows nothing of JSON: three faces with different wires must not bend it.

mod bus;
mod config;
mod launch;
mod lifecycle;
mod network;
mod output;
mod policy;
mod process;
mod registry;
mod reply;
mod session;
mod stdin;
#[cfg(feature = "mcp")]
pub mod terminal;
mod text;
mod threads;
mod timer;
mod waiter;
mod wrap;

use std::sync::Arc;

use crossbeam_channel::Receiver;

pub use bus::{CAPACITY, Event, EventKind, Gate, Identity};
pub use config::{AUTH_TOKEN_ENV, Config, DENIED_ENV, InheritEnv};
pub use launch::shell_words;
pub use process::{KillAnswer, KillRefused};
pub use registry::{MAX_UNPUBLISHED, RETAINED};
pub use reply::Reply;
pub use session::{Closing, Deadlines, Session, SpawnRequest, Spawned, WriteAnswer};
pub use stdin::MAX_QUEUED;
pub use text::{Chunk, MAX_PIECE, Piece};

use crate::count::Quota;
use crate::model::Failure;
use crate::os::{Watchdog, signals};
use policy::Policy;
use threads::Spare;
use timer::Timer;

/// A host: a policy, a timer and a watchdog, for any number of sessions.
#[derive(Clone)]
pub struct Host {
    shared: Arc<HostShared>,
}

/// What the sessions of a host share.
struct HostShared {
    config: Config,
    policy: Policy,
    timer: Timer,
    watchdog: Option<Arc<Watchdog>>,
    /// The processes of all sessions.
    running: Quota,
    /// The threads of the next process.
    spare: Spare,
}

impl Host {
    /// A host with these limits and permissions. Allowed programs and launchers are looked up on this program's `PATH` now
    /// (R9).
    ///
    /// # Errors
    /// Of the kind [`std::io::ErrorKind::InvalidInput`] when a launcher is not there, or commands cannot be cut off the network.
    /// When SIGCHLD cannot be caught.
    pub fn new(config: Config) -> Result<Self, Failure> {
        signals::keep_child_exits().map_err(|e| Failure::new("catch SIGCHLD", e))?;
        let policy = Policy::new(&config)?;
        let watchdog = config.watchdog.then(|| Arc::new(Watchdog::new()));
        let most = if config.max_total_procs == 0 { usize::MAX } else { config.max_total_procs };
        Ok(Self {
            shared: Arc::new(HostShared {
                running: Quota::new(most),
                config,
                policy,
                timer: Timer::default(),
                watchdog,
                spare: Spare::default(),
            }),
        })
    }

    /// The limits and permissions.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// A new session and its events. Whoever holds the receiver must take them: a full queue stops the session's output. If
    /// the receiver is dropped, output is no longer read, and processes that write find their pipes closed.
    pub fn open_session(&self) -> (Session, Receiver<Event>) {
        Session::open(Arc::clone(&self.shared))
    }
}
