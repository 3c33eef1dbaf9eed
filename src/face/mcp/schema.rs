//! The schemas of what tools take and give, for `catalog`. Within what clients of every revision read: no references, no
//! alternatives, one type each.

use serde_json::{Map, Value, json};

use crate::desk::{Kind, Status};

/// The most lines that one answer carries, and how many if the caller does not say.
pub const MOST_LINES: usize = 200;
/// See [`MOST_LINES`].
pub const USUAL_LINES: usize = 50;
/// The most matches that one answer carries, and how many if the caller does not say.
pub const MOST_RESULTS: usize = 100;
/// See [`MOST_RESULTS`].
pub const USUAL_RESULTS: usize = 20;
/// The longest that a port is waited for, and how long if the caller does not say, in milliseconds.
pub const LONGEST_WAIT_MS: u64 = 30_000;
/// See [`LONGEST_WAIT_MS`].
pub const USUAL_WAIT_MS: u64 = 10_000;
/// `wait_ms` of send_input is brought between these.
pub const WAIT_MS: [u64; 2] = [250, 10_000];
/// The topics of help.
pub const TOPICS: [&str; 6] = ["overview", "output", "input", "trust", "ports", "agents"];

/// Some arguments, each with its schema and whether it is required.
pub type Arguments = Vec<(&'static str, Value, bool)>;

/// Which entry.
pub fn target() -> Arguments {
    vec![
        ("process_id", integer("The entry's id, from list_processes. Give this or process_name."), false),
        ("process_name", described(text(), "The entry's name. Give this or process_id."), false),
    ]
}

/// How many lines.
pub fn lines() -> Arguments {
    vec![("lines", integer(&format!("How many lines, 1 to {MOST_LINES}; {USUAL_LINES} if left out.")), false)]
}

/// Which of them.
pub fn page() -> Arguments {
    vec![
        ("before", integer("Only lines before the one with this number: the `before` of the last answer."), false),
        ("colours", described(boolean(), "Keep colours, as escape sequences; false if left out."), false),
    ]
}

/// Which bytes.
pub fn byte() -> Arguments {
    vec![("before", integer("Only what came before this byte: the `before` of the last answer."), false)]
}

/// What to search for.
pub fn search() -> Arguments {
    let pattern = json!({"type": "string", "minLength": 1, "maxLength": 1000, "description": "The text to find."});
    let most = integer(&format!("How many matches, the newest, 1 to {MOST_RESULTS}; {USUAL_RESULTS} if left out."));
    vec![("pattern", pattern, true), ("max_results", most, false)]
}

/// A new name.
pub fn new_name() -> Arguments {
    vec![("new_name", described(text(), "1 to 128 characters."), true)]
}

/// That the user has asked for it.
pub fn confirm(name: &'static str, doing: &str) -> Arguments {
    let words = format!("Set this only if the user has explicitly asked you to {doing} your own process.");
    vec![(name, described(boolean(), &words), false)]
}

/// Terminal or agent.
pub fn kind() -> Arguments {
    let kinds =
        json!({"type": "string", "enum": ["terminal", "agent"], "description": "A terminal is the user's shell."});
    vec![("kind", kinds, true)]
}

/// Which agent.
pub fn agent(is_required: bool) -> Arguments {
    vec![("agent_tool_id", described(text(), "Which agent: an id from list_agent_tools."), is_required)]
}

/// What a new entry is like.
pub fn new() -> Arguments {
    let args = json!({"type": "array", "items": {"type": "string"}, "description": "Arguments on top of its own."});
    vec![
        ("name", described(text(), "What to call it; something that fits if left out."), false),
        ("extra_args", args, false),
    ]
}

/// How long to wait.
pub fn timeout() -> Arguments {
    let words = format!("How long to wait, in milliseconds, at most {LONGEST_WAIT_MS}; {USUAL_WAIT_MS} if left out.");
    vec![("timeout_ms", integer(&words), false)]
}

/// What to type.
pub fn keys() -> Arguments {
    let bytes = json!({
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 255},
        "description": "Bytes to send instead of input, as they are.",
    });
    let intent = json!({
        "type": "string",
        "enum": ["message", "interaction"],
        "description": "For agents: a message (if left out), or keys that answer the prompt it shows.",
    });
    let wait =
        format!("Wait so many milliseconds, {} to {}, and return the end of the output.", WAIT_MS[0], WAIT_MS[1]);
    vec![
        ("input", json!({"type": "string", "maxLength": 1_000_000, "description": "The text to type."}), false),
        ("submit", described(boolean(), "Whether Enter follows the text; true if left out."), false),
        ("bytes", bytes, false),
        ("intent", intent, false),
        ("wait_ms", integer(&wait), false),
    ]
}

