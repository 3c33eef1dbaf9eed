//! What an operator can set, from flags, a file and defaults, in that order; and what becomes of it for the library.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use a2e_proc::engine::{AUTH_TOKEN_ENV, Config, InheritEnv};
use a2e_proc::face::a2e::Options;
use a2e_proc::log::Level;
use a2e_proc::model::Secret;
use a2e_proc::transport::{Address, ListenOptions};
use a2e_proc::wire::dialect::Dialect;
use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::listening::Listening;
use super::rotate::Rotation;
use super::{Complaint, audit, config_file, log, startup};

/// Every setting; `None` where nothing was said.
#[derive(Args, Clone, Debug, Default)]
pub struct Settings {
    /// Read settings from a JSON file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Allow this program, by the exact name that requests use; given once or more, it replaces the default [default: python3 bash ls]
    #[arg(long = "allow", value_name = "NAME", value_parser = program_name)]
    pub allowed_commands: Option<Vec<String>>,
    /// Processes that may run at once, for each agent [default: 64]
    #[arg(long, value_name = "N", value_parser = |text: &str| text.parse().map_err(|_| WHOLE.into()).and_then(at_least_one))]
    pub max_procs: Option<usize>,
    /// Seconds a process may live if its request does not say; 0 is no limit [default: 0]
    #[arg(long, value_name = "S")]
    pub default_timeout: Option<u32>,
    /// The most seconds any process may live; 0 is no limit [default: 0]
    #[arg(long, value_name = "S")]
    pub max_timeout: Option<u32>,
    /// Seconds between SIGTERM and SIGKILL [default: 2]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = |text: &str| text.parse().map_err(|_| SPAN.into()).and_then(span))]
    pub kill_grace: Option<f64>,
    /// Bytes of output per process before the rest is discarded; 0 is no cap [default: 0]
    #[arg(long, value_name = "N")]
    pub max_output_bytes: Option<u64>,
    /// What of the host's environment processes see: all, none, or NAME,… [default: all]
    #[arg(long, value_name = "WHICH", value_parser = inherit_env)]
    pub inherit_env: Option<InheritEnv>,
    /// Start no process that ends the others should this one be killed
    #[arg(long)]
    pub no_watchdog: bool,
    /// Whether to start it
    #[arg(skip)]
    pub watchdog: Option<bool>,
    /// Variables that requests may not set; a final * stands for any rest
    #[arg(skip)]
    pub denied_env: Option<Vec<String>>,
    /// Ask agents for the token in this file (or in the variable A2E_AUTH_TOKEN)
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// The form of events: the specification's, or the published Python SDK's [default: spec]
    #[arg(long, value_name = "WIRE")]
    pub wire: Option<Wire>,
    /// Bytes of the longest request line
    #[arg(skip)]
    pub max_line_bytes: Option<usize>,
    /// Seconds between a spawn's answer and its first event
    #[arg(skip)]
    pub first_event_delay: Option<f64>,
    /// Put a launcher before every command: a sandbox, a container, another machine, as in --wrap 'ssh worker1 --'
    #[arg(long, value_name = "PREFIX", value_parser = words)]
    pub wrap: Option<Words>,
    /// The same for single commands
    #[arg(skip)]
    pub wrap_by_name: BTreeMap<String, Vec<String>>,
    /// Cut processes off the network, or do not start
    #[arg(long)]
    pub no_network: bool,
    /// Whether to cut them off
    #[arg(skip)]
    pub network_disabled: Option<bool>,
    /// Whether to serve many agents, and where
    #[arg(skip)]
    pub listening: Listening,
    /// Say on standard error what happens [default: nothing]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
    /// Append one JSON line for each request to this file; - is standard error [default: none]
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Bytes at which that file is rotated; 0 is never [default: 10485760]
    #[arg(long, value_name = "N")]
    pub audit_max_bytes: Option<u64>,
    /// Old files of it that are kept [default: 5]
    #[arg(long, value_name = "N", value_parser = |text: &str| text.parse().map_err(|_| WHOLE.into()).and_then(audit_keep))]
    pub audit_keep: Option<u32>,
}

