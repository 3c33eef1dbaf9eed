//! `--trace`: each line of the protocol on standard error, as it passes, coloured on a terminal.

use std::io::Write;

use a2e_proc::model::Secret;
use anstyle::{AnsiColor, Style};

/// Which way a line goes.
#[derive(Clone, Copy)]
pub enum Way {
    /// From the agent to the host.
    ToHost,
    /// From the host to the agent.
    FromHost,
}

/// Shows lines, or does not.
#[derive(Clone)]
pub struct Trace {
    on: bool,
    /// As it stands in a line.
    secret: Option<Secret>,
}

impl Trace {
    /// Shows lines if it is on, but never `secret`.
    pub fn new(on: bool, secret: Option<Secret>) -> Self {
        // Without its quotes, since it may be a part of a longer text.
        let in_json = |secret: Secret| {
            let text = serde_json::Value::from(secret.reveal()).to_string();
            Secret::new(text[1..text.len() - 1].to_owned())
        };
        Self { on, secret: secret.map(in_json) }
    }

    /// Shows one line, given without its newline.
    pub fn show(&self, way: Way, line: &str) {
        if !self.on {
            return;
        }
        let (arrow, colour) = match way {
            Way::ToHost => ("→", AnsiColor::Cyan),
            Way::FromHost => ("←", AnsiColor::Green),
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let line = match &self.secret {
            Some(secret) => line.replace(secret.reveal(), "…"),
            None => line.to_owned(),
        };
        // Nobody sees the trace of a closed standard error.
        let _ = writeln!(anstream::stderr(), "{style}{arrow}{style:#} {line}");
    }
}
