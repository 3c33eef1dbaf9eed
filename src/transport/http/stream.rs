//! A session's stream on the wire: server-sent events in chunks, until there is nobody to send them to. Takes from the `mailbox`.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use super::mailbox::{Stream, Taken};
use crate::os;

/// After how long without an event a stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Why a stream is over.
#[derive(Debug)]
pub enum Over {
    /// Everything has been said.
    Said,
    /// Another stream has taken over, or the client has gone.
    Left,
}

/// Sends events for as long as there is somebody to send them to.
pub fn send_events(mut socket: &TcpStream, stream: &Stream) -> io::Result<Over> {
    // A client that does not read is a slow agent, which may be (R18).
    socket.set_write_timeout(None)?;
    // In chunks: of a body that has neither those nor a length, Python's `requests` passes nothing on before 512 bytes are there.
    socket.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n\
          Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
    )?;
    let mut text = Vec::new();
    loop {
        match stream.take() {
            Taken::Lines(lines) => {
                text.clear();
                let mut last = 0;
                for (number, line) in lines {
                    encode_event(number, &line, &mut text);
                    last = number;
                }
                socket.write_all(&chunk(&text))?;
                stream.sent(last);
            }
            Taken::Nothing => {
                let ready = os::wait_readable(socket, Some(stream.wake.as_fd()), Some(KEEP_ALIVE))?;
                if ready.data {
                    // A client that streams has nothing more to say: it has gone.
                    return Ok(Over::Left);
                }
                if !ready.woken {
                    socket.write_all(&chunk(b": still here\n\n"))?;
                }
            }
            Taken::End => {
                socket.write_all(&chunk(b""))?;
                socket.shutdown(Shutdown::Write)?;
                return Ok(Over::Said);
            }
            Taken::Replaced => return Ok(Over::Left),
        }
    }
}

/// A part of a body without a known length. An empty one is its end.
fn chunk(text: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// A message as a server-sent event. What some clients take for the end of a line is escaped, which is the same in JSON.
fn encode_event(number: u64, line: &[u8], text: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(text, "id: {number}\ndata: ");
    let mut rest = line;
    while let Some(&byte) = rest.first() {
        let (escape, length): (&[u8], usize) = match rest {
            [0xC2, 0x85, ..] => (br"\u0085", 2),
            [0xE2, 0x80, 0xA8, ..] => (br"\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (br"\u2029", 3),
            _ => (&[byte], 1),
        };
        text.extend_from_slice(escape);
        rest = &rest[length..];
    }
    text.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_for_every_client() {
        let mut text = Vec::new();
        encode_event(7, "{\"a\":\"é\u{85}\u{2028}\u{2029}\u{2030}\"}".as_bytes(), &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "id: 7\ndata: {\"a\":\"é\\u0085\\u2028\\u2029\u{2030}\"}\n\n");
    }
}
