//! Typing into an entry's process: text as a terminal would pass it on from a person, or bytes as they are.
//!
//! Text that is pasted in one piece with its Enter loses the Enter in programs that read it for a part of the paste. So the text
//! is written, then read by the program, and only then is Enter pressed.
//!
//! Race: two callers type at the same time.
//! 1. The first takes the entry's turn, under the desk's lock, and writes its text.
//! 2. The second finds the turn taken, and waits for a change of the desk.
//! 3. The first presses Enter and gives the turn back. So no word is mixed with another's, and no Enter sends another's draft.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError, after, never, select};

use super::entry::Status;
use super::{Desk, Refused, Shared, State, Target, Waited};
use crate::engine::Reply;
use crate::engine::terminal::{ProgramState, Terminal};
use crate::model::Refusal;

/// What to type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Text as somebody would type it, each line end as Enter, and then perhaps Enter.
    Text {
        /// The text.
        text: String,
        /// Whether Enter follows.
        submit: bool,
    },
    /// A message, and Enter: pasted in one piece where the program takes pastes, else typed.
    Message(String),
    /// Bytes as they are: 13 is Enter, 3 is Ctrl-C, 27 is Escape.
    Bytes(Vec<u8>),
}

/// What became of something that was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is being typed.
    Delivering,
    /// The terminal has all of it.
    Delivered,
    /// Nothing was written. It may be sent again.
    Undelivered,
    /// It was handed to the terminal, which has not taken all of it yet. It must not be sent again.
    Uncertain,
}

impl Delivery {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivering => "delivering",
            Self::Delivered => "delivered",
            Self::Undelivered => "undelivered",
            Self::Uncertain => "uncertain",
        }
    }
}

/// Something that was typed into an entry.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its number, which nothing else has that was typed at this desk.
    pub id: u64,
    /// What became of it.
    pub status: Delivery,
    /// How many bytes it had.
    pub bytes: usize,
    /// When it was sent.
    pub at: Instant,
}

/// So many of the last deliveries of an entry are remembered.
const REMEMBERED: usize = 20;

/// How long a delivery may take: with the longest look at the output afterwards, a call is answered within 30 s.
const WITHIN: Duration = Duration::from_secs(18);

/// How long the program may take to read text before Enter is pressed all the same.
const READS_WITHIN: Duration = Duration::from_secs(2);

/// The pauses between two looks at what the program has not read: an eighth of the time so far, within bounds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

const PASTE_BEGINS: &str = "\u{1b}[200~";
const PASTE_ENDS: &str = "\u{1b}[201~";
const ENTER: &[u8] = b"\r";

