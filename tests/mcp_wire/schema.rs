//! The official schemas, and what else clients choke on.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

/// The revisions that open with `initialize`.
pub const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The revision whose requests say so.
pub const MODERN: &str = "2026-07-28";

static DOCUMENTS: LazyLock<HashMap<&str, Value>> = LazyLock::new(|| {
    let texts = [
        ("2024-11-05", include_str!("../mcp-schema/2024-11-05.json")),
        ("2025-03-26", include_str!("../mcp-schema/2025-03-26.json")),
        ("2025-06-18", include_str!("../mcp-schema/2025-06-18.json")),
        ("2025-11-25", include_str!("../mcp-schema/2025-11-25.json")),
        ("2026-07-28", include_str!("../mcp-schema/2026-07-28.json")),
    ];
    texts.map(|(revision, text)| (revision, serde_json::from_str(text).unwrap())).into()
});

type Known = HashMap<(String, String), Arc<Validator>>;

static VALIDATORS: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Checks a value against one definition of a revision.
pub fn check(revision: &str, definition: &str, value: &Value) {
    let key = (revision.to_owned(), definition.to_owned());
    let known = VALIDATORS.lock().unwrap().get(&key).cloned();
    let validator = known.unwrap_or_else(|| {
        let document = &DOCUMENTS[revision];
        let all = if document["$defs"].is_object() { "$defs" } else { "definitions" };
        assert!(document[all][definition].is_object(), "{revision} has no {definition}");
        let reference = format!("#/{all}/{definition}");
        let schema = json!({"$schema": document["$schema"], "$ref": reference, all: document[all]});
        let validator = Arc::new(jsonschema::validator_for(&schema).unwrap());
        VALIDATORS.lock().unwrap().insert(key, Arc::clone(&validator));
        validator
    });
    let faults: Vec<String> = validator.iter_errors(value).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{revision} {definition}: {faults:?} in {value}");
}

/// Checks an answer to a request of `method`.
pub fn check_answer(method: &str, is_modern: bool, answer: &Value) {
    let result = match method {
        "initialize" => "InitializeResult",
        "tools/list" => "ListToolsResult",
        "tools/call" => "CallToolResult",
        "server/discover" => "DiscoverResult",
        "subscriptions/listen" => "SubscriptionsListenResult",
        _ => "EmptyResult",
    };
    let revisions = if is_modern { vec![MODERN] } else { LEGACY.to_vec() };
    for revision in revisions {
        let is_later = revision >= "2025-11-25";
        let envelope = match (answer.get("result"), is_later) {
            (Some(_), true) => "JSONRPCResultResponse",
            (Some(_), false) => "JSONRPCResponse",
            (None, true) => "JSONRPCErrorResponse",
            (None, false) => "JSONRPCError",
        };
        check(revision, envelope, answer);
        if let Some(body) = answer.get("result") {
            check(revision, result, body);
        }
    }
    let known = ["jsonrpc", "id", "result", "error"];
    assert!(answer.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{answer}");
    if let Some(body) = answer.get("result") {
        assert_eq!(body.get("resultType"), is_modern.then(|| json!("complete")).as_ref(), "{answer}");
        let server = body.pointer("/_meta/io.modelcontextprotocol~1serverInfo/name");
        assert_eq!(server, is_modern.then(|| json!("a2e-proc")).as_ref(), "{answer}");
        assert!(body.as_object().unwrap().values().all(|value| !value.is_null()), "{answer}");
    }
}

/// Checks a notification.
pub fn check_notification(notification: &Value) {
    let (revisions, definition) = match notification["method"].as_str().unwrap() {
        "notifications/progress" => ([&LEGACY[..], &[MODERN]].concat(), "ProgressNotification"),
        "notifications/subscriptions/acknowledged" => (vec![MODERN], "SubscriptionsAcknowledgedNotification"),
        "notifications/cancelled" => (vec![MODERN], "CancelledNotification"),
        other => panic!("nobody has asked for {other}"),
    };
    for revision in revisions {
        check(revision, definition, notification);
    }
}
