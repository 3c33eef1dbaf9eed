//! Base64 of RFC 4648, with padding, as events and writes carry exact bytes (R16, R21). A crate would do; the core's budget
//! of packages has no room for one that saves so little.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place <= group.len() {
                let index = bits >> (18 - 6 * place) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The bytes of `text`, or what is wrong with it. Only what [`encode`] gives is taken.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(4) {
        return Err(format!("its length is {}, not a multiple of 4", text.len()));
    }
    let digits = text.strip_suffix("==").or(text.strip_suffix('=')).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for (at, digit) in digits.bytes().enumerate() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(format!("byte {at} is not one of its characters")),
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xFF) as u8);
        }
    }
    if bits & ((1 << count) - 1) != 0 {
        return Err("its last character has bits that stand for nothing".into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_s_own_examples() {
        let rows =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in rows {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text), Ok(bytes.as_bytes().to_vec()));
        }
        assert_eq!(encode(&[0xff, 0xfe, 0xfb]), "//77");
    }

    #[test]
    fn every_byte_in_every_place_comes_back() {
        for length in 0..6 {
            for byte in 0..=255 {
                let bytes: Vec<u8> = (0..length).map(|at| byte ^ (at * 37)).collect();
                assert_eq!(decode(&encode(&bytes)), Ok(bytes));
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_decoded_is_what_would_be_encoded(text in "[A-Za-z0-9+/=]{0,40}") {
            if let Ok(bytes) = decode(&text) {
                assert_eq!(encode(&bytes), text);
            }
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["*", "Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zh==", "Zm9=", "Zm 8", "Zm8-", "Zm8_", "\u{e9}\u{e9}"]
        {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
