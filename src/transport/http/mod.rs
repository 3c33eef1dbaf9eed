//! The published SDK's transport: `POST /session` opens a session, `POST /send` takes one message, `GET /stream` gives what is
//! said as server-sent events, `GET /health` tells that the host is there. Beyond the SDK: `DELETE /session` ends a session,
//! and events have an `id`, after which a stream that broke goes on (`Last-Event-ID`).
//!
//! Threads: `accept` takes clients; `http` serves one client's requests, and is a stream's thread once it has asked for one.
//! An `http` thread ends when its client goes, is silent for too long, or its session is over. No well-kept synchronous server
//! crate bounds the time that a client may take, so sockets and threads are handled here and heads are left to `httparse`.
//!
//! A web page can make its visitor's browser send requests here, so a request must be addressed to a name that only this
//! machine or the operator gives (`Host`), and must not come from another site (`Origin`).

mod mailbox;
mod request;
mod session;
mod stream;

use std::io::{self, PipeReader, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::listener::{Arrival, Listen, ListenOptions, accept_all};
use super::socket::Socket;
use crate::count::Quota;
use crate::log::{Level, Log};
use mailbox::NoSuchLine;
use request::{ANSWER, Client, Head, Problem};
use session::{NotTaken, Session, Table};
use stream::Over;

/// How long a client that is sent away may go on sending before its connection is closed.
const PART: Duration = Duration::from_millis(500);

/// The longest body of a request that needs none, in bytes.
const OTHER_BODY: usize = 16 * 1024;

/// Clients that may be connected beside two for each session, one that sends and one that listens.
const MORE_CLIENTS: usize = 32;

/// What the threads share.
#[derive(Clone)]
pub struct Server {
    table: Arc<Table>,
    arrivals: Sender<Arrival>,
    clients: Quota,
    max_body_bytes: usize,
    host_names: Arc<[String]>,
    /// Gone when the listener is dropped.
    alive: Weak<()>,
    log: Log,
}

/// What a request comes to.
enum Outcome {
    /// A status and a JSON text.
    Answer(u16, String),
    /// The client wants a session's stream, from after an event on.
    Stream { after: String, id: String, session: Arc<Session> },
}

type Answer = Result<Outcome, Problem>;

impl Server {
    /// A server that hands each new session to `arrivals`, for as long as `alive` is held.
    pub fn new(options: &ListenOptions, arrivals: Sender<Arrival>, places: Quota, alive: &Arc<()>) -> Self {
        Self {
            clients: Quota::new(2 * places.most() + MORE_CLIENTS),
            table: Arc::new(Table::new(places, options.resume)),
            arrivals,
            max_body_bytes: options.max_body_bytes,
            host_names: options.host_names.clone().into(),
            alive: Arc::downgrade(alive),
            log: options.log.clone(),
        }
    }

    /// Accepts clients until the other end of `woken` is closed.
    pub fn start(&self, listener: TcpListener, woken: PipeReader) -> io::Result<()> {
        listener.prepare()?;
        let server = self.clone();
        let accept = move || accept_all(&listener, &woken, &server.log, |stream| server.take(stream));
        thread::Builder::new().name("accept".into()).spawn(accept)?;
        Ok(())
    }

    /// Waits until the streams that are there have sent everything, for at most `time`.
    pub fn drain(&self, time: Duration) {
        self.table.drain(Instant::now() + time);
    }

    /// Serves a client on a thread of its own. Always true: the next may have a place.
    fn take(&self, stream: TcpStream) -> bool {
        let prepared = stream.prepare().and_then(|()| stream.set_write_timeout(Some(ANSWER)));
        if let Err(e) = prepared {
            self.log.say(Level::Debug, format_args!("http: a client that has gone: {e}"));
            return true;
        }
        let Some(slot) = self.clients.take() else {
            // A new socket has room for this. What the client has sent is read, or closing would take the answer away.
            let _ = answer(&stream, 503, &detail("too many connections; try again later"), false);
            let read_what_is_there = || {
                stream.shutdown(Shutdown::Write)?;
                stream.set_nonblocking(true)?;
                (&stream).read(&mut [0; 16 * 1024])
            };
            let _ = read_what_is_there();
            return true;
        };
        let server = self.clone();
        let serve = move || {
            server.serve(Client::new(stream));
            drop(slot);
        };
        if let Err(e) = thread::Builder::new().name("http".into()).spawn(serve) {
            self.log.say(Level::Error, format_args!("http: no thread to serve a client: {e}"));
        }
        true
    }

    fn serve(&self, mut client: Client) {
        loop {
            let (outcome, keeps_alive) = match client.head() {
                Ok(head) => {
                    let outcome = self.route(&head, &mut client);
                    self.log.say(Level::Debug, format_args!("http: {} {}", head.method, head.path));
                    // A client that asked for the head alone would take the body for the next answer.
                    (outcome, head.keeps_alive && head.method != "HEAD" && !self.has_ended())
                }
                Err(problem) => (Err(problem), false),
            };
            let (status, text, keeps_alive) = match outcome {
                Ok(Outcome::Answer(status, text)) => (status, text, keeps_alive),
                Ok(Outcome::Stream { after, id, session }) => {
                    return self.stream(&client.stream, &after, &id, &session);
                }
                // What follows a request that was not read to its end cannot be understood.
                Err(Problem::Told(status, words)) => (status, detail(words), false),
                Err(Problem::Gone) => return,
            };
            if answer(&client.stream, status, &text, keeps_alive).is_err() || !keeps_alive {
                return Self::part(&client.stream);
            }
        }
    }

    /// Whether the listener has been dropped. A client that is served finds out with its next request.
    fn has_ended(&self) -> bool {
        self.alive.upgrade().is_none()
    }

    /// Closes so that the client can read the last answer, though it may still be sending.
    fn part(stream: &TcpStream) {
        let deadline = Instant::now() + PART;
        let read_on = || {
            stream.shutdown(Shutdown::Write)?;
            stream.set_read_timeout(Some(PART))?;
            let mut some = [0; 16 * 1024];
            while Instant::now() < deadline && (&*stream).read(&mut some)? > 0 {}
            io::Result::Ok(())
        };
        // Whoever has gone reads nothing.
        let _ = read_on();
    }

    fn route(&self, head: &Head, client: &mut Client) -> Answer {
        self.check_site(head)?;
        if (head.path.as_str(), head.method.as_str()) == ("/send", "POST") {
            let length = head.body_length(self.max_body_bytes)?;
            // Nobody without a session may have a long body read.
            let (_, session) = self.session(head)?;
            let body = client.body(head, length)?;
            return Ok(Self::send(&session, body));
        }
        // Some clients send a body with everything.
        client.body(head, head.body_length(OTHER_BODY)?)?;
        let allowed = match (head.path.as_str(), head.method.as_str()) {
            ("/health", "GET") => return Ok(Outcome::Answer(200, r#"{"status":"ok"}"#.into())),
            ("/session", "POST") => return self.open(),
            ("/session", "DELETE") => {
                let (_, session) = self.session(head)?;
                session.end_input();
                return Ok(Outcome::Answer(200, r#"{"ok":true}"#.into()));
            }
            ("/stream", "GET") => {
                let (id, session) = self.session(head)?;
                let after = head.get("last-event-id").unwrap_or_default().to_owned();
                return Ok(Outcome::Stream { after, id, session });
            }
            ("/health" | "/stream", _) => "use GET",
            ("/session", _) => "use POST, or DELETE with an X-Session-Id",
            ("/send", _) => "use POST",
            _ => return Ok(Outcome::Answer(404, detail("there is /session, /send, /stream and /health"))),
        };
        Ok(Outcome::Answer(405, detail(allowed)))
    }

    /// Refuses what another site has a browser send.
    fn check_site(&self, head: &Head) -> Result<(), Problem> {
        let Some(host) = head.get("host") else {
            return Err(Problem::Told(400, "the request needs one Host header"));
        };
        if !self.is_ours(name_of(host)) {
            return Err(Problem::Told(403, "Host is no name of this host; see --http-host"));
        }
        let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, place)| place.eq_ignore_ascii_case(host));
        if head.has("origin") && !head.get("origin").is_some_and(is_own) {
            return Err(Problem::Told(403, "a web page of another site may not use this host"));
        }
        Ok(())
    }

    /// A number cannot be taken over by somebody else's name service, and `localhost` is not asked of one.
    fn is_ours(&self, name: &str) -> bool {
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.host_names.iter().any(|known| name.eq_ignore_ascii_case(known))
    }

    fn open(&self) -> Answer {
        let Some((id, connection)) = self.table.open() else {
            return Ok(Outcome::Answer(503, detail("this host serves as many sessions as it may; try again later")));
        };
        if self.arrivals.send(Arrival::Accepted(connection)).is_err() {
            return Ok(Outcome::Answer(503, detail("this host is ending")));
        }
        Ok(Outcome::Answer(200, format!(r#"{{"session_id":"{id}"}}"#)))
    }

    fn session(&self, head: &Head) -> Result<(String, Arc<Session>), Problem> {
        let id = head.get("x-session-id").filter(|id| !id.is_empty());
        let id = id.ok_or(Problem::Told(400, "Missing X-Session-Id"))?;
        let session = self.table.get(id).ok_or(Problem::Told(404, "Session not found"))?;
        Ok((id.to_owned(), session))
    }

    /// One body is one message, so an end of line in it is white space.
    fn send(session: &Session, mut body: Vec<u8>) -> Outcome {
        body.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        body.push(b'\n');
        match session.send(body) {
            Ok(()) => Outcome::Answer(200, r#"{"ok":true}"#.into()),
            Err(NotTaken::Ended) => Outcome::Answer(404, detail("Session not found: it has ended")),
            Err(NotTaken::Busy) => {
                Outcome::Answer(503, detail("the host takes no messages now; read the stream first"))
            }
        }
    }

    /// Serves a stream until its client goes or the session is over.
    fn stream(&self, socket: &TcpStream, after: &str, id: &str, session: &Arc<Session>) {
        let attached = socket.try_clone().and_then(|socket| session.mailbox.attach(after.parse().ok(), socket));
        let stream = match attached {
            Ok(Ok(stream)) => stream,
            Ok(Err(no_such_line)) => {
                let words = match no_such_line {
                    NoSuchLine::TooOld { oldest } => format!("events before {oldest} are not kept any more"),
                    NoSuchLine::NeverGiven => format!("this session has not had an event {after} yet"),
                };
                let _ = answer(socket, 409, &detail(&format!("{words}; leave Last-Event-ID out to go on")), false);
                return Self::part(socket);
            }
            Err(e) => return self.log.say(Level::Error, format_args!("http: no stream: {e}")),
        };
        let over = stream::send_events(socket, &stream);
        self.log.say(Level::Debug, format_args!("http: a stream is over: {over:?}"));
        drop(stream);
        if matches!(over, Ok(Over::Said)) {
            // There is nothing to come back for.
            self.table.forget(id);
        }
        session.look_again();
    }
}

/// The name in a `Host` header, without its port and brackets.
fn name_of(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

/// An error as the SDK's own server words it. The words have nothing in them that JSON would escape.
fn detail(words: &str) -> String {
    format!(r#"{{"detail":"{words}"}}"#)
}

fn answer(mut stream: &TcpStream, status: u16, text: &str, keeps_alive: bool) -> io::Result<()> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        _ => "Service Unavailable",
    };
    let connection = if keeps_alive { "" } else { "Connection: close\r\n" };
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{connection}\r\n"
    );
    stream.write_all(format!("{head}{text}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_a_host_header() {
        for (host, name) in
            [("a:1", "a"), ("a", "a"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("127.0.0.1:80", "127.0.0.1")]
        {
            assert_eq!(name_of(host), name);
        }
    }
}
