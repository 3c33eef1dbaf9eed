//! A shell in a terminal of the desk.

use serde_json::json;

use super::Client;

/// What it asks with.
pub const PROMPT: &str = "go> ";

/// Adds a terminal, and waits until its shell asks.
pub fn shell(client: &mut Client, name: &str) -> u64 {
    let spawned = client.ok("spawn_process", &json!({"kind": "terminal", "name": name, "extra_args": ["--norc"]}));
    let id = spawned["id"].as_u64().unwrap();
    client.asks(id);
    id
}
