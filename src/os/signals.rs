//! The signals that ask the host itself to end (R8), as messages on a channel.
//!
//! A face that serves a program's own standard streams selects on the channel; embedders who have their own way to end
//! need not call this.

use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Sees to it that SIGCHLD is not ignored, whatever this program was started with: the system would reap children by itself
/// then, and take their exit codes and their pids away. What is caught is looked at by nobody, so it is caught only then:
/// a handler interrupts some thread's wait at each end of a child.
///
/// # Errors
/// When the handler cannot be set.
pub(crate) fn keep_child_exits() -> io::Result<()> {
    if ignored_signals().contains(&SIGCHLD) {
        signal_hook::flag::register(SIGCHLD, Arc::default())?;
    }
    Ok(())
}

/// The signals that this program ignores. Where the system does not say, the one that must not be (`keep_child_exits`).
#[must_use]
pub fn ignored_signals() -> Vec<i32> {
    let is_in = |mask: u64| move |signal: &i32| mask & (1 << (signal - 1)) != 0;
    ignored_mask().map_or_else(|| vec![SIGCHLD], |mask| (1..=64).filter(is_in(mask)).collect())
}

#[cfg(target_os = "linux")]
fn ignored_mask() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(not(target_os = "linux"))]
fn ignored_mask() -> Option<u64> {
    None
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
