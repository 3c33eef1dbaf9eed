//! The arguments of a call, which fit its tool's schema: what is not there was left out.

use std::time::Duration;

use serde_json::{Map, Value};

use super::tool::Problem;
use crate::desk::Target;

/// Some arguments.
pub struct Given(pub Map<String, Value>);

impl Given {
    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// True or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }

    /// A whole number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    /// A whole number as an amount, brought between 1 and `most`; `usual` if nothing was said.
    pub fn amount(&self, name: &str, usual: usize, most: usize) -> usize {
        self.number(name).map_or(usual, |number| usize::try_from(number).unwrap_or(1).clamp(1, most))
    }

    /// Milliseconds, at most `most`.
    pub fn milliseconds(&self, name: &str, usual: u64, most: u64) -> Duration {
        Duration::from_millis(self.number(name).map_or(usual, |number| number.max(0).unsigned_abs().min(most)))
    }

    /// Any number of values.
    pub fn list(&self, name: &str) -> Option<&[Value]> {
        self.0.get(name)?.as_array().map(Vec::as_slice)
    }

    /// The entry that is named.
    ///
    /// # Errors
    /// When none is, or two are.
    pub fn target(&self) -> Result<Target, Problem> {
        let id = self.number("process_id");
        let name = self.text("process_name");
        match (id, name) {
            (Some(id), None) => match u64::try_from(id) {
                Ok(id) => Ok(Target::Id(id)),
                Err(_) => {
                    Err(Problem::Refused(format!("no process has the id {id}; list_processes shows those there are")))
                }
            },
            (None, Some(name)) => Ok(Target::Name(name.to_owned())),
            (None, None) => Err(Problem::Refused(
                "say which process: process_id or process_name, as list_processes shows them".into(),
            )),
            (Some(_), Some(_)) => Err(Problem::Refused("give process_id or process_name, not both".into())),
        }
    }
}
