//! What ends the children when the host itself is ended without a chance to do so: a small process that holds the other end
//! of a pipe from the host, and kills every group that stands in a file that both have open when that pipe closes (R8).
//!
//! Why a process, and why a shell: `PR_SET_PDEATHSIG` would have to be set between `fork` and `exec`, which takes `unsafe`,
//! and reaches no grandchildren; only another process outlives `kill -9`; and a library cannot count on a program of its own
//! being installed, but `/bin/sh` is there. Why a file, in memory: to be told through the pipe would wake it twice for each
//! process, and on a machine of few cores that is half of what a process costs its host. So it sleeps until the end.
//!
//! Race: a group's id against its reuse.
//! 1. A leader has been spawned: its group is written down. (If the host is killed just before, that one child survives: there
//!    is no way to know of a process before it exists.)
//! 2. The leader is about to be reaped, under its process's lock: the group is struck out, first.
//! 3. Only then is the leader reaped, and the id free. So whatever still stands there when the pipe closes has not been reaped
//!    by the host. If it cannot be struck out, the watchdog is ended instead.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Pid;

use super::leader::Scope;

/// The file is its standard output. Nothing ever comes through the pipe but its end.
///
/// The groups come first: they are most, and it takes no time. Then, if there are sessions, all that is in one of them and in a
/// group of its own, by a reading of the process table for all of them, until one finds nobody.
const SCRIPT: &str = r##"
trap '' HUP INT QUIT TERM
read -r nothing
sessions=
while read -r scope id; do
    case $scope in
    g) kill -s KILL -- "-$id" 2>/dev/null ;;
    s) kill -s KILL -- "-$id" 2>/dev/null; sessions="${sessions:- }$id " ;;
    esac
