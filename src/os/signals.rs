//! The signals that ask the host itself to end (R8), as messages on a channel.
//!
//! A face that serves a program's own standard streams selects on the channel; embedders who have their own way to end
//! need not call this.

use std::io;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal that asks this program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGHUP: the terminal or the session's parent has gone.
    Hangup,
    /// SIGINT: a person pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: a supervisor asks.
    Terminate,
}

/// Catches SIGTERM, SIGINT and SIGHUP from now on, for the rest of the program's life.
///
/// The thread `signals` waits for them; it ends with the program, or at the first signal after the receiver is dropped.
///
/// # Errors
/// When the handlers cannot be set or the thread cannot be started.
pub fn end_signals() -> io::Result<Receiver<EndSignal>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (sender, receiver) = bounded(16);
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let signal = match signal {
                SIGHUP => EndSignal::Hangup,
                SIGINT => EndSignal::Interrupt,
                _ => EndSignal::Terminate,
            };
            if sender.send(signal).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}
