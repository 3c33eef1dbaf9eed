//! Bytes of an output stream, cut into lines and pieces (R15, R16). Pure; the reader in `output` drives it.
//!
//! The cuts never fall inside a character, whatever the reads looked like, so the text of a stream is the same however its
//! bytes arrived.

use std::borrow::Cow;

use memchr::memchr_iter;

/// The longest piece, in bytes: a longer line is sent in several (R15).
pub const MAX_PIECE: usize = 64 * 1024;

/// Consecutive pieces of one stream, held together as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    bytes: Vec<u8>,
    /// Where each piece ends. A chunk is far smaller than 4 GiB.
    ends: Vec<u32>,
}

/// One line with its newline, or as much of one as is sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    bytes: &'a [u8],
    /// If the whole chunk is UTF-8, which is looked at once.
    text: Option<&'a str>,
}

impl Chunk {
    /// The pieces, in order. None is empty.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let text = std::str::from_utf8(&self.bytes).ok();
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter().copied()).map(move |(start, end)| {
            let range = start as usize..end as usize;
            Piece { bytes: &self.bytes[range.clone()], text: text.map(|text| &text[range]) }
        })
    }

    /// All bytes of all pieces.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'a> Piece<'a> {
    /// The exact bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The text, with U+FFFD for what is not UTF-8. It is borrowed exactly when the bytes are valid (R16).
    pub fn text(self) -> Cow<'a, str> {
        self.text.map_or_else(|| String::from_utf8_lossy(self.bytes), Cow::Borrowed)
    }
}

/// Cuts a stream into chunks, keeping back what is not yet a piece.
#[derive(Debug, Default)]
pub struct Splitter {
    held: Vec<u8>,
    /// Ends of the finished pieces in `held`.
    ends: Vec<u32>,
}

impl Splitter {
    /// Takes what was read, in order.
    pub fn push(&mut self, data: &[u8]) {
        let old = self.held.len();
        self.held.extend_from_slice(data);
        for newline in memchr_iter(b'\n', data) {
            let end = old + newline + 1;
            self.cut_long(end);
            self.end_piece(end);
        }
        self.cut_long(self.held.len());
    }

