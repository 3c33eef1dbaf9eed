//! This program's standard streams as plain descriptors: no buffer of std's in between, and none of its locks.
//!
//! Whoever started the program may have left a descriptor in nonblocking mode (a parent that shares the other side of a
//! socket or a terminal does); a read or write then waits here instead of failing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use crate::os;

/// Standard input.
pub struct Input(File);

/// Standard output or standard error.
pub struct Output(File);

impl Input {
    /// This program's standard input.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn stdin() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }
}

impl Output {
    /// This program's standard output.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn stdout() -> io::Result<Self> {
        Ok(Self(io::stdout().as_fd().try_clone_to_owned()?.into()))
    }

    /// This program's standard error.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn stderr() -> io::Result<Self> {
        Ok(Self(io::stderr().as_fd().try_clone_to_owned()?.into()))
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    os::wait_readable(&self.0, None, None)?;
                }
                other => return other,
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    os::wait_writable(&self.0, None)?;
                }
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
