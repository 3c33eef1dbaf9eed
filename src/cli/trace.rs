//! `--trace`: each line of the protocol on standard error, as it passes, coloured on a terminal.

use std::io::Write;

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
#[derive(Clone, Copy)]
pub struct Trace {
    /// Whether it does.
    pub on: bool,
}

impl Trace {
    /// Shows one line, given without its newline.
    pub fn show(self, way: Way, line: &str) {
        if !self.on {
            return;
        }
        let (arrow, colour) = match way {
            Way::ToHost => ("→", AnsiColor::Cyan),
            Way::FromHost => ("←", AnsiColor::Green),
        };
        let style = Style::new().fg_color(Some(colour.into()));
        // Nobody sees the trace of a closed standard error.
        let _ = writeln!(anstream::stderr(), "{style}{arrow}{style:#} {line}");
    }
}
