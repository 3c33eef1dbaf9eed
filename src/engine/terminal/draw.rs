//! Drives the crate that draws: the bytes of a program, guarded against what the crate cannot take, and commands of our own.
//! Pure; `screen` calls it.

use std::borrow::Cow;
use std::mem;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use memchr::{memchr, memmem};
use vt100::capture::RowContents;
use vt100::{Color, Screen};

use super::answers::Ear;

/// The program's own parser, with the screen that it draws on.
pub type Parser = vt100::Parser<Ear>;

/// A parser with a blank screen.
pub fn parser(rows: NonZeroU16, cols: NonZeroU16, ear: Ear) -> Parser {
    // No scrollback of the crate's: it takes 32 bytes a cell, where the history takes a byte a character.
    Parser::new_with_callbacks(rows, cols, 0, ear)
}

/// U+FE0F makes the character before it wide, and the crate panics when that stands at the edge. U+FE0E, its narrow sibling,
/// is drawn in its place; [`shown_form`] turns it back.
const WIDENING: &str = "\u{fe0f}";
const NARROW: &str = "\u{fe0e}";

/// The text of a row as the program wrote it.
pub fn shown_form(text: &str) -> String {
    text.replace(NARROW, WIDENING)
}

/// Makes the pieces in which output comes fit to be drawn.
#[derive(Default)]
pub struct Intake {
    /// The first bytes of a character. The crate's parser loses text behind a character that comes in two pieces.
    held: Vec<u8>,
}

impl Intake {
    /// Takes the next piece, and gives what can be drawn of it.
    pub fn take<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut bytes = Cow::Borrowed(bytes);
        if !self.held.is_empty() {
            self.held.extend_from_slice(&bytes);
            bytes = Cow::Owned(mem::take(&mut self.held));
        }
        let (whole, unfinished) = bytes.split_at(bytes.len() - unfinished(&bytes));
        let places: Vec<usize> = memmem::find_iter(whole, WIDENING).collect();
        self.held = unfinished.to_vec();
        let end = whole.len();
        if places.is_empty() && self.held.is_empty() {
            return bytes;
        }
        let mut bytes = bytes.into_owned();
        bytes.truncate(end);
        for at in places {
            bytes[at..at + NARROW.len()].copy_from_slice(NARROW.as_bytes());
        }
        Cow::Owned(bytes)
    }
}

/// How many bytes at the end are a character that lacks its last bytes.
fn unfinished(bytes: &[u8]) -> usize {
    let is_start = |count: &usize| {
        let end = std::str::from_utf8(&bytes[bytes.len() - count..]);
        end.is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
    };
    (1..=bytes.len().min(3)).find(is_start).unwrap_or(0)
}

/// Draws what [`Intake`] gave.
pub fn draw(parser: &mut Parser, bytes: &[u8]) {
    // No input is known that makes the crate panic; many were, and the reader of a terminal must go on. What is left of the
    // screen then may be in disorder, so it is not looked at again; the history is.
    if catch_unwind(AssertUnwindSafe(|| draw_lines(parser, bytes))).is_err() {
        let (rows, cols) = parser.screen().size();
        let ear = mem::take(parser.callbacks_mut());
        *parser = self::parser(rows, cols, ear);
    }
}

/// Draws a flood of short plain lines without drawing those that nobody would see: they go straight to the history.
///
/// Every row that scrolls costs a walk over all its cells, and `yes` would be read at a tenth of the speed.
fn draw_lines(parser: &mut Parser, bytes: &[u8]) {
    let (rows, cols) = parser.screen().size();
    let (rows, cols) = (usize::from(rows.get()), usize::from(cols.get()));
    let first = memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    let (head, rest) = bytes.split_at(first);
    parser.process(head);
    let lines: Vec<&str> = rest.split_inclusive(|byte| *byte == b'\n').map_while(|line| plain(line, cols)).collect();
    if rows < 2 || lines.len() < 2 * rows {
        return parser.process(rest);
    }
    let length = |lines: &[&str]| -> usize { lines.iter().map(|line| line.len() + 2).sum() };
    let (probe, lines) = lines.split_at(1);
    let (drawn, rest) = rest.split_at(length(probe));
    if !scrolls_plainly(parser, drawn, probe[0], rows) {
        return parser.process(rest);
    }
    // What stands above the last row leaves, the last row being blank; then all lines but those that fill the same place.
    let unseen = &lines[..lines.len() - (rows - 1)];
    let (screen, ear) = parser.screen_and_callbacks_mut();
    run(screen, &format!("\x1b[{}S\x1b[1d", rows - 1), |row| ear.history.push(row));
    unseen.iter().for_each(|line| ear.history.push_line(line));
    parser.process(&rest[length(unseen)..]);
}

