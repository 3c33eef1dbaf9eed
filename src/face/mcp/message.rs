//! JSON-RPC messages and their lines, in both directions. Knows no method of MCP but the two that its own lines carry.
//!
//! Lines are read in stages and only as deep as somebody asks: what is wrong inside `params` still has an id to be answered to,
//! and what nobody looks at is never held.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Deserializer as _, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The longest line that is read, in bytes.
pub const MAX_INPUT: usize = 20 << 20;

/// The longest line that is sent, in bytes: clients end the session over longer ones.
pub const MAX_OUTPUT: usize = 10 << 20;

/// The longest id or token, in bytes; it is echoed with everything that is said of a request.
const MAX_ID: usize = 4096;

/// The most messages in one array.
const MAX_BATCH: usize = 1000;

/// JSON-RPC's error codes, and MCP's own.
pub const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const INVALID_PARAMS: i32 = -32602;
pub const INTERNAL: i32 = -32603;
pub const UNSUPPORTED_VERSION: i32 = -32022;

/// A request's id, or a progress token: a string or an integer of any size. Kept as JSON, so that 1 is not `"1"` and nothing
/// is lost of integers beyond 2^53.
#[derive(Clone, Debug, Serialize)]
pub struct Id(Box<RawValue>);

impl Id {
    /// `None` if `json` is neither, or too long to be echoed. `1.0` and `1e3` are no integers: who sends them means fractions.
    pub fn read(json: &str) -> Option<Self> {
        if json.len() > MAX_ID {
            return None;
        }
        let digits = json.strip_prefix('-').unwrap_or(json);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return serde_json::from_str(json).ok().map(Self);
        }
        // One spelling for each string, so that equal ones are equal.
        serde_json::from_str::<String>(json).ok().and_then(|text| to_raw_value(&text).ok()).map(Self)
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.get().hash(state);
    }
}

/// What a line holds.
#[derive(Debug)]
pub enum Parcel<'a> {
    /// Nothing that anybody could answer: it is not JSON, or not UTF-8, or an array that is cut.
    Unreadable,
    One(Message<'a>),
    /// An array of messages, which revision 2025-03-26 has.
    Batch(Vec<Message<'a>>),
    /// More messages in an array than are taken.
    TooMany,
}

/// One message.
#[derive(Debug)]
pub enum Message<'a> {
    Request {
        id: Id,
        method: String,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: String,
        params: Option<&'a RawValue>,
    },
    /// An answer to the request with this id.
    Response(Id),
    /// None of these. It is told why if its id can be read.
    Invalid(Option<Id>, &'static str),
}

/// Reads a line.
pub fn read(line: &[u8]) -> Parcel<'_> {
    let Ok(line) = std::str::from_utf8(line) else { return Parcel::Unreadable };
    if !line.trim_start().starts_with('[') {
        return serde_json::from_str(line).map_or(Parcel::Unreadable, |json| Parcel::One(message(json)));
    }
    match serde_json::from_str(line) {
        Ok(Elements { too_many: true, .. }) => Parcel::TooMany,
        Ok(Elements { first, .. }) => Parcel::Batch(first.into_iter().map(message).collect()),
        Err(_) => Parcel::Unreadable,
    }
}

fn message(json: &RawValue) -> Message<'_> {
    let names = ["jsonrpc", "id", "method", "params", "result", "error"];
    let Some([version, raw_id, method, params, result, error]) = fields(json, names) else {
        return Message::Invalid(None, "a message is an object");
    };
    let id = raw_id.and_then(|id| Id::read(id.get()));
    let Some(method) = method else {
        return match id {
            Some(id) if result.is_some() || error.is_some() => Message::Response(id),
            id => Message::Invalid(id, "there is no method"),
        };
    };
    if string(version).as_deref() != Some("2.0") {
        return Message::Invalid(id, "jsonrpc must be \"2.0\"");
    }
    match (string(Some(method)), raw_id, id) {
        (None, _, id) => Message::Invalid(id, "method must be a string"),
        (Some(method), None, _) => Message::Notification { method, params },
        (Some(method), Some(_), Some(id)) => Message::Request { id, method, params },
        (Some(_), Some(_), None) => Message::Invalid(None, "id must be a string or an integer"),
    }
}

