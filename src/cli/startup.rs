//! What whoever started this program may have left behind in it, and no child may inherit (R14): ignored and blocked signals,
//! open descriptors. Called once, before there is another thread.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::sys::signal::SigSet;

/// Signals whose ignoring a library may not touch, or that std takes care of itself: ILL, FPE, KILL, SEGV, PIPE, STOP.
const LEFT_ALONE: [i32; 6] = [4, 8, 9, 11, 13, 19];

/// Makes children start as R14 says.
pub fn prepare() {
    // A shell's redirections, a parent's sockets: ours are opened close-on-exec anyway.
    close_fds::set_fds_cloexec(3, &[]);
    // A mask passes through `exec`. Unblocking cannot fail for a set that the system made itself.
    let _ = SigSet::all().thread_unblock();
    // So does ignoring (of SIGINT, say, in a shell's background job), but not catching: the child of a program that catches a
    // signal has it at its default. What a caught signal sets is looked at by nobody.
    for signal in ignored_signals().filter(|signal| !LEFT_ALONE.contains(signal)) {
        let nobody_looks = Arc::new(AtomicBool::new(false));
        // The few that the system keeps for itself refuse.
        let _ = signal_hook::flag::register(signal, nobody_looks);
    }
}

/// The signals that are ignored. An ignored SIGCHLD would also take the exit codes of children away.
#[cfg(target_os = "linux")]
fn ignored_signals() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(move |signal| mask & (1 << (signal - 1)) != 0)
}

/// Where the system does not say which are ignored, the one that must not be.
#[cfg(not(target_os = "linux"))]
fn ignored_signals() -> impl Iterator<Item = i32> {
    std::iter::once(signal_hook::consts::SIGCHLD)
}