/// The words of a launcher: a list, or one text in which quotes and backslashes are what they are to a shell.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "ListOrText")]
pub struct Words(pub Vec<String>);

/// How they may be written in the file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of words, or one text")]
enum ListOrText {
    List(Vec<String>),
    Text(String),
}

impl TryFrom<ListOrText> for Words {
    type Error = String;

    fn try_from(written: ListOrText) -> Result<Self, String> {
        match written {
            ListOrText::List(list) => Ok(Self(list)),
            ListOrText::Text(text) => words(&text),
        }
    }
}

/// The two dialects.
#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// The specification's
    Spec,
    /// The published Python SDK's
    Sdk,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What the host could not do
    Error,
    /// Sessions and processes too
    Info,
    /// Each request too
    Debug,
}

/// What the settings come to.
pub struct Resolved {
    /// For the engine.
    pub config: Config,
    /// For the face.
    pub options: Options,
    /// Where to listen, if not on standard input and output.
    pub listen: Option<(Address, ListenOptions)>,
    /// To be kept until the end.
    pub flush: Flush,
}

/// What is still to be written at the end, first the one, which may have to say something in the other.
pub struct Flush {
    _audit: Option<audit::Flush>,
    _log: Option<log::Flush>,
}

impl Settings {
    /// Resolves the settings: reads the file, fills in defaults, and checks ranges.
    pub fn resolve(self) -> Result<Resolved, Complaint> {
        self.resolve_for(false)
    }

    /// Whether they can be resolved; no file is left that was not there.
    pub fn check(self) -> Result<(), Complaint> {
        let resolved = self.resolve_for(true)?;
        resolved.config.check().map_err(|e| Complaint::no_host(&e, 1))
    }

    fn resolve_for(mut self, only_to_check: bool) -> Result<Resolved, Complaint> {
        if let Some(file) = self.config.take() {
            config_file::fill(&mut self, &file)?;
        }
        let default = Config::default();
        let config = Config {
            allowed: self.allowed_commands.unwrap_or(default.allowed),
            max_procs: self.max_procs.unwrap_or(default.max_procs),
            max_total_procs: self.listening.max_total_procs.unwrap_or(default.max_total_procs),
            default_timeout: self.default_timeout.unwrap_or(default.default_timeout),
            max_timeout: self.max_timeout.unwrap_or(default.max_timeout),
            kill_grace: self.kill_grace.map_or(default.kill_grace, Duration::from_secs_f64),
            max_output_bytes: self.max_output_bytes.unwrap_or(default.max_output_bytes),
            inherit_env: self.inherit_env.unwrap_or(default.inherit_env),
            watchdog: !self.no_watchdog && self.watchdog.unwrap_or(default.watchdog),
            hidden_env: [default.hidden_env, startup::own_variables()].concat(),
            wrap: self.wrap.map_or(default.wrap, |Words(words)| words),
            wrap_by_name: self.wrap_by_name,
            network_disabled: self.no_network || self.network_disabled.unwrap_or(default.network_disabled),
            denied_env: self.denied_env.unwrap_or(default.denied_env),
        };

        let dialect = match self.wire {
            Some(Wire::Sdk) => Dialect::Sdk,
            Some(Wire::Spec) | None => Dialect::Spec,
        };
        let mut options = Options { dialect, ..Options::default() };
        options.max_line_bytes = self.max_line_bytes.unwrap_or(options.max_line_bytes);
        options.first_event_delay = self.first_event_delay.map(Duration::from_secs_f64);
        options.auth_token = auth_token(self.auth_token_file)?;
        let level = self.log.map(|level| match level {
            LogLevel::Error => Level::Error,
            LogLevel::Info => Level::Info,
            LogLevel::Debug => Level::Debug,
        });
        let (mut log, mut log_flush) = level.map(log::to_stderr).transpose()?.unzip();
        options.log = log.clone().unwrap_or_default();
        let mut audit_flush = None;
        if let (Some(file), true) = (&self.audit, only_to_check) {
            audit::probe(file)?;
        } else if let Some(file) = self.audit {
            // What goes wrong with it is said even if there is no log.
            if log.is_none() {
                (log, log_flush) = Some(log::to_stderr(Level::Error)?).unzip();
            }
            let rotation = Rotation {
                max_bytes: self.audit_max_bytes.unwrap_or(AUDIT_MAX_BYTES),
                keep: self.audit_keep.unwrap_or(AUDIT_KEEP),
            };
            let (audit, flush) = audit::open(&file, rotation, log.unwrap_or_default())?;
            options.audit = audit;
            audit_flush = Some(flush);
        }
        let listen = self.listening.resolve(&mut options)?;
        Ok(Resolved { config, options, listen, flush: Flush { _audit: audit_flush, _log: log_flush } })
    }
}

