//! What a terminal shows and has shown. Pure data: the bytes of a program go in, rows of text come out.
//!
//! `draw` has the screen drawn; `history` keeps what scrolls off, `answers` what else the program says, `raw` the bytes as they
//! came. A screen outlives its process: the next run goes on below what was there.

use std::fmt;
use std::mem;
use std::num::NonZeroU16;

use vt100::capture::basic_formatted_to_plain;

use super::answers::Ear;
use super::draw::{
    Intake, Parser, TO_ALTERNATE, TO_MAIN, draw, parser, rows_that_would_break, run, scroll, scroll_off, shown_form,
    used_rows,
};
use super::history::History;
use super::raw::Raw;

pub use super::answers::ProgramState;
pub use super::raw::RawTail;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    rows: NonZeroU16,
    cols: NonZeroU16,
}

/// A terminal cannot have this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSize {
    /// The rows that were asked for.
    pub rows: u32,
    /// The columns that were asked for.
    pub cols: u32,
}

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a terminal has 1 to {MOST_SIDE} rows and columns, not {} by {}", self.rows, self.cols)
    }
}

impl std::error::Error for BadSize {}

/// Rows, and columns, that a terminal may have.
const MOST_SIDE: u16 = 1000;

impl Size {
    /// A size of `rows` by `cols`.
    ///
    /// # Errors
    /// If one of them is 0 or above 1000.
    pub fn new(rows: u32, cols: u32) -> Result<Self, BadSize> {
        let side = |n: u32| u16::try_from(n).ok().filter(|n| *n <= MOST_SIDE).and_then(NonZeroU16::new);
        match (side(rows), side(cols)) {
            (Some(rows), Some(cols)) => Ok(Self { rows, cols }),
            _ => Err(BadSize { rows, cols }),
        }
    }

    /// Rows, 1 to 1000.
    pub fn rows(self) -> u16 {
        self.rows.get()
    }

    /// Columns, 1 to 1000.
    pub fn cols(self) -> u16 {
        self.cols.get()
    }
}

impl Default for Size {
    /// 40 by 120: room for what programs lay out in columns, and few rows wrap.
    fn default() -> Self {
        const { Self { rows: NonZeroU16::new(40).unwrap(), cols: NonZeroU16::new(120).unwrap() } }
    }
}

/// How the text of rows is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No escapes, no blanks at the end.
    Plain,
    /// With SGR sequences, `CSI … m`, and no others. Each row begins and ends without attributes.
    Colours,
}

/// A line: one row of the screen, or several that the terminal wrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Counted from the first line ever. The number of a line that has left the screen stays its own; a line that is still
    /// on it may be redrawn.
    pub number: u64,
    /// The text, without control characters but for the escapes of [`Style::Colours`].
    pub text: String,
}

/// Some rows, oldest first.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// What to pass as `before` for the rows above these, if some are kept.
    pub next: Option<u64>,
    /// Whether there were rows above these that are not kept any more.
    pub dropped: bool,
}

/// The rows that a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The newest of them, oldest first.
    pub rows: Vec<Row>,
    /// How many there are in all.
    pub total: usize,
}

/// A terminal's screen, the lines that have left it, and its last bytes.
pub struct Screen {
    parser: Parser,
    intake: Intake,
    raw: Raw,
}

impl Screen {
    /// A blank screen.
    pub fn new(size: Size) -> Self {
        Self { parser: parser(size.rows, size.cols, Ear::default()), intake: Intake::default(), raw: Raw::default() }
    }

    /// A new program writes to the screen. What the last one left on the main screen joins the history; its modes, its title
    /// and its state are gone, and so is a sequence that it did not finish.
    pub fn begin_run(&mut self) {
        let size = self.size();
        let (screen, ear) = self.parser.screen_and_callbacks_mut();
        run(screen, TO_MAIN, |_| {});
        scroll_off(screen, |row| ear.history.push(row));
        ear.history.end_line();
        let history = mem::take(&mut ear.history);
        self.parser = parser(size.rows, size.cols, Ear { history, ..Ear::default() });
        self.intake = Intake::default();
    }

