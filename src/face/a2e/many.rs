//! A2E for every agent that arrives at a listener, each with a session of its own (R7).

use std::collections::HashMap;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};

use super::{Ended, Options, serve};
use crate::engine::Host;
use crate::log::Level;
use crate::transport::{Arrival, Connection, Listener, Refused};
use crate::wire::code::ErrorCode;
use crate::wire::message::{ErrorMessage, encode};

/// How long agents may take to read the last that was said to them, once all sessions have ended.
const LAST_READ: Duration = Duration::from_secs(1);

/// Serves every agent that arrives, until anything arrives on `stop`; then ends all sessions at once (R8), each as [`serve`]
/// does, and returns when the last has ended, in under 4 s.
///
/// A connection that breaks, or a session that ends, is that one's end and no other's. Dropping the other end of `stop` stops
/// nothing.
pub fn serve_all<T>(host: &Host, listener: &Listener, options: &Options, stop: &Receiver<T>) {
    let (ended, ends) = unbounded();
    let refusals = Refusals::default();
    let mut sessions = Sessions { host, options, open: HashMap::new(), count: 0, ended, refusals };
    let mut stop = stop.clone();
    loop {
        select! {
            recv(listener.arrivals()) -> arrival => match arrival {
                Ok(Arrival::Accepted(connection)) => sessions.open(connection),
                Ok(Arrival::Refused(agent)) => sessions.refuse(agent),
                // The listener's thread ends with the listener, which is here; so it has panicked.
                Err(_) => break,
            },
            recv(ends) -> number => number.into_iter().for_each(|number| sessions.forget(number)),
            recv(stop) -> word => match word {
                Ok(_) => break,
                Err(_) => stop = never(),
            },
        }
    }
    sessions.end_all();
    listener.drain(LAST_READ);
    sessions.refusals.end();
}

/// The sessions that are being served. Owned by the thread that calls [`serve_all`].
struct Sessions<'a> {
    host: &'a Host,
    options: &'a Options,
    open: HashMap<u64, Open>,
    count: u64,
    ended: Sender<u64>,
    refusals: Refusals,
}

/// Agents for which there is no place, told so on a thread of its own: one that does not read must not keep others waiting.
#[derive(Default)]
struct Refusals(Option<Teller>);

struct Teller {
    queue: Sender<(Refused, Vec<u8>)>,
    thread: JoinHandle<()>,
}

/// Agents that may wait to be told. Past that they are sent away without a word.
const MAX_REFUSALS: usize = 4;

impl Refusals {
    /// Has `line` said to `agent`. The thread starts with the first.
    fn say(&mut self, agent: Refused, line: Vec<u8>) -> io::Result<()> {
        let teller = match &self.0 {
            Some(teller) => teller,
            None => {
                let (queue, waiting) = bounded::<(Refused, Vec<u8>)>(MAX_REFUSALS);
                let tell = move || waiting.into_iter().for_each(|(agent, line)| agent.say(&line));
                let thread = thread::Builder::new().name("refuse".into()).spawn(tell)?;
                self.0.insert(Teller { queue, thread })
            }
        };
        let _ = teller.queue.try_send((agent, line));
        Ok(())
    }

    /// Tells those who wait; each takes a fifth of a second at most.
    fn end(self) {
        if let Some(Teller { queue, thread }) = self.0 {
            drop(queue);
            let _ = thread.join();
        }
    }
}

struct Open {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Sessions<'_> {
    /// Serves `connection` on a thread of its own.
    fn open(&mut self, connection: Connection) {
        self.count += 1;
        let number = self.count;
        let (stop, stopped) = bounded(1);
        let (host, options, ended) = (self.host.clone(), self.options.clone(), self.ended.clone());
        let run = move || {
            let log = options.log.clone();
            log.say(Level::Info, format_args!("connection {number}: open"));
            match serve(&host, connection, &options, &stopped) {
                Ok(Ended::Clean) => log.say(Level::Info, format_args!("connection {number}: closed")),
                // The agent has gone without a word, as agents do.
                Ok(Ended::OutputBroken(e)) => log.say(Level::Info, format_args!("connection {number}: broken: {e}")),
                Err(e) => log.say(Level::Error, format_args!("connection {number}: not served: {e}")),
            }
            let _ = ended.send(number);
        };
        match thread::Builder::new().name("session".into()).spawn(run) {
            Ok(thread) => drop(self.open.insert(number, Open { stop, thread })),
            // The connection is closed by being dropped.
            Err(e) => self.say_no_thread(number, &e),
        }
    }

    fn say_no_thread(&self, number: u64, error: &io::Error) {
        self.options.log.say(Level::Error, format_args!("connection {number}: no thread to serve it: {error}"));
    }

    fn refuse(&mut self, agent: Refused) {
        let line = self.no_place();
        if let Err(e) = self.refusals.say(agent, line) {
            self.options.log.say(Level::Error, format_args!("no thread to refuse a connection: {e}"));
        }
    }

    /// What an agent hears for which there is no place.
    fn no_place(&self) -> Vec<u8> {
        let words = format!("this host serves {} sessions already, its limit; try again later", self.open.len());
        let error = ErrorMessage::new(String::new(), ErrorCode::RuntimeError, words, false);
        encode(&ErrorMessage { retryable: true, ..error })
    }

    /// Joins the thread of a session that has ended.
    fn forget(&mut self, number: u64) {
        if let Some(Open { thread, .. }) = self.open.remove(&number) {
            let _ = thread.join();
        }
    }

    /// Asks all sessions to end, then waits for each.
    fn end_all(&mut self) {
        for Open { stop, .. } in self.open.values() {
            let _ = stop.try_send(());
        }
        for (_, Open { thread, .. }) in self.open.drain() {
            let _ = thread.join();
        }
    }
}
