//! What an operator may set of the engine, with the defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use super::policy::Policy;
use crate::model::Failure;

/// Which of the host's own variables a child inherits (R14).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InheritEnv {
    /// All of them.
    #[default]
    All,
    /// None.
    None,
    /// Those with these names.
    Only(Vec<String>),
}

/// The limits and permissions of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What `cmd[0]` may be, byte for byte (R9). Default: `python3`, `bash`, `ls`.
    pub allowed: Vec<String>,
    /// Running processes per session (R11). Default: 64.
    pub max_procs: usize,
    /// Running processes of all sessions together; 0 is no limit. Default: 0.
    pub max_total_procs: usize,
    /// Seconds a process may live if its request does not say; 0 is no limit (R12). Default: 0.
    pub default_timeout: u32,
    /// The most seconds that any process may live; 0 is no limit (R12). Default: 0.
    pub max_timeout: u32,
    /// The time between SIGTERM and SIGKILL (R22). Default: 2 s.
    pub kill_grace: Duration,
    /// Bytes of output per process, both streams together, before the rest is discarded; 0 is no cap (R20). Default: 0.
    pub max_output_bytes: u64,
    /// What of the host's environment a child sees (R14). Default: all.
    pub inherit_env: InheritEnv,
    /// Variables of the host's own that no child inherits. Default: [`AUTH_TOKEN_ENV`]. What stands in the host's environment
    /// can still be read from `/proc` by children of the same user; a file is the better place for a secret.
    pub hidden_env: Vec<String>,
    /// Whether a small process watches this one, to end its children should it be killed (R8). Default: yes.
    pub watchdog: bool,
    /// A launcher and its arguments, which go before every command: `bwrap … --`, `ssh HOST --`, `docker exec -i NAME` (R9). It
    /// is looked up on this host; the command is not, and reaches the launcher by its name. Default: none.
    pub wrap: Vec<String>,
    /// The same for commands of these names, in place of `wrap`; no words are no launcher. Default: none.
    pub wrap_by_name: BTreeMap<String, Vec<String>>,
    /// Whether commands are cut off the network, by a launcher that the host looks for when it starts. It cannot be had
    /// together with others, which may start commands where this host has no say. Default: no.
    pub network_disabled: bool,
    /// Variables that a request may not set; a final `*` stands for any rest (R9). Default: [`DENIED_ENV`].
    pub denied_env: Vec<String>,
}

/// The variable that may hold the token which opens sessions (R6).
pub const AUTH_TOKEN_ENV: &str = "A2E_AUTH_TOKEN";

/// Variables that change what code the loader or common interpreters run before their arguments (R9).
pub const DENIED_ENV: [&str; 30] = [
    // The dynamic loader and the C library.
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    // Shells.
    "BASH_ENV",
    "BASH_FUNC_*",
    "BASHOPTS",
    "ENV",
    "PS4",
    "SHELLOPTS",
    "ZDOTDIR",
    // Interpreters.
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LUA_INIT*",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "RUBYLIB",
    "RUBYOPT",
];

impl Config {
    /// Whether a [`Host`](super::Host) could be had with this: launchers are looked up, and tried if they are to cut commands
    /// off the network.
    ///
    /// # Errors
    /// Those of [`Host::new`](super::Host::new) that come of the configuration.
    pub fn check(&self) -> Result<(), Failure> {
        Policy::new(self).map(drop)
    }
}

impl Default for Config {
    fn default() -> Self {
        let strings = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        Self {
            allowed: strings(&["python3", "bash", "ls"]),
            max_procs: 64,
            max_total_procs: 0,
            default_timeout: 0,
            max_timeout: 0,
            kill_grace: Duration::from_secs(2),
            max_output_bytes: 0,
            inherit_env: InheritEnv::All,
            watchdog: true,
            hidden_env: strings(&[AUTH_TOKEN_ENV]),
            wrap: Vec::new(),
            wrap_by_name: BTreeMap::new(),
            network_disabled: false,
            denied_env: strings(&DENIED_ENV),
        }
    }
}
