//! HTTP/1.1 requests off a socket, bounded in bytes and in time. Heads are parsed by `httparse`.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes and lines that a request's head may have.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// How long a connection may be kept without a further request, how long a head may take from its first byte, or the first
/// from the connection's beginning, and a body from its head's end.
const IDLE: Duration = Duration::from_secs(60);
const HEAD: Duration = Duration::from_secs(10);
const BODY: Duration = Duration::from_secs(30);

/// How long a client may take for an answer.
pub const ANSWER: Duration = Duration::from_secs(10);

/// A request's head.
#[derive(Debug, Default)]
pub struct Head {
    /// GET, POST and so on.
    pub method: String,
    /// The target without what follows a `?`.
    pub path: String,
    /// Whether the client wants to send another request afterwards.
    pub keeps_alive: bool,
    headers: Vec<(String, Vec<u8>)>,
}

/// Why there is no request, or none that can be served: a status and words, or silence.
#[derive(Debug)]
pub enum Problem {
    /// The client is told, and the connection closed.
    Told(u16, &'static str),
    /// The client has gone, or has nothing to ask any more.
    Gone,
}

impl Head {
    /// The header's value, if there is exactly one.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
        match (values.next(), values.next()) {
            (Some((_, value)), None) => std::str::from_utf8(value).ok(),
            _ => None,
        }
    }

    /// The length of the body, in bytes, which may be at most `most`.
    pub fn body_length(&self, most: usize) -> Result<usize, Problem> {
        if self.has("transfer-encoding") {
            return Err(Problem::Told(501, "send the body with Content-Length, not with Transfer-Encoding"));
        }
        let length: usize = match self.get("content-length") {
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().unwrap_or(usize::MAX),
            None if !self.has("content-length") => 0,
            _ => return Err(Problem::Told(400, "Content-Length must be one number")),
        };
        if length <= most { Ok(length) } else { Err(Problem::Told(413, "the body is longer than a message may be")) }
    }

    /// Whether the header is there, however often and whatever it says.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name))
    }
}

/// A client's connection.
pub struct Client {
    /// Its socket.
    pub stream: TcpStream,
    /// What was read and belongs to nobody yet.
    buffer: Vec<u8>,
    /// Whether it has sent no request yet.
    is_new: bool,
}

impl Client {
    /// A client that has just connected.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new(), is_new: true }
    }

    /// The next request's head.
    pub fn head(&mut self) -> Result<Head, Problem> {
        // The first is to come at once.
        let mut deadline = Instant::now() + if self.is_new { HEAD } else { IDLE };
        self.is_new = false;
        let mut began = false;
        loop {
            if !self.buffer.is_empty() {
                if !std::mem::replace(&mut began, true) {
                    deadline = Instant::now() + HEAD;
                }
                if let Some((head, length)) = parse(&self.buffer)? {
                    self.buffer.drain(..length);
                    return Ok(head);
                }
                if self.buffer.len() >= MAX_HEAD {
                    return Err(Problem::Told(431, "the head of the request is too long"));
                }
            }
            match self.read_more(deadline, MAX_HEAD) {
                Ok(0) => return Err(Problem::Gone),
                Ok(_) => {}
                Err(e) if began && is_timeout(&e) => {
                    return Err(Problem::Told(408, "the head of the request took too long"));
                }
                Err(_) => return Err(Problem::Gone),
            }
        }
    }

    /// The body of `length` bytes that belongs to `head`.
    pub fn body(&mut self, head: &Head, length: usize) -> Result<Vec<u8>, Problem> {
        if length > self.buffer.len()
            && head.get("expect").is_some_and(|text| text.eq_ignore_ascii_case("100-continue"))
        {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| Problem::Gone)?;
        }
        let deadline = Instant::now() + BODY;
        while self.buffer.len() < length {
            let missing = length - self.buffer.len();
            match self.read_more(deadline, missing) {
                Ok(0) => return Err(Problem::Gone),
                Ok(_) => {}
                Err(e) if is_timeout(&e) => return Err(Problem::Told(408, "the body of the request took too long")),
                Err(_) => return Err(Problem::Gone),
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn read_more(&mut self, deadline: Instant, most: usize) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        // Also for one that sends a byte now and then.
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut some = [0; 16 * 1024];
        let room = most.min(some.len());
        loop {
            match self.stream.read(&mut some[..room]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => {
                    self.buffer.extend_from_slice(&some[..count]);
                    return Ok(count);
                }
                Err(e) => return Err(e),
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A whole head and its length in bytes, if it is there.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Problem> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Problem::Told(431, "the request has too many headers")),
        Err(_) => return Err(Problem::Told(400, "this is not an HTTP/1.1 request")),
    };
    let target = request.path.unwrap_or_default();
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        keeps_alive: false,
        headers: request.headers.iter().map(|h| (h.name.to_owned(), h.value.to_vec())).collect(),
    };
    let says = |word: &str| head.get("connection").is_some_and(|text| text.to_ascii_lowercase().contains(word));
    head.keeps_alive = if request.version == Some(1) { !says("close") } else { says("keep-alive") };
    Ok(Some((head, length)))
}
