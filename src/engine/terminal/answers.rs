//! What a terminal hears from its program beside text: queries, which it answers, titles and the program's own state; and the
//! rows that leave its top. The parser calls it; `screen` reads it.

use vt100::capture::RowContents;
use vt100::{Callbacks, Screen};

use super::history::History;

/// Bytes of answers that one feed may cause: a flood of queries must not become a flood of answers.
const MOST_ANSWERS: usize = 4 * 1024;

/// Characters of a title that are kept.
const MOST_TITLE: usize = 256;

/// The operating system command by which a program tells its state. The format, both ways, with ST for `ESC \` or BEL:
///
/// - `OSC 7501 ; ? ST` asks whether the terminal speaks it, and is answered `OSC 7501 ; ok ST`;
/// - `OSC 7501 ; state=WORD ST` tells the state, one of `idle`, `working`, `blocked`, `done`, `error`. Other fields may stand
///   before and after, each after its own `;`. Words that are not known change nothing.
const PROGRAM_STATE: &[u8] = b"7501";

/// What a program says that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// It waits for something to do.
    Idle,
    /// It is busy.
    Working,
    /// It waits for a person's answer.
    Blocked,
    /// It has done what it was to do.
    Done,
    /// It has failed.
    Error,
}

impl ProgramState {
    /// All states, with the words that stand for them.
    const WORDS: [(Self, &'static str); 5] = [
        (Self::Idle, "idle"),
        (Self::Working, "working"),
        (Self::Blocked, "blocked"),
        (Self::Done, "done"),
        (Self::Error, "error"),
    ];

    /// The word that stands for it.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].1
    }

    fn from_fields(fields: &[&[u8]]) -> Option<Self> {
        let word = fields.iter().find_map(|field| field.strip_prefix(b"state="))?;
        Self::WORDS.iter().find(|(_, known)| known.as_bytes() == word).map(|(state, _)| *state)
    }
}

/// What has been heard.
#[derive(Default)]
pub struct Ear {
    /// The lines that have left the main screen.
    pub history: History,
    /// Answers that are not taken yet.
    pub answers: Vec<u8>,
    /// The title, without control characters.
    pub title: Option<String>,
    /// The state that the program told last.
    pub state: Option<ProgramState>,
}

impl Ear {
    fn answer(&mut self, answer: &str) {
        if self.answers.len() + answer.len() <= MOST_ANSWERS {
            self.answers.extend_from_slice(answer.as_bytes());
        }
    }
}

impl Callbacks for Ear {
    fn on_scroll(&mut self, row: RowContents<'_>, alternate: bool) {
        if !alternate {
            self.history.push(&row);
        }
    }

    fn set_window_title(&mut self, _: &mut Screen, title: &[u8]) {
        let title = String::from_utf8_lossy(title);
        let title: String = title.chars().filter(|c| !c.is_control()).take(MOST_TITLE).collect();
        self.title = (!title.is_empty()).then_some(title);
    }

