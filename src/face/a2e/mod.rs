//! A2E: the engine served to one agent over one connection.
//!
//! Threads of a connection: `requests` reads and handles one request after the other and never waits for a process;
//! `writer` is the only one that touches the output; the caller's own thread waits for the reason to end and then closes the
//! session. `requests` may still sit in a read of the input when [`serve`] returns; it takes no more requests, and ends when
//! that input does, or when the connection is closed. [`serve_all`] has a thread `session` for each connection of a listener.

mod admission;
mod many;
mod outbox;
mod peer;
mod trail;
mod turns;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, after, bounded, never, select};

use crate::audit::Audit;
use crate::engine::{Closing, Deadlines, Host};
use crate::log::{Level, Log};
use crate::model::Secret;
use crate::transport::Connection;
use crate::wire::MAX_LINE_BYTES;
use crate::wire::dialect::Dialect;
pub use many::serve_all;
use outbox::Outbox;
use peer::Peer;
use turns::Turns;
use writer::Writer;

/// What an operator may set of the A2E face.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which form events have (R19).
    pub dialect: Dialect,
    /// The token that a handshake must carry; `None` asks for none (R6).
    pub auth_token: Option<Secret>,
    /// The longest request line, in bytes (R1).
    pub max_line_bytes: usize,
    /// The least time between a spawn's answer and the process's first event; `None` is what suits the dialect (R19).
    pub first_event_delay: Option<Duration>,
    /// How long an agent that needs a token may be connected without having shown it; `None` is for ever.
    pub handshake_within: Option<Duration>,
    /// Where the face says what it does.
    pub log: Log,
    /// Who keeps a record of each request.
    pub audit: Audit,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialect: Dialect::Spec,
            auth_token: None,
            max_line_bytes: MAX_LINE_BYTES,
            first_event_delay: None,
            handshake_within: None,
            log: Log::none(),
            audit: Audit::none(),
        }
    }
}

