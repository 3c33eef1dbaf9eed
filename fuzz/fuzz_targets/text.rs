//! Any split of any bytes comes out whole and in order, in pieces that are never too long and never cut a character (R15, R16).
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/engine/text.rs"]
#[allow(dead_code)]
mod text;

fuzz_target!(|input: (Vec<u16>, &[u8])| {
    let (cuts, bytes) = input;
    let mut splitter = text::Splitter::default();
    let mut out = Vec::new();
    let mut take = |chunk: Option<text::Chunk>| {
        for piece in chunk.iter().flat_map(text::Chunk::pieces) {
            assert!(!piece.bytes().is_empty() && piece.bytes().len() <= text::MAX_PIECE);
            out.extend_from_slice(piece.bytes());
        }
    };
    let mut rest = bytes;
    for cut in cuts {
        let (now, later) = rest.split_at(usize::from(cut >> 1).min(rest.len()));
        splitter.push(now);
        take(splitter.take());
        if cut & 1 == 1 {
            take(splitter.flush());
        }
        rest = later;
    }
    splitter.push(rest);
    take(splitter.take());
    take(splitter.finish());
    assert_eq!(out, bytes);
});
