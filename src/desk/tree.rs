//! A file of YAML or JSON as a tree whose nodes know where they stand, so that one bad part need not take the others along.
//! `project` reads it. What it takes to read a hostile file is bounded.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{RenderOptions, SnippetMode, Spanned};

use super::trust::{tame, visible};

/// The most of a text that a message shows, in characters.
const SHOWN: usize = 128;

/// A value and where it stands.
pub(super) type Node = Spanned<Value>;

/// What a node is.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Read from the source by [`Source::text`]: its value is not its text, as in `1.10`.
    Number,
    Text(String),
    List(Vec<Node>),
    /// In the file's order; no key is there twice.
    Map(Vec<(String, Node)>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::new();
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            // To the reader of YAML, `1` and `"1"` are two.
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("duplicate key {}", brief(&key))));
            }
            pairs.push((key, map.next_value()?));
        }
        Ok(Value::Map(pairs))
    }
}

/// A file's text, and the name that messages call it by.
pub(super) struct Source<'a> {
    /// The file's name, without its folder.
    pub file: &'a str,
    /// What is in it.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// Those bytes of that file.
    pub fn new(file: &'a str, bytes: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let good = &bytes[..e.valid_up_to()];
            let line = good.iter().filter(|&&b| b == b'\n').count() + 1;
            let column = good.iter().rev().take_while(|&&b| b != b'\n').count() + 1;
            format!("{file}:{line}:{column}: not UTF-8")
        })?;
        Ok(Self { file, text: text.strip_prefix('\u{feff}').unwrap_or(text) })
    }

    /// The tree. Keys that are given twice are an error, and so is what unfolds to far more than the file holds.
    pub fn parse(&self) -> Result<Node, String> {
        let file = self.file;
        if file.ends_with(".json") {
            // JSON is YAML too, but not the other way round.
            serde_json::from_str::<IgnoredAny>(self.text).map_err(|e| {
                let words = e.to_string();
                let words = words.split(" at line ").next().unwrap_or_default();
                format!("{file}:{}:{}: {words}", e.line(), e.column())
            })?;
        }
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: 32,
                max_events: 200_000,
                max_nodes: 100_000,
                // What an alias repeats counts each time.
                max_total_scalar_bytes: 8 << 20,
                max_documents: 1,
            },
            duplicate_keys: DuplicateKeyPolicy::Error,
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(self.text, options).map_err(|e| {
            let mut render = RenderOptions::default();
            render.snippets = SnippetMode::Off;
            let words = tame(&e.render_with_options(render));
            match e.location() {
                Some(at) => format!("{file}:{}:{}: {words}", at.line(), at.column()),
                None => format!("{file}: {words}"),
            }
        })
    }

    /// What is wrong with a node, after where it stands.
    pub fn at(&self, node: &Node, words: impl fmt::Display) -> String {
        format!("{}:{}:{}: {words}", self.file, node.referenced.line(), node.referenced.column())
    }

    /// A scalar as its text; `None` if it is none.
    pub fn text<'n>(&self, node: &'n Node) -> Option<&'n str>
    where
        'a: 'n,
    {
        match &node.value {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Number => {
                let span = node.defined.span();
                let start = usize::try_from(span.byte_offset()?).ok()?;
                let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
                // Quotes are there if a tag makes a number of what they hold.
                Some(self.text.get(start..end)?.trim().trim_matches(['"', '\'']))
            }
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }
}

