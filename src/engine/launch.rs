//! From a started child to a served process: its threads, its entry in the registry, its clock.
//!
//! The session calls it on the request thread. Either all of it comes to be or nothing of it stays.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::bus::{Identity, Publisher};
use super::config::Config;
use super::output::{self, Cap};
use super::process::{Parts, Process, STACK};
use super::registry::{Registry, Reservation};
use super::session::{SpawnRequest, Spawned};
use super::stdin::Stdin;
use super::timer::TimerHandle;
use super::waiter::Waiter;
use super::wrap::quoted;
use crate::model::{Cause, Failure, ProcId, Stream};
use crate::os;

/// Fails when memory is nearly used up (`ulimit -v`, strict overcommit): a small allocation that fails later would end the
/// whole host, so the one who asks for more is refused while there is room for what runs.
///
/// What it asks for is only address space, never touched. It is more than 32 MiB, so that glibc maps it apart and gives it
/// back at once, whatever has been freed before. (What glibc sets aside for new threads may be more, and is kept when they
/// end. The binary tells it not to where address space is limited; see `cli/startup`.)
pub(super) fn spare_memory() -> io::Result<()> {
    const SPARE: usize = 40 << 20;
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
}

/// The threads of a process, started behind its gate, and what they wait for.
struct Threads {
    readers: [JoinHandle<()>; 2],
    readers_done: Receiver<()>,
    waiter: Sender<Waiter>,
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
        let (ended_reader, ended) = match io::pipe() {
            Ok(pipe) => pipe,
            Err(e) => {
                leader.abandon();
                return Err(Failure::new("make a pipe", e));
            }
        };
        let ended_reader = Arc::new(ended_reader);
        let (gate, gate_wait) = self.publisher.gate(self.timer.clone());
        let output = Arc::new(output::Shared {
            identity: Arc::new(Identity { id: id.clone(), pid, tag: request.tag.clone() }),
            publisher: self.publisher.clone(),
            gate: gate_wait,
            ended: Arc::clone(&ended_reader),
            exited: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            cap: Arc::new(Cap::new(self.config.max_output_bytes)),
        });
        let threads = match Threads::start(pid, &output, pipes.stdout, pipes.stderr) {
            Ok(threads) => threads,
            Err(e) => {
                // The gate opens as this returns; whichever reader has started sees that there is nothing to read for.
                output.abandoned.store(true, Ordering::Release);
                leader.abandon();
                return Err(Failure::new("start a thread", e));
            }
        };

        let process = Process::new(Parts {
            identity: Arc::clone(&output.identity),
            stdin: Arc::new(Stdin::new(pipes.stdin, ended_reader, id.clone(), pid)),
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
        let waiter = Waiter {
            process,
            output,
            ended,
            readers: threads.readers,
            readers_done: threads.readers_done,
            unpublished: place.unpublished,
        };
        // The thread waits for just this, so it is there to take it.
        let _ = threads.waiter.send(waiter);
        Ok(Spawned { id, pid, gate })
    }
}

impl Threads {
    /// Starts all three, or returns with those that have started on their way to their end.
    fn start(
        pid: u32,
        output: &Arc<output::Shared>,
        stdout: std::process::ChildStdout,
        stderr: std::process::ChildStderr,
    ) -> io::Result<Self> {
        let thread = |name: &str| thread::Builder::new().name(format!("{name} {pid}")).stack_size(STACK);
        let (done, readers_done) = bounded::<()>(0);
        let (shared, stdout_done) = (Arc::clone(output), done.clone());
        let stdout = thread("out").spawn(move || {
            output::read(stdout, Stream::Stdout, &shared);
            drop(stdout_done);
        })?;
        let shared = Arc::clone(output);
        let stderr = thread("err").spawn(move || {
            output::read(stderr, Stream::Stderr, &shared);
            drop(done);
        })?;
        // The waiter is not joined: the last thing it does is to publish the terminal event and count itself out.
        let (waiter, handed_over) = bounded::<Waiter>(1);
        thread("wait").spawn(move || {
            if let Ok(waiter) = handed_over.recv() {
                waiter.run();
            }
        })?;
        Ok(Self { readers: [stdout, stderr], readers_done, waiter })
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
