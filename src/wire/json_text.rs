//! Text as the inside of a JSON string, once or twice over: `data` in the specification's dialect is a string that holds JSON
//! that holds the text.

/// Appends `text`, which is UTF-8, escaped as `serde_json` does it; `twice` as a string within a string.
pub fn escape(text: &[u8], twice: bool, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = special(rest) {
        out.extend_from_slice(&rest[..at]);
        escape_byte(rest[at], twice, out);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn escape_byte(byte: u8, twice: bool, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0C => b'f',
        b'\r' => b'r',
        _ => b'u',
    };
    out.push(b'\\');
    if twice {
        // Of what stands for the byte, the backslash is escaped, and so is a quote or a backslash after it.
        out.push(b'\\');
        if letter == byte {
            out.push(b'\\');
        }
    }
    out.push(letter);
    if letter == b'u' {
        out.extend_from_slice(&[b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Where the first byte is that cannot stand for itself: a quote, a backslash or a control character.
fn special(text: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let mut words = text.chunks_exact(8);
    let mut start = 0;
    for word in words.by_ref() {
        // Eight bytes at a time: the top bit of each byte says whether it is zero, or less than a space. A borrow can make that
        // wrong only above a byte of which it is right, and the lowest counts.
        let word = u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let is_control = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (is_zero(word ^ (ONES * b'"' as u64)) | is_zero(word ^ (ONES * b'\\' as u64)) | is_control) & TOPS;
        if found != 0 {
            return Some(start + found.trailing_zeros() as usize / 8);
        }
        start += 8;
    }
    let is_special = |byte: &u8| matches!(byte, 0..=0x1F | b'"' | b'\\');
    words.remainder().iter().position(is_special).map(|at| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_in_each_place_is_found() {
        for at in 0..20 {
            for byte in 0..=0x7F {
                let mut text = [b'a'; 20];
                text[at] = byte;
                let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
                assert_eq!(special(&text), is_special.then_some(at), "{byte:#x} at {at}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn text_is_escaped_as_serde_json_does_it(text in "(?s)(.|[\\x00-\\x1f\"\\\\\x7f]){0,60}") {
            let inside = |text: &str| {
                let json = serde_json::to_string(text).unwrap();
                json[1..json.len() - 1].to_owned()
            };
            let escaped = |twice| {
                let mut out = Vec::new();
                escape(text.as_bytes(), twice, &mut out);
                String::from_utf8(out).unwrap()
            };
            assert_eq!(escaped(false), inside(&text));
            assert_eq!(escaped(true), inside(&inside(&text)));
        }
    }
}
