//! What ends the children when the host itself is ended without a chance to do so: a small process that holds the other end
//! of a pipe from the host, and kills every group that it has been told of when that pipe closes (R8).
//!
//! Why a process, and why a shell: `PR_SET_PDEATHSIG` would have to be set between `fork` and `exec`, which takes `unsafe`,
//! and reaches no grandchildren; only another process outlives `kill -9`; and a library cannot count on a program of its own
//! being installed, but `/bin/sh` is there. It costs a spawn two short writes into the pipe.
//!
//! Race: a group's id against its reuse.
//! 1. A leader has been spawned: the watchdog is told of its group. (If the host is killed just before, that one child
//!    survives: there is no way to know of a process before it exists.)
//! 2. The leader is about to be reaped, under its process's lock: the watchdog is told to forget the group, first.
//! 3. Only then is the leader reaped, and the id free. So whatever the watchdog still knows of when the pipe closes has not
//!    been reaped by the host. If it cannot be told to forget, it is ended instead.

use std::collections::BTreeSet;
use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Pid;

use super::unix::set_nonblocking;

/// The arguments are groups; `+7` adds one, `-7` takes it out; at the end of the input the groups that are left are killed. They
/// stand in 256 lists by the rest of the division, so that a thousand cost hardly more than ten.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
add() { n=$(($1 & 255)); eval "list=\$l$n"; eval "l$n=\"$list $1 \""; }
for group; do add "$group"; done
while read -r word; do
    group=${word#?}
    case $word in
    +*) add "$group" ;;
    -*) n=$((group & 255)); eval "list=\$l$n"
        case $list in *" $group "*) eval "l$n=\"${list%% $group *}${list#* $group }\"" ;; esac ;;
    esac
done
n=0
while [ "$n" -lt 256 ]; do
    eval "list=\$l$n"
    for group in $list; do kill -s KILL -- "-$group" 2>/dev/null; done
    n=$((n + 1))
done
"#;

/// What the process is called in a list of processes.
const NAME: &str = "a2e-proc-watchdog";

/// A watchdog, started for the first process, and again if it is found dead.
pub struct Watchdog(Mutex<State>);

struct State {
    running: Option<Running>,
    /// The groups that a new one has to be told of.
    groups: BTreeSet<i32>,
}

struct Running {
    child: Child,
    pipe: PipeWriter,
}

impl Watchdog {
    /// One that has nobody to watch over yet.
    pub fn new() -> Self {
        Self(Mutex::new(State { running: None, groups: BTreeSet::new() }))
    }

    /// Has one run before there is anybody to watch over. If that fails, [`Watchdog::guard`] tries again, and says so.
    pub fn make_ready(&self) {
        let mut state = self.0.lock();
        if state.running.is_none() {
            let _ = state.start_again();
        }
    }

    /// Has the group killed should the host be ended from now on.
    ///
    /// # Errors
    /// When the watchdog is dead and another cannot be started, or it is stuck.
    pub fn guard(&self, group: Pid) -> io::Result<()> {
        let mut state = self.0.lock();
        state.groups.insert(group.as_raw_nonzero().get());
        if let Some(running) = &mut state.running
            && running.tell('+', group.as_raw_nonzero().get()).is_ok()
        {
            return Ok(());
        }
        // There is none yet, or it is dead, or does not read. Whoever reaps meanwhile waits for the shell to start: the group must
        // not be forgotten by the old one only.
        state.end();
        let restarted = state.start_again();
        if restarted.is_err() {
            state.groups.remove(&group.as_raw_nonzero().get());
        }
        restarted
    }

    /// Replaces one that was found dead, if there is anybody to watch over. If that fails, the next spawn tries again.
    pub fn keep(&self) {
        let mut state = self.0.lock();
        if state.running.is_none() && !state.groups.is_empty() {
            let _ = state.start_again();
        }
    }

    /// Forgets the group, whose leader is about to be reaped.
    pub fn forget(&self, group: Pid) {
        let mut state = self.0.lock();
        let group = group.as_raw_nonzero().get();
        if !state.groups.remove(&group) {
            return;
        }
        let told = state.running.as_mut().map(|running| running.tell('-', group));
        if let Some(Err(_)) = told {
            state.end();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let Some(Running { mut child, pipe }) = self.0.get_mut().running.take() else { return };
        drop(pipe);
        // It sees the end of its input and ends too. A stuck one is left to whoever adopts it. (Not `wait_timeout`: it needs
        // descriptors, and panics without.)
        let start = Instant::now();
        while child.try_wait().is_ok_and(|left| left.is_none()) && start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl State {
    /// Ends the process without letting it kill anybody.
    fn end(&mut self) {
        if let Some(Running { mut child, pipe }) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
            drop(pipe);
        }
    }

    fn start_again(&mut self) -> io::Result<()> {
        self.running = Some(Running::start(&self.groups)?);
        Ok(())
    }
}

impl Running {
    fn start(groups: &BTreeSet<i32>) -> io::Result<Self> {
        let (input, pipe) = io::pipe()?;
        set_nonblocking(&pipe)?;
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(SCRIPT)
            .arg(NAME)
            .args(groups.iter().map(ToString::to_string))
            .env_clear()
            .current_dir("/");
        // A group of its own, so that neither Ctrl-C nor a kill of the host's group reaches it.
        command.process_group(0).stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        // Nothing may fail from here on: a shell whose pipe is closed kills the groups that it was told of.
        Ok(Self { child: command.spawn()?, pipe })
    }

    fn tell(&mut self, what: char, group: i32) -> io::Result<()> {
        // Short enough to be written whole or not at all.
        self.pipe.write_all(format!("{what}{group}\n").as_bytes())
    }
}
