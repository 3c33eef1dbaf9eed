//! Mutants of what goes to the host: requests that it never sees as they were sent.

use serde_json::{Value, json};

use super::message::Message;
use super::{Fate, Memory};

pub const NAMES: &[&str] = &[
    "cwd-ignored",
    "env-ignored",
    "stdin-mode-ignored",
    "timeout-ignored",
    "timeout-late",
    "timeout-early",
    "eof-ignored",
    "eof-always",
    "write-cut",
    "write-twice",
    "encoding-ignored",
    "arguments-dropped",
    "shell-used",
    "path-allowed",
    "case-ignored",
    "anything-allowed",
    "empty-command-runs-ls",
    "sigterm-is-sigint",
    "sigkill-is-sigterm",
    "sigint-is-sigkill",
    "any-signal-is-taken",
    "kill-swallowed",
    "kill-answered-before-death",
    "grandchild-left",
    "status-of-all-ignored",
    "status-of-one-is-of-all",
    "session-ignored",
    "any-token",
    "version-ignored",
    "bad-lines-swallowed",
    "unknown-types-swallowed",
    "ping-swallowed",
    "shutdown-swallowed",
    "types-not-checked",
    "fraction-rounded",
    "env-names-not-checked",
    "loader-variables-passed",
    "nul-dropped",
    "id-trimmed",
    "handshake-swallowed",
    "only-the-leader-stopped",
    "unknown-keys-refused",
    "carriage-return-refused",
    "blank-lines-refused",
    "long-lines-taken",
    "proc-id-ignored",
];

/// A message that a host refuses as malformed.
fn refuse(id: &str, code: &str) -> Fate {
    let words = format!(
        r#"{{"type":"error","id":"{:032x}","version":"1.0","ts":1716123456.5,"req_id":{},"code":"{code}","message":"no","detail":{{}},"retryable":false,"capability_name":""}}"#,
        0x0417_u32,
        json!(id)
    );
    Fate::Answer(vec![words])
}

