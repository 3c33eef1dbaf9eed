//! The output of one process as it adds up, held to what a `collect` step says. Pure; `play` gives it the events.

use regex::Regex;
use serde_json::Value;

use super::case::{self, Collect};
use super::monitor::is_terminal;
use super::pattern::{self, Bindings, brief};

const NAMES: [&str; 2] = ["stdout", "stderr"];

/// What a stream must come to.
enum Goal {
    Silence,
    Bytes(Vec<u8>),
    Found(Regex),
}

struct Stream {
    goal: Goal,
    so_far: Vec<u8>,
    is_over: bool,
}

pub struct Collecting {
    streams: [Stream; 2],
    whole_lines: bool,
}

fn text(value: &Value, bindings: &Bindings) -> Result<String, String> {
    let filled = pattern::fill(value, bindings)?;
    filled.as_str().map(ToOwned::to_owned).ok_or_else(|| format!("collect is of text, not of {}", brief(&filled)))
}

impl Collecting {
    pub fn new(collect: &Collect, bindings: &Bindings) -> Result<Self, String> {
        let stream = |value: &Option<Value>| -> Result<Stream, String> {
            let goal = match value {
                None => Goal::Silence,
                Some(value) => match (value.get("$re"), value.get("base64")) {
                    (Some(expression), _) => Goal::Found(pattern::compile(expression)?),
                    (_, Some(bytes)) => Goal::Bytes(case::decode(&text(bytes, bindings)?)?),
                    _ => Goal::Bytes(text(value, bindings)?.into_bytes()),
                },
            };
            let is_over = match &goal {
                Goal::Silence => true,
                Goal::Bytes(bytes) => bytes.is_empty(),
                Goal::Found(_) => false,
            };
            Ok(Stream { goal, so_far: Vec::new(), is_over })
        };
        let [stdout, stderr] = &collect.streams;
        Ok(Self { streams: [stream(stdout)?, stream(stderr)?], whole_lines: collect.whole_lines })
    }

    pub fn is_over(&self) -> bool {
        self.streams.iter().all(|stream| stream.is_over)
    }

    /// Takes an event; whether that is all.
    ///
    /// # Errors
    /// Why it does not belong here.
    pub fn take(&mut self, event: &Value, bindings: &mut Bindings) -> Result<bool, String> {
        let name = event["stream_type"].as_str().unwrap_or_default();
        if is_terminal(event) {
            return Err("the process has ended".to_owned());
        }
        let index = NAMES.iter().position(|known| *known == name).ok_or_else(|| format!("stream_type is {name:?}"))?;
        let text = event["data"]["text"].as_str().ok_or("the event has no text")?;
        if event["data"].get("dropped").is_some() {
            return Err("output was dropped".to_owned());
        }
        if self.whole_lines && (!text.ends_with('\n') || text.matches('\n').count() != 1) {
            return Err("it is not one whole line".to_owned());
        }
        let bytes = match event["data"].get("base64").and_then(Value::as_str) {
            Some(bytes) => case::decode(bytes)?,
            None => text.as_bytes().to_vec(),
        };
        let stream = &mut self.streams[index];
        if stream.is_over {
            return Err(format!("there is more on {name}"));
        }
        let from = stream.so_far.len();
        stream.so_far.extend(bytes);
        match &stream.goal {
            Goal::Silence => {}
            Goal::Bytes(all) => {
                let same = all.get(from..stream.so_far.len()).is_some_and(|part| *part == stream.so_far[from..]);
                if !same {
                    return Err(format!("{name} differs after {from} bytes"));
                }
                stream.is_over = all.len() == stream.so_far.len();
            }
            Goal::Found(regex) => {
                stream.is_over = pattern::find(regex, &String::from_utf8_lossy(&stream.so_far), bindings);
            }
        }
        Ok(self.is_over())
    }

    /// What it waits for, and what it has.
    pub fn words(&self) -> String {
        let of = |(stream, name): (&Stream, &str)| match &stream.goal {
            Goal::Silence => format!("nothing on {name}"),
            Goal::Bytes(bytes) => {
                let rest = String::from_utf8_lossy(&bytes[stream.so_far.len().min(bytes.len())..]).into_owned();
                format!(
                    "{} bytes on {name}, of which {} have come; then {}",
                    bytes.len(),
                    stream.so_far.len(),
                    brief(&rest.into())
                )
            }
            Goal::Found(regex) => {
                let so_far = String::from_utf8_lossy(&stream.so_far).into_owned();
                format!("{:?} on {name}, so far {}", regex.as_str(), brief(&so_far.into()))
            }
        };
        self.streams.iter().zip(NAMES).map(of).collect::<Vec<_>>().join("; ")
    }
}
