//! The fields of one message, taken one by one, each with its type. What is wrong is said in words that name the field.
//!
//! Only keys that a message may have are looked at, and only as text until they are asked for; anything else is skipped
//! without being held (R4). So no message takes more memory than a few times its own length.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Every key of every message that an agent may send.
const KNOWN: [&str; 20] = [
    "type",
    "id",
    "correlation_id",
    "version",
    "a2e",
    "ts",
    "agent_id",
    "agent_caps",
    "auth_token",
    "timeout",
    "session_id",
    "cmd",
    "cwd",
    "env",
    "stdin_mode",
    "proc_id",
    "data",
    "eof",
    "encoding",
    "signal",
];

/// The most items of a list or an object: more than any system takes as arguments or environment.
const MAX_ITEMS: usize = 100_000;

/// The fields of an object that are still to be read.
#[derive(Debug)]
pub struct Fields<'a>(HashMap<&'static str, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Those of the object in `text`, or why there is none.
    pub fn of(text: &'a str) -> Result<Self, String> {
        let not_json = |e: serde_json::Error| format!("the line is not JSON: {}", bare(&e));
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(not_json);
        }
        let IgnoredAny = serde_json::from_str(text).map_err(not_json)?;
        Err(format!("the line is {}, not a JSON object", kind_of(text)))
    }

    /// A field of any type.
    pub fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        self.0.remove(name)
    }

    /// A string.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, String> {
        self.take(name).map(|value| read(name, value, "a string", '"')).transpose()
    }

    /// A string that is empty if it is absent.
    pub fn string_or_empty(&mut self, name: &str) -> Result<String, String> {
        Ok(self.string(name)?.unwrap_or_default())
    }

    /// A number, as a float.
    pub fn number(&mut self, name: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.take(name) else { return Ok(None) };
        if kind_of(value.get()) != A_NUMBER {
            return Err(format!("{name} must be a number, not {}", kind_of(value.get())));
        }
        serde_json::from_str(value.get()).map(Some).map_err(|_| format!("{name} is out of range"))
    }

    /// A truth value that is false if it is absent.
    pub fn boolean(&mut self, name: &str) -> Result<bool, String> {
        match self.take(name).map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(format!("{name} must be true or false, not {}", kind_of(other))),
        }
    }

    /// A list of strings that is empty if it is absent.
    pub fn strings(&mut self, name: &str) -> Result<Vec<String>, String> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let Strings(items) = read(name, value, "a list of strings", '[')?;
        Ok(items)
    }

    /// An object of strings that is empty if it is absent. Of a name that comes twice the last one counts.
    pub fn string_map(&mut self, name: &str) -> Result<BTreeMap<String, String>, String> {
        let Some(value) = self.take(name) else { return Ok(BTreeMap::new()) };
        let StringMap(items) = read(name, value, "an object of strings", '{')?;
        Ok(items)
    }
}

/// Reads a value that must be `expected`, which begins with `opening`.
fn read<'a, T: Deserialize<'a>>(name: &str, value: &'a RawValue, expected: &str, opening: char) -> Result<T, String> {
    let text = value.get();
    if !text.starts_with(opening) {
        return Err(format!("{name} must be {expected}, not {}", kind_of(text)));
    }
    // Whatever is wrong inside says where, right after the name.
    serde_json::from_str(text).map_err(|e| match bare(&e) {
        inside if inside.starts_with(['[', '.', ' ']) => format!("{name}{inside}"),
        other => format!("{name} cannot be read: {other}"),
    })
}

/// An item of a list or an object, which must be a string.
fn item(place: &str, value: &RawValue) -> Result<String, String> {
    let text = value.get();
    if !text.starts_with('"') {
        return Err(format!("{place} must be a string, not {}", kind_of(text)));
    }
    serde_json::from_str(text).map_err(|e| format!("{place} cannot be read: {}", bare(&e)))
}

struct Strings(Vec<String>);
struct StringMap(BTreeMap<String, String>);

/// A visitor of one kind of value, by one method.
macro_rules! visitor {
    ($target:ty, $expecting:literal, $method:ident, $access:ident, |$input:ident| $body:expr) => {
        impl<'de> Deserialize<'de> for $target {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct This;
                impl<'de> Visitor<'de> for This {
                    type Value = $target;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn $method<A: $access<'de>>(self, mut $input: A) -> Result<Self::Value, A::Error> {
                        $body
                    }
                }
                deserializer.deserialize_any(This)
            }
        }
    };
}

visitor!(Fields<'de>, "an object", visit_map, MapAccess, |map| {
    let mut fields = HashMap::new();
    while let Some(Key(key)) = map.next_key()? {
        match key {
            Some(known) => drop(fields.insert(known, map.next_value()?)),
            None => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    Ok(Fields(fields))
});

visitor!(Strings, "a list of strings", visit_seq, SeqAccess, |list| {
    let mut items = Vec::new();
    while let Some(value) = list.next_element::<&RawValue>()? {
        if items.len() == MAX_ITEMS {
            return Err(Error::custom(format!(" has more than {MAX_ITEMS} items")));
        }
        items.push(item(&format!("[{}]", items.len()), value).map_err(Error::custom)?);
    }
    Ok(Strings(items))
});

visitor!(StringMap, "an object of strings", visit_map, MapAccess, |map| {
    let mut items = BTreeMap::new();
    while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
        if items.len() == MAX_ITEMS {
            return Err(Error::custom(format!(" has more than {MAX_ITEMS} items")));
        }
        let value = item(&format!(".{}", excerpt(&name)), value).map_err(Error::custom)?;
        items.insert(name, value);
    }
    Ok(StringMap(items))
});

/// A key of a message, if it is one of those that are known.
struct Key(Option<&'static str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct This;
        impl Visitor<'_> for This {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
                Ok(Key(KNOWN.into_iter().find(|known| *known == key)))
            }
        }
        deserializer.deserialize_str(This)
    }
}

/// The error without serde's idea of where it is, which is in terms of lines that no message has.
fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(words, _)| words).to_owned()
}

const A_NUMBER: &str = "a number";

/// What a JSON value is, to follow "must be … not".
pub fn kind_of(value: &str) -> &'static str {
    match value.trim_start().as_bytes().first() {
        Some(b'n') => "null",
        Some(b't' | b'f') => "a boolean",
        Some(b'"') => "a string",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        _ => A_NUMBER,
    }
}

/// The start of a text that an agent sent: an error never repeats megabytes.
pub fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}
