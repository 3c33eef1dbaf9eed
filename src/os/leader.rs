//! A child that leads a process group or a session: observing its exit, signalling, reaping.
//!
//! The engine owns each [`Leader`] under a lock of its own.
//!
//! Reuse of process ids is ruled out by one rule: a pid, and the group id and the session id equal to it, stay taken while the
//! leader is unreaped, and only the `Leader` reaps. Every signal goes through the `Leader`, which knows whether it has reaped.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, getpgid, kill_process, kill_process_group, waitid};

use super::group;
use super::poll::wait_readable;
#[cfg(feature = "mcp")]
use super::session;
use super::watchdog::Watchdog;
use crate::model::{Exit, Signal};

/// Who is signalled along with a leader, and has to end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Its process group.
    Group,
    /// Every process of its session, whatever its group: a shell on a terminal gives each of its jobs a group of its own.
    #[cfg(feature = "mcp")]
    Session,
}

/// A child that leads its own process group, and perhaps session, until it is reaped.
pub struct Leader {
    child: std::process::Child,
    pid: Pid,
    scope: Scope,
    reaped: bool,
    watchdog: Option<Arc<Watchdog>>,
}

impl Leader {
    /// Takes charge of a child that has been spawned as such a leader.
    ///
    /// # Errors
    /// When it cannot be guarded; it has been ended then.
    pub(super) fn new(child: std::process::Child, scope: Scope, watchdog: Option<&Arc<Watchdog>>) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        let mut leader = Self { child, pid, scope, reaped: false, watchdog: watchdog.cloned() };
        let guarded = watchdog.map_or(Ok(()), |watchdog| watchdog.guard(pid, scope));
        if let Err(e) = guarded {
            leader.abandon();
            return Err(io::Error::other(format!("the watchdog, /bin/sh, cannot be started: {e}")));
        }
        Ok(leader)
    }

    /// The child's pipes, which are taken from it once.
    pub(super) fn child(&mut self) -> &mut std::process::Child {
        &mut self.child
    }

    /// The process id, which is also the id of its group.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends `signal` to every member of the group or session. Does nothing once the leader has been reaped.
    pub fn signal_group(&self, signal: Signal) {
        if self.reaped {
            return;
        }
        use rustix::process::Signal as Number;
        match signal {
            // A stopped member handles nothing but SIGKILL until it is continued (R22).
            Signal::Term if self.scope == Scope::Group => self.send(&[Number::TERM, Number::CONT]),
            // What a terminal that goes away sends: an interactive shell ignores SIGTERM.
            Signal::Term => self.send(&[Number::TERM, Number::HUP, Number::CONT]),
            Signal::Kill => self.send(&[Number::KILL]),
            Signal::Int => self.send(&[Number::INT]),
        }
    }

    /// The unreaped leader's pid keeps the group's id taken, whoever is in the group. EPERM is possible, when all of them have
    /// changed their user; then there is nothing that this host could do to them.
    fn send(&self, signals: &[rustix::process::Signal]) {
        for &signal in signals {
            let _ = kill_process_group(self.pid, signal);
            // A leader may have moved to another group (`setpgid`); it is still this host's child.
            if getpgid(Some(self.pid)).is_ok_and(|group| group != self.pid) {
                let _ = kill_process(self.pid, signal);
            }
        }
        #[cfg(feature = "mcp")]
        if self.scope == Scope::Session {
            session::signal_others(self.pid, signals);
        }
    }

    /// Whether anybody that has to end with the leader lives beside it, once it has left.
    pub fn others(&self) -> Others {
        Others { pid: self.pid, scope: self.scope, holds_pid: !self.reaped }
    }

    /// How the leader left, if it has, without reaping it. If something else in this program has, its pid is not ours any more
    /// and its exit code is lost: then this is the last that is heard of it.
    pub fn exited_noreap(&mut self) -> Option<Exit> {
        if self.reaped {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(status) => status.and_then(|status| exit_of(&status)),
            Err(rustix::io::Errno::CHILD) => {
                self.give_up_pid();
                Some(LOST)
            }
            Err(_) => None,
        }
    }

    /// Who watches over the group.
    pub fn watchdog(&self) -> Option<Arc<Watchdog>> {
        self.watchdog.clone()
    }

    /// From here on no signal is sent, by whomever.
    fn give_up_pid(&mut self) {
        self.reaped = true;
        if let Some(watchdog) = &self.watchdog {
            watchdog.forget(self.pid);
        }
    }

    /// Frees the pid of a leader that [`wait_exit_noreap`] has seen leave. From here on no signal is sent.
    pub fn reap(&mut self) {
        self.give_up_pid();
        // The exit has been observed, so this returns at once; an error could only mean that somebody else has reaped.
        let _ = self.child.wait();
    }

    /// Ends and reaps a child that cannot be served, waiting for at most a second: a process that is stuck in the
    /// kernel must not hold up the caller, and is left to be reaped when the host ends.
    pub fn abandon(&mut self) {
        self.signal_group(Signal::Kill);
        self.give_up_pid();
        // Not `wait_timeout`: it needs descriptors, and panics without.
        let start = Instant::now();
        while self.child.try_wait().is_ok_and(|left| left.is_none()) && start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Those who have to end with a leader that has left, to be asked without its lock. Only whoever reaps may ask.
pub struct Others {
    pid: Pid,
    scope: Scope,
    holds_pid: bool,
}

impl Others {
    /// Whether any of them lives. False once the leader has been reaped.
    pub fn live(&self) -> bool {
        self.holds_pid
            && match self.scope {
                Scope::Group => group::has_live_members(self.pid),
                #[cfg(feature = "mcp")]
                Scope::Session => session::has_live_members(self.pid),
            }
    }
}

/// What is reported if something else in the program has taken the exit status.
const LOST: Exit = Exit::Code(255);

/// Blocks until the leader with this pid has left, and leaves it unreaped.
///
/// By its own descriptor, where there is one: of those who wait in `waitid` the system looks at every one at each child's end,
/// which takes longer the more processes run.
///
/// # Errors
/// `ECHILD` if something else in this program has reaped it.
pub fn wait_exit_noreap(pid: Pid) -> io::Result<Exit> {
    #[cfg(target_os = "linux")]
    if let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        let _ = wait_readable(process, None, None);
    }
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) => {
                if let Some(exit) = exit_of(&status) {
                    return Ok(exit);
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn exit_of(status: &WaitIdStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}
