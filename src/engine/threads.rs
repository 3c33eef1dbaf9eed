//! The three threads of a process, which wait for one to serve. `launch` hands it over.
//!
//! Starting threads takes a third of the time of a spawn, so whoever has answered one may have those of the next made ready
//! (`Spare`). Threads that are not used end when they are dropped.
//!
//! For the same reason the readers are woken only when the spawn has been answered, and stay until the last event is published:
//! three threads that wake or go while an answer is on its way take the processor from it.

use std::convert::Infallible;
use std::io;
use std::process::{ChildStderr, ChildStdout};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::output::{self, Shared};
use super::process::STACK;
use super::waiter::Waiter;
use crate::model::Stream;
use crate::os;

/// Three threads and what they wait for.
pub(super) struct Threads {
    stdout: Reader<ChildStdout>,
    stderr: Reader<ChildStderr>,
    waiter: Sender<Waiter>,
    done: Receiver<()>,
    stay: Sender<Infallible>,
}

struct Reader<P> {
    job: Sender<(P, Arc<Shared>)>,
    thread: JoinHandle<()>,
}

/// What the waiter needs of the others.
pub(super) struct Readers {
    pub threads: [JoinHandle<()>; 2],
    /// Disconnected when both are done.
    pub done: Receiver<()>,
    /// They go when this is dropped.
    pub stay: Sender<Infallible>,
}

impl Threads {
    /// Starts all three.
    ///
    /// # Errors
    /// When the system gives no thread; those that have started end.
    pub fn start() -> io::Result<Self> {
        let (done, both_done) = bounded::<()>(0);
        let (stay, may_go) = bounded(0);
        let stdout = start_reader(Stream::Stdout, done.clone(), may_go.clone())?;
        let stderr = start_reader(Stream::Stderr, done, may_go)?;
        // The waiter is not joined: the last thing it does is to count itself out.
        let (waiter, handed_over) = bounded::<Waiter>(1);
        named("wait").spawn(move || {
            if let Ok(waiter) = handed_over.recv() {
                os::name_thread("wait", waiter.process.identity.pid);
                waiter.run();
            }
        })?;
        Ok(Self { stdout, stderr, waiter, done: both_done, stay })
    }

    /// Has the waiter wait, and returns what has the readers read, as soon as the gate of `shared` is open.
    pub fn serve(
        self,
        stdout: ChildStdout,
        stderr: ChildStderr,
        shared: &Arc<Shared>,
        waiter: impl FnOnce(Readers) -> Waiter,
    ) -> Box<dyn FnOnce() + Send> {
        let readers = [self.stdout.thread, self.stderr.thread];
        let readers = Readers { threads: readers, done: self.done, stay: self.stay };
        // Each thread waits for just this, so it is there to take it.
        let _ = self.waiter.send(waiter(readers));
        let (out, err) = (self.stdout.job, self.stderr.job);
        let shared = Arc::clone(shared);
        Box::new(move || {
            let _ = out.send((stdout, Arc::clone(&shared)));
            let _ = err.send((stderr, shared));
        })
    }
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into()).stack_size(STACK)
}

fn start_reader<P: io::Read + std::os::fd::AsFd + Send + 'static>(
    stream: Stream,
    done: Sender<()>,
    may_go: Receiver<Infallible>,
) -> io::Result<Reader<P>> {
    let name = match stream {
        Stream::Stdout => "out",
        Stream::Stderr => "err",
    };
    let (job, jobs) = bounded::<(P, Arc<Shared>)>(1);
    let thread = named(name).spawn(move || {
        if let Ok((pipe, shared)) = jobs.recv() {
            os::name_thread(name, shared.identity.pid);
            output::read(pipe, stream, &shared);
        }
        drop(done);
        let _ = may_go.recv();
    })?;
    Ok(Reader { job, thread })
}

/// The threads of the next process of a host, if somebody has had the time to start them.
#[derive(Default)]
pub(super) struct Spare(Mutex<Option<Threads>>);

impl Spare {
    /// Starts them, if they are not there. If that fails, the next spawn tries again, and says so.
    pub fn make_ready(&self) {
        if self.0.lock().is_none()
            && let Ok(threads) = Threads::start()
        {
            *self.0.lock() = Some(threads);
        }
    }

    /// Those that are there, or new ones.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn take(&self) -> io::Result<Threads> {
        let spare = self.0.lock().take();
        spare.map_or_else(Threads::start, Ok)
    }
}