/// The text of a line that nothing but itself is needed to draw, and that fits in a row.
fn plain(line: &[u8], cols: usize) -> Option<&str> {
    let text = line.strip_suffix(b"\r\n")?;
    let is_plain = text.len() <= cols && text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain { std::str::from_utf8(text).ok() } else { None }
}

/// Draws a line, and tells whether lines like it do nothing but scroll the whole main screen: whether it stood on the last
/// row, has been taken for text, every character of it, has no attributes, and has sent one row to the history.
fn scrolls_plainly(parser: &mut Parser, line: &[u8], text: &str, rows: usize) -> bool {
    let at_bottom = |screen: &Screen| screen.cursor_position() == (rows as u16 - 1, 0) && !screen.alternate_screen();
    let before = parser.callbacks().history.rows();
    let was_at_bottom = at_bottom(parser.screen());
    parser.process(line);
    let screen = parser.screen();
    let drawn = || screen.rows(0, u16::MAX).nth(rows - 2).unwrap_or_default();
    was_at_bottom
        && at_bottom(screen)
        && parser.callbacks().history.rows() == before + 1
        && (screen.fgcolor(), screen.bgcolor()) == (Color::Default, Color::Default)
        && !(screen.bold() || screen.dim() || screen.italic() || screen.underline() || screen.inverse())
        && !text.trim_end().is_empty()
        && drawn().trim_end() == text.trim_end()
}

