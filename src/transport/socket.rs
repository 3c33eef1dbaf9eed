//! Sockets as connections. A browser that is led to send requests to a local port sends HTTP or TLS, which are not let in.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Close, Connection, Hangup, Room};
use crate::count::Slot;
use crate::os;

/// What both kinds of socket can do, and the standard library has no common name for.
pub trait Socket: Read + Write + AsFd + Send + Sized + 'static {
    /// Another handle of the same socket.
    fn duplicate(&self) -> io::Result<Self>;

    /// Closes one direction or both, for all handles.
    fn shut(&self, how: Shutdown) -> io::Result<()>;

    /// How long a read may wait.
    fn limit_reads(&self, time: Duration) -> io::Result<()>;

    /// Makes the socket fit for lines.
    fn prepare(&self) -> io::Result<()>;

    /// The process at the other end, where the system tells.
    fn peer(&self) -> Option<u32>;
}

impl Socket for UnixStream {
    fn duplicate(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn shut(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }

    fn limit_reads(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn prepare(&self) -> io::Result<()> {
        self.set_nonblocking(false)
    }

    fn peer(&self) -> Option<u32> {
        os::peer_pid(self)
    }
}

impl Socket for TcpStream {
    fn duplicate(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn shut(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }

    fn limit_reads(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn prepare(&self) -> io::Result<()> {
        self.set_nonblocking(false)?;
        self.set_nodelay(true)?;
        // An agent whose machine has vanished says nothing any more; without this its session would stay for ever.
        os::keep_alive(self)
    }

    fn peer(&self) -> Option<u32> {
        None
    }
}

impl Connection {
    /// A connected Unix socket.
    ///
    /// # Errors
    /// When the system gives no descriptors.
    pub fn unix(stream: UnixStream) -> io::Result<Self> {
        Self::socket(stream, None)
    }

    /// A connected TCP socket. If what comes in is HTTP or TLS, it is at its end at once.
    ///
    /// # Errors
    /// When the system gives no descriptors, or refuses an option.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        Self::socket(stream, None)
    }

    /// Either, with the place that it takes among the sessions.
    pub(super) fn socket<S: Socket>(stream: S, slot: Option<Slot>) -> io::Result<Self> {
        stream.prepare()?;
        let hangup = Hangup::of(stream.as_fd().try_clone_to_owned()?);
        let closing = Box::new(Closing { stream: stream.duplicate()?, _slot: slot });
        let input = NotHttp { stream: stream.duplicate()?, seen: Vec::new(), passed: 0, state: Seen::Begin };
        let (room, peer) = (Room::of(&stream), stream.peer());
        Ok(Self { hangup: Some(hangup), closing: Some(closing), room, peer, ..Self::new(input, stream) })
    }
}

struct Closing<S> {
    stream: S,
    /// Given back when the connection has been served.
    _slot: Option<Slot>,
}

// A socket that is not connected any more has nothing to close.
impl<S: Socket> Close for Closing<S> {
    fn finish(&self) {
        let _ = self.stream.shut(Shutdown::Write);
    }

    fn abort(&self) {
        let _ = self.stream.shut(Shutdown::Both);
    }
}

/// The beginnings of HTTP requests. None is one of a JSON value.
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"TRACE ", b"CONNECT "];

/// An input that ends at once if it begins as HTTP does, or TLS: a web page can make a browser send either to a local port,
/// and what follows their first bytes could be requests. (A TLS handshake holds bytes that the page's own server has chosen.)
struct NotHttp<S> {
    stream: S,
    seen: Vec<u8>,
    /// How much of `seen` has been passed on.
    passed: usize,
    state: Seen,
}

enum Seen {
    Begin,
    /// What a browser sends.
    Foreign,
    Other,
}

/// Whether it is the first byte of a binary protocol, TLS among them, and of no JSON.
fn is_binary(byte: u8) -> bool {
    byte.is_ascii_control() && !byte.is_ascii_whitespace()
}

impl<S: Read> Read for NotHttp<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while matches!(self.state, Seen::Begin) {
            let mut some = [0; 8];
            let count = self.stream.read(&mut some)?;
            self.seen.extend_from_slice(&some[..count]);
            let may_become = |method: &&[u8]| method.starts_with(&self.seen);
            let is_http = METHODS.iter().any(|method| self.seen.starts_with(method));
            self.state = if is_http || self.seen.first().is_some_and(|first| is_binary(*first)) {
                Seen::Foreign
            } else if count > 0 && METHODS.iter().any(may_become) {
                Seen::Begin
            } else {
                Seen::Other
            };
        }
        if matches!(self.state, Seen::Foreign) {
            return Ok(0);
        }
        let mut rest = &self.seen[self.passed..];
        if rest.is_empty() {
            return self.stream.read(buffer);
        }
        let count = rest.read(buffer)?;
        self.passed += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte a read.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(1);
            self.0.read(&mut buffer[..most])
        }
    }

    fn read_all(stream: impl Read) -> String {
        let mut text = String::new();
        let mut input = NotHttp { stream, seen: Vec::new(), passed: 0, state: Seen::Begin };
        input.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn http_and_tls_are_not_let_in_however_they_are_cut() {
        let tls = "\u{16}\u{3}\u{1}\n{\"type\":\"ping\"}\n";
        for http in ["GET / HTTP/1.1\r\n\r\n{}", "POST /x\n{\"type\":\"ping\"}\n", "OPTIONS *", "CONNECT a:1", tls] {
            assert_eq!(read_all(http.as_bytes()), "");
            assert_eq!(read_all(Drip(http.as_bytes())), "");
        }
    }

    #[test]
    fn all_else_passes_as_it_is() {
        for other in ["", "{", "{\"type\":\"ping\"}\n", "P", "POS", "POSTAL\n", "get / \n", "\n\nGET / \n", "\u{2028}"]
        {
            assert_eq!(read_all(other.as_bytes()), other);
            assert_eq!(read_all(Drip(other.as_bytes())), other);
        }
    }
}
