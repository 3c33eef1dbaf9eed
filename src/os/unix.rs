//! Spawning in a process group, observing an exit, signalling, reaping, and waiting on pipes.
//!
//! The engine owns each [`Leader`] under a lock of its own; the readers and writers of pipes call the `wait_*` functions.
//!
//! Reuse of process ids is ruled out by one rule: a pid, and the group id equal to it, stay taken while the leader is
//! unreaped, and only the `Leader` reaps. Every signal goes through the `Leader`, which knows whether it has reaped.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::process::{
    Pid, Resource, WaitId, WaitIdOptions, WaitIdStatus, getpgid, getrlimit, kill_process, kill_process_group, waitid,
};

use super::watchdog::Watchdog;
use crate::model::{Exit, Signal, StdinMode};

/// All that one spawn needs, already approved.
pub struct Plan<'a> {
    /// The program's file.
    pub program: &'a Path,
    /// What the child sees as its argument 0.
    pub arg0: &'a str,
    /// The arguments after it.
    pub args: &'a [String],
    /// The working directory; `None` is the host's.
    pub cwd: Option<&'a Path>,
    /// The environment to start from; `None` is the host's.
    pub base_env: Option<&'a [(OsString, OsString)]>,
    /// Variables of the host's that no child may see.
    pub hidden_env: &'a [String],
    /// Variables on top.
    pub env: &'a [(String, String)],
    /// What its standard input is.
    pub stdin: StdinMode,
    /// Who ends it should the host be killed.
    pub watchdog: Option<&'a Arc<Watchdog>>,
}

/// The host's ends of a child's standard streams.
pub struct Pipes {
    /// Absent with [`StdinMode::Null`].
    pub stdin: Option<ChildStdin>,
    /// File descriptor 1 of the child.
    pub stdout: ChildStdout,
    /// File descriptor 2 of the child.
    pub stderr: ChildStderr,
}

/// A started child and its pipes.
pub struct Child {
    /// The process itself.
    pub leader: Leader,
    /// Its streams, all nonblocking on the host's side.
    pub pipes: Pipes,
}

/// A child that leads its own process group, until it is reaped.
pub struct Leader {
    child: std::process::Child,
    pid: Pid,
    reaped: bool,
    watchdog: Option<Arc<Watchdog>>,
}

