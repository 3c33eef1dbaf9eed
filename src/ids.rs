//! Fresh identifiers: UUIDv4 as 32 lower-case hexadecimal digits (R2).

use std::hash::{BuildHasher, RandomState};

use uuid::{Builder, Uuid};

/// One that names something for long: a process, a session. The system draws it.
pub fn fresh_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// The same id for the same bytes, at any time and on any machine: for what has no id of its own, as a folder. UUIDv5 in a
/// namespace of this program.
#[cfg(feature = "mcp")]
pub fn stable_id(bytes: &[u8]) -> String {
    const NAMESPACE: Uuid = Uuid::from_u128(0x6d1f_1c0e_3f0b_4c55_9a52_0c8f_6b8e_2d11);
    Uuid::new_v5(&NAMESPACE, bytes).simple().to_string()
}

/// Many, for messages, without a call of the system for each: a line of output is put together in less time than that takes. A
/// count, hashed under two keys that come of what the system has drawn. Nobody else's give the same ids, and nobody without them
/// can tell the next one.
pub struct Ids {
    keys: [RandomState; 2],
    count: u64,
}

impl Ids {
    /// With keys of their own.
    pub fn new() -> Self {
        Self { keys: [RandomState::new(), RandomState::new()], count: 0 }
    }

    /// Appends an id to `out`.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        self.count += 1;
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(self.count));
        let random = u128::from(high) << 64 | u128::from(low);
        let id = Builder::from_random_bytes(random.to_ne_bytes()).into_uuid();
        let mut text = Uuid::encode_buffer();
        out.extend_from_slice(id.simple().encode_lower(&mut text).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_version_4_and_no_two_are_the_same() {
        let mut ids = Ids::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let mut text = Vec::new();
            ids.write(&mut text);
            let text = String::from_utf8(text).unwrap();
            let id = Uuid::parse_str(&text).unwrap();
            assert_eq!((text.len(), id.get_version_num(), id.get_variant()), (32, 4, uuid::Variant::RFC4122));
            assert!(seen.insert(text));
        }
    }

    /// The id is in the names of files that outlive this program, so it may not change with it.
    #[cfg(feature = "mcp")]
    #[test]
    fn a_stable_id_never_changes() {
        assert_eq!(stable_id(b"/home/a/project"), "1ca4fd3cd6645a51a3f4df2fe911e5fc");
        assert_ne!(stable_id(b"/home/a/project"), stable_id(b"/home/a/project2"));
    }
}
