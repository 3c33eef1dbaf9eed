//! The lines that have left the top of a screen. Pure; `screen` fills and reads it.
//!
//! A line is kept as it is shown: text, and SGR sequences where it has colours. Rows that the terminal wrapped are one line
//! again. Lines have numbers, counted from the first ever, that no other line gets.

use std::collections::VecDeque;
use std::fmt::{self, Write};

use vt100::capture::{BasicFormattedCaptureState, RowContents};

/// Lines that are kept.
pub const MOST_LINES: usize = 10_000;

/// Bytes that they may take together, with [`LINE_COST`] for each.
pub const MOST_BYTES: usize = 3_840 * 1024;

/// What a line takes beside its text: its place in the queue and in the allocator.
const LINE_COST: usize = 32;

/// A line that has become so long is ended, so that output without an end is not one line without an end. With one row more it
/// still fits into what is handed out at once, or its beginning could not be read.
const LONG_LINE: usize = 8 * 1024;

/// Joins rows to lines. Each line stands for itself: it begins and ends without attributes.
#[derive(Clone, Default)]
pub struct Joiner {
    text: String,
    state: BasicFormattedCaptureState,
    open: bool,
}

impl Joiner {
    /// Takes the next row, and gives the line that it ends, if it does.
    pub fn take(&mut self, row: &RowContents<'_>) -> Option<Box<str>> {
        // Writing to a string does not fail.
        let _ = row.write_formatted_basic(&mut self.text, &mut self.state);
        self.open = true;
        let goes_on = self.text.len() < LONG_LINE && wraps(row, &self.state);
        if goes_on { None } else { self.finish() }
    }

    /// Gives the line that is not ended yet, as if it were.
    pub fn finish(&mut self) -> Option<Box<str>> {
        if !std::mem::take(&mut self.open) {
            return None;
        }
        self.state = BasicFormattedCaptureState::new();
        // Blanks that have a background are there to be seen.
        if self.text.rfind('\x1b').is_some_and(|last| !self.text[last..].starts_with(RESET)) {
            self.text.push_str(RESET);
        }
        let line = Box::from(self.text.trim_end_matches(' '));
        self.text.clear();
        Some(line)
    }
}

/// No attributes, as the crate writes it.
const RESET: &str = "\x1b[m";

/// Whether the next row goes on with the line of this one, which has just been written with `state`.
///
/// The crate keeps that to itself, but would begin the next row with a newline if not: the row is written once more, up to
/// its first character.
fn wraps(row: &RowContents<'_>, state: &BasicFormattedCaptureState) -> bool {
    struct First(Option<char>);
    impl Write for First {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 = text.chars().next();
            Err(fmt::Error)
        }
    }
    let mut first = First(None);
    // It fails at that first character, as it should.
    let _ = row.write_formatted_basic(&mut first, &mut state.clone());
    first.0 != Some('\n')
}

/// The lines, bounded in number and bytes: the oldest go.
#[derive(Default)]
pub struct History {
    lines: VecDeque<Box<str>>,
    bytes: usize,
    /// The number of the first line that is kept.
    first: u64,
    /// Rows that ever came.
    rows: u64,
    /// The line whose end is still on the screen.
    pub open: Joiner,
}

impl History {
    /// Takes a row that has left the screen.
    pub fn push(&mut self, row: &RowContents<'_>) {
        self.rows += 1;
        if let Some(line) = self.open.take(row) {
            self.keep(line);
        }
    }

    /// Takes a whole line of plain text.
    pub fn push_line(&mut self, text: &str) {
        self.end_line();
        self.keep(Box::from(text.trim_end_matches(' ')));
    }

    /// Ends the open line: what follows is not its rest.
    pub fn end_line(&mut self) {
        if let Some(line) = self.open.finish() {
            self.keep(line);
        }
    }

    fn keep(&mut self, line: Box<str>) {
        self.bytes += line.len() + LINE_COST;
        self.lines.push_back(line);
        while self.lines.len() > MOST_LINES || self.bytes > MOST_BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len() + LINE_COST;
            self.first += 1;
        }
    }

    /// Forgets all lines, and passes over the numbers of `shown` more.
    pub fn clear(&mut self, shown: u64) {
        *self = Self { first: self.next() + shown, rows: self.rows, ..Self::default() };
    }

    /// Rows that ever came by [`History::push`].
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of the oldest line that is kept.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next line that ends: of the open one, or of the screen's first.
    pub fn next(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// The lines with their numbers, oldest first.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = (u64, &str)> {
        self.lines.iter().enumerate().map(|(at, line)| (self.first + at as u64, &**line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;

    /// What scrolls off a screen of two rows.
    struct Off(History);

    impl vt100::Callbacks for Off {
        fn on_scroll(&mut self, row: RowContents<'_>, _: bool) {
            self.0.push(&row);
        }
    }

    fn history(cols: u16, bytes: &[u8]) -> History {
        let [rows, cols] = [2, cols].map(|n| NonZeroU16::new(n).unwrap());
        let mut parser = vt100::Parser::new_with_callbacks(rows, cols, 0, Off(History::default()));
        parser.process(bytes);
        parser.process(b"\x1b[2S");
        std::mem::take(&mut parser.callbacks_mut().0)
    }

    #[test]
    fn a_line_is_joined_stands_for_itself_and_ends_in_no_blanks() {
        let rows: [(&str, &[&str]); 8] = [
            ("a\r\nb", &["a", "b"]),
            ("abcdefghij\r\nk", &["abcdefghij", "k"]),
            ("abcd\r\nefgh", &["abcd", "efgh"]),
            ("a \r\n\r\nb", &["a", "", "b"]),
            ("\x1b[31ma\r\nb\x1b[m\r\nc", &["\x1b[31ma\x1b[m", "\x1b[31mb\x1b[m", "c"]),
            ("\x1b[1mabcdef\x1b[mg\r\n", &["\x1b[1mabcdef\x1b[mg", ""]),
            ("\x1b[44m \x1b[m\r\n", &["\x1b[44m \x1b[m", ""]),
            ("日本語日\r\n", &["日本語日", ""]),
        ];
        for (bytes, expected) in rows {
            let history = history(4, bytes.as_bytes());
            let lines: Vec<&str> = history.lines().map(|(_, line)| line).collect();
            assert_eq!(lines, expected, "{bytes:?}");
        }
    }

    #[test]
    fn lines_and_bytes_are_bounded_and_numbers_go_on() {
        let many = history(80, "x\r\n".repeat(MOST_LINES + 100).as_bytes());
        assert_eq!((many.lines.len(), many.first(), many.next()), (MOST_LINES, 101, MOST_LINES as u64 + 101));

        let coloured = (0..1000).map(|n| format!("\x1b[38;2;{};1;2;48;2;3;4;5m≤", n % 250)).collect::<String>();
        let wide = history(1000, (coloured + "\r\n").repeat(300).as_bytes());
        let held: usize = wide.lines().map(|(_, line)| line.len() + LINE_COST).sum();
        assert!(wide.bytes == held && held <= MOST_BYTES && held > MOST_BYTES / 2, "{held}");

        let mut endless = history(80, "y".repeat(5_000_000).as_bytes());
        assert!(endless.lines().all(|(_, line)| line.len() <= LONG_LINE + 80));
        let next = endless.next();
        endless.clear(3);
        assert_eq!((endless.first(), endless.next(), endless.bytes), (next + 3, next + 3, 0));
    }
}
