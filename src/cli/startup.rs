//! What whoever started this program may have left behind in it, and no child may inherit (R14): ignored and blocked signals,
//! open descriptors. Called once, before there is another thread.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use a2e_proc::signals::ignored_signals;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::signal::SigSet;

/// Where glibc is told how to use memory: one heap for all threads, not 64 MiB of address space for each, and the stacks of
/// threads that have ended are given back at once.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.pthread.stack_cache_size=0");

/// Says to this program, started again, that it has set `TUNABLES` itself.
const SET_TUNABLES: &str = "A2E_PROC_SET_TUNABLES";

/// Signals whose ignoring a library may not touch, or that std takes care of itself: ILL, FPE, KILL, SEGV, PIPE, STOP.
const LEFT_ALONE: [i32; 6] = [4, 8, 9, 11, 13, 19];

/// Makes children start as R14 says. Returns the signals that this program was told to ignore: it still does, since what is
/// caught in their place is looked at by nobody.
pub fn prepare() -> Vec<i32> {
    save_address_space();
    // A shell's redirections, a parent's sockets: ours are opened close-on-exec anyway.
    close_fds::set_fds_cloexec(3, &[]);
    // A mask passes through `exec`. Unblocking cannot fail for a set that the system made itself.
    let _ = SigSet::all().thread_unblock();
    // So does ignoring (of SIGINT, say, in a shell's background job), but not catching: the child of a program that catches a
    // signal has it at its default. What a caught signal sets is looked at by nobody.
    let ignored = ignored_signals();
    for &signal in ignored.iter().filter(|signal| !LEFT_ALONE.contains(signal)) {
        let nobody_looks = Arc::new(AtomicBool::new(false));
        // The few that the system keeps for itself refuse.
        let _ = signal_hook::flag::register(signal, nobody_looks);
    }
    ignored
}

/// Where address space is limited (`ulimit -v`), starts this program again so that it uses little of it: otherwise a handful
/// of processes would use the limit up, for good. Only glibc knows the variable; elsewhere it does nothing.
fn save_address_space() {
    let is_limited = getrlimit(Resource::RLIMIT_AS).is_ok_and(|(limit, _)| limit != RLIM_INFINITY);
    if !is_limited || std::env::var_os(TUNABLES.0).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut again = Command::new(program);
    again.arg0(arguments.next().unwrap_or_default()).args(arguments).env(TUNABLES.0, TUNABLES.1).env(SET_TUNABLES, "1");
    // Returns only if it could not: then this one goes on as it is.
    let _ = again.exec();
}

/// What of the environment is this program's own doing, and no child's business.
pub fn own_variables() -> Vec<String> {
    let is_ours = std::env::var_os(SET_TUNABLES).is_some();
    let names: &[&str] = if is_ours { &[TUNABLES.0, SET_TUNABLES] } else { &[] };
    names.iter().map(ToString::to_string).collect()
}
