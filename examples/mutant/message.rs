//! A message whose keys keep their order, so that a mutant breaks what it means to break and nothing else.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The members of an object, in their order.
#[derive(Clone, Debug)]
pub struct Message(pub Vec<(String, Value)>);

impl Message {
    /// An object, or `None` for any other line.
    pub fn parse(line: &str) -> Option<Self> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Message;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Message(members))
            }
        }
        serde_json::Deserializer::from_str(line).deserialize_map(Members).ok()
    }

    pub fn get(&self, key: &str) -> &Value {
        self.0.iter().find(|(known, _)| known == key).map_or(&Value::Null, |(_, value)| value)
    }

    pub fn text(&self, key: &str) -> &str {
        self.get(key).as_str().unwrap_or_default()
    }

    /// Changes a key, or adds it at the end.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(known, _)| known != key);
    }

    /// The payload of an event, whichever its dialect.
    pub fn payload(&self) -> Value {
        let data = self.get("data");
        data.as_str().map_or(data.clone(), |text| serde_json::from_str(text).unwrap_or_default())
    }

    pub fn set_payload(&mut self, payload: &Value) {
        let as_text = self.get("data").is_string();
        self.set("data", if as_text { Value::String(payload.to_string()) } else { payload.clone() });
    }

    pub fn is_terminal(&self) -> bool {
        self.text("stream_type") == "killed" || self.payload().get("code").is_some()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let member = |(key, value): &(String, Value)| format!("{}:{value}", Value::String(key.clone()));
        write!(f, "{{{}}}", self.0.iter().map(member).collect::<Vec<_>>().join(","))
    }
}