/// A text in quotes for a message, not too long.
pub(super) fn brief(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", visible(&text[..end])),
        None => visible(text),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn parse(file: &str, text: &[u8]) -> Result<String, String> {
        let source = Source::new(file, text)?;
        let Value::Map(pairs) = source.parse()?.value else { return Ok("not a map".into()) };
        let text = |node: &Node| source.text(node).map_or_else(|| format!("{:?}", node.value), str::to_owned);
        Ok(pairs.iter().map(|(key, node)| format!("{key}={}", text(node))).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn scalars_keep_their_text() {
        let rows = [
            (
                "a.yml",
                "a: 1.10\nb: 0x1F\nc: yes\nd: 007\ne: 1e999\nf: .nan\n",
                "a=1.10|b=0x1F|c=yes|d=007|e=1e999|f=.nan",
            ),
            (
                "a.yml",
                "a: &x 1.50\nb: *x\nc: \"1\\n2\"\nd: 'it''s'\ne: ~\nf:\n",
                "a=1.50|b=1.50|c=1\n2|d=it's|e=Null|f=Null",
            ),
            (
                "a.yml",
                "a: |\n  x\n  y\nb: >-\n  x\n  y\nc: 123456789012345678901234567890\n",
                "a=x\ny\n|b=x y|c=123456789012345678901234567890",
            ),
            ("a.yml", "d: &d {x: 1.0}\ne:\n  <<: *d\n", "d=Map("),
            ("a.yml", "\u{feff}a: 2.0 # two\r\nb: true\r\n1: x\n", "a=2.0|b=true|1=x"),
            ("a.yml", "é: 1.0\nü: -2.50\n", "é=1.0|ü=-2.50"),
            (
                "a.json",
                "{\n\t\"a\":1.10,\"b\":\"\\ud83d\\ude00\\/\",\"c\":null,\t\"d\":true}",
                "a=1.10|b=😀/|c=Null|d=true",
            ),
        ];
        for (file, text, expected) in rows {
            let got = parse(file, text.as_bytes()).unwrap();
            assert!(got.starts_with(expected), "{text:?}: {got}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_with_line_and_column() {
        let rows: [(&str, &[u8], &str); 10] = [
            ("a.yml", b"a: [1\nb: 2\n", "a.yml:2:"),
            ("a.yml", b"a: 1\n  b: 2\n", "a.yml:2:"),
            ("a.yml", b"a: 1\nb: 2\na: 3\n", "a.yml:3:1"),
            ("a.yml", b"1: x\n\"1\": y\n", "a.yml:"),
            ("a.yml", b"a: 1\n---\nb: 2\n", "a.yml:"),
            ("a.yml", b"a: *nobody\n", "a.yml:1:4"),
            ("a.yml", b"a: 1\nb: \xff\n", "a.yml:2:4: not UTF-8"),
            ("a.json", b"{\"a\": 1,\n \"a\": 2}", "a.json:2:2"),
            ("a.json", b"{\"a\": 1, # no\n}", "a.json:1:10"),
            ("a.json", b"", "a.json:1:0"),
        ];
        for (file, text, expected) in rows {
            let words = parse(file, text).unwrap_err();
            assert!(words.starts_with(expected) && !words.contains('\n'), "{}: {words}", text.escape_ascii());
        }
    }

    #[test]
    fn what_unfolds_without_end_is_refused_soon() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            laughs += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "));
        }
        let heavy = format!("a: &a \"{}\\n\"\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 5_000].join(", "));
        let rows = [
            ("a.yml", laughs),
            ("a.yml", heavy),
            ("a.yml", "[".repeat(1 << 20)),
            ("a.yml", "- ".repeat(1 << 19)),
            ("a.yml", "a: &a [*a]\n".to_owned()),
            ("a.yml", "[],".repeat(300_000)),
            ("a.json", "[".repeat(1 << 20)),
        ];
        for (file, text) in rows {
            let start = Instant::now();
            assert!(parse(file, text.as_bytes()).is_err(), "{:.40}", text);
            assert!(start.elapsed() < Duration::from_secs(5), "{:.40}: {:?}", text, start.elapsed());
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"([-\[\]{}:,&*!|>'"%@#~ab01.\n\t ]|<<: |\PC){0,60}"#) {
            let _ = parse("a.yml", text.as_bytes());
            let _ = parse("a.json", text.as_bytes());
        }
    }
}
