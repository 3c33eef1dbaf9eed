//! Who has the writer. Whoever has queued something takes it, says the little there is to say, and puts it back; so an answer or
//! a line of output reaches the agent without another thread being woken. What takes longer is called the thread `writer` for,
//! which alone may wait for the agent.
//!
//! Owner of the writer: [`Turns`], under its lock, or whoever has taken it out; it is used with no lock held.
//!
//! Race: something is queued while another has the writer.
//! 1. One thread has the writer, has seen both lanes empty, and is about to put it back.
//! 2. Another queues an event, and finds the writer taken: it leaves it at that.
//! 3. The first puts the writer back, and the event would wait for whoever comes next.
//!
//! So whoever puts the writer back looks at the lanes once more, under the lock: what was queued before somebody found the writer
//! taken, under the same lock, is seen then. If there is anything, the thread is called.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::writer::{Said, Writer};

/// How often whoever has queued something says what others have queued meanwhile, before it calls the thread: waking that costs
/// more than a line or two.
const TURNS: u32 = 4;

/// The turns of one connection.
pub struct Turns {
    seat: Mutex<Seat>,
    called: Condvar,
}

struct Seat {
    /// Absent while somebody has it, and when it is over.
    writer: Option<Writer>,
    /// The thread is to come.
    called: bool,
    /// Why nothing more can be said.
    broken: Option<io::Error>,
    over: bool,
}

impl Turns {
    /// Nobody has the writer yet.
    pub fn new(writer: Writer) -> Arc<Self> {
        let seat = Seat { writer: Some(writer), called: false, broken: None, over: false };
        Arc::new(Self { seat: Mutex::new(seat), called: Condvar::new() })
    }

    /// For whoever has queued something: has it said, now or soon. Never waits.
    pub fn take_one(&self) {
        for turn in 1..=TURNS {
            let Some(mut writer) = self.seat.lock().writer.take() else { return };
            let said = writer.say_little();
            if !self.put_back(writer, said, turn == TURNS) {
                return;
            }
        }
    }

    /// Puts the writer back, and calls the thread if there is more to say than this one may, or it is the `last` time that it
    /// tries. True if it may try again.
    fn put_back(&self, writer: Writer, said: io::Result<Said>, last: bool) -> bool {
        let mut seat = self.seat.lock();
        if seat.over {
            return false;
        }
        let may_go_on = !last && matches!(said, Ok(Said::All));
        let has_more = writer.has_more();
        if said.is_err() || (has_more && !may_go_on) {
            seat.called = true;
            self.called.notify_one();
        }
        seat.broken = said.err();
        seat.writer = Some(writer);
        has_more && may_go_on
    }

    /// The thread `writer`: comes when it is called, until it is told to finish and all that was queued by then is written.
    pub fn serve(&self) -> io::Result<()> {
        let end = loop {
            let (mut writer, broken) = self.wait_for_call();
            if let Some(e) = broken {
                break Err(e);
            }
            match writer.say_all() {
                Ok(false) => drop(self.put_back(writer, Ok(Said::All), true)),
                Ok(true) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        let mut seat = self.seat.lock();
        seat.over = true;
        let writer = seat.writer.take();
        // The output is closed by being dropped, which may take its time.
        drop(seat);
        drop(writer);
        end
    }

    fn wait_for_call(&self) -> (Writer, Option<io::Error>) {
        let mut seat = self.seat.lock();
        loop {
            if seat.called
                && let Some(writer) = seat.writer.take()
            {
                seat.called = false;
                return (writer, seat.broken.take());
            }
            self.called.wait(&mut seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, PipeReader};
    use std::thread::{self, JoinHandle};

    use super::super::Options;
    use super::super::outbox::{Outbox, lane};
    use super::*;
    use crate::transport::Room;
    use crate::wire::code::ErrorCode;
    use crate::wire::message::ErrorMessage;

    /// A connection without a session: where answers are put, what the agent reads, and the thread `writer`.
    fn connection() -> (Outbox, PipeReader, JoinHandle<io::Result<()>>) {
        let (agent, output) = io::pipe().unwrap();
        let (room, (lane, answers)) = (Room::of(&output), lane());
        assert!(room.is_some());
        let events = crossbeam_channel::never();
        let turns = Turns::new(Writer::new(Box::new(output), room, answers, events, &Options::default()));
        let outbox = Outbox::new(lane, &turns);
        (outbox, agent, thread::spawn(move || turns.serve()))
    }

    fn say(outbox: &Outbox, id: String, length: usize) {
        outbox.put(&ErrorMessage::new(id, ErrorCode::ParseError, "x".repeat(length), false));
    }

    fn ids(agent: PipeReader) -> Vec<String> {
        let id = |line: io::Result<String>| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("\"req_id\":\"").unwrap();
            assert!(line.starts_with("{\"type\":\"error\"") && line.ends_with('}'), "{line}");
            rest.split('"').next().unwrap().to_owned()
        };
        BufReader::new(agent).lines().map(id).collect()
    }

    #[test]
    fn what_many_threads_say_at_once_is_said_once_and_each_ones_in_order() {
        const THREADS: usize = 8;
        const EACH: usize = 2_000;
        let (outbox, agent, writer) = connection();
        let reading = thread::spawn(move || ids(agent));
        let saying: Vec<_> = (0..THREADS)
            .map(|thread| {
                let outbox = outbox.clone();
                // Now and then more than is said at once.
                let say_all = move || (0..EACH).for_each(|n| say(&outbox, format!("{thread}-{n:05}"), (n % 97) * 60));
                thread::spawn(say_all)
            })
            .collect();
        saying.into_iter().for_each(|thread| thread.join().unwrap());
        outbox.finish();
        writer.join().unwrap().unwrap();
        let said = reading.join().unwrap();
        assert_eq!((said.len(), said.iter().collect::<BTreeSet<_>>().len()), (THREADS * EACH, THREADS * EACH));
        for thread in 0..THREADS {
            let own: Vec<_> = said.iter().filter(|id| id.starts_with(&format!("{thread}-"))).collect();
            assert!(own.is_sorted(), "thread {thread}");
        }
    }

    #[test]
    fn whoever_says_something_to_an_agent_that_does_not_read_is_not_held_up() {
        let (outbox, agent, writer) = connection();
        // More than the pipe holds; this would never return if it waited.
        (0..2_000).for_each(|n| say(&outbox, format!("{n:05}"), 100));
        outbox.finish();
        assert!(!writer.is_finished());
        assert_eq!(ids(agent), (0..2_000).map(|n| format!("{n:05}")).collect::<Vec<_>>());
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn an_agent_that_has_gone_is_the_writers_end_whoever_finds_out() {
        let (outbox, agent, writer) = connection();
        drop(agent);
        say(&outbox, "1".into(), 0);
        assert_eq!(writer.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        // Nobody takes it, and nobody minds.
        say(&outbox, "2".into(), 0);
    }
}
