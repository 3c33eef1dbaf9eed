//! Bounded lines from any reader (R1): a longer one is skipped without being held, and reading goes on.

use std::io::{self, Read};

use memchr::memchr;

/// Bytes per read.
const READ: usize = 64 * 1024;

/// What was read up to a newline, which is not part of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// The bytes of a line.
    Whole(&'a [u8]),
    /// The line was longer than the limit; its bytes are gone.
    TooLong,
}

/// Cuts an input into lines.
pub struct LineReader<R> {
    input: R,
    limit: usize,
    buffer: Vec<u8>,
    /// The unread part of `buffer`.
    start: usize,
    end: usize,
    /// What has been read of a line that goes on in the next read.
    line: Vec<u8>,
    too_long: bool,
    /// Bytes of the last line, without the newline.
    length: usize,
}

impl<R: Read> LineReader<R> {
    /// Lines of `input`, each of at most `limit` bytes without the newline.
    pub fn new(input: R, limit: usize) -> Self {
        Self { input, limit, buffer: vec![0; READ], start: 0, end: 0, line: Vec::new(), too_long: false, length: 0 }
    }

    /// The bytes of the line that was read last, without its newline, even if it was too long to be held.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The next line, or `None` at the end of the input. Bytes after the last newline are a line too.
    ///
    /// # Errors
    /// What the input says, but for interruptions.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.forget_line();
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(length) = memchr(b'\n', unread) {
                let from = self.start;
                self.start += length + 1;
                if self.line.is_empty() && !self.too_long && length <= self.limit {
                    self.length = length;
                    return Ok(Some(Line::Whole(&self.buffer[from..from + length])));
                }
                self.append(from, from + length);
                return Ok(Some(self.finish()));
            }
            self.append(self.start, self.end);
            (self.start, self.end) = (0, 0);
            match self.input.read(&mut self.buffer) {
                Ok(0) if self.line.is_empty() && !self.too_long => return Ok(None),
                Ok(0) => return Ok(Some(self.finish())),
                Ok(count) => self.end = count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn append(&mut self, from: usize, to: usize) {
        self.length += to - from;
        if self.line.len() + (to - from) > self.limit {
            self.too_long = true;
            self.line = Vec::new();
        }
        if !self.too_long {
            self.line.extend_from_slice(&self.buffer[from..to]);
        }
    }

    fn finish(&mut self) -> Line<'_> {
        if std::mem::take(&mut self.too_long) { Line::TooLong } else { Line::Whole(&self.line) }
    }

    fn forget_line(&mut self) {
        self.length = 0;
        if self.line.capacity() > READ {
            self.line = Vec::new();
        } else {
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives at most `size` bytes per read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(buffer.len()).min(self.0.len());
            let (now, later) = self.0.split_at(size);
            buffer[..size].copy_from_slice(now);
            self.0 = later;
            Ok(size)
        }
    }

    #[test]
    fn lines_whatever_the_reads_look_like() {
        let rows: [(&[u8], usize, &[Option<&[u8]>]); 9] = [
            (b"", 5, &[]),
            (b"a\nb\n", 5, &[Some(b"a"), Some(b"b")]),
            (b"a\n\nb", 5, &[Some(b"a"), Some(b""), Some(b"b")]),
            (b"12345\n123456\n7\n", 5, &[Some(b"12345"), None, Some(b"7")]),
            (b"123456789", 5, &[None]),
            (b"12345", 5, &[Some(b"12345")]),
            (b"a\r\n", 5, &[Some(b"a\r")]),
            ("a\u{2028}b\0\n".as_bytes(), 9, &[Some("a\u{2028}b\0".as_bytes())]),
            (b"123456\n\n", 5, &[None, Some(b"")]),
        ];
        for (input, limit, expected) in rows {
            for size in [1, 2, 3, 100] {
                let mut reader = LineReader::new(Slow(input, size), limit);
                let mut got = Vec::new();
                while let Some(line) = reader.next_line().unwrap() {
                    got.push(match line {
                        Line::Whole(bytes) => Some(bytes.to_vec()),
                        Line::TooLong => None,
                    });
                }
                let got: Vec<Option<&[u8]>> = got.iter().map(Option::as_deref).collect();
                assert_eq!(got, expected, "{input:?} in reads of {size}");
            }
        }
    }

    #[test]
    fn an_endless_line_is_not_held() {
        let mut reader = LineReader::new(io::repeat(b'x').take(64 << 20).chain(&b"\nok\n"[..]), 1 << 20);
        assert_eq!(reader.next_line().unwrap(), Some(Line::TooLong));
        assert_eq!(reader.length(), 64 << 20);
        assert!(reader.line.capacity() == 0);
        assert_eq!(reader.next_line().unwrap(), Some(Line::Whole(b"ok")));
        assert_eq!(reader.length(), 2);
    }
}