/// The published SDK's: 10 MiB, and five old files.
pub const AUDIT_MAX_BYTES: u64 = 10 * 1024 * 1024;
pub const AUDIT_KEEP: u32 = 5;

/// What is wrong with other values, of a count and of a span of time.
pub const WHOLE: &str = "must be a whole number, 0 or more";
pub const SPAN: &str = "must be a number of seconds, 0 or more";

/// Checks a number of processes or sessions.
pub fn at_least_one(count: usize) -> Result<usize, String> {
    if count > 0 { Ok(count) } else { Err("must be at least 1".into()) }
}

/// Checks a number of seconds within which somebody is to come back.
pub fn positive_span(seconds: f64) -> Result<f64, String> {
    if span(seconds)? > 0.0 { Ok(seconds) } else { Err("must be more than 0".into()) }
}

/// Checks a number of old files: each is renamed when the next one comes.
pub fn audit_keep(count: u32) -> Result<u32, String> {
    if count <= 1000 { Ok(count) } else { Err("must be at most 1000".into()) }
}

/// Checks a span of time, in seconds.
pub fn span(seconds: f64) -> Result<f64, String> {
    Duration::try_from_secs_f64(seconds).map(|_| seconds).map_err(|_| SPAN.into())
}

/// Checks the length of a line: requests must fit.
pub fn max_line_bytes(bytes: usize) -> Result<usize, String> {
    if bytes >= 1024 { Ok(bytes) } else { Err("must be at least 1024".into()) }
}

/// Splits a launcher's words as a shell would.
fn words(text: &str) -> Result<Words, String> {
    shlex::split(text).map(Words).ok_or_else(|| "a quote or a backslash is left open".into())
}

/// Checks the name of a program that is to be allowed.
fn program_name(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains(',') {
        return Err("give one name, and the flag again for each other".into());
    }
    Ok(name.into())
}

fn auth_token(file: Option<PathBuf>) -> Result<Option<Secret>, Complaint> {
    let (token, place) = match file {
        Some(file) => match std::fs::read_to_string(&file) {
            Ok(text) => (text.trim().to_owned(), format!("{}", file.display())),
            Err(e) => {
                return Err(Complaint::usage(format!("auth_token_file: {}: cannot be read: {e}", file.display())));
            }
        },
        None => match std::env::var(AUTH_TOKEN_ENV) {
            Ok(token) => (token, AUTH_TOKEN_ENV.to_owned()),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(_) => return Err(Complaint::usage(format!("{AUTH_TOKEN_ENV} is not UTF-8"))),
        },
    };
    if token.is_empty() {
        return Err(Complaint::usage(format!("{place}: the token is empty; put one in, or ask for none")));
    }
    Ok(Some(Secret::new(token)))
}

/// Reads `all`, `none` or a list of names.
pub fn inherit_env(text: &str) -> Result<InheritEnv, String> {
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    match text {
        "all" => Ok(InheritEnv::All),
        "none" => Ok(InheritEnv::None),
        _ if names.iter().all(|name| !name.is_empty() && !name.contains('=')) => Ok(InheritEnv::Only(names)),
        _ => Err("give all, none, or names of variables with commas in between".into()),
    }
}