/// Carries out `commands` on a screen, and hands on the rows that leave it.
///
/// Not by the program's own parser, which may be in the middle of a sequence.
pub fn run(screen: &mut Screen, commands: &str, on_row: impl FnMut(&RowContents<'_>)) {
    struct Off<F>(F);
    impl<F: FnMut(&RowContents<'_>)> vt100::Callbacks for Off<F> {
        fn on_scroll(&mut self, row: RowContents<'_>, _alternate: bool) {
            (self.0)(&row);
        }
    }
    let mut parser = vt100::Parser::new_with_callbacks(NonZeroU16::MIN, NonZeroU16::MIN, 0, Off(on_row));
    mem::swap(parser.screen_mut(), screen);
    parser.process(commands.as_bytes());
    mem::swap(parser.screen_mut(), screen);
}

/// To the main screen and back, with no effect on cursors and contents.
pub const TO_MAIN: &str = "\x1b[?47l";
/// See [`TO_MAIN`].
pub const TO_ALTERNATE: &str = "\x1b[?47h";

/// Moves the whole screen up. The cursor is at the top then.
pub fn scroll(rows: u16) -> String {
    format!("\x1b[r\x1b[{rows}S")
}

/// Scrolls everything that stands on the screen off it: what the crate tells of a row, it tells of one that leaves.
pub fn scroll_off(screen: &mut Screen, on_row: impl FnMut(&RowContents<'_>)) {
    let used = used_rows(screen);
    if used > 0 {
        run(screen, &scroll(used), on_row);
    }
}

/// How many rows there are down to the last that is not blank.
pub fn used_rows(screen: &Screen) -> u16 {
    last(screen.rows(0, u16::MAX).map(|text| !text.trim_end().is_empty()))
}

/// How many rows there are down to the last that wraps, or has text that `cols` columns have no room for.
pub fn rows_that_would_break(screen: &Screen, cols: u16) -> u16 {
    let beyond = screen.rows(cols, u16::MAX).zip(0..);
    last(beyond.map(|(text, row)| {
        let cut = screen.cell(row, cols - 1).is_some_and(vt100::Cell::is_wide);
        cut || !text.trim_end().is_empty() || screen.row_wrapped(row)
    }))
}

/// How many items there are down to the last that is true.
fn last(items: impl Iterator<Item = bool>) -> u16 {
    items.zip(1..).filter(|(item, _)| *item).last().map_or(0, |(_, count)| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(bytes: &str) -> Parser {
        let [rows, cols] = [4, 10].map(|n| NonZeroU16::new(n).unwrap());
        let mut parser = parser(rows, cols, Ear::default());
        parser.process(bytes.as_bytes());
        parser
    }

    #[test]
    fn a_flood_is_drawn_as_it_would_be_line_by_line() {
        let rows = [
            ("1\r\n2\r\n3\r\n4\r\n", "y", "", true),
            ("1\r\n2\r\n3\r\n4", "y", "rest \x1b[31mred", true),
            ("\r\n\r\n0123456789abc\r\n", "0123456789", "\x1b[5b", true),
            ("\r\n\r\n\r\n", " y  ", "", true),
            ("\r\n\r\n\r\n\x1b[3", "1mab", "", false),
            ("\r\n\r\n\r\n\x1b]0;unfinished", "y", "\x07", false),
            ("\r\n\r\n\r\n\x1bPunfinished", "y", "\x1b\\", false),
            ("\r\n\r\n\r\n\x1b[", "", "", false),
            ("\r\n\r\n\r\n", "", "", false),
            ("", "y", "", false),
            ("\r\n\r\n\r\n\x1b[31m", "y", "", false),
            ("\r\n\r\n\r\n\x1b[1m", "y", "", false),
            ("\x1b[2;4r\x1b[4H", "y", "", false),
            ("\x1b[1;3r\x1b[4H", "y", "", false),
            ("\x1b[?47h\x1b[4H", "y", "", false),
            ("\r\n\r\n\r\n", "too long for it", "", false),
            ("\r\n\r\n\r\n", "caf\u{e9}", "", false),
        ];
        for (start, line, rest, is_fast) in rows {
            let flood = format!("{line}\r\n").repeat(100) + rest;
            let (mut fast, mut slow) = (drawn(start), drawn(start));
            draw(&mut fast, flood.as_bytes());
            slow.process(flood.as_bytes());
            let state = |parser: &Parser| {
                let lines: Vec<String> = parser.callbacks().history.lines().map(|(_, line)| line.into()).collect();
                (lines, parser.screen().state_formatted(), parser.screen().cursor_position())
            };
            assert_eq!(state(&fast), state(&slow), "{start:?} {line:?}");
            // What goes straight to the history is not counted as a row that scrolled.
            let [fast, slow] = [fast, slow].map(|parser| parser.callbacks().history.rows());
            assert_eq!(fast < slow, is_fast, "{start:?} {line:?}: {fast} of {slow}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_changed_or_waits_for_its_rest() {
        let rows: [(&[&[u8]], &[u8]); 7] = [
            (&[b"abc"], b"abc"),
            (&["a❤\u{fe0f}b".as_bytes()], "a❤\u{fe0e}b".as_bytes()),
            (&[b"\xef", b"\xb8", b"\x8f"], b"\xef\xb8\x8e"),
            (&[b"\xef\xb8\xef\xb8\x8f\x8f"], b"\xef\xb8\xef\xb8\x8e\x8f"),
            (&[b"a\xe2\x89", b"\xa4b"], b"a\xe2\x89\xa4b"),
            (&[b"a\xc3", b"A\xe2"], b"a\xc3A"),
            (&[b"\xff\x80\xf0\x9f", b""], b"\xff\x80"),
        ];
        for (pieces, expected) in rows {
            let mut intake = Intake::default();
            let taken: Vec<u8> = pieces.iter().flat_map(|piece| intake.take(piece).into_owned()).collect();
            assert_eq!(taken, expected, "{pieces:x?}");
        }
        assert_eq!(shown_form("❤\u{fe0e}"), "❤\u{fe0f}");
    }

    #[test]
    fn when_the_crate_panics_the_history_is_kept_and_the_screen_begins_anew() {
        let mut parser = drawn("1\r\n2\r\n3\r\n4\r\n5\r\n");
        // What the intake would have changed.
        draw(&mut parser, "\x1b[4;10H❤\u{fe0f}\x1b[A日日日日".as_bytes());
        assert_eq!(parser.screen().contents(), "");
        draw(&mut parser, b"new");
        assert_eq!(parser.screen().contents(), "new");
        assert_eq!(parser.callbacks().history.lines().next(), Some((0, "1")));
    }
}