impl Desk {
    /// Types into a running entry's process. Waits for those who type there already, and until the terminal has taken it, in all
    /// for at most 20 s. Keys that may be there to interrupt (bytes other than Tab and line ends) wait for nobody.
    ///
    /// # Errors
    /// When there is no such entry, it does not run, it waits for the answer to a prompt that a message is none to, or its
    /// terminal takes no more.
    pub fn type_keys(&self, target: &Target, keys: &Keys, cancelled: &Receiver<Infallible>) -> Result<Sent, Refused> {
        let view = self.view(target)?;
        let name = &view.name;
        let screen = self.screen(&Target::Id(view.id))?;
        if matches!(keys, Keys::Message(_)) && screen.lock().program_status() == Some(ProgramState::Blocked) {
            return Err(Refused(format!(
                "{name:?} says that it is blocked: it waits for an answer. Read its output; to answer, send input with the intent \
                 \"interaction\""
            )));
        }
        let start = Instant::now();
        let is_urgent = keys.is_urgent();
        let taken = self.shared.wait(WITHIN, cancelled, |state| state.take_turn(view.id, is_urgent));
        let nothing_sent = Sent { id: 0, status: Delivery::Undelivered, bytes: keys.len(), at: start };
        let terminal = match taken {
            Waited::Came(Ok(terminal)) => terminal,
            Waited::Came(Err(why)) => return Err(Refused(format!("{name:?} {why}"))),
            Waited::TimedOut | Waited::Cancelled => return Ok(self.shared.note(view.id, nothing_sent)),
        };
        let turn = (!is_urgent).then(|| Turn { shared: &self.shared, id: view.id });
        let sent = self.shared.note(view.id, Sent { status: Delivery::Delivering, ..nothing_sent });
        let mut typist = Typist { terminal: &terminal, until: start + WITHIN, cancelled, stuck: None };
        let delivery = match keys {
            Keys::Bytes(bytes) => typist.write(bytes.clone(), cancelled),
            Keys::Text { text, submit } => typist.type_text(typed(text), *submit),
            Keys::Message(text) => {
                let takes_pastes = screen.lock().bracketed_paste();
                typist.type_text(pasted(text, takes_pastes), true)
            }
        };
        if let (Some(stuck), Some(entry)) = (typist.stuck, self.shared.state.lock().entries.get_mut(&view.id)) {
            entry.stuck = Some(stuck);
        }
        drop(turn);
        let status = *delivery.as_ref().unwrap_or(&Delivery::Undelivered);
        let sent = self.shared.note(view.id, Sent { status, ..sent });
        delivery.map(|_| sent).map_err(|refusal| match refusal {
            Refusal::StdinFull { size, limit, .. } if size > limit => {
                Refused(format!("{size} bytes are more than can be typed at once: {limit}"))
            }
            Refusal::StdinFull { .. } => Refused(format!(
                "{name:?} has not read what was typed before, and its terminal takes no more; look at its output, and send \
                 this again later, or stop it"
            )),
            _ => Refused(format!("{name:?} has just ended, and nothing more can be typed there")),
        })
    }
}

/// An answer that is still to come: the terminal has not taken what was typed.
pub(super) type Stuck = Receiver<Result<(), Refusal>>;

impl State {
    /// The terminal to type into, once nobody else types there; or why nothing can be typed.
    fn take_turn(&mut self, id: u64, is_urgent: bool) -> Option<Result<Arc<Terminal>, &'static str>> {
        let entry = self.entries.get_mut(&id);
        let entry_status = entry.as_ref().map(|entry| entry.status());
        let Some((entry, terminal)) = entry.and_then(|entry| entry.terminal.clone().map(|terminal| (entry, terminal)))
        else {
            return Some(Err(match entry_status {
                Some(Status::Starting) => "is being started; send it again in a moment",
                _ => "does not run, so nothing can be typed there; start_process starts it",
            }));
        };
        if is_urgent {
            return Some(Ok(terminal));
        }
        if entry.is_typed_to {
            return None;
        }
        // With its end the terminal answers, too.
        if entry.stuck.as_ref().is_some_and(|stuck| stuck.try_recv() == Err(TryRecvError::Empty)) {
            return Some(Err(
                "has not taken what was typed before, and more could be mixed with it; look at its output, and \
                             send this later, or restart it",
            ));
        }
        entry.stuck = None;
        entry.is_typed_to = true;
        Some(Ok(terminal))
    }
}

impl Desk {
    /// What was typed into an entry lately, the newest last.
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn deliveries(&self, target: &Target) -> Result<Vec<Sent>, Refused> {
        let state = self.shared.state.lock();
        state.find(target).map(|entry| entry.deliveries.iter().copied().collect())
    }
}

impl Keys {
    /// Whether they may be there to interrupt the program: then they wait for nobody who types.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.iter().any(|byte| !matches!(byte, b'\t' | b'\n' | b'\r')))
    }

    fn len(&self) -> usize {
        match self {
            Self::Text { text, .. } | Self::Message(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl Shared {
    /// Notes a delivery, or what became of one that has a number.
    fn note(&self, entry: u64, mut sent: Sent) -> Sent {
        let mut state = self.state.lock();
        if sent.id == 0 {
            state.deliveries += 1;
            sent.id = state.deliveries;
        }
        if let Some(entry) = state.entries.get_mut(&entry) {
            match entry.deliveries.iter_mut().find(|noted| noted.id == sent.id) {
                Some(noted) => *noted = sent,
                None => entry.deliveries.push_back(sent),
            }
            if entry.deliveries.len() > REMEMBERED {
                entry.deliveries.pop_front();
            }
        }
        sent
    }
}

/// The right to type into an entry.
struct Turn<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some(entry) = state.entries.get_mut(&self.id) {
            entry.is_typed_to = false;
        }
        state.changed();
    }
}

struct Typist<'a> {
    terminal: &'a Terminal,
    until: Instant,
    cancelled: &'a Receiver<Infallible>,
    /// What the terminal has not taken in time.
    stuck: Option<Stuck>,
}

