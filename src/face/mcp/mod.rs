//! MCP: the desk served to clients of every revision in use, over one connection.
//!
//! Nothing is opened before the first call of a tool. Then the desk is either here, a [`Toolbox`], or somebody else has it
//! already, and the connection becomes a pump to there.
//!
//! Threads of a connection: `requests` reads and decides; `writer` is the only one that touches the output; each call has a
//! thread `call`, and a pump one for the way back; the caller's own thread waits for the reason to end. When [`serve`] returns,
//! `requests` may still sit in a read of the input and `writer` in a write: they hold nothing else, and end with the connection.
//! So does a call that has not ended in time: it answers nobody any more.

mod arguments;
mod calls;
mod catalog;
mod given;
mod help;
mod many;
mod message;
mod outbox;
mod peer;
mod protocol;
mod pump;
mod reading;
mod schema;
mod sending;
mod shown;
mod tool;
mod toolbox;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, bounded, never, select};

use crate::transport::Connection;
use calls::{Calls, Kind};
pub use catalog::{INSTRUCTIONS, tools};
pub use many::serve_all;
use message::Id;
use peer::{Desk, Peer};
pub use tool::{Annotations, Call, Done, Problem, Tool, Toolbox};
pub use toolbox::DeskTools;

/// What is served.
pub struct Server {
    /// The tools, in the order in which they are listed.
    pub tools: &'static [Tool],
    /// What a model should know of all of them.
    pub instructions: &'static str,
    /// Opens the desk at the first call of a tool, on the thread that reads, so that no other line is taken meanwhile. If it
    /// fails, the call is refused with its words, and the next call tries again.
    pub open: Box<dyn Fn() -> Result<Opened, String> + Send + Sync>,
}

/// Where the desk is.
pub enum Opened {
    /// In this program.
    Here(Arc<dyn Toolbox>),
    /// At the other end of a connection, where MCP is spoken too: all lines go there from now on.
    There(Connection),
}

/// How serving a connection came to its end.
#[derive(Debug)]
pub enum Ended {
    /// The client or the operator ended it.
    Clean,
    /// The output could not be written to.
    OutputBroken(io::Error),
    /// The desk at the other end of a pump has gone. The client has been told.
    DeskEnded,
}

/// What the caller's thread waits for.
#[derive(Debug)]
enum Word {
    /// The client has sent all that it will, or has gone.
    InputEnded,
    /// Somebody outside has said so.
    Stop,
    /// The other end of a pump has gone.
    DeskEnded,
    /// The writer has ended.
    OutputBroken(io::Error),
    /// No call runs any more, or at least none did.
    Quiet,
    /// What was waited for has not come in time.
    Late,
}

/// How long calls may go on as if nothing had happened when the input ends: a script's last line is the end of its input.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long calls have to answer once they are cancelled.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How long the client may take to read what is left, and as long again to close its side.
const LAST_WRITE: Duration = Duration::from_millis(200);