/// How often, and after what pause, a program that is being written to is tried again (`ETXTBSY`).
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Starts a child at the head of a new process group.
///
/// # Errors
/// Whatever the system said to `pipe`, `fork`, `chdir` or `exec`. A program file that is open for writing is tried again
/// for some 50 ms first.
pub fn spawn(plan: &Plan<'_>) -> io::Result<Child> {
    let mut command = Command::new(plan.program);
    command.arg0(plan.arg0).args(plan.args).process_group(0);
    command.stdin(match plan.stdin {
        StdinMode::Pipe => Stdio::piped(),
        StdinMode::Null => Stdio::null(),
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(base) = plan.base_env {
        command.env_clear().envs(base.iter().map(|(name, value)| (name, value)));
    }
    // A command whose environment is the host's own is started without making a copy of it.
    for name in plan.hidden_env.iter().filter(|name| plan.base_env.is_some() || std::env::var_os(name).is_some()) {
        command.env_remove(name);
    }
    command.envs(plan.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = plan.cwd {
        command.current_dir(cwd);
    }

    // Before the child, which would be unguarded while the shell starts.
    if let Some(watchdog) = plan.watchdog {
        watchdog.make_ready();
    }
    let mut tries = BUSY_TRIES;
    let child = loop {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries > 0 => {
                tries -= 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            other => break other?,
        }
    };
    let pid = Pid::from_child(&child);
    let mut leader = Leader { child, pid, reaped: false, watchdog: plan.watchdog.cloned() };
    let unguarded = |e| io::Error::other(format!("the watchdog, /bin/sh, cannot be started: {e}"));
    let guarded = leader.watchdog.as_ref().map_or(Ok(()), |watchdog| watchdog.guard(pid).map_err(unguarded));
    match guarded.and_then(|()| leader.take_pipes()) {
        Ok(pipes) => Ok(Child { leader, pipes }),
        Err(e) => {
            leader.abandon();
            Err(e)
        }
    }
}

impl Leader {
    /// The process id, which is also the id of its group.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends `signal` to every member of the group. Does nothing once the leader has been reaped.
    pub fn signal_group(&self, signal: Signal) {
        if self.reaped {
            return;
        }
        match signal {
            // A stopped member handles nothing but SIGKILL until it is continued (R22).
            Signal::Term => {
                self.send(rustix::process::Signal::TERM);
                self.send(rustix::process::Signal::CONT);
            }
            Signal::Kill => self.send(rustix::process::Signal::KILL),
            Signal::Int => self.send(rustix::process::Signal::INT),
        }
    }

    /// The unreaped leader's pid keeps the group's id taken, whoever is in the group. EPERM is possible, when all of them have
    /// changed their user; then there is nothing that this host could do to them.
    fn send(&self, signal: rustix::process::Signal) {
        let _ = kill_process_group(self.pid, signal);
        // A leader may have moved to another group (`setpgid`); it is still this host's child.
        if getpgid(Some(self.pid)).is_ok_and(|group| group != self.pid) {
            let _ = kill_process(self.pid, signal);
        }
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

    /// Whether the pid and the group are still this leader's.
    pub fn holds_pid(&self) -> bool {
        !self.reaped
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

    fn take_pipes(&mut self) -> io::Result<Pipes> {
        let missing = || io::Error::other("a pipe was asked for and not made");
        let pipes = Pipes {
            stdin: self.child.stdin.take(),
            stdout: self.child.stdout.take().ok_or_else(missing)?,
            stderr: self.child.stderr.take().ok_or_else(missing)?,
        };
        if let Some(stdin) = &pipes.stdin {
            set_nonblocking(stdin)?;
        }
        set_nonblocking(&pipes.stdout)?;
        set_nonblocking(&pipes.stderr)?;
        Ok(pipes)
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

/// Makes reads or writes on this end of a pipe return instead of wait. The other end is not affected.
///
/// # Errors
/// What the system says, on a descriptor that does not know the mode.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// What [`wait_readable`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// There is something to read, or the end.
    pub data: bool,
    /// `wake` is readable: its latch is open, or its other end closed.
    pub woken: bool,
}

/// Waits until `fd` can be read, or `wake` can, or `timeout` has passed (both false).
///
/// # Errors
/// What the system says to `poll`.
pub fn wait_readable(fd: impl AsFd, wake: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> io::Result<Ready> {
    wait(fd.as_fd(), PollFlags::IN, wake, timeout)
}

/// Waits until `fd` can be written, has lost its reader, or `wake` can be read.
///
/// # Errors
/// What the system says to `poll`.
pub fn wait_writable(fd: impl AsFd, wake: Option<BorrowedFd<'_>>) -> io::Result<Ready> {
    wait(fd.as_fd(), PollFlags::OUT, wake, None)
}

fn wait(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    wake: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        // With nothing to wake it the descriptor itself stands in its place, asking for nothing.
        let (waker, wake_flags) = wake.map_or((fd, PollFlags::empty()), |wake| (wake, PollFlags::IN));
        let mut fds = [PollFd::from_borrowed_fd(fd, flags), PollFd::from_borrowed_fd(waker, wake_flags)];
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut fds, left.as_ref()) {
            Ok(_) => {
                return Ok(Ready {
                    data: !fds[0].revents().is_empty(),
                    woken: wake.is_some() && !fds[1].revents().is_empty(),
                });
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether the other side of an input has gone, though there may be more to read. False where that cannot be told.
pub fn is_hung_up(fd: impl AsFd) -> bool {
    // Of a socket, the other side may have closed one direction only.
    #[cfg(target_os = "linux")]
    let closed = PollFlags::HUP | PollFlags::RDHUP;
    #[cfg(not(target_os = "linux"))]
    let closed = PollFlags::HUP;
    let mut fds = [PollFd::new(&fd, closed)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && fds[0].revents().intersects(closed)
}

/// Whether it is a pipe or a socket.
pub fn is_stream(fd: impl AsFd) -> bool {
    let kind = rustix::fs::fstat(fd).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket))
}

/// Whether a write of a pipe's or a socket's least size would return at once, be it with an error.
pub fn is_writable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && !fds[0].revents().is_empty()
}

/// How many bytes can be read from a pipe now.
///
/// # Errors
/// What the system says, on a descriptor that does not know.
pub fn pending_bytes(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(fd)?)
}

/// Calls this thread `NAME PID` in the system's lists, where that can be done.
pub fn name_thread(name: &str, pid: u32) {
    #[cfg(target_os = "linux")]
    if let Ok(name) = std::ffi::CString::new(format!("{name} {pid}")) {
        let _ = rustix::thread::set_name(&name);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (name, pid);
}

/// Whether address space can run out (`ulimit -v`, strict overcommit), which memory itself does not show.
pub fn address_space_is_limited() -> bool {
    static IS_STRICT: OnceLock<bool> = OnceLock::new();
    let is_strict = || std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"));
    // The second counts private memory too.
    let is_limited = |resource| getrlimit(resource).current.is_some();
    is_limited(Resource::As) || is_limited(Resource::Data) || *IS_STRICT.get_or_init(is_strict)
}

/// Looks a bare name up in `path`, the value of a `PATH` variable, for a file that may be executed.
pub fn find_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter_map(|dir| std::path::absolute(dir.join(name)).ok())
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}

/// Says what is wrong with `dir` as a working directory, if anything is.
pub fn check_directory(dir: &Path) -> Option<&'static str> {
    match std::fs::metadata(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Some("no such directory"),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Some("permission denied"),
        Err(_) => Some("cannot be used"),
        Ok(meta) if !meta.is_dir() => Some("not a directory"),
        Ok(_) if access(dir, Access::EXEC_OK).is_err() => Some("may not be entered"),
        Ok(_) => None,
    }
}
