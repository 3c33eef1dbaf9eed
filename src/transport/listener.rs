//! Listens at an address and makes a connection of each agent that arrives there.
//!
//! Thread `accept`: waits for agents, and hands each to whoever takes from [`Listener::arrivals`]. It ends when the listener
//! is dropped. Sockets are handled here; HTTP has connections of its own kind and is handled in `http`.

use std::io::{self, PipeReader, PipeWriter};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
#[cfg(feature = "http")]
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::socket::Socket;
use super::{Address, Connection};
use crate::count::Quota;
use crate::log::{Level, Log};
use crate::os::{self, SocketFile};

/// What an operator may set of a listener.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Connections that may be served at once. Default: 64.
    pub max_sessions: usize,
    /// HTTP: bytes of the longest request body. Default: 8 MiB.
    pub max_body_bytes: usize,
    /// HTTP: how long a session without a stream is kept. Default: 60 s.
    pub resume: Duration,
    /// HTTP: names beside `localhost` and numbers that requests may be addressed to (`Host`). Default: none.
    pub host_names: Vec<String>,
    /// Where it says what it does.
    pub log: Log,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            max_sessions: 64,
            max_body_bytes: 8 * 1024 * 1024,
            resume: Duration::from_secs(60),
            host_names: Vec::new(),
            log: Log::none(),
        }
    }
}

/// An agent that has arrived.
pub enum Arrival {
    /// It is to be served.
    Accepted(Connection),
    /// There is no place for it.
    Refused(Refused),
}

/// An agent that is not served, and may be told why.
pub struct Refused(Box<Say>);

type Say = dyn FnOnce(&[u8]) + Send;

impl Refused {
    /// Says `line` to it and closes the connection. Takes at most a fifth of a second.
    pub fn say(self, line: &[u8]) {
        (self.0)(line);
    }
}

/// Somewhere agents can connect to, until it is dropped.
pub struct Listener {
    address: Address,
    arrivals: Receiver<Arrival>,
    #[cfg(feature = "http")]
    http: Option<(super::http::Server, Arc<()>)>,
    /// Closing it ends the thread.
    _wake: PipeWriter,
    _file: Option<SocketFile>,
}

impl Listener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// When somebody else listens there, or the system refuses.
    pub fn bind(address: &Address, options: &ListenOptions) -> io::Result<Self> {
        let (sender, arrivals) = bounded(0);
        let (woken, wake) = io::pipe()?;
        let acceptor = Acceptor { woken, sender, places: Quota::new(options.max_sessions), log: options.log.clone() };
        let unbound = |address| Self {
            address,
            arrivals,
            #[cfg(feature = "http")]
            http: None,
            _wake: wake,
            _file: None,
        };
        match address {
            Address::Unix(path) => {
                let (listener, file) = os::listen_unix(path)?;
                acceptor.start(listener)?;
                Ok(Self { _file: Some(file), ..unbound(address.clone()) })
            }
            Address::Tcp(_) => {
                let (listener, bound) = listen_tcp(address)?;
                acceptor.start(listener)?;
                Ok(unbound(address.with(bound)))
            }
            #[cfg(feature = "http")]
            Address::Http(_) => {
                let (listener, bound) = listen_tcp(address)?;
                let alive = Arc::new(());
                let server = super::http::Server::new(options, acceptor.sender, acceptor.places, &alive);
                server.start(listener, acceptor.woken)?;
                Ok(Self { http: Some((server, alive)), ..unbound(address.with(bound)) })
            }
            #[cfg(not(feature = "http"))]
            Address::Http(_) => Err(io::Error::other("this program was built without the feature \"http\"")),
        }
    }

    /// Where it listens: with the port that the system gave, if 0 was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Agents, one after the other. Whoever does not take them lets them wait.
    pub fn arrivals(&self) -> &Receiver<Arrival> {
        &self.arrivals
    }

    /// Once every session has ended: waits until agents have taken what was said to them, for at most `time`. Only HTTP
    /// keeps anything back.
    pub fn drain(&self, time: Duration) {
        #[cfg(feature = "http")]
        if let Some((http, _)) = &self.http {
            http.drain(time);
        }
        #[cfg(not(feature = "http"))]
        let _ = time;
    }
}

