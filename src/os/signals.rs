//! The signals that ask the host itself to end (R8), as messages on a channel.
//!
//! A face that serves a program's own standard streams selects on the channel; embedders who have their own way to end
//! need not call this.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Sees to it that SIGCHLD is not ignored, whatever this program was started with: the system would reap children by itself
/// then, and take their exit codes and their pids away. What is caught is looked at by nobody.
///
/// # Errors
/// When the handler cannot be set.
pub(crate) fn keep_child_exits() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let catch = || signal_hook::flag::register(SIGCHLD, Arc::default()).map(drop);
    let done = DONE.get_or_init(|| catch().map_err(|e| e.raw_os_error().unwrap_or_default()));
    done.map_err(io::Error::from_raw_os_error)
}

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

/// Catches SIGTERM from now on, for the rest of the program's life, and those of SIGINT and SIGHUP that `ignored` does not
/// hold: the signals that this program was started to ignore, as `nohup` and a shell's background jobs have it.
///
/// The thread `signals` waits for them; it ends with the program, or at the first signal after the receiver is dropped.
///
/// # Errors
/// When the handlers cannot be set or the thread cannot be started.
pub fn end_signals(ignored: &[i32]) -> io::Result<Receiver<EndSignal>> {
    let caught = [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| *signal == SIGTERM || !ignored.contains(signal));
    let mut signals = Signals::new(caught)?;
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
