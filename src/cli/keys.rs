//! The keys of a configuration file: what each sets, what that means, and what holds without it. Read by `config_file`, shown by
//! `config`.

use a2e_proc::engine::{Config, InheritEnv};
use a2e_proc::face::a2e::Options;
use a2e_proc::transport::{Address, ListenOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::listening::HANDSHAKE_WITHIN;
use super::settings::{
    AUDIT_KEEP, AUDIT_MAX_BYTES, Settings, Words, at_least_one, audit_keep, inherit_env, max_line_bytes, positive_span,
    span,
};

/// One key: its spellings, ours first, what it sets, what that means, and what holds if it is not given.
pub struct Key {
    pub names: &'static [&'static str],
    /// Reads a value and keeps it, if no flag has said otherwise.
    pub set: fn(&mut Settings, &str) -> serde_json::Result<()>,
    pub meaning: &'static str,
    /// As a file would say it; `null` where nothing holds, and then a file may say `null` too.
    pub default: fn(&Defaults) -> Value,
}

/// What holds where nothing is set.
#[derive(Default)]
pub struct Defaults {
    config: Config,
    options: Options,
    listen: ListenOptions,
}

/// Every key there is, each at one place in memory, by which it is told from the others.
pub static KEYS: &[Key] = &[
    Key {
        names: &["allowed_commands", "ALLOWED_COMMANDS"],
        set: set_allowed_commands,
        meaning: "programs that may be run, by the exact names that requests use; one may be {\"name\": …, \"wrap\": …}",
        default: |d| json!(d.config.allowed),
    },
    Key {
        names: &["max_procs", "MAX_PROCS"],
        set: |s, text| fill_in_checked(&mut s.max_procs, text, at_least_one),
        meaning: "processes that may run at once, per session",
        default: |d| json!(d.config.max_procs),
    },
    Key {
        names: &["max_total_procs"],
        set: |s, text| fill_in(&mut s.listening.max_total_procs, text),
        meaning: "processes of all sessions that may run at once; 0 is no limit",
        default: |d| json!(d.config.max_total_procs),
    },
    Key {
        names: &["listen"],
        set: set_listen,
        meaning: "where agents connect: \"unix:PATH\", \"tcp:HOST:PORT\" or \"http:HOST:PORT\"; null is standard input and output",
        default: |_| Value::Null,
    },
    Key {
        names: &["max_sessions"],
        set: |s, text| fill_in_checked(&mut s.listening.max_sessions, text, at_least_one),
        meaning: "agents that may be connected at once",
        default: |d| json!(d.listen.max_sessions),
    },
    Key {
        names: &["handshake_within"],
        set: |s, text| fill_in_checked(&mut s.listening.handshake_within, text, span),
        meaning: "seconds that an agent may take to show its token",
        default: |_| json!(HANDSHAKE_WITHIN.as_secs()),
    },
    Key {
        names: &["resume"],
        set: |s, text| fill_in_checked(&mut s.listening.resume, text, positive_span),
        meaning: "seconds that an HTTP agent may be without a stream before its session ends",
        default: |d| json!(d.listen.resume.as_secs()),
    },
    Key {
        names: &["http_hosts"],
        set: |s, text| fill_in(&mut s.listening.http_hosts, text),
        meaning: "names by which HTTP requests may call this host, beside localhost and numbers",
        default: |d| json!(d.listen.host_names),
    },
    Key {
        names: &["default_timeout", "DEFAULT_TIMEOUT", "timeout"],
        set: |s, text| fill_in(&mut s.default_timeout, text),
        meaning: "seconds a process may live if its request does not say; 0 is no limit",
        default: |d| json!(d.config.default_timeout),
    },
    Key {
        names: &["max_timeout"],
        set: |s, text| fill_in(&mut s.max_timeout, text),
        meaning: "the most seconds any process may live; 0 is no limit",
        default: |d| json!(d.config.max_timeout),
    },
    Key {
        names: &["kill_grace"],
        set: |s, text| fill_in_checked(&mut s.kill_grace, text, span),
        meaning: "seconds between SIGTERM and SIGKILL",
        default: |d| json!(d.config.kill_grace.as_secs_f64()),
    },
    Key {
        names: &["max_output_bytes", "MAX_OUTPUT_BYTES"],
        set: |s, text| fill_in(&mut s.max_output_bytes, text),
        meaning: "bytes of output per process before the rest is discarded; 0 is no cap",
        default: |d| json!(d.config.max_output_bytes),
    },
    Key {
        names: &["inherit_env"],
        set: set_inherit_env,
        meaning: "what of the host's environment processes see: \"all\", \"none\", or a list of names",
        default: |_| json!("all"),
    },
    Key {
        names: &["watchdog"],
        set: |s, text| fill_in(&mut s.watchdog, text),
        meaning: "whether a small process ends the others should the host be killed",
        default: |d| json!(d.config.watchdog),
    },
    Key {
        names: &["denied_env"],
        set: |s, text| fill_in(&mut s.denied_env, text),
        meaning: "variables that requests may not set; a final * stands for any rest",
        default: |d| json!(d.config.denied_env),
    },
    Key {
        names: &["auth_token_file"],
        set: |s, text| fill_in(&mut s.auth_token_file, text),
        meaning: "the file with the token that agents must show; null asks for none, but for the one in A2E_AUTH_TOKEN",
        default: |_| Value::Null,
    },
    Key {
        names: &["wire"],
        set: |s, text| fill_in(&mut s.wire, text),
        meaning: "the form of events: \"spec\", the specification's, or \"sdk\", the published Python SDK's",
        default: |_| json!("spec"),
    },
    Key {
        names: &["max_line_bytes"],
        set: |s, text| fill_in_checked(&mut s.max_line_bytes, text, max_line_bytes),
        meaning: "bytes of the longest request line",
        default: |d| json!(d.options.max_line_bytes),
    },
    Key {
        names: &["first_event_delay"],
        set: |s, text| fill_in_checked(&mut s.first_event_delay, text, span),
        meaning: "seconds between a spawn's answer and its first event; null is 0 with the wire \"spec\", 0.01 with \"sdk\"",
        default: |_| Value::Null,
    },
    Key {
        names: &["network_disabled", "DISABLE_NETWORK"],
        set: |s, text| fill_in(&mut s.network_disabled, text),
        meaning: "whether processes are cut off the network; a host that cannot do that does not start",
        default: |d| json!(d.config.network_disabled),
    },
    Key {
        names: &["wrap"],
        set: |s, text| fill_in(&mut s.wrap, text),
        meaning: "a launcher that goes before every command: a sandbox, a container, another machine; words, or one text",
        default: |d| json!(d.config.wrap),
    },
    Key {
        names: &["log"],
        set: |s, text| fill_in(&mut s.log, text),
        meaning: "what is said on standard error: \"error\", \"info\" or \"debug\"; null is nothing",
        default: |_| Value::Null,
    },
    Key {
        names: &["audit"],
        set: |s, text| fill_in(&mut s.audit, text),
        meaning: "the file to which one JSON line for each request is appended; \"-\" is standard error, null is none",
        default: |_| Value::Null,
    },
    Key {
        names: &["audit_max_bytes"],
        set: |s, text| fill_in(&mut s.audit_max_bytes, text),
        meaning: "bytes at which the audit file is rotated; 0 is never",
        default: |_| json!(AUDIT_MAX_BYTES),
    },
    Key {
        names: &["audit_keep"],
        set: |s, text| fill_in_checked(&mut s.audit_keep, text, audit_keep),
        meaning: "old audit files that are kept; 0 means that none is rotated",
        default: |_| json!(AUDIT_KEEP),
    },
];

