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
//! taken, under the same lock, is seen then. If there is anything, it tries again, a few times, or calls the thread.

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
    /// Absent while somebody has it, and once its thread has ended.
    writer: Option<Writer>,
    /// The thread is to come.
    called: bool,
    /// Why nothing more can be said.
    broken: Option<io::Error>,
}

/// Somebody's, while they say something. A panic there must not leave a session that is mute for good.
struct Hands<'a> {
    turns: &'a Turns,
    writer: Option<Writer>,
}

impl Drop for Hands<'_> {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.turns.seat.lock().broken = Some(io::Error::other("saying something panicked"));
            self.turns.called.notify_one();
        }
    }
}

impl Seat {
    /// The writer, unless it broke in somebody's hands: half a line may have been written, and nothing may follow that.
    fn take_whole(&mut self) -> Option<Writer> {
        if self.broken.is_none() { self.writer.take() } else { None }
    }
}

impl Turns {
    /// Nobody has the writer yet.
    pub fn new(writer: Writer) -> Arc<Self> {
        let seat = Seat { writer: Some(writer), called: false, broken: None };
        Arc::new(Self { seat: Mutex::new(seat), called: Condvar::new() })
    }

    /// For whoever has queued something: has it said, now or soon. Never waits.
    pub fn take_one(&self) {
        for turn in 1..=TURNS {
            let Some(writer) = self.seat.lock().take_whole() else { return };
            let mut hands = Hands { turns: self, writer: Some(writer) };
            let Some(writer) = &mut hands.writer else { return };
            let said = writer.say_little();
            let Some(writer) = hands.writer.take() else { return };
            if !self.put_back(writer, said, turn == TURNS) {
                return;
            }
        }
    }

    /// Puts the writer back, and calls the thread if there is more to say than this one may, or it is the `last` time that it
    /// tries. True if it may try again.
    fn put_back(&self, writer: Writer, said: io::Result<Said>, last: bool) -> bool {
        let mut seat = self.seat.lock();
        let may_go_on = !last && matches!(said, Ok(Said::All));
        let has_more = writer.has_more();
        if said.is_err() || (has_more && !may_go_on) {
            seat.called = true;
            self.called.notify_one();
        }
        if let Err(e) = said {
            seat.broken = Some(e);
        }
        seat.writer = Some(writer);
        has_more && may_go_on
    }

    /// The thread `writer`: comes when it is called, until it is told to finish and all that was queued by then is written.
    pub fn serve(&self) -> io::Result<()> {
        // Whatever ends it, nobody can take the writer from here on: the output is closed by being dropped.
        loop {
            let mut writer = self.wait_for_call()?;
            if writer.say_all()? {
                return Ok(());
            }
            self.put_back(writer, Ok(Said::All), true);
        }
    }

    fn wait_for_call(&self) -> io::Result<Writer> {
        let mut seat = self.seat.lock();
        loop {
            if let Some(e) = seat.broken.take() {
                let writer = seat.writer.take();
                drop(seat);
                drop(writer);
                return Err(e);
            }
            if seat.called
                && let Some(writer) = seat.writer.take()
            {
                seat.called = false;
                return Ok(writer);
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

    /// An output that takes half of what it is given, once, and then fails as if somebody had pulled a plug.
    struct Torn(Vec<u8>, std::sync::mpsc::Sender<Vec<u8>>);

    impl io::Write for Torn {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.0.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.extend_from_slice(&bytes[..bytes.len() / 2]);
            Ok(bytes.len() / 2)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Drop for Torn {
        fn drop(&mut self) {
            let _ = self.1.send(std::mem::take(&mut self.0));
        }
    }

    #[test]
    fn nothing_follows_half_a_line() {
        let (_agent, pipe) = io::pipe().unwrap();
        let (lane, answers) = lane();
        let (tells, told) = std::sync::mpsc::channel();
        let output = Box::new(Torn(Vec::new(), tells));
        let events = crossbeam_channel::never();
        let turns = Turns::new(Writer::new(output, Room::of(&pipe), answers, events, &Options::default()));
        let outbox = Outbox::new(lane, &turns);
        for n in 1..=3 {
            say(&outbox, n.to_string(), 100);
        }
        assert_eq!(turns.serve().unwrap_err().kind(), io::ErrorKind::TimedOut);
        let written = String::from_utf8(told.recv().unwrap()).unwrap();
        assert!(!written.contains('\n') && written.matches("\"type\"").count() == 1, "{written}");
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
