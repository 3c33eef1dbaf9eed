//! Where the library says what it does, to whoever runs it. Floor 0: everybody may say something.
//!
//! The library never writes to the standard streams by itself; it hands lines to a [`Log`].

use std::fmt;
use std::sync::Arc;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something the host could not do.
    Error,
    /// Sessions and processes coming and going.
    Info,
    /// Each request.
    Debug,
}

/// A shared sink of lines. The sink must not block: it is called on threads that serve requests.
#[derive(Clone, Default)]
pub struct Log(Option<(Level, Arc<Sink>)>);

type Sink = dyn Fn(Level, fmt::Arguments<'_>) + Send + Sync;

impl Log {
    /// A log that hands `sink` each line that matters as much as `level`, or more.
    pub fn new(level: Level, sink: impl Fn(Level, fmt::Arguments<'_>) + Send + Sync + 'static) -> Self {
        Self(Some((level, Arc::new(sink))))
    }

    /// A log that keeps nothing.
    pub fn none() -> Self {
        Self(None)
    }

    /// Says `line` if it matters enough.
    pub fn say(&self, level: Level, line: fmt::Arguments<'_>) {
        if let Some((most, sink)) = &self.0
            && level <= *most
        {
            sink(level, line);
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.0.as_ref().map(|(level, _)| level)).finish()
    }
}
