//! The configuration file: a JSON object whose keys fill what no flag has set. The SDK's keys are taken in both their
//! spellings. What is wrong is said in one line: file, line, key.

use std::path::Path;

use a2e_proc::engine::InheritEnv;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Complaint;
use super::settings::{Settings, Words, inherit_env, max_line_bytes, max_procs, span};

/// One key: its spellings, ours first, and what it sets.
struct Key {
    names: &'static [&'static str],
    set: fn(&mut Settings, &str) -> serde_json::Result<()>,
}

/// Every key there is.
const KEYS: &[Key] = &[
    Key { names: &["allowed_commands", "ALLOWED_COMMANDS"], set: set_allowed_commands },
    Key { names: &["max_procs", "MAX_PROCS"], set: |s, text| fill_in_checked(&mut s.max_procs, text, max_procs) },
    Key {
        names: &["default_timeout", "DEFAULT_TIMEOUT", "timeout"],
        set: |s, text| fill_in(&mut s.default_timeout, text),
    },
    Key { names: &["max_timeout"], set: |s, text| fill_in(&mut s.max_timeout, text) },
    Key { names: &["kill_grace"], set: |s, text| fill_in_checked(&mut s.kill_grace, text, span) },
    Key { names: &["max_output_bytes", "MAX_OUTPUT_BYTES"], set: |s, text| fill_in(&mut s.max_output_bytes, text) },
    Key { names: &["inherit_env"], set: set_inherit_env },
    Key { names: &["watchdog"], set: |s, text| fill_in(&mut s.watchdog, text) },
    Key { names: &["denied_env"], set: |s, text| fill_in(&mut s.denied_env, text) },
    Key { names: &["auth_token_file"], set: |s, text| fill_in(&mut s.auth_token_file, text) },
    Key { names: &["wire"], set: |s, text| fill_in(&mut s.wire, text) },
    Key { names: &["max_line_bytes"], set: |s, text| fill_in_checked(&mut s.max_line_bytes, text, max_line_bytes) },
    Key { names: &["first_event_delay"], set: |s, text| fill_in_checked(&mut s.first_event_delay, text, span) },
    Key { names: &["network_disabled", "DISABLE_NETWORK"], set: |s, text| fill_in(&mut s.network_disabled, text) },
    Key { names: &["wrap"], set: |s, text| fill_in(&mut s.wrap, text) },
    Key { names: &["log"], set: |s, text| fill_in(&mut s.log, text) },
];

/// Reads the value, and keeps it if no flag has said otherwise.
fn fill_in<T: DeserializeOwned>(slot: &mut Option<T>, text: &str) -> serde_json::Result<()> {
    fill_in_checked(slot, text, Ok)
}

/// The same of a value that must pass a check.
fn fill_in_checked<T: DeserializeOwned>(
    slot: &mut Option<T>,
    text: &str,
    check: impl Fn(T) -> Result<T, String>,
) -> serde_json::Result<()> {
    let value = check(serde_json::from_str(text)?).map_err(serde::de::Error::custom)?;
    slot.get_or_insert(value);
    Ok(())
}

/// Names, each as it is or with a launcher of its own. The launchers hold for names that a flag allows, too.
fn set_allowed_commands(settings: &mut Settings, text: &str) -> serde_json::Result<()> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a name, or an object of \"name\" and \"wrap\"")]
    enum Entry {
        Name(String),
        Wrapped(Wrapped),
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wrapped {
        name: String,
        wrap: Words,
    }
    let mut names = Vec::new();
    for entry in serde_json::from_str::<Vec<Entry>>(text)? {
        let name = match entry {
            Entry::Name(name) => name,
            Entry::Wrapped(Wrapped { name, wrap: Words(words) }) => {
                if settings.wrap_by_name.insert(name.clone(), words).is_some() {
                    return Err(serde::de::Error::custom(format!("{name:?} has two launchers")));
                }
                name
            }
        };
        names.push(name);
    }
    settings.allowed_commands.get_or_insert(names);
    Ok(())
}

/// `"all"`, `"none"`, or a list of names.
fn set_inherit_env(settings: &mut Settings, text: &str) -> serde_json::Result<()> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected \"all\", \"none\" or a list of names")]
    enum Which {
        Word(String),
        Names(Vec<String>),
    }
    let which = match serde_json::from_str(text)? {
        Which::Word(word) => inherit_env(&word).map_err(serde::de::Error::custom)?,
        Which::Names(names) => InheritEnv::Only(names),
    };
    settings.inherit_env.get_or_insert(which);
    Ok(())
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

/// Fills what no flag has set from `file`.
pub fn fill(settings: &mut Settings, file: &Path) -> Result<(), Complaint> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| Complaint::usage(format!("{name}: cannot be read: {e}")))?;
    read(settings, &text).map_err(|(line, words)| Complaint::usage(format!("{name}:{line}: {words}")))
}

/// The same of a text; a mistake is its line and what is wrong.
fn read(settings: &mut Settings, text: &str) -> Result<(), (usize, String)> {
    let Pairs(pairs) = serde_json::from_str(text)
        .map_err(|e| (e.line().max(1), format!("not a JSON object of settings: {}", bare(&e))))?;
    let mut seen: Vec<(&Key, String)> = Vec::new();
    for (name, value) in pairs {
        let value = value.get();
        let line = line_of(text, value);
        let Some(key) = KEYS.iter().find(|key| key.names.contains(&name.as_str())) else {
            return Err((line, format!("unknown key {name:?}{}", suggestion(&name))));
        };
        if let Some((_, before)) = seen.iter().find(|(other, _)| std::ptr::eq(*other, key)) {
            return Err((line, format!("{name}: given twice, before as {before}")));
        }
        (key.set)(settings, value).map_err(|e| (line, format!("{name}: {}", bare(&e))))?;
        seen.push((key, name));
    }
    Ok(())
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
            ("{\"auth_token_file\": null}", 1, "auth_token_file: invalid type: null"),
        ];
        for (text, line, words) in rows {
            let (got_line, got) = read(&mut Settings::default(), text).unwrap_err();
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