/// A string that is there and can be read.
pub fn string(json: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(json?.get()).ok()
}

/// What is there and not null.
pub fn given(json: Option<&RawValue>) -> Option<&RawValue> {
    json.filter(|json| json.get() != "null")
}

/// Fields of an object, each the last of its name; others are skipped. `None` if it is no object.
pub fn fields<'a, const N: usize>(json: &'a RawValue, names: [&str; N]) -> Option<[Option<&'a RawValue>; N]> {
    struct Fields<'n, const N: usize>([&'n str; N]);

    impl<'a, const N: usize> Visitor<'a> for Fields<'_, N> {
        type Value = [Option<&'a RawValue>; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = [None; N];
            while let Some(name) = map.next_key::<String>()? {
                let value = map.next_value()?;
                if let Some(at) = self.0.iter().position(|wanted| *wanted == name) {
                    found[at] = Some(value);
                }
            }
            Ok(found)
        }
    }

    serde_json::Deserializer::from_str(json.get()).deserialize_map(Fields(names)).ok()
}

/// The first elements of an array, and whether there are more than that.
struct Elements<'a> {
    first: Vec<&'a RawValue>,
    too_many: bool,
}

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Limited;

        impl<'a> Visitor<'a> for Limited {
            type Value = Elements<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut first = Vec::new();
                while first.len() < MAX_BATCH {
                    let Some(element) = seq.next_element()? else { return Ok(Elements { first, too_many: false }) };
                    first.push(element);
                }
                let too_many = seq.next_element::<IgnoredAny>()?.is_some();
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Elements { first, too_many })
            }
        }

        deserializer.deserialize_seq(Limited).map_err(D::Error::custom)
    }
}

/// The line of an answer.
pub fn result(id: &Id, result: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Success<'a, R> {
        jsonrpc: &'static str,
        id: &'a Id,
        result: &'a R,
    }
    encode(&Success { jsonrpc: "2.0", id, result })
}

/// The line of an error; without an id only where there is none to be read, as later revisions allow.
pub fn error(id: Option<&Id>, code: i32, message: &str, data: Option<Value>) -> String {
    #[derive(Serialize)]
    struct Failure<'a> {
        jsonrpc: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a Id>,
        error: Fault<'a>,
    }
    #[derive(Serialize)]
    struct Fault<'a> {
        code: i32,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    }
    encode(&Failure { jsonrpc: "2.0", id, error: Fault { code, message, data } })
}

/// The line of a notification.
pub fn notification(method: &str, params: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a P,
    }
    encode(&Notification { jsonrpc: "2.0", method, params })
}

/// The line that tells of a call's progress.
pub fn progress(token: &Id, progress: f64, total: Option<f64>, message: &str) -> String {
    #[derive(Serialize)]
    struct Params<'a> {
        #[serde(rename = "progressToken")]
        token: &'a Id,
        progress: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<f64>,
        #[serde(skip_serializing_if = "str::is_empty")]
        message: &'a str,
    }
    notification("notifications/progress", &Params { token, progress, total, message })
}

/// The request that a `notifications/cancelled` is about, if it says.
pub fn cancelled(method: &str, params: Option<&RawValue>) -> Option<Id> {
    let [id] = (method == "notifications/cancelled").then(|| fields(params?, ["requestId"]))??;
    Id::read(id?.get())
}

