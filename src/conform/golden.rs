//! Canonical lines with their values, for tests of encoders and decoders in any language (`conformance/golden`). This file is
//! their source: `a2e-proc conform --write-golden conformance/golden` writes them anew, and a test holds that nothing differs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

/// The id and the time of every golden message.
const ID: &str = "\"0123456789abcdef0123456789abcdef\"";
const TS: &str = "1716123456.789";

/// A process and a request of those messages.
const PROC: &str = "\"fedcba9876543210fedcba9876543210\"";
const REQ: &str = "\"r1\"";

/// A message: file, name, and the keys after the envelope with their values as JSON text.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// What hosts send, in either dialect.
const FROM_HOSTS: &[Row] = &[
    (
        "handshake/resp",
        "accepted",
        &[
            ("req_id", REQ),
            ("session_id", "\"00112233445566778899aabbccddeeff\""),
            (
                "accepted_caps",
                r#"[{"capability":"proc","enabled":true,"metadata":{"name":"proc","type":"proc","priority":5,"exclusive":false,"allowed_commands":["python3","bash","ls"],"max_procs":64,"default_timeout":0,"max_timeout":0,"kill_grace":2.0,"max_output_bytes":0,"max_line_bytes":8388608,"max_stdin_bytes":1048576,"denied_env":["LD_*","DYLD_*"]}}]"#,
            ),
            ("max_parallel", "4"),
            ("ok", "true"),
            ("reason", "\"\""),
        ],
    ),
    (
        "handshake/resp",
        "no common capability",
        &[
            ("req_id", REQ),
            ("session_id", "\"00112233445566778899aabbccddeeff\""),
            ("accepted_caps", "[]"),
            ("max_parallel", "4"),
            ("ok", "true"),
            ("reason", "\"\""),
        ],
    ),
    (
        "handshake/resp",
        "wrong token",
        &[
            ("req_id", REQ),
            ("session_id", "\"\""),
            ("accepted_caps", "[]"),
            ("max_parallel", "4"),
            ("ok", "false"),
            ("reason", "\"auth_failed\""),
        ],
    ),
    ("pong", "pong", &[("req_id", REQ), ("uptime_seconds", "12.5")]),
    ("error", "not JSON", &error(r#""""#, r#""parse_error""#, r#""the line is not JSON""#, r#""""#)),
    ("error", "a field", &error(REQ, r#""schema_violation""#, r#""eof must be true or false""#, r#""proc""#)),
    (
        "proc/spawn/resp",
        "started",
        &[("req_id", REQ), ("proc_id", PROC), ("ok", "true"), ("pid", "12345"), ("error", "\"\"")],
    ),
    (
        "proc/spawn/resp",
        "refused, without a pid",
        &[
            ("req_id", REQ),
            ("proc_id", "\"\""),
            ("ok", "false"),
            ("error", r#""command_not_allowed: \"rm\" is not allowed""#),
        ],
    ),
    (
        "proc/write/resp",
        "written",
        &[("req_id", REQ), ("proc_id", PROC), ("ok", "true"), ("pid", "12345"), ("error", "\"\"")],
    ),
    (
        "proc/write/resp",
        "unknown process, pid 0",
        &[
            ("req_id", REQ),
            ("proc_id", "\"nobody\""),
            ("ok", "false"),
            ("pid", "0"),
            ("error", r#""unknown_proc: process not found: \"nobody\"""#),
        ],
    ),
    ("proc/kill/resp", "killed", &[("req_id", REQ), ("ok", "true"), ("state", "\"killed\"")]),
    ("proc/kill/resp", "SIGINT survived", &[("req_id", REQ), ("ok", "true"), ("state", "\"running\"")]),
    (
        "proc/kill/resp",
        "ended before; error is additive",
        &[
            ("req_id", REQ),
            ("ok", "false"),
            ("state", "\"completed\""),
            ("error", r#""proc_dead: the process has ended""#),
        ],
    ),
    (
        "proc/status/resp",
        "running",
        &[
            ("req_id", REQ),
            ("proc_id", PROC),
            ("status", "\"running\""),
            ("error", "\"\""),
            (
                "procs",
                r#"[{"proc_id":"fedcba9876543210fedcba9876543210","cmd":"python3 -i","state":"running","pid":12345,"exit_code":null,"started_at":1716123456.5}]"#,
            ),
        ],
    ),
    (
        "proc/status/resp",
        "all, with dropped output",
        &[
            ("req_id", REQ),
            ("proc_id", "\"\""),
            ("status", "\"completed\""),
            ("error", "\"\""),
            (
                "procs",
                r#"[{"proc_id":"fedcba9876543210fedcba9876543210","cmd":"bash -c 'exit 3'","state":"crashed","pid":12345,"exit_code":3,"started_at":1716123456.5},{"proc_id":"0000000000000000000000000000000a","cmd":"ls","state":"stopped","pid":12346,"exit_code":0,"started_at":1716123457.25,"dropped_bytes":17}]"#,
            ),
        ],
    ),
    (
        "proc/status/resp",
        "not found",
        &[
            ("req_id", REQ),
            ("proc_id", "\"nobody\""),
            ("status", "\"not_found\""),
            ("error", r#""unknown_proc: process not found: \"nobody\"""#),
            ("procs", "[]"),
        ],
    ),
];

/// The body of an `error`.
const fn error(
    req_id: &'static str,
    code: &'static str,
    message: &'static str,
    capability: &'static str,
) -> [(&'static str, &'static str); 6] {
    [
        ("req_id", req_id),
        ("code", code),
        ("message", message),
        ("detail", "{}"),
        ("retryable", "false"),
        ("capability_name", capability),
    ]
}

/// Events: name, stream type and payload.
const EVENTS: &[(&str, &str, &str)] = &[
    ("a line", "stdout", r#"{"text":"hello\n"}"#),
    ("a prompt, without newline", "stderr", r#"{"text":">>> "}"#),
    ("control characters and a line separator", "stdout", "{\"text\":\"a\\u0000\\u001b\\t\\\"\\\\/\u{2028}b\\r\\n\"}"),
    ("beyond the basic plane", "stdout", "{\"text\":\"≤ 𝄞\\n\"}"),
    ("bytes that are not UTF-8", "stdout", "{\"text\":\"a\u{fffd}\\n\",\"base64\":\"Yf8K\"}"),
    ("output is cut from here on", "stdout", r#"{"text":"","dropped":true}"#),
    ("exit 0", "stdout", r#"{"code":0}"#),
    ("exit 3", "stderr", r#"{"code":3}"#),
    ("death by a signal that nobody asked for", "stderr", r#"{"code":-11}"#),
    ("killed", "killed", "{}"),
];

/// What agents send: type, name, keys after the envelope; and the values as a host reads them, defaults filled in.
const FROM_AGENTS: &[(Row, &str)] = &[
    (
        (
            "handshake/req",
            "in full",
            &[("agent_id", "\"agent\""), ("agent_caps", r#"["proc"]"#), ("auth_token", "\"secret\"")],
        ),
        r#"{"agent_id":"agent","agent_caps":["proc"],"auth_token":"secret"}"#,
    ),
    (("handshake/req", "defaults", &[]), r#"{"agent_id":"","agent_caps":[],"auth_token":""}"#),
    (("ping", "ping", &[]), "{}"),
    (("shutdown", "defaults", &[]), r#"{"timeout":10}"#),
    (("shutdown", "with a fraction", &[("timeout", "2.5")]), r#"{"timeout":2.5}"#),
    (
        (
            "proc/spawn/req",
            "in full",
            &[
                ("session_id", "\"s1\""),
                ("cmd", r#"["python3","-i"]"#),
                ("cwd", "\"/tmp\""),
                ("env", r#"{"A":"1"}"#),
                ("stdin_mode", "\"null\""),
                ("timeout", "60"),
            ],
        ),
        r#"{"session_id":"s1","cmd":["python3","-i"],"cwd":"/tmp","env":{"A":"1"},"stdin_mode":"null","timeout":60}"#,
    ),
    (
        ("proc/spawn/req", "defaults; an absent timeout is the host's own default", &[("cmd", r#"["ls"]"#)]),
        r#"{"session_id":"","cmd":["ls"],"cwd":"","env":{},"stdin_mode":"pipe","timeout":null}"#,
    ),
    (
        ("proc/spawn/req", "whole seconds with a fraction of none", &[("cmd", r#"["ls"]"#), ("timeout", "5.0")]),
        r#"{"session_id":"","cmd":["ls"],"cwd":"","env":{},"stdin_mode":"pipe","timeout":5}"#,
    ),
    (
        (
            "proc/write/req",
            "text and end",
            &[("proc_id", PROC), ("data", r#""h\u00e9 \ud834\udd1e\n""#), ("eof", "true")],
        ),
        r#"{"proc_id":"fedcba9876543210fedcba9876543210","bytes":"aMOpIPCdhJ4K","eof":true}"#,
    ),
    (
        (
            "proc/write/req",
            "bytes, and a key that nobody knows",
            &[("proc_id", PROC), ("data", "\"/wA=\""), ("encoding", "\"base64\""), ("future", "[1]")],
        ),
        r#"{"proc_id":"fedcba9876543210fedcba9876543210","bytes":"/wA=","eof":false}"#,
    ),
    (
        ("proc/kill/req", "defaults", &[("proc_id", PROC)]),
        r#"{"proc_id":"fedcba9876543210fedcba9876543210","signal":"SIGTERM"}"#,
    ),
    (("proc/status/req", "all", &[("proc_id", "\"\"")]), r#"{"proc_id":""}"#),
];

/// Lines that a host refuses: name, line, the code of the error, and the `req_id` that it has.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("not JSON", "{\"type\":\"ping\",", "parse_error", ""),
    ("not an object", "[1]", "parse_error", ""),
    ("two objects", r#"{"type":"ping","id":"a"} {}"#, "parse_error", ""),
    ("no type", r#"{"id":"a"}"#, "invalid_message", "a"),
    ("a type that is no text", r#"{"type":1,"id":"a"}"#, "invalid_message", "a"),
    ("an unknown type", r#"{"type":"proc/resize/req","id":"a"}"#, "invalid_message", "a"),
    ("a type that only hosts send", r#"{"type":"proc/spawn/resp","id":"a"}"#, "invalid_message", "a"),
    ("no id", r#"{"type":"ping"}"#, "schema_violation", ""),
    ("an empty id", r#"{"type":"ping","id":""}"#, "schema_violation", ""),
    ("an id that is a number", r#"{"type":"ping","id":7}"#, "schema_violation", ""),
    ("another major version", r#"{"type":"ping","id":"a","version":"2.0"}"#, "version_mismatch", "a"),
    ("a version that is a number", r#"{"type":"ping","id":"a","version":1.0}"#, "schema_violation", "a"),
    ("a time that is a text", r#"{"type":"ping","id":"a","ts":"now"}"#, "schema_violation", "a"),
    ("cmd is a text", r#"{"type":"proc/spawn/req","id":"a","cmd":"ls"}"#, "schema_violation", "a"),
    ("a number in cmd", r#"{"type":"proc/spawn/req","id":"a","cmd":["ls",1]}"#, "schema_violation", "a"),
    ("a number in env", r#"{"type":"proc/spawn/req","id":"a","cmd":["ls"],"env":{"A":1}}"#, "schema_violation", "a"),
    (
        "an unknown stdin_mode",
        r#"{"type":"proc/spawn/req","id":"a","cmd":["ls"],"stdin_mode":"pty"}"#,
        "schema_violation",
        "a",
    ),
    (
        "a timeout with a fraction",
        r#"{"type":"proc/spawn/req","id":"a","cmd":["ls"],"timeout":1.5}"#,
        "schema_violation",
        "a",
    ),
    ("a negative timeout", r#"{"type":"proc/spawn/req","id":"a","cmd":["ls"],"timeout":-1}"#, "schema_violation", "a"),
    (
        "a timeout that is too long",
        r#"{"type":"proc/spawn/req","id":"a","cmd":["ls"],"timeout":2147483648}"#,
        "schema_violation",
        "a",
    ),
    ("null is no value", r#"{"type":"proc/kill/req","id":"a","proc_id":null}"#, "schema_violation", "a"),
    (
        "eof is a text",
        r#"{"type":"proc/write/req","id":"a","proc_id":"p","data":"x","eof":"yes"}"#,
        "schema_violation",
        "a",
    ),
    (
        "bad base64",
        r#"{"type":"proc/write/req","id":"a","proc_id":"p","data":"*","encoding":"base64"}"#,
        "schema_violation",
        "a",
    ),
    (
        "half a surrogate pair",
        r#"{"type":"proc/write/req","id":"a","proc_id":"p","data":"\ud834"}"#,
        "schema_violation",
        "a",
    ),
];

/// The files, by name.
fn files() -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |file: &str, row: Value| {
        let text = files.entry(format!("{}.jsonl", file.replace('/', "-"))).or_default();
        text.push_str(&format!("{row}\n"));
    };
    for (kind, name, body) in FROM_HOSTS {
        let line = line(kind, body);
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        add(kind, json!({"name": name, "from": "host", "dialect": "both", "line": line, "value": value}));
    }
    for (seq, (name, stream, payload)) in EVENTS.iter().enumerate() {
        let stream = format!("\"{stream}\"");
        let as_text = json!(payload).to_string();
        let spec = [("proc_id", PROC), ("stream_type", &stream), ("data", &as_text), ("req_id", REQ)];
        let seq = seq.to_string();
        let kind = [("kind", "\"status\""), ("seq", seq.as_str())];
        let sdk = [("proc_id", PROC), ("stream_type", &stream), ("data", payload), ("req_id", REQ), kind[0], kind[1]];
        for (dialect, line) in [("spec", line("proc/read/event", &spec)), ("sdk", line("proc/read/event", &sdk))] {
            let mut value: Value = serde_json::from_str(&line).unwrap_or_default();
            // The payload itself, in either dialect.
            value["data"] = serde_json::from_str(payload).unwrap_or_default();
            add(
                "proc/read/event",
                json!({"name": name, "from": "host", "dialect": dialect, "line": line, "value": value}),
            );
        }
    }
    for ((kind, name, body), read) in FROM_AGENTS {
        let value: Value = serde_json::from_str(read).unwrap_or_default();
        add(kind, json!({"name": name, "from": "agent", "dialect": "both", "line": line(kind, body), "value": value}));
    }
    for (name, line, code, req_id) in REFUSED {
        add(
            "refused",
            json!({"name": name, "from": "agent", "dialect": "both", "line": line, "error": code, "req_id": req_id}),
        );
    }
    files
}

/// A message as a line, without its newline.
fn line(kind: &str, body: &[(&str, &str)]) -> String {
    let kind = format!("\"{kind}\"");
    let envelope = [("type", kind.as_str()), ("id", ID), ("version", "\"1.0\""), ("ts", TS)];
    let members = envelope.iter().chain(body).map(|(key, value)| format!("\"{key}\":{value}"));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Writes the files into a folder.
pub fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    files().iter().try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conform::kit::{Dialect, Keys, Kit};

    #[test]
    fn the_committed_lines_are_what_this_writes() {
        let kit = Kit::built_in();
        let files = files();
        let committed: BTreeMap<_, _> =
            kit.files("golden", "").map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        assert_eq!(committed.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
        for (name, text) in &files {
            assert_eq!(
                &committed[name], text,
                "{name}: write it anew with `a2e-proc conform --write-golden conformance/golden`"
            );
        }
    }

    /// Two sources that know nothing of each other: the lines here and the schemas.
    #[test]
    fn the_lines_are_valid_and_their_keys_in_order() {
        let kit = Kit::built_in();
        for dialect in [Dialect::Spec, Dialect::Sdk] {
            let schemas = kit.schemas(dialect).unwrap();
            let name = if dialect == Dialect::Spec { "spec" } else { "sdk" };
            for (file, text) in files() {
                for row in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
                    let mine = ["both", name].contains(&row["dialect"].as_str().unwrap());
                    if !mine || file == "refused.jsonl" {
                        continue;
                    }
                    let line = row["line"].as_str().unwrap();
                    let message: Value = serde_json::from_str(line).unwrap();
                    let schema = &schemas[message["type"].as_str().unwrap()];
                    let errors: Vec<_> = schema.validator.iter_errors(&message).map(|e| e.to_string()).collect();
                    assert!(errors.is_empty(), "{line}: {errors:?}");
                    let Keys(keys) = serde_json::from_str(line).unwrap();
                    let place = |key: &String| schema.keys.iter().position(|known| known == key).unwrap_or(usize::MAX);
                    assert!(keys.is_sorted_by_key(place), "{line}: the schema has {:?}", schema.keys);
                }
            }
        }
    }
}