/// What help is about.
pub fn topic() -> Arguments {
    vec![("topic", json!({"type": "string", "enum": TOPICS, "description": "overview if left out."}), false)]
}

/// The schema of arguments; there are no others.
pub fn input(arguments: &[Arguments]) -> Value {
    let all = || arguments.iter().flatten();
    let properties: Map<String, Value> = all().map(|(name, schema, _)| ((*name).to_owned(), schema.clone())).collect();
    let required: Vec<&str> = all().filter(|(.., required)| *required).map(|(name, ..)| *name).collect();
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Text.
pub fn text() -> Value {
    json!({"type": "string"})
}

/// True or false.
pub fn boolean() -> Value {
    json!({"type": "boolean"})
}

/// A whole number.
pub fn integer(words: &str) -> Value {
    json!({"type": "integer", "description": words})
}

/// A schema with words to it.
pub fn described(mut schema: Value, words: &str) -> Value {
    schema["description"] = json!(words);
    schema
}

/// Any number of those.
pub fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// An object with these properties.
pub fn object(properties: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// An object's schema with more in it.
pub fn with(schema: &Value, properties: &[(&str, Value)], required: &[&str]) -> Value {
    let mut schema = schema.clone();
    for (name, property) in properties {
        schema["properties"][name] = property.clone();
    }
    if let Some(all) = schema["required"].as_array_mut() {
        all.extend(required.iter().map(|name| json!(name)));
    }
    schema
}

/// An entry's status.
pub fn status() -> Value {
    json!({"type": "string", "enum": Status::ALL.map(Status::as_str)})
}

/// An entry.
pub fn process() -> Value {
    let kinds = json!({"type": "string", "enum": Kind::ALL.map(Kind::as_str)});
    object(
        &[
            ("id", integer("The entry's number.")),
            ("name", text()),
            ("kind", kinds),
            ("status", status()),
            ("command", text()),
            ("pid", integer("The system's process id, while it runs.")),
            ("uptime_seconds", integer("For how long it has run.")),
            ("exit_code", integer("How it ended by itself: its exit code, or minus the signal's number.")),
            ("why", described(text(), "Why it was not started, or is not started again.")),
            ("auto_start", boolean()),
            ("auto_restart", boolean()),
            ("selected", boolean()),
        ],
        &["id", "name", "kind", "status", "command"],
    )
}

/// Something that was typed.
pub fn delivery() -> Value {
    object(
        &[
            ("delivery_id", integer("Its number.")),
            (
                "status",
                json!({"type": "string", "enum": ["pending", "delivering", "delivered", "undelivered", "uncertain"]}),
            ),
            ("bytes", integer("How much was to be typed.")),
            ("seconds_ago", integer("When it was sent.")),
        ],
        &["delivery_id", "status", "bytes", "seconds_ago"],
    )
}

/// What became of an order to all commands.
pub fn every() -> Value {
    object(
        &[
            ("processes", described(list(process()), "Those that it reached.")),
            ("refused", list(object(&[("name", text()), ("why", text())], &["name", "why"]))),
        ],
        &["processes", "refused"],
    )
}

/// A port that is listened at.
pub fn port() -> Value {
    object(
        &[
            ("port", integer("Its number.")),
            ("address", described(text(), "The address of this machine at which it is.")),
            ("pid", integer("The process that listens.")),
            ("is_local", described(boolean(), "Whether localhost reaches it.")),
        ],
        &["port", "address", "pid", "is_local"],
    )
}
