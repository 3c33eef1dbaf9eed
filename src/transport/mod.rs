//! Where lines come from and go to. Floor 2, beside the engine; it knows nothing of what the lines say.
//!
//! A [`Connection`] is an input and an output. Its constructors are the transports: a program's own standard streams, any
//! `Read` and `Write`, or a pair of connections within one program.

mod line;
mod stdio;

use std::io::{self, Read, Write};

pub use line::{Line, LineReader};

/// Both directions of one agent's connection.
pub struct Connection {
    /// What the agent sends.
    pub input: Box<dyn Read + Send>,
    /// What the agent is sent.
    pub output: Box<dyn Write + Send>,
}

impl Connection {
    /// Any two streams.
    pub fn new(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        Self { input: Box::new(input), output: Box::new(output) }
    }

    /// This program's standard input and output, unbuffered. Nothing else may write to standard output.
    ///
    /// # Errors
    /// When the system gives no descriptors.
    pub fn stdio() -> io::Result<Self> {
        Ok(Self::new(stdio::Input::new()?, stdio::Output::new()?))
    }

    /// Two connected ends within this program, for a host and its client: what one writes the other reads.
    ///
    /// # Errors
    /// When the system gives no pipes.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (from_client, to_host) = io::pipe()?;
        let (from_host, to_client) = io::pipe()?;
        Ok((Self::new(from_client, to_client), Self::new(from_host, to_host)))
    }
}