    /// The finished pieces, if there are any.
    pub fn take(&mut self) -> Option<Chunk> {
        let end = *self.ends.last()?;
        let rest = self.held.split_off(end as usize);
        let bytes = std::mem::replace(&mut self.held, rest);
        Some(Chunk { bytes, ends: std::mem::take(&mut self.ends) })
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether a part of a line is held that [`Splitter::flush`] would finish.
    pub fn has_partial(&self) -> bool {
        complete(&self.held[self.start()..]) > 0
    }

    /// Finishes the part of a line that is held, but for a character that is not whole yet: it has been quiet.
    pub fn flush(&mut self) -> Option<Chunk> {
        let start = self.start();
        self.finish_at(start + complete(&self.held[start..]))
    }

    /// Finishes everything: no more will come.
    pub fn finish(&mut self) -> Option<Chunk> {
        self.finish_at(self.held.len())
    }

    fn start(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    fn end_piece(&mut self, end: usize) {
        self.ends.push(u32::try_from(end).expect("what is held is a read and a piece, far less than 4 GiB"));
    }

    fn finish_at(&mut self, end: usize) -> Option<Chunk> {
        if end > self.start() {
            self.end_piece(end);
        }
        self.take()
    }

    /// Cuts the unfinished line that reaches up to `end` until the rest is at most [`MAX_PIECE`] long.
    ///
    /// The place of a cut depends on the line's bytes alone: it is the last character boundary among the first
    /// [`MAX_PIECE`] of them.
    fn cut_long(&mut self, end: usize) {
        loop {
            let start = self.start();
            if end - start <= MAX_PIECE {
                break;
            }
            self.end_piece(start + complete(&self.held[start..start + MAX_PIECE]));
        }
    }
}

/// How many of the bytes are left if a character that only lacks its last bytes is taken off the end.
fn complete(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let tail = &bytes[bytes.len() - back..];
        match tail[0] {
            0x80..=0xBF => {}
            0xC2..=0xF4 => {
                let cut_short = std::str::from_utf8(tail).is_err_and(|e| e.error_len().is_none());
                return if cut_short { bytes.len() - back } else { bytes.len() };
            }
            _ => break,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::Strategy;

    /// Feeds the reads, flushing after each if `quiet`, and returns all pieces.
    fn pieces(reads: &[&[u8]], quiet: bool) -> Vec<Vec<u8>> {
        let mut splitter = Splitter::default();
        let mut out = Vec::new();
        let mut keep = |chunk: Option<Chunk>| {
            if let Some(chunk) = chunk {
                out.extend(chunk.pieces().map(|piece| piece.bytes().to_vec()));
            }
        };
        for read in reads {
            splitter.push(read);
            keep(splitter.take());
            if quiet {
                keep(splitter.flush());
            }
        }
        keep(splitter.finish());
        out
    }

    #[test]
    fn lines_keep_their_newlines_and_partials_wait() {
        let rows: [(&[&[u8]], bool, &[&[u8]]); 8] = [
            (&[b"a\nb\n"], false, &[b"a\n", b"b\n"]),
            (&[b"a\r\nb"], false, &[b"a\r\n", b"b"]),
            (&[b"a", b"b\n\n"], false, &[b"ab\n", b"\n"]),
            (&[b">>> "], true, &[b">>> "]),
            (&[b"a\xe2", b"\x89", b"\xa4\n"], true, &[b"a", b"\xe2\x89\xa4\n"]),
            (&[b"\xe2", b"A"], true, &[b"\xe2A"]),
            (&[b"\xff"], true, &[b"\xff"]),
            (&[b"\xe2\x89"], true, &[b"\xe2\x89"]),
        ];
        for (reads, quiet, expected) in rows {
            assert_eq!(pieces(reads, quiet), expected, "{reads:?} quiet={quiet}");
        }
    }

    #[test]
    fn only_a_character_that_may_still_become_whole_is_kept_back() {
        let rows: [(&[u8], usize); 10] = [
            (b"", 0),
            (b"a", 1),
            (b"a\xc3", 1),
            (b"a\xc3\xa9", 3),
            (b"\xf0\x9f\x98", 0),
            (b"\xf0\x9f\x98\x80", 4),
            (b"\xf0\x80", 2),
            (b"\xe0\x80", 2),
            (b"\x80\x80\x80", 3),
            (b"\xff", 1),
        ];
        for (bytes, expected) in rows {
            assert_eq!(complete(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn a_long_line_is_cut_at_characters_wherever_the_reads_end() {
        let line = "≤".repeat(100_000) + "\n";
        let whole = pieces(&[line.as_bytes()], false);
        assert!(whole.iter().all(|piece| piece.len() <= MAX_PIECE && std::str::from_utf8(piece).is_ok()));
        assert_eq!(whole.concat(), line.as_bytes());
        for size in [1, 4096, 65_535, 65_536, 65_537] {
            let reads: Vec<&[u8]> = line.as_bytes().chunks(size).collect();
            assert_eq!(pieces(&reads, false), whole, "reads of {size}");
        }
        let exact = [vec![b'x'; MAX_PIECE - 1], vec![b'\n']].concat();
        assert_eq!(pieces(&[&exact], false), [exact.as_slice()]);
    }

    proptest::proptest! {
        #[test]
        fn any_split_of_any_bytes_gives_the_same_text_and_bytes(
            parts in proptest::collection::vec(
                proptest::prop_oneof![
                    "[a≤😀\n\r]{0,8}".prop_map(String::into_bytes),
                    proptest::collection::vec(proptest::prelude::any::<u8>(), 0..8),
                    proptest::strategy::Just(vec![b'x'; 40_000]),
                ],
                0..12,
            ),
            cuts in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), proptest::bool::ANY), 0..20),
        ) {
            let bytes = parts.concat();
            let mut at: Vec<(usize, bool)> = cuts.iter().map(|(index, quiet)| (index.index(bytes.len() + 1), *quiet)).collect();
            at.sort_unstable();
            let mut splitter = Splitter::default();
            let (mut text, mut exact, mut start) = (String::new(), Vec::new(), 0);
            let mut keep = |chunk: Option<Chunk>| {
                for piece in chunk.iter().flat_map(Chunk::pieces) {
                    assert!(!piece.bytes().is_empty() && piece.bytes().len() <= MAX_PIECE);
                    text.push_str(&piece.text());
                    exact.extend_from_slice(piece.bytes());
                }
            };
            for (end, quiet) in at {
                splitter.push(&bytes[start..end]);
                keep(splitter.take());
                if quiet {
                    keep(splitter.flush());
                }
                start = end;
            }
            splitter.push(&bytes[start..]);
            keep(splitter.take());
            keep(splitter.finish());
            assert!(exact == bytes, "bytes were lost or changed");
            assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_piece_knows_whether_its_text_is_exact() {
        let chunk = |bytes: &[u8]| Chunk { bytes: bytes.to_vec(), ends: vec![3, bytes.len() as u32] };
        let texts = |bytes: &[u8]| -> Vec<(String, bool)> {
            let chunk = chunk(bytes);
            let pieces = chunk.pieces().map(|piece| piece.text());
            pieces.map(|text| (text.to_string(), matches!(text, Cow::Borrowed(_)))).collect()
        };
        assert_eq!(texts("é\nü".as_bytes()), [("é\n".into(), true), ("ü".into(), true)]);
        // One that is not exact leaves the others as they are.
        assert_eq!(texts("é\n\u{0}".as_bytes()).len(), 2);
        assert_eq!(texts(b"ok\n\xff\xfe bad"), [("ok\n".into(), true), ("\u{fffd}\u{fffd} bad".into(), false)]);
    }
}
