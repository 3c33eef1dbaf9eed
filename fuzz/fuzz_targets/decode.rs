//! No line of bytes panics the decoder, and what it refuses is refused in words of bounded length (R4).
#![no_main]

use a2e_proc::wire::decode::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    if let Some(Err(rejection)) = decode(line) {
        assert!(rejection.message.len() < 4096, "{} bytes", rejection.message.len());
        assert!(rejection.req_id.len() <= line.len());
    }
});
