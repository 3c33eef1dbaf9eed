//! The configuration file: a JSON object whose `keys` fill what no flag has set. The SDK's keys are taken in both their
//! spellings. What is wrong is said in one line: file, line, key.

use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Complaint;
use super::keys::{Defaults, KEYS, Key};
use super::settings::Settings;

/// Keys of a plugin's block in the published SDK's configuration that mean nothing here, and are let pass.
const SDK_KEYS: [&str; 6] = ["enabled", "priority", "exclusive", "name", "type", "cls"];

/// A key as it stands in a file.
pub struct Given {
    pub name: String,
    /// The value, as JSON.
    pub value: Value,
    /// `None` if it is one of those of the SDK that mean nothing here.
    pub key: Option<&'static Key>,
}

/// The pairs of an object as they stand, so that each value's place in the file is known.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of settings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Fills what no flag has set from `file`, and returns the keys that it has.
pub fn fill(settings: &mut Settings, file: &Path) -> Result<Vec<Given>, Complaint> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| Complaint::usage(format!("{name}: cannot be read: {e}")))?;
    read(settings, &text).map_err(|(line, words)| Complaint::usage(format!("{name}:{line}: {words}")))
}

/// The same of a text; a mistake is its line and what is wrong.
fn read(settings: &mut Settings, text: &str) -> Result<Vec<Given>, (usize, String)> {
    let Pairs(pairs) = serde_json::from_str(text)
        .map_err(|e| (e.line().max(1), format!("not a JSON object of settings: {}", bare(&e))))?;
    let defaults = Defaults::default();
    let mut seen: Vec<Given> = Vec::new();
    for (name, raw) in pairs {
        let raw = raw.get();
        let line = line_of(text, raw);
        let wrong = |e: &serde_json::Error| (line, format!("{name}: {}", bare(e)));
        let value: Value = serde_json::from_str(raw).map_err(|e| wrong(&e))?;
        if SDK_KEYS.contains(&name.as_str()) {
            seen.push(Given { name, value, key: None });
            continue;
        }
        let Some(key) = KEYS.iter().find(|key| key.names.contains(&name.as_str())) else {
            return Err((line, format!("unknown key {name:?}{}", suggestion(&name))));
        };
        let same_key = |other: &&Given| other.key.is_some_and(|other| std::ptr::eq(other, key));
        if let Some(before) = seen.iter().find(same_key) {
            return Err((line, format!("{name}: given twice, before as {}", before.name)));
        }
        // Where nothing holds by default, a file may say so.
        if !(value.is_null() && (key.default)(&defaults).is_null()) {
            (key.set)(settings, raw).map_err(|e| wrong(&e))?;
        }
        seen.push(Given { name, value, key: Some(key) });
    }
    Ok(seen)
}

/// The line in `text` on which `part` begins, which is a piece of it.
fn line_of(text: &str, part: &str) -> usize {
    let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    text.as_bytes()[..offset].iter().filter(|&&b| b == b'\n').count() + 1
}

/// The error without its own idea of where it is, which would count from the value's start.
fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    // In the words of JSON, not of Rust.
    let words = [
        ("usize", "a whole number"),
        ("u32", "a whole number"),
        ("u64", "a whole number"),
        ("f64", "a number"),
        ("a sequence", "a list"),
    ];
    words.iter().fold(text.to_owned(), |text, (rust, json)| {
        text.replace(&format!("expected {rust}"), &format!("expected {json}"))
    })
}

fn suggestion(name: &str) -> String {
    let names = KEYS.iter().flat_map(|key| key.names);
    let nearest = names.map(|known| (strsim::jaro_winkler(name, known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, known)) if likeness > 0.7 => format!("; did you mean {known:?}?"),
        _ => {
            let ours: Vec<&str> = KEYS.iter().map(|key| key.names[0]).collect();
            format!("; known keys are {}", ours.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use a2e_proc::engine::InheritEnv;

    use super::*;

    #[test]
    fn flags_beat_the_file_and_both_spellings_are_taken() {
        let mut settings = Settings { max_procs: Some(3), ..Settings::default() };
        let text = r#"{"MAX_PROCS": 9, "ALLOWED_COMMANDS": ["sh"], "timeout": 5, "inherit_env": ["A"], "wire": "sdk"}"#;
        read(&mut settings, text).unwrap();
        assert_eq!((settings.max_procs, settings.default_timeout), (Some(3), Some(5)));
        assert_eq!(settings.allowed_commands, Some(vec!["sh".to_owned()]));
        assert_eq!(settings.inherit_env, Some(InheritEnv::Only(vec!["A".into()])));
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_key() {
        let rows = [
            ("", 1, "not a JSON object"),
            ("[]", 1, "not a JSON object"),
            ("{\n\"max_procs\": }", 2, "not a JSON object"),
            ("{\n\n\"max_procs\": \"4\"}", 3, "max_procs: invalid type: string \"4\", expected a whole number"),
            ("{\n\"max_procs\": 0}", 2, "max_procs: must be at least 1"),
            ("{\"kill_grace\": -1}", 1, "kill_grace: must be a number of seconds"),
            ("{\"DISABLE_NETWORK\": 1}", 1, "DISABLE_NETWORK: invalid type: integer"),
            ("{\"wrap\": 3}", 1, "wrap: expected a list of words, or one text"),
            ("{\"wrap\": \"ssh 'h\"}", 1, "wrap: a quote or a backslash is left open"),
            (r#"{"allowed_commands": [{"name": "ls", "warp": []}]}"#, 1, "expected a name, or an object of"),
            (r#"{"allowed_commands": [{"name": "ls"}]}"#, 1, "expected a name, or an object of"),
            (
                r#"{"allowed_commands": [{"name": "ls", "wrap": "a"}, {"name": "ls", "wrap": "b"}]}"#,
                1,
                "\"ls\" has two launchers",
            ),
            ("{\"max_procs\": -1}", 1, "max_procs: invalid value"),
            ("{\"default_timeout\":\n1.5}", 2, "default_timeout: invalid type: floating point"),
            ("{\"allowed_commands\": [\"a\",\n 3]}", 1, "allowed_commands: expected a name, or an object"),
            ("{\"max_proc\": 4}", 1, "unknown key \"max_proc\"; did you mean \"max_procs\"?"),
            ("{\"qqqq\": 4}", 1, "known keys are allowed_commands, max_procs"),
            ("{\"MAX_PROCS\": 4,\n\"max_procs\": 4}", 2, "max_procs: given twice, before as MAX_PROCS"),
            ("{\"wire\": \"xml\"}", 1, "wire: unknown variant `xml`"),
            ("{\"inherit_env\": 3}", 1, "inherit_env: expected \"all\", \"none\" or a list"),
            ("{\"inherit_env\": \"a,,b\"}", 1, "inherit_env: give all"),
            ("{\"max_procs\": null}", 1, "max_procs: invalid type: null"),
            ("{\"enable\": true}", 1, "unknown key \"enable\""),
        ];
        for (text, line, words) in rows {
            let (got_line, got) = read(&mut Settings::default(), text).err().unwrap();
            assert_eq!(got_line, line, "{text}: {got}");
            assert!(got.contains(words), "{text}: {got}");
            assert!(!got.contains('\n'), "{text}: {got}");
        }
    }

    #[test]
    fn no_spelling_stands_for_two_keys() {
        let mut names: Vec<&str> = KEYS.iter().flat_map(|key| key.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
