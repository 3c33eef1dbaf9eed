//! Starting children, with pipes or on a terminal, each at the head of a group or a session of its own. The engine calls it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::leader::{Leader, Scope};
use super::poll::set_nonblocking;
use super::watchdog::Watchdog;
use crate::model::StdinMode;

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
/// How often, and after what pause, a program that is being written to is tried again (`ETXTBSY`).
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Held to open a descriptor that can only afterwards be kept from children, and shared by whoever starts one meanwhile. A child
/// that had the host's side of a terminal would keep it open.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a child at the head of a new process group.
///
/// # Errors
/// Whatever the system said to `pipe`, `fork`, `chdir` or `exec`. A program file that is open for writing is tried again
/// for some 50 ms first.
pub fn spawn(plan: &Plan<'_>) -> io::Result<Child> {
    let mut command = command(plan);
    command.process_group(0);
    command.stdin(match plan.stdin {
        StdinMode::Pipe => Stdio::piped(),
        StdinMode::Null => Stdio::null(),
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = retry_busy(|| start(&mut command))?;
    let mut leader = Leader::new(child, Scope::Group, plan.watchdog)?;
    match take_pipes(leader.child()) {
        Ok(pipes) => Ok(Child { leader, pipes }),
        Err(e) => {
            leader.abandon();
            Err(e)
        }
    }
}

/// Starts a command while no descriptor is open that it must not have.
pub(super) fn start(command: &mut Command) -> io::Result<std::process::Child> {
    let _starting = STARTING.read();
    command.spawn()
}

/// Tries again for a while to start a program that is being written to.
fn retry_busy<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = BUSY_TRIES;
    loop {
        match start() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries > 0 => {
                tries -= 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}

/// Starts a child on a new pseudo-terminal of that size, at the head of a new session whose controlling terminal it is.
/// What the plan says of its standard input does not count.
///
/// # Errors
/// Whatever the system said: it may have no more pseudo-terminals.
#[cfg(feature = "mcp")]
pub fn spawn_on_terminal(plan: &Plan<'_>, rows: u16, cols: u16) -> io::Result<(Leader, super::Pty)> {
    let (pty, child) = retry_busy(|| {
        let command = command(plan);
        let opening = STARTING.write();
        let opened = super::Pty::open(rows, cols);
        drop(opening);
        let (pty, slave) = opened?;
        let _starting = STARTING.read();
        Ok((pty, slave.start(command)?))
    })?;
    let leader = Leader::new(child, Scope::Session, plan.watchdog)?;
    Ok((leader, pty))
}

/// The command of a plan, but for its standard streams.
fn command(plan: &Plan<'_>) -> Command {
    let mut command = Command::new(plan.program);
    command.arg0(plan.arg0).args(plan.args);
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
    command
}

fn take_pipes(child: &mut std::process::Child) -> io::Result<Pipes> {
    let missing = || io::Error::other("a pipe was asked for and not made");
    let pipes = Pipes {
        stdin: child.stdin.take(),
        stdout: child.stdout.take().ok_or_else(missing)?,
        stderr: child.stderr.take().ok_or_else(missing)?,
    };
    if let Some(stdin) = &pipes.stdin {
        set_nonblocking(stdin)?;
    }
    set_nonblocking(&pipes.stdout)?;
    set_nonblocking(&pipes.stderr)?;
    Ok(pipes)
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

/// The user that this program acts for.
#[cfg(feature = "mcp")]
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
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
