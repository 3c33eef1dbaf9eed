//! From a started child to a served process: its threads, its entry in the registry, its clock.
//!
//! The session calls it on the request thread. Either all of it comes to be or nothing of it stays.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::bus::{Identity, Publisher};
use super::config::Config;
use super::output::{self, Cap};
use super::process::{Parts, Process};
use super::registry::{Registry, Reservation};
use super::session::{SpawnRequest, Spawned};
use super::stdin::Stdin;
use super::threads::Spare;
use super::timer::TimerHandle;
use super::waiter::Waiter;
use super::wrap::quoted;
use crate::model::{Cause, Failure, ProcId};
use crate::os;

/// Fails when memory is nearly used up (`ulimit -v`, strict overcommit): a small allocation that fails later would end the
/// whole host, so the one who asks for more is refused while there is room for what runs.
///
/// What it asks for is only address space, never touched. It is more than 32 MiB, so that glibc maps it apart and gives it
/// back at once, whatever has been freed before. (What glibc sets aside for new threads may be more, and is kept when they
/// end. The binary tells it not to where address space is limited; see `cli/startup`.)
///
/// Where nothing limits the address space there is always more, and asking would take a sixth of the time of a spawn.
pub(super) fn spare_memory() -> io::Result<()> {
    const SPARE: usize = 40 << 20;
    if !os::address_space_is_limited() {
        return Ok(());
    }
    let mut spare = Vec::<u8>::new();
    let had = spare.try_reserve_exact(SPARE);
    // An allocation that nobody looks at could be left out by the compiler.
    std::hint::black_box(spare.as_ptr());
    had.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// What a process needs of its session and host.
pub(super) struct Launch<'a> {
    pub config: &'a Config,
    pub timer: TimerHandle,
    pub registry: &'a Arc<Registry>,
    pub publisher: &'a Publisher,
    pub time_limit: Option<Duration>,
    pub spare: &'a Spare,
}

impl Launch<'_> {
    /// Serves `child` from now on.
    ///
    /// # Errors
    /// When the system gives no pipe or thread; the child is gone then.
    pub fn start(self, request: &SpawnRequest, child: os::Child, place: Reservation) -> Result<Spawned, Failure> {
        let os::Child { mut leader, pipes } = child;
        let pid = leader.pid().as_raw_nonzero().get().unsigned_abs();
        let id = ProcId::fresh();
        let threads = self.spare.take().map_err(|e| Failure::new("start a thread", e));
        let ended = os::Latch::new().map_err(|e| Failure::new("make a descriptor for events", e));
        let (threads, ended) = match (threads, ended) {
            (Ok(threads), Ok(latch)) => (threads, Arc::new(latch)),
            (Err(failure), _) | (_, Err(failure)) => {
                leader.abandon();
                return Err(failure);
            }
        };
        let (mut gate, gate_wait) = self.publisher.gate(self.timer.clone());
        let output = Arc::new(output::Shared {
            identity: Arc::new(Identity { id: id.clone(), pid, tag: request.tag.clone() }),
            publisher: self.publisher.clone(),
            gate: gate_wait,
            ended: Arc::clone(&ended),
            exited: AtomicBool::new(false),
            cap: Arc::new(Cap::new(self.config.max_output_bytes)),
        });
        let stdin = pipes.stdin.map(|pipe| File::from(OwnedFd::from(pipe)));
        let process = Process::new(Parts {
            identity: Arc::clone(&output.identity),
            stdin: Arc::new(Stdin::new(stdin, ended, id.clone(), pid)),
            cap: Arc::clone(&output.cap),
            leader,
            running: place.running,
            unreaped: place.unreaped,
            cmd: shell_words(&request.cmd),
            time_limit: self.time_limit,
            kill_grace: self.config.kill_grace,
            timer: self.timer,
            registry: Arc::downgrade(self.registry),
        });
        if !self.registry.insert(&process) {
            process.stdin.close();
            process.ask_to_end(Cause::SessionEnd, false);
        }
        process.start_time_limit();
        let read = threads.serve(pipes.stdout, pipes.stderr, &output, |readers| Waiter {
            process,
            output: Arc::clone(&output),
            readers,
            unpublished: place.unpublished,
        });
        gate.once_answered(read);
        Ok(Spawned { id, pid, gate })
    }
}

/// The words of a command as a shell would need them written, cut after about 1 KiB (1,024 bytes and a mark).
pub fn shell_words(cmd: &[String]) -> String {
    const MOST: usize = 1024;
    let mut line = String::new();
    for word in cmd {
        if line.len() > MOST {
            break;
        }
        let word = &word[..word.floor_char_boundary(MOST + 1)];
        if !line.is_empty() {
            line.push(' ');
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&b);
        if !word.is_empty() && word.bytes().all(plain) {
            line.push_str(word);
        } else {
            line.push_str(&quoted(word));
        }
    }
    if line.len() > MOST {
        line.truncate(line.floor_char_boundary(MOST));
        line.push('…');
    }
    line.shrink_to_fit();
    line
}

#[cfg(test)]
mod tests {
    use super::shell_words;

    #[test]
    fn a_command_is_quoted_and_cut() {
        let words = |cmd: &[&str]| shell_words(&cmd.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(words(&["ls", "-l", "/tmp"]), "ls -l /tmp");
        assert_eq!(words(&["sh", "-c", "echo it's", ""]), r#"sh -c 'echo it'"'"'s' ''"#);
        let long = words(&["ls", &"é".repeat(5000)]);
        assert!(long.capacity() < 1100 && long.ends_with('…'));
    }
}