impl Typist<'_> {
    fn type_text(&mut self, text: String, submit: bool) -> Result<Delivery, Refusal> {
        if text.is_empty() && submit {
            return self.write(ENTER.to_vec(), self.cancelled);
        }
        let delivery = self.write(text.into_bytes(), self.cancelled)?;
        if delivery != Delivery::Delivered || !submit {
            return Ok(delivery);
        }
        self.wait_read();
        // Cancelled or not: a draft without its Enter would be sent by the next one's. If it cannot be pressed, the text has
        // been typed all the same.
        Ok(self.write(ENTER.to_vec(), &never()).unwrap_or(Delivery::Uncertain))
    }

    fn write(&mut self, bytes: Vec<u8>, cancelled: &Receiver<Infallible>) -> Result<Delivery, Refusal> {
        let (reply, answer) = Reply::channel();
        self.terminal.write(bytes, reply);
        let over = after(self.until.saturating_duration_since(Instant::now()));
        let answered = answer.try_recv().or_else(|_| {
            select! {
                recv(answer) -> answer => answer.map_err(drop),
                recv(cancelled) -> _ => Err(()),
                recv(over) -> _ => Err(()),
            }
        });
        match answered {
            Ok(Ok(())) => Ok(Delivery::Delivered),
            Ok(Err(Refusal::StdinFull { taken, .. })) if taken > 0 => Ok(Delivery::Uncertain),
            Ok(Err(refusal)) => Err(refusal),
            Err(()) => {
                self.stuck = Some(answer);
                Ok(Delivery::Uncertain)
            }
        }
    }

    /// Waits until the program has read what was typed, if it can read it, but not for ever: Enter may be what it waits for.
    fn wait_read(&self) {
        let start = Instant::now();
        while self.terminal.unread() > 0 && self.terminal.outcome().is_none() && start.elapsed() < READS_WITHIN {
            // The system tells nobody when it has.
            std::thread::sleep((start.elapsed() / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        }
    }
}

/// Text as a terminal passes it on from a keyboard.
fn typed(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r")
}

/// Text as a terminal passes it on from a clipboard. What would end a paste is not part of it, in whatever way it was put in.
fn pasted(text: &str, takes_pastes: bool) -> String {
    let mut kept = String::with_capacity(text.len());
    for c in typed(text).chars() {
        kept.push(c);
        if kept.ends_with(PASTE_ENDS) {
            kept.truncate(kept.len() - PASTE_ENDS.len());
        }
    }
    if takes_pastes && !kept.is_empty() { format!("{PASTE_BEGINS}{kept}{PASTE_ENDS}") } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_paste_only_for_a_program_that_takes_pastes() {
        let rows: [(&str, bool, &str); 8] = [
            ("ls", false, "ls"),
            ("ls", true, "\x1b[200~ls\x1b[201~"),
            ("a\x1b[201~\nid", true, "\x1b[200~a\rid\x1b[201~"),
            ("a\x1b[201~\nid", false, "a\rid"),
            ("a\x1b[20\x1b[201~1~b", true, "\x1b[200~ab\x1b[201~"),
            ("one\r\ntwo\rthree", false, "one\rtwo\rthree"),
            ("", true, ""),
            ("\x1b[201~", true, ""),
        ];
        for (text, takes_pastes, expected) in rows {
            assert_eq!(pasted(text, takes_pastes), expected, "{text:?}");
        }
    }
}