/// Serves one client until its input ends, its output breaks, the desk at the other end of a pump goes, or anything arrives on
/// `stop`. Calls that run at the end of the input are given half a second before they are cancelled; otherwise they are at once.
/// Takes about a second from the end of the input at most, and half a second from a word on `stop`, even if neither client nor
/// calls do their part. Ending the desk is up to whoever has opened it.
///
/// Dropping the other end of `stop` stops nothing.
///
/// # Errors
/// When the system gives no threads.
pub fn serve<T>(connection: Connection, server: &Arc<Server>, stop: &Receiver<T>) -> io::Result<Ended> {
    let Connection { input, output, hangup, closing, .. } = connection;
    let (outbox, lines, open) = outbox::lane();
    let (calls_say, quiet) = bounded(1);
    let calls = Arc::new(Calls::new(calls_say));
    // Room for all that may be said: by the pump, and by the reader of the pump and of itself.
    let (says, words) = bounded(3);
    let there = pump::Closing::default();

    let (writer_says, writer_ended) = bounded(1);
    let writer = thread::Builder::new().name("writer".into()).spawn(move || {
        let _ = writer_says.send(outbox::write(output, &lines));
    })?;
    let peer = Peer {
        server: Arc::clone(server),
        calls: Arc::clone(&calls),
        outbox: outbox.clone(),
        hangup,
        says,
        closing: Arc::clone(&there),
        desk: Desk::NotOpen,
    };
    // If it cannot be had, the writer ends with the outbox.
    thread::Builder::new().name("requests".into()).spawn(move || peer.run(input))?;

    let mut watch = Watch { words, writer_ended, quiet, stop: stop.clone(), input_ended: false };
    let mut why = watch.first();
    // The other end of a pump answers what it can, and then ends too.
    there.lock().iter().for_each(|there| there.finish());
    if matches!(why, Word::InputEnded)
        && let Some(e) = watch.until_quiet(&calls, PATIENCE)
    {
        why = Word::OutputBroken(e);
    }
    calls.close();
    if let Some(e) = watch.until_quiet(&calls, LAST_WORDS) {
        why = Word::OutputBroken(e);
    }

    let deadline = Instant::now() + LAST_WRITE;
    for (id, kind) in calls.rest() {
        for line in last_lines(&id, &kind) {
            outbox.send_by(deadline, Some(line));
        }
    }
    outbox.send_by(deadline, None);
    // A writer that is stuck in a write is left there. One that has ended may have gone unnoticed: those who wait for room go then.
    if !matches!(why, Word::OutputBroken(_))
        && let Ok(Err(e)) = watch.writer_ended.recv_deadline(deadline)
    {
        why = Word::OutputBroken(e);
    }
    drop(open);
    if let Some(closing) = closing {
        closing.finish();
        watch.until_input_ends(LAST_WRITE);
        closing.abort();
    }
    // Whoever opens the other end after this sees that the session is over.
    let there = there.lock().take();
    there.iter().for_each(|there| there.abort());
    if writer.is_finished() {
        let _ = writer.join();
    }
    Ok(match why {
        Word::OutputBroken(e) => Ended::OutputBroken(e),
        Word::DeskEnded => Ended::DeskEnded,
        _ => Ended::Clean,
    })
}

/// What a request that is still open at the end is told.
fn last_lines(id: &Id, kind: &Kind) -> Vec<String> {
    let words = match kind {
        Kind::Subscription => return protocol::closed(id).to_vec(),
        Kind::Call(_) => "the server has ended before this call",
        Kind::There => "the desk has ended before it has answered this; start the server again",
    };
    vec![message::error(Some(id), message::INTERNAL, words, None)]
}

/// Where the words come from that the caller's thread waits for.
struct Watch<T> {
    words: Receiver<Word>,
    writer_ended: Receiver<io::Result<()>>,
    quiet: Receiver<()>,
    stop: Receiver<T>,
    input_ended: bool,
}

impl<T> Watch<T> {
    fn next(&mut self, late: &Receiver<Instant>) -> Word {
        loop {
            let word = select! {
                recv(self.words) -> word => word.unwrap_or_else(|_| {
                    self.words = never();
                    Word::InputEnded
                }),
                recv(self.writer_ended) -> end => {
                    self.writer_ended = never();
                    let gone = || io::Error::other("the writer's thread has gone");
                    Word::OutputBroken(end.ok().and_then(Result::err).unwrap_or_else(gone))
                }
                recv(self.quiet) -> _ => Word::Quiet,
                recv(late) -> _ => Word::Late,
                recv(self.stop) -> word => match word {
                    Ok(_) => Word::Stop,
                    // Whoever has dropped the other end does not want to stop this.
                    Err(_) => {
                        self.stop = never();
                        continue;
                    }
                },
            };
            self.input_ended |= matches!(word, Word::InputEnded);
            return word;
        }
    }

    /// The first reason to end.
    fn first(&mut self) -> Word {
        loop {
            match self.next(&never()) {
                Word::Quiet | Word::Late => {}
                why => return why,
            }
        }
    }

    /// Waits until nobody is left who may say something, but not long, and not if there is a reason to hurry. Tells if the
    /// output has broken.
    fn until_quiet(&mut self, calls: &Calls, time: Duration) -> Option<io::Error> {
        let late = at(Instant::now() + time);
        while !calls.is_quiet() {
            match self.next(&late) {
                // Neither hurts those who have something to say.
                Word::Quiet | Word::InputEnded | Word::DeskEnded => {}
                Word::Stop | Word::Late => break,
                Word::OutputBroken(e) => return Some(e),
            }
        }
        None
    }

    fn until_input_ends(&mut self, time: Duration) {
        let late = at(Instant::now() + time);
        while !self.input_ended && !matches!(self.next(&late), Word::Late) {}
    }
}
