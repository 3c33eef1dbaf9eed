//! A2E: the engine served to one agent over one connection.
//!
//! Threads of a connection: `requests` reads and handles one request after the other and never waits for a process;
//! `writer` is the only one that touches the output; the caller's own thread waits for the reason to end and then closes the
//! session. `requests` may still sit in a read of the input when [`serve`] returns; it ends with that read.

mod admission;
mod outbox;
mod peer;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, select, unbounded};

use crate::engine::{Closing, Host};
use crate::log::{Level, Log};
use crate::transport::Connection;
use crate::wire::MAX_LINE_BYTES;
use crate::wire::dialect::Dialect;
use outbox::{Writer, outbox};
use peer::Peer;

/// What an operator may set of the A2E face.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which form events have (R19).
    pub dialect: Dialect,
    /// The token that a handshake must carry; `None` asks for none (R6).
    pub auth_token: Option<String>,
    /// The longest request line, in bytes (R1).
    pub max_line_bytes: usize,
    /// The least time between a spawn's answer and the process's first event (R19).
    pub first_event_delay: Duration,
    /// Where the face says what it does.
    pub log: Log,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialect: Dialect::Spec,
            auth_token: None,
            max_line_bytes: MAX_LINE_BYTES,
            first_event_delay: Duration::ZERO,
            log: Log::none(),
        }
    }
}

impl Options {
    /// The options that suit a dialect: the SDK's client needs 10 ms between an answer and the events (R19).
    pub fn for_dialect(dialect: Dialect) -> Self {
        let first_event_delay = match dialect {
            Dialect::Spec => Duration::ZERO,
            Dialect::Sdk => Duration::from_millis(10),
        };
        Self { dialect, first_event_delay, ..Self::default() }
    }
}

/// How serving a connection came to its end.
#[derive(Debug)]
pub enum Ended {
    /// The agent or the operator ended it.
    Clean,
    /// The output could not be written to.
    OutputBroken(io::Error),
}

/// Why a session ends.
enum Reason {
    InputEnded,
    Shutdown(Duration),
    Stop,
    OutputBroken(io::Error),
}

/// How long the writer may take, after the session is closed, to stop at the end of a line.
const LAST_LINE: Duration = Duration::from_millis(200);

/// Serves one agent until its input ends, it asks for a shutdown, its output breaks, or anything arrives on `stop`; then
/// ends its processes (R8). Returns in under 3 s from that, or within the shutdown's own timeout.
///
/// # Errors
/// When the system gives no threads.
pub fn serve<T>(host: &Host, connection: Connection, options: &Options, stop: &Receiver<T>) -> io::Result<Ended> {
    let (session, events) = host.open_session();
    let session = Arc::new(session);
    let (outbox, answers) = outbox();
    let (reason, reasons) = unbounded();
    let Connection { input, output } = connection;

    let (written, writer_done) = bounded::<()>(0);
    let mut writer = Writer::new(output, answers, events, options);
    let hurry = writer.hurry();
    let broken = reason.clone();
    let writer = thread::Builder::new().name("writer".into()).spawn(move || {
        if let Err(e) = writer.run() {
            let _ = broken.send(Reason::OutputBroken(e));
        }
        drop(written);
    })?;

    let mut peer = Peer::new(host, Arc::clone(&session), outbox.clone(), options);
    let max_line_bytes = options.max_line_bytes;
    thread::Builder::new().name("requests".into()).spawn(move || {
        let why = match peer.run(input, max_line_bytes) {
            Some(timeout) => Reason::Shutdown(timeout),
            None => Reason::InputEnded,
        };
        let _ = reason.send(why);
    })?;

    // Whoever hands over a channel and drops its other end does not want to stop this: `stop` is then silent for ever.
    let mut stop = stop.clone();
    let why = loop {
        select! {
            recv(reasons) -> why => break why.unwrap_or(Reason::InputEnded),
            recv(stop) -> word => match word {
                Ok(_) => break Reason::Stop,
                Err(_) => stop = crossbeam_channel::never(),
            },
        }
    };
    let (closing, words) = match &why {
        Reason::InputEnded => (Closing::END_OF_INPUT, "the agent's input has ended"),
        Reason::Shutdown(timeout) => (Closing::shutdown(*timeout), "the agent has asked for a shutdown"),
        Reason::Stop => (Closing::SIGNAL, "the host was asked to end"),
        Reason::OutputBroken(_) => (Closing::SIGNAL, "the output is broken"),
    };
    options.log.say(Level::Info, format_args!("closing the session: {words}"));
    let deadline = closing.deadline();
    session.close(closing);

    // All that will be said is queued. A writer that has not said it by the deadline stops at the end of a line; one that is
    // stuck in a write is left there: it holds nothing but the output, and ends with it.
    outbox.finish();
    if writer_done.recv_deadline(deadline) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
        hurry.now();
        let _ = writer_done.recv_deadline(Instant::now() + LAST_LINE);
    }
    if writer.is_finished() {
        let _ = writer.join();
    }
    if let Reason::OutputBroken(e) = why {
        return Ok(Ended::OutputBroken(e));
    }
    match reasons.try_iter().find_map(|late| if let Reason::OutputBroken(e) = late { Some(e) } else { None }) {
        Some(e) => Ok(Ended::OutputBroken(e)),
        None => Ok(Ended::Clean),
    }
}
