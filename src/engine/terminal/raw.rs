//! The last bytes of a terminal as they came, for readers who want the escapes too. Pure; `screen` fills it.

use std::collections::VecDeque;

use memchr::memrchr_iter;

/// Bytes that are kept.
pub const MOST_RAW: usize = 256 * 1024;

/// A ring of the last [`MOST_RAW`] bytes, and the count of all.
#[derive(Default)]
pub struct Raw {
    kept: VecDeque<u8>,
    total: u64,
}

/// The end of what a program wrote, escapes kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTail {
    /// The text, with U+FFFD for what is not UTF-8.
    pub text: String,
    /// Where the text begins, in bytes counted from the first that ever came.
    pub offset: u64,
    /// Bytes that ever came.
    pub total: u64,
}

impl Raw {
    /// Takes what came, in order.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(MOST_RAW)..];
        let excess = (self.kept.len() + bytes.len()).saturating_sub(MOST_RAW);
        self.kept.drain(..excess);
        self.kept.extend(bytes);
    }

    /// Forgets the bytes; the count goes on.
    pub fn clear(&mut self) {
        self.kept = VecDeque::new();
    }

    /// The last `lines` lines of what came before the byte `before`, or of all, as far as they are kept, and at most `most` bytes. A
    /// newline ends a line; it does not begin another.
    pub fn tail(&self, lines: usize, before: Option<u64>, most: usize) -> RawTail {
        let (front, back) = self.kept.as_slices();
        let all = [front, back].concat();
        let first = self.total - all.len() as u64;
        let end = before.map_or(all.len(), |before| before.saturating_sub(first).min(all.len() as u64) as usize);
        let least = end.saturating_sub(most);
        let bytes = &all[least..end];
        let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let start = match lines.checked_sub(1) {
            None => bytes.len(),
            Some(newlines) => memrchr_iter(b'\n', body).nth(newlines).map_or_else(|| whole(bytes), |at| at + 1),
        };
        RawTail {
            text: String::from_utf8_lossy(&bytes[start..]).into_owned(),
            offset: first + (least + start) as u64,
            total: self.total,
        }
    }
}

/// Where the first character begins: the ring may have cut one.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(parts: &[&[u8]], lines: usize) -> (String, u64, u64) {
        let mut raw = Raw::default();
        parts.iter().for_each(|part| raw.push(part));
        let RawTail { text, offset, total } = raw.tail(lines, None, usize::MAX);
        (text, offset, total)
    }

    #[test]
    fn lines_are_counted_from_the_end() {
        let rows: [(&[&[u8]], usize, &str, u64, u64); 9] = [
            (&[], 5, "", 0, 0),
            (&[b"a\nb\nc"], 0, "", 5, 5),
            (&[b"a\nb\nc"], 1, "c", 4, 5),
            (&[b"a\nb\nc\n"], 1, "c\n", 4, 6),
            (&[b"a\n", b"b\nc\n"], 2, "b\nc\n", 2, 6),
            (&[b"a\nb\n\n"], 1, "\n", 4, 5),
            (&[b"a\nb\n"], 9, "a\nb\n", 0, 4),
            (&[b"\x1b[1ma\x1b[m\r\n"], 1, "\x1b[1ma\x1b[m\r\n", 0, 10),
            (&[b"a\xff\n"], 1, "a\u{fffd}\n", 0, 3),
        ];
        for (parts, lines, text, offset, total) in rows {
            assert_eq!(tail(parts, lines), (text.into(), offset, total), "{parts:?} {lines}");
        }
    }

    #[test]
    fn what_came_before_is_read_backwards() {
        let mut raw = Raw::default();
        raw.push("one\ntwo≤\nthree\n".as_bytes());
        let (mut before, mut parts) = (None, Vec::new());
        while before != Some(0) {
            let tail = raw.tail(1, before, 5);
            before = Some(tail.offset);
            parts.insert(0, tail.text);
        }
        assert_eq!(parts, ["one\n", "tw", "o≤\n", "t", "hree\n"]);
        assert_eq!(raw.tail(1, Some(99), 99).text, "three\n");
    }

    #[test]
    fn only_the_last_bytes_are_kept_and_no_character_is_cut() {
        let mut raw = Raw::default();
        for _ in 0..50 {
            raw.push("≤".repeat(10_001).as_bytes());
        }
        let tail = raw.tail(1, None, usize::MAX);
        assert!(raw.kept.len() == MOST_RAW && raw.kept.capacity() <= 2 * MOST_RAW);
        assert_eq!((tail.total, tail.text.trim_matches('≤')), (50 * 30_003, ""));
        assert_eq!(tail.offset + tail.text.len() as u64, tail.total);

        raw.push(&vec![b'x'; 3 * MOST_RAW]);
        assert_eq!(raw.tail(1, None, usize::MAX).text.len(), MOST_RAW);
        raw.clear();
        assert_eq!(raw.tail(1, None, usize::MAX), RawTail { text: String::new(), offset: raw.total, total: raw.total });
    }
}
