//! Pseudo-terminals: the host's side, which is read, written and resized. `spawn` puts a child on the other.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use pty_process::Size;
use pty_process::blocking::{self, Pts};

use super::poll::{set_nonblocking, wait_readable};

/// The host's side of a pseudo-terminal, nonblocking. Once it and its clones are closed, whoever is on the other side is hung up.
pub struct Pty(blocking::Pty);

/// The side of the child, until it is started.
pub struct Slave(Pts);

impl Pty {
    /// A new terminal of that size.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(rows: u16, cols: u16) -> io::Result<(Self, Slave)> {
        let (pty, slave) = blocking::open().map_err(error_of)?;
        pty.resize(Size::new(rows, cols)).map_err(error_of)?;
        set_nonblocking(&pty)?;
        Ok((Self(pty), Slave(slave)))
    }

    /// Another descriptor of it, to write to.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn writer(&self) -> io::Result<File> {
        self.0.as_fd().try_clone_to_owned().map(File::from)
    }

    /// How many bytes have been typed that the program could read and has not. Of a line that is not at its end, 0: the program
    /// cannot read that, unless it reads keys. 0 too where it cannot be told.
    pub fn unread(&self) -> u64 {
        #[cfg(target_os = "linux")]
        {
            use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let Ok(peer) = ioctl_tiocgptpeer(&self.0, flags) else { return 0 };
            // What has just been written is on its way for a moment, on a thread of the system's, and counted nowhere. To ask
            // whether there is something to read waits for it to arrive.
            let _ = wait_readable(&peer, None, Some(Duration::ZERO));
            rustix::io::ioctl_fionread(peer).unwrap_or(0)
        }
        #[cfg(not(target_os = "linux"))]
        0
    }

    /// Gives the terminal another size; the system tells the program in its foreground (SIGWINCH).
    ///
    /// # Errors
    /// What the system says.
    pub fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        self.0.resize(Size::new(rows, cols)).map_err(error_of)
    }
}

impl AsFd for Pty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &Pty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }
}

impl Slave {
    /// Starts `command` with the terminal as its standard streams, at the head of a session that it controls.
    pub(super) fn start(self, command: Command) -> io::Result<Child> {
        blocking::Command::from(command).spawn(self.0).map_err(error_of)
    }
}

impl From<Pty> for OwnedFd {
    fn from(pty: Pty) -> Self {
        pty.0.into()
    }
}

fn error_of(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(e) => e,
        other => io::Error::other(other),
    }
}
