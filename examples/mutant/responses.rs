//! Mutants of what comes from the host: answers and events as a faulty host would give them.

use serde_json::{Value, json};

use super::message::Message;
use super::{Fate, Memory};

pub const NAMES: &[&str] = &[
    "req-id-missing",
    "req-id-wrong",
    "id-missing",
    "id-the-same",
    "id-not-a-text",
    "version-missing",
    "version-wrong",
    "ts-missing",
    "ts-a-text",
    "ok-false",
    "ok-missing",
    "pid-missing",
    "pid-zero",
    "pid-of-another",
    "pid-null-on-refusal",
    "error-missing",
    "error-without-code",
    "proc-id-missing",
    "proc-id-the-same",
    "answer-lost",
    "answer-twice",
    "answer-late",
    "terminal-lost",
    "terminal-twice",
    "terminal-early",
    "terminal-on-the-other-stream",
    "code-wrong",
    "killed-has-a-code",
    "killed-is-a-code",
    "event-before-answer",
    "event-lost",
    "event-twice",
    "events-swapped",
    "event-of-another",
    "event-req-id-missing",
    "text-changed",
    "text-cut-in-a-character",
    "newline-lost",
    "carriage-return-lost",
    "nul-lost",
    "lines-merged",
    "lines-split",
    "streams-swapped",
    "prompt-held-back",
    "base64-missing",
    "dropped-not-said",
    "data-is-the-object",
    "data-missing",
    "seq-has-a-gap",
    "kind-missing",
    "state-missing",
    "state-wrong",
    "status-lies",
    "status-error-missing",
    "status-without-reason",
    "procs-missing",
    "procs-reversed",
    "exit-code-missing",
    "started-at-missing",
    "cmd-missing",
    "code-of-error-wrong",
    "error-without-req-id",
    "key-order",
    "stray-line",
    "not-utf8",
    "pretty-json",
    "capability-missing",
    "priority-wrong",
    "pong-without-uptime",
    "session-id-missing",
];