fn listen_tcp(address: &Address) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address.resolve()?.as_slice())?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// A listening socket.
pub(super) trait Listen: AsFd + Send + 'static {
    type Stream: Socket;

    /// An agent that has arrived, if one has.
    fn accept(&self) -> io::Result<Self::Stream>;

    /// Makes `accept` not wait: an agent may have gone since the system told of it.
    fn prepare(&self) -> io::Result<()>;
}

impl Listen for UnixListener {
    type Stream = std::os::unix::net::UnixStream;

    fn accept(&self) -> io::Result<Self::Stream> {
        self.accept().map(|(stream, _)| stream)
    }

    fn prepare(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

impl Listen for TcpListener {
    type Stream = std::net::TcpStream;

    fn accept(&self) -> io::Result<Self::Stream> {
        self.accept().map(|(stream, _)| stream)
    }

    fn prepare(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

/// How long nothing is accepted after the system has refused (out of descriptors, out of memory).
const PAUSE: Duration = Duration::from_millis(50);

/// Hands every arriving stream to `take`, until `take` says that it was the last or the other end of `woken` is closed.
pub(super) fn accept_all<L: Listen>(
    listener: &L,
    woken: &PipeReader,
    log: &Log,
    mut take: impl FnMut(L::Stream) -> bool,
) {
    let mut was_refused = false;
    loop {
        match os::wait_readable(listener, Some(woken.as_fd()), None) {
            Ok(ready) if !ready.woken => {}
            _ => return,
        }
        match listener.accept() {
            Ok(stream) => {
                was_refused = false;
                if !take(stream) {
                    return;
                }
            }
            // It has gone again.
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
            Err(e) => {
                if !std::mem::replace(&mut was_refused, true) {
                    log.say(Level::Error, format_args!("could not accept a connection, trying on: {e}"));
                }
                if !matches!(os::wait_readable(woken, None, Some(PAUSE)), Ok(ready) if !ready.data) {
                    return;
                }
            }
        }
    }
}

/// What the thread `accept` owns.
struct Acceptor {
    woken: PipeReader,
    sender: Sender<Arrival>,
    places: Quota,
    log: Log,
}

impl Acceptor {
    fn start<L: Listen>(self, listener: L) -> io::Result<()> {
        listener.prepare()?;
        let run = move || accept_all(&listener, &self.woken, &self.log, |stream| self.take(stream));
        thread::Builder::new().name("accept".into()).spawn(run)?;
        Ok(())
    }

    /// Hands an agent on. False if nobody takes any more.
    fn take<S: Socket>(&self, stream: S) -> bool {
        let arrival = match self.places.take() {
            None => Arrival::Refused(Refused(Box::new(move |line| refuse(stream, line)))),
            Some(slot) => match Connection::socket(stream, Some(slot)) {
                Ok(connection) => Arrival::Accepted(connection),
                Err(e) => {
                    self.log.say(Level::Error, format_args!("could not serve a connection: {e}"));
                    return true;
                }
            },
        };
        self.sender.send(arrival).is_ok()
    }
}

/// Says `line`, and waits a little for the other side to take it: closing a socket that has unread input throws away what was
/// written to it.
fn refuse(mut stream: impl Socket, line: &[u8]) {
    let mut closed = || {
        stream.prepare()?;
        stream.limit_reads(Duration::from_millis(200))?;
        stream.write_all(line)?;
        stream.shut(std::net::Shutdown::Write)?;
        stream.read(&mut [0; 4096]).map(drop)
    };
    // An agent that has gone, or says nothing, need not be told.
    let _ = closed();
}
