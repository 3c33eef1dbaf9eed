//! The client's side of A2E over HTTP, as the published SDK has it: a session, lines sent one a request, and a stream of
//! server-sent events (`conformance/README.md`, Over a socket or HTTP). `connect` opens it, `lines` drives it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use serde_json::Value;

use super::connect::{Address, Socket};
use super::lines::LONGEST;

/// The longest head of an answer, in bytes, and how many header fields it may have.
const HEAD: u64 = 64 * 1024;
const FIELDS: usize = 64;

/// How long a host may take to answer a request. Long, since one that is busy with earlier messages may keep one waiting; but a
/// host that never answers must not keep the run from its end.
const ANSWERS: Duration = Duration::from_secs(30);

/// A connection for requests, one after the other.
struct Wire {
    address: Address,
    /// None once the host has closed it.
    socket: Option<BufReader<Socket>>,
}

/// The head of an answer: its status, its content type, and how its body ends.
struct Head {
    status: u16,
    content_type: String,
    framing: Framing,
    /// The host closes the connection after it.
    closes: bool,
}

/// How the rest of a body ends.
enum Framing {
    Length(u64),
    /// What is left of this chunk; none before its size was read.
    Chunked(Option<u64>),
    Close,
}

/// The session that a host has opened, as who sends uses it.
pub struct Session {
    wire: Wire,
    id: String,
}

/// Opens a session over a socket that is connected already. The second is what finds the lines that come.
///
/// # Errors
/// What the host answered instead.
pub fn open(address: &Address, socket: Socket) -> Result<(Session, impl FnMut() -> Option<Vec<u8>> + use<>), String> {
    socket.set_read_timeout(Some(ANSWERS)).map_err(|e| format!("POST /session: {e}"))?;
    let mut wire = Wire { address: address.clone(), socket: Some(BufReader::new(socket)) };
    let (status, body) = wire.request("POST", "/session", None, b"").map_err(|e| format!("POST /session: {e}"))?;
    let id = serde_json::from_slice(&body).ok().and_then(|body: Value| Some(body["session_id"].as_str()?.to_owned()));
    let id = match (status, id) {
        (200, Some(id)) if id.bytes().all(|byte| byte.is_ascii_graphic()) => id,
        _ => return Err(format!("POST /session was answered {}", shown(status, &body))),
    };
    let (mut stream, head) = open_stream(address, &id).map_err(|e| format!("GET /stream: {e}"))?;
    if head.status != 200 || !head.content_type.starts_with("text/event-stream") {
        return Err(format!("GET /stream was answered {} {:?}", head.status, head.content_type));
    }
    // Events may take their time.
    stream.get_mut().set_read_timeout(None).map_err(|e| format!("GET /stream: {e}"))?;
    let body = Body { from: stream, framing: head.framing };
    Ok((Session { wire, id }, events_of(BufReader::with_capacity(64 * 1024, body))))
}

fn open_stream(address: &Address, id: &str) -> io::Result<(BufReader<Socket>, Head)> {
    let mut stream = BufReader::new(dial(address)?);
    write_request(stream.get_mut(), address, "GET", "/stream", Some(id), b"")?;
    let head = read_head(&mut stream)?;
    Ok((stream, head))
}

/// Connects, and does not wait without end for what is read.
fn dial(address: &Address) -> io::Result<Socket> {
    let socket = address.dial()?;
    socket.set_read_timeout(Some(ANSWERS))?;
    Ok(socket)
}

impl Session {
    /// Sends each line that comes, then ends the session. Calls `refused` with what the host did not take.
    pub fn send_all(mut self, to_write: &std::sync::mpsc::Receiver<Vec<u8>>, refused: impl Fn(String)) {
        let mut waiting = Vec::new();
        for bytes in to_write {
            waiting.extend(bytes);
            while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=end).collect();
                match self.wire.request("POST", "/send", Some(&self.id), &line[..end]) {
                    Ok((200, _)) => {}
                    Ok((status, body)) => refused(format!("POST /send was answered {}", shown(status, &body))),
                    Err(e) => refused(format!("POST /send: {e}")),
                }
            }
        }
        match self.wire.request("DELETE", "/session", Some(&self.id), b"") {
            Ok((200, _)) => {}
            Ok((status, body)) => refused(format!("DELETE /session was answered {}", shown(status, &body))),
            Err(e) => refused(format!("DELETE /session: {e}")),
        }
    }
}

fn shown(status: u16, body: &[u8]) -> String {
    super::pattern::shorten(format!("{status} {}", String::from_utf8_lossy(body)))
}

fn invalid(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.into())
}

impl Wire {
    /// Sends a request and reads its answer: status and body.
    fn request(&mut self, method: &str, path: &str, session: Option<&str>, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => BufReader::new(dial(&self.address)?),
        };
        write_request(socket.get_mut(), &self.address, method, path, session, body)?;
        let head = read_head(&mut socket)?;
        let mut body = Vec::new();
        Body { from: &mut socket, framing: head.framing }.take(LONGEST).read_to_end(&mut body)?;
        if !head.closes {
            self.socket = Some(socket);
        }
        Ok((head.status, body))
    }
}

