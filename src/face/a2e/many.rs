//! A2E for every agent that arrives at a listener, each with a session of its own (R7).

use std::collections::HashMap;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};

use super::{Ended, Options, serve};
use crate::engine::Host;
use crate::log::Level;
use crate::transport::{Arrival, Connection, Listener};
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
    let mut sessions = Sessions { host, options, open: HashMap::new(), count: 0, ended };
    let mut stop = stop.clone();
    loop {
        select! {
            recv(listener.arrivals()) -> arrival => match arrival {
                Ok(Arrival::Accepted(connection)) => sessions.open(connection),
                Ok(Arrival::Refused(agent)) => agent.say(&sessions.no_place()),
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
}

/// The sessions that are being served. Owned by the thread that calls [`serve_all`].
struct Sessions<'a> {
    host: &'a Host,
    options: &'a Options,
    open: HashMap<u64, Open>,
    count: u64,
    ended: Sender<u64>,
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