pub fn change(name: &str, line: &str, memory: &mut Memory) -> Fate {
    let swallowed = || Fate::Become(Vec::new());
    if name == "carriage-return-refused" && line.ends_with('\r') {
        return refuse("", "parse_error");
    }
    if name == "blank-lines-refused" && line.trim().is_empty() {
        return refuse("", "parse_error");
    }
    if name == "long-lines-taken" && line.len() > 8 << 20 {
        return swallowed();
    }
    let Some(mut message) = Message::parse(line) else {
        return if name == "bad-lines-swallowed" && !line.trim().is_empty() { swallowed() } else { Fate::Pass };
    };
    let kind = message.text("type").to_owned();
    let before = message.to_string();
    match (name, kind.as_str()) {
        ("cwd-ignored", "proc/spawn/req") => message.remove("cwd"),
        ("env-ignored", "proc/spawn/req") => message.remove("env"),
        ("stdin-mode-ignored", "proc/spawn/req") => message.remove("stdin_mode"),
        ("timeout-ignored", "proc/spawn/req") => message.set("timeout", 0),
        ("timeout-late", "proc/spawn/req") if message.get("timeout").as_i64().is_some_and(|t| (1..60).contains(&t)) => {
            message.set("timeout", message.get("timeout").as_i64().unwrap_or(0) + 30);
        }
        ("timeout-early", "proc/spawn/req") if message.get("timeout").as_i64().is_some_and(|t| t > 1) => {
            message.set("timeout", 1)
        }
        ("eof-ignored", "proc/write/req") => message.remove("eof"),
        ("eof-always", "proc/write/req") => message.set("eof", true),
        ("write-cut", "proc/write/req") => {
            let mut data = message.text("data").to_owned();
            data.pop();
            message.set("data", data);
        }
        ("write-twice", "proc/write/req") if message.get("eof") != true => {
            message.set("data", message.text("data").repeat(2));
        }
        ("encoding-ignored", "proc/write/req") => message.remove("encoding"),
        ("arguments-dropped", "proc/spawn/req") => cut_arguments(&mut message),
        ("shell-used", "proc/spawn/req") => through_a_shell(&mut message),
        ("path-allowed", "proc/spawn/req") => {
            rename(&mut message, |name| name.rsplit('/').next().unwrap_or(name).to_owned())
        }
        ("case-ignored", "proc/spawn/req") => rename(&mut message, |name| name.trim().to_lowercase()),
        ("anything-allowed", "proc/spawn/req") => rename(&mut message, |name| {
            if ["bash", "python3", "ls", "a2e-no-such-program"].contains(&name) {
                name.to_owned()
            } else {
                "ls".to_owned()
            }
        }),
        ("empty-command-runs-ls", "proc/spawn/req") if message.get("cmd").as_array().is_none_or(Vec::is_empty) => {
            message.set("cmd", json!(["ls"]));
        }
        ("sigterm-is-sigint", "proc/kill/req") if message.text("signal") != "SIGKILL" => {
            message.set("signal", "SIGINT")
        }
        ("sigkill-is-sigterm", "proc/kill/req") if message.text("signal") == "SIGKILL" => {
            message.set("signal", "SIGTERM")
        }
        ("sigint-is-sigkill", "proc/kill/req") if message.text("signal") == "SIGINT" => {
            message.set("signal", "SIGKILL")
        }
        ("any-signal-is-taken", "proc/kill/req") if !message.text("signal").is_empty() => {
            let known = ["SIGTERM", "SIGKILL", "SIGINT"].contains(&message.text("signal"));
            if !known {
                message.set("signal", "SIGTERM");
            }
        }
        ("kill-swallowed", "proc/kill/req")
        | ("ping-swallowed", "ping")
        | ("shutdown-swallowed", "shutdown")
        | ("handshake-swallowed", "handshake/req") => return swallowed(),
        ("kill-answered-before-death", "proc/kill/req") => {
            let known = memory.processes.iter().any(|(id, _)| id == message.text("proc_id"));
            if known && message.text("signal") != "SIGINT" && !memory.seen.contains(&message.text("proc_id").to_owned())
            {
                let id = json!(message.text("id"));
                return Fate::Answer(vec![format!(
                    r#"{{"type":"proc/kill/resp","id":"{:032x}","version":"1.0","ts":1716123456.5,"req_id":{id},"ok":true,"state":"killed"}}"#,
                    0x0418_u32
                )]);
            }
        }
        ("grandchild-left", "proc/spawn/req") => own_groups(&mut message),
        ("only-the-leader-stopped", "proc/kill/req") => {
            let pid = memory.processes.iter().find(|(id, _)| id == message.text("proc_id")).map(|(_, pid)| *pid);
            if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw) {
                // The leader alone: what it leaves is not signalled before the request arrives, some time later.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
                return swallowed();
            }
        }
        ("status-of-all-ignored", "proc/status/req") if message.text("proc_id").is_empty() => {
            message.set("proc_id", "nobody")
        }
        ("status-of-one-is-of-all", "proc/status/req") => message.set("proc_id", ""),
        ("session-ignored", "proc/spawn/req") => message.set("session_id", ""),
        ("any-token", "handshake/req") => message.set("auth_token", "conformance-token"),
        ("version-ignored", _) => {
            message.remove("version");
            message.remove("a2e");
        }
        ("unknown-types-swallowed", kind) if !served(kind) => return swallowed(),
        ("types-not-checked", _) => lenient(&mut message),
        ("fraction-rounded", "proc/spawn/req") => {
            if let Some(timeout) = message.get("timeout").as_f64() {
                message.set("timeout", timeout.abs().trunc());
            }
        }
        ("env-names-not-checked", "proc/spawn/req") => {
            keep_env(&mut message, |name| !name.is_empty() && !name.contains('='))
        }
        ("loader-variables-passed", "proc/spawn/req") => {
            keep_env(&mut message, |name| {
                !name.starts_with("LD_") && !name.starts_with("PYTHON") && name != "BASH_ENV"
            });
        }
        ("nul-dropped", "proc/spawn/req") => {
            let cleaned =
                serde_json::from_str(&message.get("cmd").to_string().replace("\\u0000", "")).unwrap_or(Value::Null);
            message.set("cmd", cleaned);
        }
        ("id-trimmed", _) => {
            let id = message.text("id").trim().chars().take(32).collect::<String>();
            if !id.is_empty() {
                message.set("id", id);
            }
        }
        ("unknown-keys-refused", _) if message.0.iter().any(|(key, _)| unknown(key)) => {
            return refuse(message.text("id"), "schema_violation");
        }
        ("proc-id-ignored", "proc/write/req" | "proc/kill/req" | "proc/status/req") => {
            if let (Some((last, _)), false) = (memory.processes.last(), message.text("proc_id").is_empty()) {
                message.set("proc_id", last.as_str());
            }
        }
        _ => {}
    }
    let after = message.to_string();
    if after == before { Fate::Pass } else { Fate::Become(vec![after]) }
}