fn encode(message: &impl Serialize) -> String {
    // It fails only for maps whose keys are no strings, and there are none.
    serde_json::to_string(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_strings_and_integers_and_stay_what_they_are() {
        let rows = [
            ("0", Some("0")),
            ("-1", Some("-1")),
            ("9007199254740993", Some("9007199254740993")),
            ("123456789012345678901234567890", Some("123456789012345678901234567890")),
            (r#""""#, Some(r#""""#)),
            (r#""1""#, Some(r#""1""#)),
            (r#""\u0061\/\n""#, Some(r#""a/\n""#)),
            ("\"ü\u{2028}😀\"", Some("\"ü\u{2028}😀\"")),
            ("null", None),
            ("true", None),
            ("1.0", None),
            ("1e3", None),
            ("-", None),
            ("-\"1\"", None),
            ("{}", None),
            ("[1]", None),
            (r#""\ud800""#, None),
        ];
        for (json, expected) in rows {
            let id = Id::read(json);
            assert_eq!(id.as_ref().map(encode).as_deref(), expected, "{json}");
        }
        assert_eq!(Id::read(&"1".repeat(MAX_ID + 1)), None);
        assert_eq!(Id::read(r#""\u0061""#), Id::read(r#""a""#));
        assert_ne!(Id::read("1"), Id::read(r#""1""#));
    }

    #[test]
    fn what_each_line_is() {
        let deep = "[".repeat(100_000);
        let rows: [(&str, &str); 24] = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, "request 1 m -"),
            (r#" {"x":null,"jsonrpc":"2.0","id":"a","method":"m","params":{ }} "#, "request \"a\" m { }"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}"#, "request 2 b -"),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, "notification m -"),
            (r#"{"jsonrpc":"2.0","method":"m","params":["\ud800"]}"#, "notification m [\"\\ud800\"]"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, "invalid -"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, "invalid -"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "invalid -"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "invalid 1"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, "invalid 1"),
            (r#"{"id":1,"method":"m"}"#, "invalid 1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "invalid 1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, "invalid 1"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "invalid 1"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response 1"),
            (r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, "response 1"),
            (r#"{"jsonrpc":"2.0","error":{}}"#, "invalid -"),
            ("5", "invalid -"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m""#, "unreadable"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}{}"#, "unreadable"),
            ("[]", "batch []"),
            (r#"[1,{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "batch [\"invalid -\", \"request 1 m -\"]"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}"#, "unreadable"),
            (&deep, "unreadable"),
        ];
        for (line, expected) in rows {
            let told = match read(line.as_bytes()) {
                Parcel::Unreadable => "unreadable".to_owned(),
                Parcel::TooMany => "too many".to_owned(),
                Parcel::One(message) => tell(&message),
                Parcel::Batch(messages) => format!("batch {:?}", messages.iter().map(tell).collect::<Vec<_>>()),
            };
            assert_eq!(told, expected, "{line}");
        }
        let many = |count: usize| format!("[{}]", vec!["1"; count].join(","));
        assert!(matches!(read(many(MAX_BATCH).as_bytes()), Parcel::Batch(all) if all.len() == MAX_BATCH));
        assert!(matches!(read(many(MAX_BATCH + 1).as_bytes()), Parcel::TooMany));
        assert!(matches!(read(b"\"\xff\""), Parcel::Unreadable));
    }

    fn tell(message: &Message<'_>) -> String {
        let text = |params: &Option<&RawValue>| params.map_or("-".to_owned(), |params| params.get().to_owned());
        match message {
            Message::Request { id, method, params } => format!("request {} {method} {}", id.0.get(), text(params)),
            Message::Notification { method, params } => format!("notification {method} {}", text(params)),
            Message::Response(id) => format!("response {}", id.0.get()),
            Message::Invalid(id, _) => format!("invalid {}", id.as_ref().map_or("-", |id| id.0.get())),
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_too_much(line in "[\\[\\]{}\",:0-9a-z\\\\ ]{0,80}") {
            read(line.as_bytes());
        }

        #[test]
        fn every_string_is_echoed_as_it_was(text in "(?s).{0,40}") {
            let json = serde_json::to_string(&text).unwrap();
            let id = Id::read(&json).unwrap();
            let line: Value = serde_json::from_str(&result(&id, &1)).unwrap();
            assert_eq!(line["id"], text.as_str());
        }
    }
}