impl Key {
    /// Why its value does nothing beside the others, if that is so.
    pub fn idle(&self, settings: &Settings) -> Option<&'static str> {
        let rotates = settings.audit_max_bytes != Some(0) && settings.audit_keep != Some(0);
        let listens = settings.listening.listen.is_some();
        let speaks_http = matches!(settings.listening.listen, Some(Address::Http(_)));
        match self.names[0] {
            "max_total_procs" | "max_sessions" | "handshake_within" if !listens => Some("no effect without listen"),
            "resume" | "http_hosts" if !speaks_http => Some("no effect but with listen at an http: address"),
            "audit_max_bytes" | "audit_keep" if settings.audit.is_none() => Some("no effect without audit"),
            "audit_max_bytes" | "audit_keep" if !rotates => Some("never rotated"),
            _ => None,
        }
    }
}

/// Reads the value, and keeps it if no flag has said otherwise.
fn fill_in<T: DeserializeOwned>(slot: &mut Option<T>, text: &str) -> serde_json::Result<()> {
    fill_in_checked(slot, text, Ok)
}

/// The same of a value that must pass a check.
fn fill_in_checked<T: DeserializeOwned>(
    slot: &mut Option<T>,
    text: &str,
    check: impl Fn(T) -> Result<T, String>,
) -> serde_json::Result<()> {
    let value = check(serde_json::from_str(text)?).map_err(serde::de::Error::custom)?;
    slot.get_or_insert(value);
    Ok(())
}

/// An address, as text.
fn set_listen(settings: &mut Settings, text: &str) -> serde_json::Result<()> {
    let address: String = serde_json::from_str(text)?;
    settings.listening.listen.get_or_insert(address.parse().map_err(serde::de::Error::custom)?);
    Ok(())
}

/// Names, each as it is or with a launcher of its own. The launchers hold for names that a flag allows, too.
fn set_allowed_commands(settings: &mut Settings, text: &str) -> serde_json::Result<()> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a name, or an object of \"name\" and \"wrap\"")]
    enum Entry {
        Name(String),
        Wrapped(Wrapped),
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wrapped {
        name: String,
        wrap: Words,
    }
    let mut names = Vec::new();
    for entry in serde_json::from_str::<Vec<Entry>>(text)? {
        let name = match entry {
            Entry::Name(name) => name,
            Entry::Wrapped(Wrapped { name, wrap: Words(words) }) => {
                if settings.wrap_by_name.insert(name.clone(), words).is_some() {
                    return Err(serde::de::Error::custom(format!("{name:?} has two launchers")));
                }
                name
            }
        };
        names.push(name);
    }
    settings.allowed_commands.get_or_insert(names);
    Ok(())
}

/// `"all"`, `"none"`, or a list of names.
fn set_inherit_env(settings: &mut Settings, text: &str) -> serde_json::Result<()> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected \"all\", \"none\" or a list of names")]
    enum Which {
        Word(String),
        Names(Vec<String>),
    }
    let which = match serde_json::from_str(text)? {
        Which::Word(word) => inherit_env(&word).map_err(serde::de::Error::custom)?,
        Which::Names(names) => InheritEnv::Only(names),
    };
    settings.inherit_env.get_or_insert(which);
    Ok(())
}
