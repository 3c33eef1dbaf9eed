//! MCP for every client that arrives at a listener: the desk's own socket.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};

use super::{DeskTools, INSTRUCTIONS, Opened, Server, serve, tools};
use crate::desk::Desk;
use crate::log::{Level, Log};
use crate::transport::{Arrival, Connection, Listener};

/// Serves the desk to every client that arrives, until anything arrives on `stop`; then all connections end, at the same time,
/// each as [`serve`] ends it. The desk goes on; closing it is up to whoever has opened it.
///
/// Which entry a client belongs to is asked of the system, when it arrives.
pub fn serve_all<T>(desk: &Arc<Desk>, listener: &Listener, log: &Log, stop: &Receiver<T>) {
    let (ended, ends) = unbounded();
    let mut clients = Clients { desk, log, open: HashMap::new(), count: 0, ended };
    let mut stop = stop.clone();
    loop {
        select! {
            recv(listener.arrivals()) -> arrival => match arrival {
                Ok(Arrival::Accepted(connection)) => clients.open(connection),
                // Closed: there is no revision in which a server may speak first.
                Ok(Arrival::Refused(_)) => {
                    log.say(Level::Error, format_args!("an MCP client found no place: too many are connected"));
                }
                // The listener's thread ends with the listener, which is here; so it has panicked.
                Err(_) => break,
            },
            recv(ends) -> number => number.into_iter().for_each(|number| clients.forget(number)),
            recv(stop) -> word => match word {
                Ok(_) => break,
                Err(_) => stop = never(),
            },
        }
    }
    clients.end_all();
}

/// The clients that are being served. Owned by the thread that calls [`serve_all`].
struct Clients<'a> {
    desk: &'a Arc<Desk>,
    log: &'a Log,
    open: HashMap<u64, Open>,
    count: u64,
    ended: Sender<u64>,
}

struct Open {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Clients<'_> {
    fn open(&mut self, connection: Connection) {
        if let Err(e) = self.start(connection) {
            self.log.say(Level::Error, format_args!("an MCP client cannot be served: {e}"));
        }
    }

    fn start(&mut self, connection: Connection) -> io::Result<()> {
        let (desk, peer) = (Arc::clone(self.desk), connection.peer);
        // At the first call: one that connects as soon as it is started may be sooner than the news of its start.
        let open = Box::new(move || {
            let caller = peer.and_then(|pid| desk.caller(pid));
            Ok(Opened::Here(Arc::new(DeskTools::new(Arc::clone(&desk), caller)) as _))
        });
        let server = Arc::new(Server { tools: tools(), instructions: INSTRUCTIONS, open });
        let (stop, stopped) = bounded(1);
        self.count += 1;
        let (number, ended, log) = (self.count, self.ended.clone(), self.log.clone());
        let thread = thread::Builder::new().name("client".into()).spawn(move || {
            if let Err(e) = serve(connection, &server, &stopped) {
                log.say(Level::Error, format_args!("an MCP client cannot be served: {e}"));
            }
            // Whoever would hear of it may have ended all.
            let _ = ended.send(number);
        })?;
        self.open.insert(number, Open { stop, thread });
        Ok(())
    }

    fn forget(&mut self, number: u64) {
        if let Some(Open { thread, .. }) = self.open.remove(&number) {
            // It has said that it ends.
            let _ = thread.join();
        }
    }

    fn end_all(self) {
        for open in self.open.values() {
            let _ = open.stop.try_send(());
        }
        for Open { thread, .. } in self.open.into_values() {
            let _ = thread.join();
        }
    }
}