done <&1
again=........
while [ "$sessions" ] && [ "$again" ]; do
    again=${again#.}
    found=
    for file in /proc/[0-9]*/stat; do
        stat=
        { while read -r part; do stat="$stat $part"; done; } 2>/dev/null <"$file"
        set -- ${stat##*) }
        [ "$4" ] || continue
        case $1 in [ZXx]) continue ;; esac
        case $sessions in
        *" $4 "*)
            pid=${file#/proc/}
            kill -s KILL "${pid%/stat}" 2>/dev/null && found=yes
            ;;
        esac
    done
    [ "$found" ] || again=
done
"##;

/// What the process is called in a list of processes.
const NAME: &str = "a2e-proc-watchdog";

/// The bytes of one line of the file: whether it is a group or a session, and its id; or that there is none. A page holds a whole number of them, so one is never half written.
const SLOT: usize = 16;

/// A watchdog, started for the first process, and again if it is found dead.
pub struct Watchdog(Mutex<State>);

#[derive(Default)]
struct State {
    running: Option<Running>,
    slots: Slots,
}

struct Running {
    child: Child,
    /// Never written to: that it closes is the message.
    pipe: PipeWriter,
}

/// The groups to be killed, and where each stands in the file. It is as long as there have ever been groups at once.
#[derive(Default)]
struct Slots {
    file: Option<File>,
    taken: BTreeMap<i32, usize>,
    free: Vec<usize>,
}

impl Watchdog {
    /// One that has nobody to watch over yet.
    pub fn new() -> Self {
        Self(Mutex::default())
    }

    /// Has one run before there is anybody to watch over. If that fails, [`Watchdog::guard`] tries again, and says so.
    pub fn make_ready(&self) {
        let _ = self.0.lock().see_that_it_runs();
    }

    /// Has the group or the session killed should the host be ended from now on.
    ///
    /// # Errors
    /// When the group cannot be written down, or the watchdog is dead and another cannot be started.
    pub fn guard(&self, leader: Pid, scope: Scope) -> io::Result<()> {
        let mut state = self.0.lock();
        let group = leader.as_raw_nonzero().get();
        state.slots.insert(group, scope)?;
        let runs = state.see_that_it_runs();
        if runs.is_err() {
            // None runs that could read it, so it does not matter if it still stands there.
            let _ = state.slots.remove(group);
        }
        runs
    }

    /// Replaces one that has died, if there is anybody to watch over. If that fails, the next spawn tries again.
    pub fn keep(&self) {
        let mut state = self.0.lock();
        if !state.slots.taken.is_empty() {
            let _ = state.see_that_it_runs();
        }
    }

    /// Forgets the group, whose leader is about to be reaped.
    pub fn forget(&self, group: Pid) {
        let mut state = self.0.lock();
        if state.slots.remove(group.as_raw_nonzero().get()).is_err() {
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
    /// Starts one if there is none, or it has died. Whoever reaps meanwhile waits for that.
    fn see_that_it_runs(&mut self) -> io::Result<()> {
        let runs = self.running.as_mut().is_some_and(|running| matches!(running.child.try_wait(), Ok(None)));
        if !runs {
            self.end();
            self.running = Some(Running::start(self.slots.file()?)?);
        }
        Ok(())
    }

    /// Ends the process without letting it kill anybody.
    fn end(&mut self) {
        if let Some(Running { mut child, pipe }) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
            drop(pipe);
        }
    }
}

impl Running {
    fn start(file: &File) -> io::Result<Self> {
        let (input, pipe) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg(NAME).env_clear().current_dir("/");
        // A group of its own, so that neither Ctrl-C nor a kill of the host's group reaches it.
        command.process_group(0).stdin(input).stdout(file.try_clone()?).stderr(Stdio::null());
        // Nothing may fail from here on: a shell whose pipe is closed kills the groups that are written down.
        Ok(Self { child: super::spawn::start(&mut command)?, pipe })
    }
}

impl Slots {
    fn file(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(new_file()?);
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn insert(&mut self, group: i32, scope: Scope) -> io::Result<()> {
        let slot = self.free.last().copied().unwrap_or(self.taken.len());
        match scope {
            Scope::Group => self.write(slot, &format!("g {group}")),
            #[cfg(feature = "mcp")]
            Scope::Session => self.write(slot, &format!("s {group}")),
        }?;
        self.free.pop();
        self.taken.insert(group, slot);
        Ok(())
    }

    /// Fails if the group could not be struck out. It is then not tried again.
    fn remove(&mut self, group: i32) -> io::Result<()> {
        let Some(slot) = self.taken.remove(&group) else { return Ok(()) };
        self.free.push(slot);
        self.write(slot, "-")
    }

    fn write(&mut self, slot: usize, entry: &str) -> io::Result<()> {
        let line = format!("{entry:<0$}\n", SLOT - 1);
        // Never in part: it lies within one page.
        self.file()?.write_all_at(line.as_bytes(), (slot * SLOT) as u64)
    }
}

/// A file in memory, or, where there is no such thing, one that has no name any more.
fn new_file() -> io::Result<File> {
    #[cfg(target_os = "linux")]
    if let Ok(file) = rustix::fs::memfd_create(NAME, rustix::fs::MemfdFlags::CLOEXEC) {
        return Ok(file.into());
    }
    unnamed_file()
}

fn unnamed_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let path = std::env::temp_dir().join(format!("{NAME}-{}-{}", std::process::id(), since.as_nanos()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(slots: &mut Slots) -> Vec<String> {
        let file = slots.file().unwrap();
        let mut text = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut text, 0).unwrap();
        String::from_utf8(text).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn the_file_grows_with_those_who_live_at_once_alone() {
        let mut with_a_name = Slots { file: Some(unnamed_file().unwrap()), ..Slots::default() };
        for slots in [&mut Slots::default(), &mut with_a_name] {
            for group in [7, i32::MAX, 9] {
                slots.insert(group, Scope::Group).unwrap();
            }
            slots.remove(i32::MAX).unwrap();
            slots.remove(5).unwrap();
            assert_eq!(lines(slots), ["g 7", "-", "g 9"]);
            for group in 10..100 {
                slots.insert(group, Scope::Group).unwrap();
                slots.remove(group).unwrap();
            }
            slots.insert(11, Scope::Group).unwrap();
            slots.insert(12, Scope::Group).unwrap();
            assert_eq!(lines(slots), ["g 7", "g 11", "g 9", "g 12"]);
            #[cfg(feature = "mcp")]
            {
                slots.insert(i32::MAX, Scope::Session).unwrap();
                assert_eq!(lines(slots)[4], "s 2147483647");
            }
        }
    }
}
