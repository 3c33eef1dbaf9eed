//! JSON, and nothing else: lines of bytes from and to typed messages. Floor 1; the faces call it, it calls nobody.
//!
//! `decode` reads what agents send into `request`, `message` writes what hosts answer, `event` writes events in a
//! `dialect`, and `code` has every error's code and words.

pub mod base64;
pub mod code;
pub mod decode;
pub mod dialect;
pub mod event;
mod fields;
mod json_text;
pub mod message;
pub mod request;

/// The protocol version that this host speaks (R3).
pub const VERSION: &str = "1.0";

/// The longest line that is taken, in bytes, if nothing else is configured (R1).
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