fn write_request(
    socket: &mut Socket,
    address: &Address,
    method: &str,
    path: &str,
    session: Option<&str>,
    body: &[u8],
) -> io::Result<()> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", address.place()).into_bytes();
    if let Some(session) = session {
        write!(request, "X-Session-Id: {session}\r\n")?;
    }
    if method == "POST" {
        write!(request, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n", body.len())?;
    }
    request.extend(b"\r\n");
    request.extend(body);
    socket.write_all(&request)
}

fn read_head(from: &mut BufReader<Socket>) -> io::Result<Head> {
    let mut bytes = Vec::new();
    let mut limited = from.take(HEAD);
    loop {
        let before = bytes.len();
        limited.read_until(b'\n', &mut bytes)?;
        match &bytes[before..] {
            b"\r\n" | b"\n" => break,
            line if line.ends_with(b"\n") => {}
            _ if limited.limit() == 0 => return Err(invalid("the head of the answer has no end")),
            _ => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the host closed the connection")),
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    answer.parse(&bytes).map_err(|e| invalid(format!("the head of the answer is not HTTP: {e}")))?;
    let field = |name: &str| {
        let found = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| String::from_utf8_lossy(field.value).to_ascii_lowercase())
    };
    let status = answer.code.unwrap_or_default();
    let framing = match (field("transfer-encoding"), field("content-length")) {
        _ if status == 204 => Framing::Length(0),
        (Some(coding), _) if coding == "chunked" => Framing::Chunked(None),
        (Some(coding), _) => return Err(invalid(format!("the answer has the transfer encoding {coding:?}"))),
        (None, Some(length)) => {
            Framing::Length(length.parse().map_err(|_| invalid(format!("the answer's length is {length:?}")))?)
        }
        (None, None) => Framing::Close,
    };
    let closes = matches!(framing, Framing::Close) || field("connection").is_some_and(|words| words.contains("close"));
    Ok(Head { status, content_type: field("content-type").unwrap_or_default(), framing, closes })
}

/// The body of an answer.
struct Body<R> {
    from: R,
    framing: Framing,
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = match &mut self.framing {
                Framing::Close => return self.from.read(out),
                Framing::Length(0) => return Ok(0),
                Framing::Length(left) => left,
                Framing::Chunked(Some(0)) => {
                    // The line end after a chunk.
                    read_line(&mut self.from)?;
                    self.framing = Framing::Chunked(None);
                    continue;
                }
                Framing::Chunked(Some(left)) => left,
                Framing::Chunked(none) => {
                    let line = read_line(&mut self.from)?;
                    let size = line.split(';').next().unwrap_or_default().trim();
                    let size =
                        u64::from_str_radix(size, 16).map_err(|_| invalid(format!("{line:?} is no chunk size")))?;
                    *none = Some(size);
                    if size == 0 {
                        while !read_line(&mut self.from)?.is_empty() {}
                        self.framing = Framing::Length(0);
                    }
                    continue;
                }
            };
            let count = (&mut self.from).take(*left).read(out)?;
            if count == 0 && !out.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            *left -= count as u64;
            return Ok(count);
        }
    }
}

/// A line without its end. The end of the stream is an error.
fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(HEAD).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(text) => Ok(text.trim_end_matches('\r').to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// What finds the data of server-sent events. An event that the end cuts off is none.
fn events_of(mut from: impl BufRead) -> impl FnMut() -> Option<Vec<u8>> {
    move || {
        let mut data: Option<Vec<u8>> = None;
        loop {
            let mut line = Vec::new();
            (&mut from).take(LONGEST).read_until(b'\n', &mut line).ok()?;
            line.pop_if(|last| *last == b'\n')?;
            line.pop_if(|last| *last == b'\r');
            if line.is_empty() {
                // Blank lines without an event before them are allowed.
                match data {
                    Some(data) => return Some(data),
                    None => continue,
                }
            }
            // Comments begin with a colon; id, event and retry say nothing of the message.
            let Some(text) = line.strip_prefix(b"data:") else { continue };
            let text = text.strip_prefix(b" ").unwrap_or(text);
            match &mut data {
                None => data = Some(text.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend(text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<String> {
        std::iter::from_fn(events_of(text.as_bytes())).map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn events_are_cut_at_blank_lines() {
        let rows = [
            ("data: {}\n\n", vec!["{}"]),
            (": hello\n\nid: 1\ndata: a\n\ndata:b\r\n\r\n", vec!["a", "b"]),
            ("data: a\ndata: b\n\n", vec!["a\nb"]),
            ("data: a\n\n: still here\n\ndata: cut off\n", vec!["a"]),
        ];
        for (text, expected) in rows {
            assert_eq!(events(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let rows = [
            (Framing::Length(3), "abcdef", Some("abc")),
            (Framing::Length(9), "abc", None),
            (Framing::Close, "abc", Some("abc")),
            (Framing::Chunked(None), "2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\nmore", Some("abc")),
            (Framing::Chunked(None), "2\r\nab\r\n", None),
            (Framing::Chunked(None), "x\r\nab\r\n", None),
        ];
        for (framing, text, expected) in rows {
            let mut body = String::new();
            let read = Body { from: text.as_bytes(), framing }.read_to_string(&mut body);
            assert_eq!(read.ok().map(|_| body.as_str()), expected, "{text:?}");
        }
    }
}