pub fn change(name: &str, line: &str, memory: &mut Memory) -> Fate {
    let Some(mut message) = Message::parse(line) else { return Fate::Pass };
    let kind = message.text("type").to_owned();
    let before = message.to_string();
    let is_event = kind == "proc/read/event";
    let is_terminal = is_event && message.is_terminal();
    let is_output = is_event && !is_terminal && message.payload().get("text").is_some();
    let is_refusal = *message.get("ok") == Value::Bool(false);
    if kind == "proc/spawn/resp" && !is_refusal {
        memory.processes.push((message.text("proc_id").to_owned(), message.get("pid").as_i64().unwrap_or(0)));
    }
    if is_terminal {
        memory.seen.push(message.text("proc_id").to_owned());
    }
    memory.count += 1;
    match (name, kind.as_str()) {
        ("req-id-missing", _) if !is_event => message.remove("req_id"),
        ("req-id-wrong", _) if !is_event => message.set("req_id", "another"),
        ("id-missing", _) => message.remove("id"),
        ("id-the-same", _) => message.set("id", "0123456789abcdef0123456789abcdef"),
        ("id-not-a-text", _) => message.set("id", 7),
        ("version-missing", _) => message.remove("version"),
        ("version-wrong", _) => message.set("version", "2.0"),
        ("ts-missing", _) => message.remove("ts"),
        ("ts-a-text", _) => message.set("ts", "now"),
        ("ok-false", _) if message.get("ok") == true => message.set("ok", false),
        ("ok-missing", _) => message.remove("ok"),
        ("pid-missing", _) => message.remove("pid"),
        ("pid-zero", _) if message.get("pid").is_number() => message.set("pid", 0),
        ("pid-of-another", "proc/write/resp") => message.set("pid", message.get("pid").as_i64().unwrap_or(0) + 1),
        ("pid-null-on-refusal", "proc/spawn/resp") if is_refusal => message.set("pid", Value::Null),
        ("error-missing", "proc/spawn/resp" | "proc/write/resp") if is_refusal => message.set("error", ""),
        ("error-without-code", _) if is_refusal => {
            let words = message.text("error").split_once(": ").map_or("no", |(_, words)| words).to_owned();
            message.set("error", words);
        }
        ("proc-id-missing", _) => message.remove("proc_id"),
        ("proc-id-the-same", _) if !message.text("proc_id").is_empty() => {
            message.set("proc_id", "0123456789abcdef0123456789abcdef")
        }
        ("answer-lost", _) if !is_event && kind != "proc/spawn/resp" => return Fate::Become(Vec::new()),
        ("answer-twice", _) if !is_event => {
            let mut again = message.clone();
            again.set("id", format!("{:032x}", memory.count));
            return Fate::Become(vec![line.to_owned(), again.to_string()]);
        }
        ("answer-late", "proc/status/resp" | "pong") => std::thread::sleep(std::time::Duration::from_secs(12)),
        ("terminal-lost", _) if is_terminal => return Fate::Become(Vec::new()),
        ("terminal-twice", _) if is_terminal => {
            let mut again = message.clone();
            again.set("id", format!("{:032x}", memory.count));
            return Fate::Become(vec![line.to_owned(), again.to_string()]);
        }
        ("terminal-early", _) if is_output => {
            memory.held.push(line.to_owned());
            return Fate::Become(Vec::new());
        }
        ("terminal-early", _) if is_terminal => {
            let held = std::mem::take(&mut memory.held);
            return Fate::Become([vec![line.to_owned()], held].concat());
        }
        ("terminal-on-the-other-stream", _) if is_terminal => swap_streams(&mut message),
        ("code-wrong", _) if is_terminal && message.payload().get("code").is_some_and(|code| *code != 0) => {
            message.set_payload(&json!({"code": 99}));
        }
        ("killed-has-a-code", _) if message.text("stream_type") == "killed" => message.set_payload(&json!({"code": 0})),
        ("killed-is-a-code", _) if message.text("stream_type") == "killed" => {
            message.set("stream_type", "stderr");
            message.set_payload(&json!({"code": -15}));
        }
        ("event-before-answer", "proc/spawn/resp") if !is_refusal => {
            memory.held.push(line.to_owned());
            return Fate::Become(Vec::new());
        }
        ("event-before-answer", _) if is_event && !memory.held.is_empty() => {
            let held = std::mem::take(&mut memory.held);
            return Fate::Become([vec![line.to_owned()], held].concat());
        }
        ("event-lost", _) if is_output => return Fate::Become(Vec::new()),
        ("event-twice", _) if is_output => {
            let mut again = message.clone();
            again.set("id", format!("{:032x}", memory.count));
            return Fate::Become(vec![line.to_owned(), again.to_string()]);
        }
        ("events-swapped", _) if is_output && memory.held.is_empty() => {
            memory.held.push(line.to_owned());
            return Fate::Become(Vec::new());
        }
        ("events-swapped", _) if is_event && !memory.held.is_empty() => {
            let held = std::mem::take(&mut memory.held);
            // Only output changes places; the terminal event stays the last.
            let lines = if is_terminal { [held, vec![line.to_owned()]] } else { [vec![line.to_owned()], held] };
            return Fate::Become(lines.concat());
        }
        ("event-of-another", _) if is_event => {
            let other = memory.processes.iter().find(|(id, _)| id != message.text("proc_id")).map(|(id, _)| id.clone());
            message.set("proc_id", other.unwrap_or_else(|| "nobody".to_owned()));
        }
        ("event-req-id-missing", _) if is_event => message.set("req_id", ""),
        ("text-changed", _) if is_output => with_text(&mut message, |text| text.to_uppercase()),
        ("text-cut-in-a-character", _) if is_output => {
            with_text(&mut message, |text| {
                text.chars().map(|c| if c.is_ascii() { c.to_string() } else { "\u{fffd}\u{fffd}".to_owned() }).collect()
            });
        }
        ("newline-lost", _) if is_output => with_text(&mut message, |text| text.trim_end_matches('\n').to_owned()),
        ("carriage-return-lost", _) if is_output => with_text(&mut message, |text| text.replace('\r', "")),
        ("nul-lost", _) if is_output => with_text(&mut message, |text| text.replace('\0', "")),
        ("lines-merged", _) if is_output => {
            let text = memory.held.pop().unwrap_or_default() + message.payload()["text"].as_str().unwrap_or_default();
            if text.matches('\n').count() < 2 {
                memory.held.push(text);
                return Fate::Become(Vec::new());
            }
            with_text(&mut message, |_| text.clone());
        }
        ("lines-merged", _) if is_terminal && !memory.held.is_empty() => {
            let mut rest = message.clone();
            rest.set("stream_type", "stdout");
            rest.set("id", format!("{:032x}", memory.count));
            rest.set_payload(&json!({"text": memory.held.pop()}));
            return Fate::Become(vec![rest.to_string(), line.to_owned()]);
        }
        ("lines-split", _) if is_output && line.len() < 2000 => {
            let text = message.payload()["text"].as_str().unwrap_or_default().to_owned();
            let pieces = text.chars().enumerate().map(|(i, c)| {
                let mut piece = message.clone();
                piece.set("id", format!("{:016x}{i:016x}", memory.count));
                piece.set_payload(&json!({"text": c}));
                piece.to_string()
            });
            return Fate::Become(pieces.collect());
        }
        ("streams-swapped", _) if is_output => swap_streams(&mut message),
        ("prompt-held-back", _)
            if is_output && !message.payload()["text"].as_str().is_some_and(|text| text.ends_with('\n')) =>
        {
            memory.held.push(line.to_owned());
            return Fate::Become(Vec::new());
        }
        ("prompt-held-back", _) if is_event && !memory.held.is_empty() => {
            let held = std::mem::take(&mut memory.held);
            return Fate::Become([held, vec![line.to_owned()]].concat());
        }
        ("base64-missing", _) if is_output => without(&mut message, "base64"),
        ("dropped-not-said", _) if is_event && message.payload().get("dropped").is_some() => {
            return Fate::Become(Vec::new());
        }
        ("data-is-the-object", _) if is_event => {
            let payload = message.payload();
            let other = if message.get("data").is_string() { payload } else { json!(payload.to_string()) };
            message.set("data", other);
        }
        ("data-missing", _) => message.remove("data"),
        ("seq-has-a-gap", _) if is_event => message.set("seq", memory.count + 7),
        ("kind-missing", _) => message.remove("kind"),
        ("state-missing", "proc/kill/resp") => message.set("state", ""),
        ("state-wrong", "proc/kill/resp") => message.set("state", "stopped"),
        ("status-lies", "proc/status/resp") if message.text("status") != "not_found" => {
            message.set("status", "running")
        }
        ("status-error-missing", "proc/status/resp") => message.remove("error"),
        ("status-without-reason", "proc/status/resp") => message.set("error", ""),
        ("procs-missing", "proc/status/resp") => message.remove("procs"),
        ("procs-reversed", "proc/status/resp") => {
            let reversed: Vec<_> = message.get("procs").as_array().into_iter().flatten().rev().cloned().collect();
            message.set("procs", reversed);
        }
        ("exit-code-missing", "proc/status/resp") => in_procs(&mut message, |proc| proc["exit_code"] = Value::Null),
        ("started-at-missing", "proc/status/resp") => {
            in_procs(&mut message, |proc| drop(proc.as_object_mut().unwrap().remove("started_at")))
        }
        ("cmd-missing", "proc/status/resp") => in_procs(&mut message, |proc| proc["cmd"] = json!("")),
        ("code-of-error-wrong", "error") => message.set("code", "timeout"),
        ("error-without-req-id", "error") => message.set("req_id", ""),
        ("key-order", _) if message.0.len() > 5 => message.0.swap(4, 5),
        ("stray-line", _) if memory.count == 2 => {
            return Fate::Become(vec!["warning: something".to_owned(), line.to_owned()]);
        }
        ("not-utf8", _) if is_output => return Fate::Become(vec![format!("\0{line}")]),
        ("pretty-json", _) => {
            return Fate::Become(line.replacen(',', ",\n ", 1).lines().map(ToOwned::to_owned).collect());
        }
        ("capability-missing", "handshake/resp") => message.set("accepted_caps", json!([])),
        ("priority-wrong", "handshake/resp") => {
            let mut caps = message.get("accepted_caps").clone();
            caps.as_array_mut().into_iter().flatten().for_each(|cap| cap["metadata"]["priority"] = json!(1));
            message.set("accepted_caps", caps);
        }
        ("pong-without-uptime", "pong") => message.remove("uptime_seconds"),
        ("session-id-missing", "handshake/resp") => message.set("session_id", ""),
        _ => {}
    }
    let after = message.to_string();
    if after == before { Fate::Pass } else { Fate::Become(vec![after]) }
}

fn swap_streams(message: &mut Message) {
    match message.text("stream_type") {
        "stdout" => message.set("stream_type", "stderr"),
        "stderr" => message.set("stream_type", "stdout"),
        _ => {}
    }
}

fn with_text(message: &mut Message, change: impl Fn(&str) -> String) {
    let mut payload = message.payload();
    payload["text"] = json!(change(payload["text"].as_str().unwrap_or_default()));
    // A text that was changed has no exact bytes any more.
    let is_changed = message.payload() != payload;
    if let (Some(object), true) = (payload.as_object_mut(), is_changed) {
        object.remove("base64");
    }
    message.set_payload(&payload);
}

fn without(message: &mut Message, key: &str) {
    let mut payload = message.payload();
    if let Some(object) = payload.as_object_mut() {
        object.remove(key);
    }
    message.set_payload(&payload);
}

fn in_procs(message: &mut Message, change: impl Fn(&mut Value)) {
    let mut procs = message.get("procs").clone();
    procs.as_array_mut().into_iter().flatten().for_each(&change);
    message.set("procs", procs);
}
