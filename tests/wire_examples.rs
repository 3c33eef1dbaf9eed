//! The specification's six wire examples, replayed from `conformance/wire-examples` against the built binary with a real
//! `python3 -i`.
#![allow(clippy::unwrap_used)]

mod common;

use std::fmt;

use common::Start;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The pairs of a JSON object in the order in which they stand.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl Pairs {
    fn of(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    fn get(&self, key: &str) -> &Value {
        &self.0.iter().find(|(name, _)| name == key).unwrap_or_else(|| panic!("no {key}")).1
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What is wrong with a host's line, held against an example.
fn differences(example: &Value, said: &str) -> Vec<String> {
    let (expected, said) = (Pairs::of(example["line"].as_str().unwrap()), Pairs::of(said));
    let mut wrong = Vec::new();
    let names = |pairs: &Pairs| pairs.0.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if !names(&said).starts_with(&names(&expected)) {
        wrong.push(format!("keys {:?}, not {:?}", names(&said), names(&expected)));
        return wrong;
    }
    for (name, value) in &expected.0 {
        if kind(said.get(name)) != kind(value) {
            wrong.push(format!("{name} is {}, not {}", kind(said.get(name)), kind(value)));
        }
    }
    for name in example["fixed"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
        if said.get(name) != expected.get(name) {
            wrong.push(format!("{name} is {}, not {}", said.get(name), expected.get(name)));
        }
    }
    wrong
}

fn examples() -> Vec<Value> {
    let text = include_str!("../conformance/wire-examples/examples.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_examples_are_spoken_by_the_host() {
    let mut host = Start::bare(&["serve"]).without_handshake().go();
    let examples = examples();
    assert_eq!(examples.len(), 6);
    let mut proc_id = String::from("proc_abc123");
    for example in &examples {
        let line = example["line"].as_str().unwrap();
        if example["from"] == "agent" {
            host.send_raw(format!("{}\n", line.replace("proc_abc123", &proc_id)).as_bytes());
            continue;
        }
        let expected = Pairs::of(line);
        let is_event = expected.0.iter().any(|(name, _)| name == "stream_type");
        let said = host.wait_line(|message| {
            message["type"] == *expected.get("type") && (!is_event || message["stream_type"] == "stdout")
        });
        assert_eq!(differences(example, &said), [""; 0], "{}: {said}", example["name"]);
        if let Some((_, Value::String(id))) = Pairs::of(&said).0.iter().find(|(name, _)| name == "proc_id") {
            proc_id.clone_from(id);
        }
    }
    host.close_input();
    assert_eq!(host.wait_end().0, Some(0));
}

#[test]
fn a_difference_is_seen() {
    let example = &examples()[5];
    let good = example["line"].as_str().unwrap();
    assert_eq!(differences(example, good), [""; 0]);
    for (part, other, seen) in [
        ("\"ok\":true,\"state\":\"killed\"", "\"state\":\"killed\",\"ok\":true", "keys"),
        ("\"version\":\"1.0\",", "", "keys"),
        ("\"ok\":true", "\"ok\":1", "ok is integer"),
        ("\"state\":\"killed\"", "\"state\":\"stopped\"", "state is \"stopped\""),
        ("\"p5\"", "\"p6\"", "req_id"),
        ("1716123458.200", "1716123458", "ts is integer"),
    ] {
        let wrong = differences(example, &good.replace(part, other));
        assert!(wrong.iter().any(|wrong| wrong.contains(seen)), "{other}: {wrong:?}");
    }
}