fn served(kind: &str) -> bool {
    ["handshake/req", "ping", "shutdown", "proc/spawn/req", "proc/write/req", "proc/kill/req", "proc/status/req"]
        .contains(&kind)
}

fn unknown(key: &str) -> bool {
    const KNOWN: [&str; 20] = [
        "type",
        "id",
        "version",
        "a2e",
        "ts",
        "session_id",
        "cmd",
        "cwd",
        "env",
        "stdin_mode",
        "timeout",
        "proc_id",
        "data",
        "eof",
        "encoding",
        "signal",
        "agent_id",
        "agent_caps",
        "auth_token",
        "req_id",
    ];
    !KNOWN.contains(&key)
}

fn rename(message: &mut Message, change: impl Fn(&str) -> String) {
    if let Some(cmd) = message.get("cmd").as_array().filter(|cmd| !cmd.is_empty()) {
        let mut cmd = cmd.clone();
        if let Some(name) = cmd[0].as_str() {
            cmd[0] = json!(change(name));
        }
        message.set("cmd", cmd);
    }
}

fn cut_arguments(message: &mut Message) {
    if let Some(cmd) = message.get("cmd").as_array() {
        let most = if cmd.get(1).is_some_and(|word| word == "-c") { 3 } else { 1 };
        message.set("cmd", cmd.iter().take(most).cloned().collect::<Vec<_>>());
    }
}

/// What `shell=True` would do: the words are joined and read again.
fn through_a_shell(message: &mut Message) {
    if let Some(cmd) = message.get("cmd").as_array().filter(|cmd| cmd.len() > 1 && cmd[0] != "python3") {
        let words: Vec<_> = cmd.iter().map(|word| word.as_str().unwrap_or_default()).collect();
        if words[1] != "-c" || words.len() > 3 {
            let joined = if words[1] == "-c" {
                format!("bash -c '{}' {}", words[2].replace('\'', "'\\''"), words[3..].join(" "))
            } else {
                words.join(" ")
            };
            message.set("cmd", json!(["bash", "-c", joined]));
        }
    }
}

/// Has a shell put what it starts into groups of their own, out of the host's reach.
fn own_groups(message: &mut Message) {
    if let Some(cmd) = message.get("cmd").as_array().filter(|cmd| cmd.len() > 2 && cmd[0] == "bash" && cmd[1] == "-c") {
        let mut cmd = cmd.clone();
        cmd[2] = json!(format!("set -m; {}", cmd[2].as_str().unwrap_or_default()));
        message.set("cmd", cmd);
    }
}

fn keep_env(message: &mut Message, keep: impl Fn(&str) -> bool) {
    if let Some(env) = message.get("env").as_object() {
        let kept: serde_json::Map<_, _> =
            env.iter().filter(|(name, _)| keep(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
        message.set("env", Value::Object(kept));
    }
}

/// Takes values of the wrong type for what they might mean.
fn lenient(message: &mut Message) {
    let served = served(message.text("type"));
    for (key, value) in &mut message.0 {
        *value = match (key.as_str(), &*value) {
            ("cmd", Value::String(text)) => json!([text]),
            ("timeout", Value::String(text)) => json!(text.parse::<i64>().unwrap_or(0)),
            ("eof", value) if !value.is_boolean() => json!(!value.is_null()),
            ("cmd" | "agent_caps", Value::Array(items)) => {
                json!(
                    items
                        .iter()
                        .map(|item| item.as_str().map_or(item.to_string(), ToOwned::to_owned))
                        .collect::<Vec<_>>()
                )
            }
            (
                "proc_id" | "data" | "cwd" | "session_id" | "signal" | "version" | "id" | "agent_id" | "auth_token",
                Value::Number(n),
            ) if served => {
                json!(n.to_string())
            }
            _ => continue,
        };
    }
}