    /// Takes what the program wrote, and gives what the terminal answers to its queries, to be written to its input: at most
    /// a few kilobytes, however many queries there were.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.raw.push(bytes);
        draw(&mut self.parser, &self.intake.take(bytes));
        mem::take(&mut self.parser.callbacks_mut().answers)
    }

    /// Changes the size. Lines of the main screen that would be cut, or parted where they wrapped, join the history first.
    pub fn resize(&mut self, size: Size) {
        let old = self.size();
        if size == old {
            return;
        }
        let (screen, ear) = self.parser.screen_and_callbacks_mut();
        let alternate = screen.alternate_screen();
        run(screen, TO_MAIN, |_| {});
        let mut leaving = used_rows(screen).saturating_sub(size.rows());
        if size.cols() != old.cols() {
            leaving = leaving.max(rows_that_would_break(screen, size.cols()));
        }
        if leaving > 0 {
            let (row, col) = screen.cursor_position();
            let commands = format!("{}\x1b[{};{}H", scroll(leaving), row.saturating_sub(leaving) + 1, col + 1);
            run(screen, &commands, |row| ear.history.push(row));
        }
        // Otherwise a screen that grows would show blank rows on top for those that have left it.
        screen.clear_scrollback();
        self.parser.set_size(size.rows, size.cols);
        if alternate {
            run(self.parser.screen_mut(), TO_ALTERNATE, |_| {});
        }
    }

    /// The size.
    pub fn size(&self) -> Size {
        let (rows, cols) = self.parser.screen().size();
        Size { rows, cols }
    }

    /// The last `lines` rows, or the last before the row of number `before`. Blank rows at the very end are left out. In the
    /// alternate screen its rows stand below the history.
    pub fn tail(&self, lines: usize, before: Option<u64>, style: Style) -> Page {
        let history = self.history();
        let shown = if before.is_some_and(|before| before <= history.next()) { Vec::new() } else { self.shown() };
        let mut rows: Vec<Row> = self
            .lines(&shown)
            .rev()
            .skip_while(|(number, line)| before.map_or_else(|| is_blank(line), |before| *number >= before))
            .take(lines)
            .map(|(number, line)| Row { number, text: styled(line, style) })
            .collect();
        rows.reverse();
        let next = rows.first().map(|row| row.number).filter(|number| *number > history.first());
        Page { rows, next, dropped: next.is_none() && history.first() > 0 }
    }

    /// Looks for the rows that hold `pattern`, in any case, and gives the newest `most`.
    pub fn search(&self, pattern: &str, most: usize) -> Found {
        let pattern = pattern.to_lowercase();
        let shown = self.shown();
        let mut found = Found { rows: Vec::new(), total: 0 };
        for (number, line) in self.lines(&shown).rev() {
            let text = styled(line, Style::Plain);
            if text.to_lowercase().contains(&pattern) {
                found.total += 1;
                if found.rows.len() < most {
                    found.rows.push(Row { number, text });
                }
            }
        }
        found.rows.reverse();
        found
    }

    /// Forgets everything that was shown, and the raw bytes. The program's modes stay, and the column of its cursor; what it
    /// writes next stands at the top of the main screen, or where it was in the alternate screen.
    pub fn clear(&mut self) {
        let shown = self.shown().len() as u64;
        let (screen, ear) = self.parser.screen_and_callbacks_mut();
        let commands: &[&str] =
            if screen.alternate_screen() { &["\x1b[2J", TO_MAIN, TO_BLANK, TO_ALTERNATE] } else { &[TO_BLANK] };
        run(screen, &commands.concat(), |_| {});
        ear.history.clear(shown);
        self.raw.clear();
    }

    /// The last `lines` lines of bytes as they came, of the last 256 KiB: of those before the byte `before`, counted from the first
    /// that ever came, and at most `most` bytes.
    pub fn raw_tail(&self, lines: usize, before: Option<u64>, most: usize) -> RawTail {
        self.raw.tail(lines, before, most)
    }

    /// Whether the program wants a paste between markers.
    pub fn bracketed_paste(&self) -> bool {
        self.parser.screen().bracketed_paste()
    }

    /// Whether the program has taken the whole screen, as editors do.
    pub fn alternate_screen(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    /// The title that the program has given: at most 256 characters, none of them a control character.
    pub fn title(&self) -> Option<&str> {
        self.parser.callbacks().title.as_deref()
    }

    /// What the program says that it does.
    pub fn program_status(&self) -> Option<ProgramState> {
        self.parser.callbacks().state
    }

    fn history(&self) -> &History {
        &self.parser.callbacks().history
    }

    /// The lines below the history: one that has partly left the screen, and the screen's.
    fn shown(&self) -> Vec<Box<str>> {
        let mut joiner = self.history().open.clone();
        let mut lines = Vec::new();
        if self.alternate_screen() {
            lines.extend(joiner.finish());
        }
        scroll_off(&mut self.parser.screen().clone(), |row| lines.extend(joiner.take(row)));
        lines.extend(joiner.finish());
        lines
    }

    /// All lines with their numbers.
    fn lines<'a>(&'a self, shown: &'a [Box<str>]) -> impl DoubleEndedIterator<Item = (u64, &'a str)> {
        let next = self.history().next();
        self.history().lines().chain(shown.iter().enumerate().map(move |(at, line)| (next + at as u64, &**line)))
    }
}

/// Erases the screen, and takes the cursor to its first row.
const TO_BLANK: &str = "\x1b[2J\x1b[1d";

fn styled(line: &str, style: Style) -> String {
    match style {
        Style::Colours => shown_form(line),
        Style::Plain => shown_form(basic_formatted_to_plain(line).collect::<String>().trim_end()),
    }
}

fn is_blank(line: &str) -> bool {
    basic_formatted_to_plain(line).all(|text| text.trim_end().is_empty())
}

#[cfg(test)]
mod tests;
