//! Where lines come from and go to. Floor 2, beside the engine; it knows nothing of what the lines say.
//!
//! A [`Connection`] is an input and an output. Its constructors are the transports: a program's own standard streams, a
//! socket, any `Read` and `Write`, or a pair of connections within one program. A [`Listener`] makes one for each agent that
//! arrives at an [`Address`].

mod address;
#[cfg(feature = "http")]
mod http;
mod line;
mod listener;
mod socket;
mod stdio;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

pub use address::Address;
pub use line::{Line, LineReader};
pub use listener::{Arrival, ListenOptions, Listener, Refused};
pub use stdio::{Input, Output};

use crate::os;

/// Both directions of one agent's connection.
pub struct Connection {
    /// What the agent sends.
    pub input: Box<dyn Read + Send>,
    /// What the agent is sent.
    pub output: Box<dyn Write + Send>,
    /// Tells whether a little can be written to the output without waiting, where that can be told.
    pub room: Option<Room>,
    /// Tells of the input's end before all of it has been read, where that can be told.
    pub hangup: Option<Hangup>,
    /// How it is closed, where that takes more than dropping both directions.
    pub closing: Option<Box<dyn Close>>,
    /// The process that has connected, on this machine, where the system tells.
    pub peer: Option<u32>,
}

/// Closes a connection whose input another thread may be reading.
pub trait Close: Send {
    /// There is only time for the last words: whoever writes is not to wait, where the transport can keep what is written.
    fn hurry(&self) {}

    /// Nothing more will be written: the agent sees the end once it has read what was.
    fn finish(&self);

    /// Lets go of whoever reads or writes. What the agent has not read may be lost.
    fn abort(&self);
}

/// Tells whether the other side of an input has gone.
pub struct Hangup(Box<dyn Fn() -> bool + Send>);

impl Hangup {
    /// Asks the system of a pipe or a socket.
    pub fn of(input: OwnedFd) -> Self {
        Self::new(move || os::is_hung_up(&input))
    }

    /// Asks `is_seen`, which must not wait.
    pub fn new(is_seen: impl Fn() -> bool + Send + 'static) -> Self {
        Self(Box::new(is_seen))
    }

    /// Whether it has.
    pub fn is_seen(&self) -> bool {
        (self.0)()
    }
}

/// Bytes that a pipe or a socket takes at once if it says that it can be written to, on Linux: a pipe says so if it has a page
/// free, a socket if it has more than that. (TCP may wait all the same where the whole system has no memory for it.)
pub const AT_ONCE: usize = 4096;

/// Tells whether [`AT_ONCE`] bytes can be written to an output without waiting.
pub struct Room(OwnedFd);

impl Room {
    /// Asks the system, if `output` is a pipe or a socket: of others it may promise what they do not hold. `None` too if it has no
    /// descriptor to spare.
    pub fn of(output: impl AsFd) -> Option<Self> {
        // Elsewhere a pipe may promise as little as 512 bytes.
        let can_tell = cfg!(target_os = "linux") && os::is_stream(&output);
        let fd = can_tell.then(|| output.as_fd().try_clone_to_owned())?;
        fd.ok().map(Self)
    }

    /// Whether they can. True also if the other side has gone: writing says so at once.
    pub fn is_there(&self) -> bool {
        os::is_writable(&self.0)
    }
}

impl Connection {
    /// Any two streams.
    pub fn new(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        Self { input: Box::new(input), output: Box::new(output), room: None, hangup: None, closing: None, peer: None }
    }

    /// This program's standard input and output, unbuffered. Nothing else may write to standard output.
    ///
    /// # Errors
    /// When the system gives no descriptors.
    pub fn stdio() -> io::Result<Self> {
        let hangup = Hangup::of(io::stdin().as_fd().try_clone_to_owned()?);
        let room = Room::of(io::stdout());
        Ok(Self { hangup: Some(hangup), room, ..Self::new(Input::stdin()?, Output::stdout()?) })
    }

    /// Two connected ends within this program, for a host and its client: what one writes the other reads.
    ///
    /// # Errors
    /// When the system gives no pipes.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (from_client, to_host) = io::pipe()?;
        let (from_host, to_client) = io::pipe()?;
        // The client's side has none: it holds the output open, and a client may take its side apart to close just that.
        let room = Room::of(&to_client);
        Ok((Self { room, ..Self::new(from_client, to_client) }, Self::new(from_host, to_host)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_pair_s_other_end_is_all_that_holds_it_open() {
        let (mut host, client) = Connection::pair().unwrap();
        // As an embedder takes its side apart: what it does not name stays where it is.
        let Connection { input: _input, output: to_host, .. } = client;
        drop(to_host);
        let (says, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || says.send(host.input.read(&mut [0]).unwrap()));
        assert_eq!(said.recv_timeout(std::time::Duration::from_secs(30)), Ok(0), "the input has not ended");
    }
}