impl Options {
    /// The delay in force. The SDK's client loses events that arrive while it takes the spawn's answer off its queue.
    fn first_event_delay(&self) -> Duration {
        self.first_event_delay.unwrap_or(match self.dialect {
            Dialect::Spec => Duration::ZERO,
            Dialect::Sdk => Duration::from_millis(10),
        })
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
    NoHandshake,
    OutputBroken(io::Error),
}

impl Reason {
    fn closing(&self) -> Closing {
        match self {
            Self::InputEnded => Closing::END_OF_INPUT,
            Self::Shutdown(timeout) => Closing::shutdown(*timeout),
            Self::Stop | Self::NoHandshake | Self::OutputBroken(_) => Closing::SIGNAL,
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::InputEnded => "the agent's input has ended",
            Self::Shutdown(_) => "the agent has asked for a shutdown",
            Self::Stop => "the host was asked to end",
            Self::NoHandshake => "the agent has shown no valid token in time",
            Self::OutputBroken(_) => "the output is broken",
        }
    }
}

/// How long before it is over output is given up, so that the terminal events are still said; and how long before that the
/// writer is told to end.
const LAST_WORDS: Duration = Duration::from_millis(300);
const LAST_WRITE: Duration = Duration::from_millis(100);

/// How long an agent whose connection is at its end may take to close its side.
const LINGER: Duration = Duration::from_millis(500);

/// How often, while the writer writes its last, the reasons for a quicker end are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Serves one agent until its input ends, it asks for a shutdown, its output breaks, or anything arrives on `stop`; then
/// ends its processes (R8). Returns in under 3 s from that, or within the shutdown's own timeout (half a second at least) and
/// half a second that an agent over a socket may take to close its side.
///
/// Dropping the other end of `stop` stops nothing; whoever has no use for it passes
/// [`crossbeam_channel::never::<()>()`](crossbeam_channel::never). `examples/serve.rs` serves a pair of connections.
///
/// # Errors
/// When the system gives no threads.
pub fn serve<T>(host: &Host, connection: Connection, options: &Options, stop: &Receiver<T>) -> io::Result<Ended> {
    let (session, events) = host.open_session();
    let session = Arc::new(session);
    let Connection { input, output, room, hangup, closing, peer: _ } = connection;

    let (lane, answers) = outbox::lane();
    let writer = Writer::new(output, room, answers, events, options);
    let hurry = writer.hurry();
    let turns = Turns::new(writer);
    let outbox = Outbox::new(lane, &turns);
    let when_published = Arc::clone(&turns);
    session.call_when_published(move || when_published.take_one());
    let mut peer = Peer::new(host, Arc::clone(&session), outbox.clone(), options);
    let (closed, admitted, trail) = (peer.closed(), peer.admitted(), peer.trail());
    let max_line_bytes = options.max_line_bytes;
    let (peer_says, requests_ended) = bounded(2);
    thread::Builder::new().name("requests".into()).spawn(move || {
        peer.run(input, hangup, max_line_bytes, |timeout| drop(peer_says.send(Reason::Shutdown(timeout))));
        let _ = peer_says.send(Reason::InputEnded);
    })?;
    // After the other, which answers the first requests itself: the agent is not kept waiting for this one.
    let (writer_says, writer_ended) = bounded(1);
    let writer = thread::Builder::new().name("writer".into()).spawn(move || {
        let _ = writer_says.send(turns.serve());
    });
    let writer = match writer {
        Ok(writer) => writer,
        Err(e) => {
            // The other waits for a request, and ends with the connection.
            closed.store(true, Ordering::Release);
            session.close(Closing::SIGNAL);
            closing.iter().for_each(|closing| closing.abort());
            return Err(e);
        }
    };

    let handshake = match options.handshake_within.filter(|_| options.auth_token.is_some()) {
        Some(time) => Handshake { due: after(time), admitted },
        None => Handshake { due: never(), admitted },
    };
    let mut watch = Watch { requests_ended, writer_ended, stop: stop.clone(), handshake, broken: None };
    let why = watch.wait();
    closed.store(true, Ordering::Release);
    options.log.say(Level::Info, format_args!("closing the session: {}", why.words()));
    let mut deadlines = Deadlines::new(why.closing());
    session.end_processes(&mut deadlines, |deadlines| watch.look(deadlines));

    // An agent that does not take all output in time still hears how each process ended, if it takes anything.
    let mut is_over = |watch: &mut Watch<T>, less: Duration| {
        watch.look(&mut deadlines);
        Instant::now() >= deadlines.over_less(less)
    };
    let hurry = || {
        hurry.now();
        closing.iter().for_each(|closing| closing.hurry());
    };
    if !session.wait_published(|| is_over(&mut watch, LAST_WORDS)) {
        hurry();
        session.wait_published(|| is_over(&mut watch, LAST_WRITE));
    }
    session.close_bus();
    outbox.finish();
    // A writer that has not said all by then is told to leave output out. One that is stuck in a write is left there: it
    // holds nothing but the output, and ends with it.
    while !watch.writer_ends(Instant::now() + LOOK_AGAIN) {
        if is_over(&mut watch, LAST_WRITE) {
            hurry();
            watch.writer_ends(Instant::now() + LAST_WRITE);
            break;
        }
    }
    if let Some(closing) = closing {
        closing.finish();
        watch.requests_end(Instant::now() + LINGER);
        closing.abort();
    }
    if writer.is_finished() {
        let _ = writer.join();
    }
    trail.end();
    let broken = if let Reason::OutputBroken(e) = why { Some(e) } else { watch.broken };
    Ok(broken.map_or(Ended::Clean, Ended::OutputBroken))
}

/// What may end a session, from the threads of the connection and from outside.
struct Watch<T> {
    requests_ended: Receiver<Reason>,
    writer_ended: Receiver<io::Result<()>>,
    stop: Receiver<T>,
    handshake: Handshake,
    /// The output's error, if it came after the end had begun.
    broken: Option<io::Error>,
}

/// When an agent that has not shown its token is sent away.
struct Handshake {
    due: Receiver<Instant>,
    admitted: Arc<AtomicBool>,
}

impl<T> Watch<T> {
    /// Waits for the first reason.
    fn wait(&mut self) -> Reason {
        loop {
            select! {
                // A thread that has gone without a word has panicked.
                recv(self.requests_ended) -> why => return why.unwrap_or(Reason::InputEnded),
                recv(self.writer_ended) -> end => match end {
                    Ok(Err(e)) => return Reason::OutputBroken(e),
                    _ => return Reason::OutputBroken(io::Error::other("the writer's thread has gone")),
                },
                recv(self.stop) -> word => match word {
                    Ok(_) => return Reason::Stop,
                    // Whoever has dropped the other end does not want to stop this.
                    Err(_) => self.stop = never(),
                },
                recv(self.handshake.due) -> _ => {
                    if !self.handshake.admitted.load(Ordering::Acquire) {
                        return Reason::NoHandshake;
                    }
                    self.handshake.due = never();
                }
            }
        }
    }

    /// Looks for a further reason, which may call for a quicker end.
    fn look(&mut self, deadlines: &mut Deadlines) {
        if self.stop.try_recv().is_ok() {
            deadlines.hurry(Reason::Stop.closing());
        }
        if let Ok(end) = self.writer_ended.try_recv() {
            self.broken = self.broken.take().or(end.err());
            deadlines.hurry(Reason::Stop.closing());
        }
        if let Ok(reason) = self.requests_ended.try_recv() {
            deadlines.hurry(reason.closing());
        }
    }

    /// Waits until no more requests are read, but not past `deadline`.
    fn requests_end(&mut self, deadline: Instant) {
        while self.requests_ended.recv_deadline(deadline).is_ok() {}
    }

    /// Whether the writer has ended, or does so by `deadline`.
    fn writer_ends(&mut self, deadline: Instant) -> bool {
        match self.writer_ended.recv_deadline(deadline) {
            Ok(end) => {
                self.broken = self.broken.take().or(end.err());
                true
            }
            Err(e) => e == RecvTimeoutError::Disconnected,
        }
    }
}