    fn unhandled_csi(&mut self, screen: &mut Screen, i1: Option<u8>, i2: Option<u8>, params: &[&[u16]], c: char) {
        let first = params.first().and_then(|param| param.first()).copied().unwrap_or(0);
        let (rows, cols) = screen.size();
        let (row, col) = screen.cursor_position();
        // After the last column has been written the cursor stands behind it.
        let (row, col) = (row + 1, (col + 1).min(cols.get()));
        match (i1, i2, c, first) {
            // What are you? A VT220 with colours, of no version that a program would draw conclusions from.
            (None, None, 'c', 0) => self.answer("\x1b[?62;22c"),
            (Some(b'>'), None, 'c', 0) => self.answer("\x1b[>1;0;0c"),
            (Some(b'>'), None, 'q', 0) => {
                self.answer(concat!("\x1bP>|", env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"), "\x1b\\"));
            }
            // Are you well? Where is the cursor? How large are you?
            (None, None, 'n', 5) => self.answer("\x1b[0n"),
            (None, None, 'n', 6) => self.answer(&format!("\x1b[{row};{col}R")),
            (Some(b'?'), None, 'n', 6) => self.answer(&format!("\x1b[?{row};{col}R")),
            (None, None, 't', 18) => self.answer(&format!("\x1b[8;{rows};{cols}t")),
            (Some(b'?'), Some(b'$'), 'p', mode) => self.answer(&format!("\x1b[?{mode};{}$y", setting(screen, mode))),
            // Others are not answered, as a terminal does that does not know them: the keyboard protocol of kitty is one.
            _ => {}
        }
    }

    fn unhandled_osc(&mut self, screen: &mut Screen, params: &[&[u8]]) {
        match params {
            // Light on dark, for who asks for the colours.
            [code @ (b"10" | b"12"), b"?"] => self.answer(&colour(code, "d0d0")),
            [code @ b"11", b"?"] => self.answer(&colour(code, "0000")),
            [PROGRAM_STATE, b"?"] => {
                self.answer(&format!("\x1b]{};ok\x1b\\", String::from_utf8_lossy(PROGRAM_STATE)));
            }
            [PROGRAM_STATE, fields @ ..] => self.state = ProgramState::from_fields(fields).or(self.state),
            // A title with semicolons, at which the parser has cut it.
            [b"0" | b"2", title @ ..] => self.set_window_title(screen, &title.join(&b';')),
            _ => {}
        }
    }
}

/// How a private mode is reported: 1 set, 2 reset, 0 not known.
fn setting(screen: &Screen, mode: u16) -> u8 {
    let is_set = match mode {
        1 => screen.application_cursor(),
        25 => !screen.hide_cursor(),
        47 | 1049 => screen.alternate_screen(),
        2004 => screen.bracketed_paste(),
        _ => return 0,
    };
    if is_set { 1 } else { 2 }
}

fn colour(code: &[u8], shade: &str) -> String {
    format!("\x1b]{};rgb:{shade}/{shade}/{shade}\x1b\\", String::from_utf8_lossy(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;

    fn heard(bytes: &str) -> Ear {
        let [rows, cols] = [24, 80].map(|n| NonZeroU16::new(n).unwrap());
        let mut parser = vt100::Parser::new_with_callbacks(rows, cols, 0, Ear::default());
        parser.process(bytes.as_bytes());
        std::mem::take(parser.callbacks_mut())
    }

    #[test]
    fn queries_are_answered() {
        let name = concat!("\x1bP>|a2e-proc ", env!("CARGO_PKG_VERSION"), "\x1b\\");
        let full = "x".repeat(80) + "\x1b[6n";
        let rows: [(&str, &str); 24] = [
            ("\x1b[c", "\x1b[?62;22c"),
            ("\x1b[0c", "\x1b[?62;22c"),
            ("\x1b[>c", "\x1b[>1;0;0c"),
            ("\x1b[>0q", name),
            ("\x1b[5n", "\x1b[0n"),
            ("\x1b[6n", "\x1b[1;1R"),
            ("ab\r\nc\x1b[6n", "\x1b[2;2R"),
            (&full, "\x1b[1;80R"),
            ("\x1b[?6n", "\x1b[?1;1R"),
            ("\x1b[18t", "\x1b[8;24;80t"),
            ("\x1b[?2004$p\x1b[?2004h\x1b[?2004$p", "\x1b[?2004;2$y\x1b[?2004;1$y"),
            ("\x1b[?25$p\x1b[?2026$p", "\x1b[?25;1$y\x1b[?2026;0$y"),
            ("\x1b]10;?\x1b\\", "\x1b]10;rgb:d0d0/d0d0/d0d0\x1b\\"),
            ("\x1b]11;?\x07", "\x1b]11;rgb:0000/0000/0000\x1b\\"),
            ("\x1b]7501;?\x07", "\x1b]7501;ok\x1b\\"),
            ("\x1b[?u\x1b[c", "\x1b[?62;22c"),
            // Answers and settings are no queries.
            ("\x1b[?62;22c", ""),
            ("\x1b[>1;0;0c\x1b[?1;1R\x1b[0n", ""),
            ("\x1b]11;#000000\x07", ""),
            ("\x1b]7501;ok\x07", ""),
            ("\x1b[>4;2m\x1b[>1u\x1b[<u\x1b[=1;1u", ""),
            ("\x1bP+q544e\x1b\\", ""),
            ("\x1b[21t\x1b[14t", ""),
            ("\x05", ""),
        ];
        for (query, answer) in rows {
            assert_eq!(String::from_utf8_lossy(&heard(query).answers), answer, "{query:?}");
        }
    }

    #[test]
    fn a_flood_of_queries_is_answered_in_part() {
        let answers = heard(&"\x1b[c".repeat(100_000)).answers;
        assert!(answers.len() <= MOST_ANSWERS && answers.ends_with(b"\x1b[?62;22c"));
    }

    #[test]
    fn titles_are_short_and_clean() {
        let long = format!("\x1b]2;{}\x07", "é".repeat(400));
        let rows: [(&str, Option<&str>); 7] = [
            ("\x1b]0;vim a.txt\x07", Some("vim a.txt")),
            ("\x1b]2;a;b;c\x1b\\", Some("a;b;c")),
            ("\x1b]2;a\x1b\\\x1b]2;\x1b\\", None),
            ("\x1b]1;icon\x07", None),
            ("\x1b]2;a\u{85}b\x07", Some("ab")),
            ("\x1b]2;never ends", None),
            (&long, Some(&"é".repeat(MOST_TITLE))),
        ];
        for (bytes, title) in rows {
            assert_eq!(heard(bytes).title.as_deref(), title, "{bytes:?}");
        }
    }

    #[test]
    fn the_program_tells_its_state() {
        for (state, word) in ProgramState::WORDS {
            assert_eq!(heard(&format!("\x1b]7501;state={word}\x07")).state, Some(state));
            assert_eq!(state.word(), word);
        }
        let rows: [(&str, Option<ProgramState>); 5] = [
            ("\x1b]7501;app=x;state=blocked;more=y\x1b\\", Some(ProgramState::Blocked)),
            ("\x1b]7501;state=done\x07\x1b]7501;state=sleeping\x07", Some(ProgramState::Done)),
            ("\x1b]7501;state=done\x07\x1b]7501\x07\x1b]7501;?\x07", Some(ProgramState::Done)),
            ("\x1b]7501;state=\x07", None),
            ("\x1b]750;state=done\x07", None),
        ];
        for (bytes, state) in rows {
            assert_eq!(heard(bytes).state, state, "{bytes:?}");
        }
    }
}
