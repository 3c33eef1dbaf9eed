//! The fields of a JSON object, taken one by one, each with its type. What is wrong is said in words that name the field.

use serde_json::{Map, Value};

/// The fields that are still to be read. Keys that nobody asks for are ignored (R4).
pub struct Fields(Map<String, Value>);

impl Fields {
    /// All fields of an object.
    pub fn new(object: Map<String, Value>) -> Self {
        Self(object)
    }

    /// A field of any type.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// A string.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("{name} must be a string, not {}", kind_of(&other))),
        }
    }

    /// A string that is empty if it is absent.
    pub fn string_or_empty(&mut self, name: &str) -> Result<String, String> {
        Ok(self.string(name)?.unwrap_or_default())
    }

    /// A number, as a float.
    pub fn number(&mut self, name: &str) -> Result<Option<f64>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(format!("{name} must be a number, not {}", kind_of(&value))),
            },
        }
    }

    /// A truth value that is false if it is absent.
    pub fn boolean(&mut self, name: &str) -> Result<bool, String> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(format!("{name} must be true or false, not {}", kind_of(&other))),
        }
    }

    /// A list of strings that is empty if it is absent.
    pub fn strings(&mut self, name: &str) -> Result<Vec<String>, String> {
        let items = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(format!("{name} must be a list of strings, not {}", kind_of(&other))),
        };
        let text = |(at, item)| match item {
            Value::String(text) => Ok(text),
            other => Err(format!("{name}[{at}] must be a string, not {}", kind_of(&other))),
        };
        items.into_iter().enumerate().map(text).collect()
    }

    /// An object of strings that is empty if it is absent.
    pub fn string_map(&mut self, name: &str) -> Result<Vec<(String, String)>, String> {
        let items = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(Value::Object(items)) => items,
            Some(other) => return Err(format!("{name} must be an object of strings, not {}", kind_of(&other))),
        };
        let text = |(key, value): (String, Value)| match value {
            Value::String(text) => Ok((key, text)),
            other => Err(format!("{name}.{} must be a string, not {}", excerpt(&key), kind_of(&other))),
        };
        items.into_iter().map(text).collect()
    }
}

/// What a value is, to follow "must be … not".
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The start of a text that an agent sent: an error never repeats megabytes.
pub fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}
