//! Who is in a session beside its leader. A shell on a terminal gives each of its jobs a group of its own, so what has to end
//! with it is not one group; `leader` asks here. Who has left the session (`setsid`) is not counted among them.

use std::collections::HashSet;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::group;

/// How often the members are looked up again, if some were found that had not been signalled: whoever forks just before it is
/// killed has a child that the reading may have missed.
const PASSES: usize = 8;

/// Sends the signals to every member of the session that is not in its leader's group. Takes a reading of the process table, and
/// with SIGKILL some more while there are members that have not been signalled.
///
/// Race: a member ends, and its id passes to another process, between the reading of the process table and the signal.
/// 1. The table says that a process belongs to the session.
/// 2. A descriptor of that process is opened. Whatever happens to the id, it goes on to mean one process.
/// 3. The table is read again for it: if it still says so, the descriptor is of a member, and is signalled.
///
/// The session's own id cannot pass to another: its leader is not reaped.
pub fn signal_others(session: Pid, signals: &[Signal]) {
    let mut signalled = HashSet::new();
    for _ in 0..PASSES {
        let mut found = false;
        for pid in group::processes().into_iter().flatten() {
            if is_other_member(pid, session) && signalled.insert(pid) {
                found = true;
                send(pid, session, signals);
            }
        }
        if !found || !signals.contains(&Signal::KILL) {
            break;
        }
    }
}

/// Whether anybody of the session lives beside its leader, which has left and is not reaped.
pub fn has_live_members(session: Pid) -> bool {
    group::session_has_live_members(session)
}

fn is_other_member(pid: Pid, session: Pid) -> bool {
    let own = session.as_raw_nonzero().get();
    group::live_member(pid).is_some_and(|member| member.session == own && member.group != own)
}

fn send(pid: Pid, session: Pid, signals: &[Signal]) {
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
        && is_other_member(pid, session)
    {
        // It may have ended, or changed its user; then there is nothing that this host could do to it.
        for &signal in signals {
            let _ = pidfd_send_signal(&process, signal);
        }
    }
}
