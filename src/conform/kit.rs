//! Where the data of the kit is: built into this program, or in a folder. Reads cases, requirement rows, profiles and schemas;
//! everything else asks this.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use jsonschema::Validator;
use serde_json::{Map, Value};

use super::case::{self, Case, Level, Role};

static BUILT_IN: Dir = include_dir!("$CARGO_MANIFEST_DIR/conformance");

/// The files of the kit, by their path in it.
pub struct Kit(BTreeMap<String, String>);

impl Kit {
    /// The copy in this program.
    pub fn built_in() -> Self {
        fn add(dir: &Dir, files: &mut BTreeMap<String, String>) {
            for file in dir.files() {
                if let (Some(path), Some(text)) = (file.path().to_str(), file.contents_utf8()) {
                    files.insert(path.to_owned(), text.to_owned());
                }
            }
            dir.dirs().for_each(|dir| add(dir, files));
        }
        let mut files = BTreeMap::new();
        add(&BUILT_IN, &mut files);
        Self(files)
    }

    /// A copy in a folder.
    pub fn in_folder(root: &Path) -> Result<Self, String> {
        fn add(root: &Path, dir: &Path, files: &mut BTreeMap<String, String>) -> Result<(), String> {
            let fault = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
            for entry in std::fs::read_dir(dir).map_err(|e| fault(dir, e))?.flatten() {
                let path: PathBuf = entry.path();
                if path.is_dir() {
                    add(root, &path, files)?;
                } else if path.extension().is_some_and(|ending| ending == "json" || ending == "jsonl") {
                    let text = std::fs::read_to_string(&path).map_err(|e| fault(&path, e))?;
                    let name = path.strip_prefix(root).map_err(|e| e.to_string())?;
                    files.insert(name.to_string_lossy().into_owned(), text);
                }
            }
            Ok(())
        }
        let mut files = BTreeMap::new();
        add(root, root, &mut files)?;
        if files.keys().any(|path| path.starts_with("cases/")) {
            Ok(Self(files))
        } else {
            Err(format!("{}: there is no folder \"cases\" with cases in it", root.display()))
        }
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// The files in a folder with this ending: the path below the folder, without the ending, and the text.
    pub fn files<'a>(&'a self, folder: &'a str, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(path, text)| {
            let name = path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(ending)?;
            Some((name, text.as_str()))
        })
    }

    /// All cases for hosts, or for clients, by their ids: read, or what is wrong with them.
    pub fn cases(&self, role: Role) -> BTreeMap<String, Result<Case, String>> {
        let is_for_clients = |id: &str| id.starts_with("client/");
        let files = self.files("cases", ".jsonl").filter(|(id, _)| is_for_clients(id) == (role == Role::Client));
        let read = |id: &str, text: &str| match case::parse(id, text) {
            Ok(case) if case.role != role => Err("cases for clients, and no others, stand in cases/client".to_owned()),
            other => other,
        };
        files.map(|(id, text)| (id.to_owned(), read(id, text))).collect()
    }

    /// The requirement rows, in order.
    pub fn rows(&self) -> Result<Vec<Row>, String> {
        const PATH: &str = "requirements/a2e-proc-1.0.json";
        let text = self.text(PATH).ok_or_else(|| format!("{PATH} is missing"))?;
        let value: Value = serde_json::from_str(text).map_err(|e| format!("{PATH}: {e}"))?;
        let rows = value.get("rows").and_then(Value::as_array).ok_or_else(|| format!("{PATH} has no list \"rows\""))?;
        rows.iter().map(|row| Row::read(row).ok_or_else(|| format!("{PATH}: a malformed row: {row}"))).collect()
    }

    /// The validators of one wire form, by message type.
    pub fn schemas(&self, dialect: Dialect) -> Result<BTreeMap<String, Schema>, String> {
        let mut schemas = BTreeMap::new();
        let folders: &[&str] = if dialect == Dialect::Sdk { &["schema/spec", "schema/sdk"] } else { &["schema/spec"] };
        for (name, text) in folders.iter().flat_map(|folder| self.files(folder, ".json")) {
            let schema = Schema::read(text).map_err(|e| format!("schema {name}: {e}"))?;
            // A payload has a form for each stream type beside the one for all.
            for stream in schema.value.pointer("/$defs").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
                let mut of_stream = schema.value.clone();
                of_stream["$ref"] = format!("#/$defs/{stream}").into();
                schemas.insert(format!("{name}/{stream}"), Schema::of(of_stream, Vec::new())?);
            }
            schemas.insert(schema.kind.clone().unwrap_or_else(|| name.to_owned()), schema);
        }
        Ok(schemas)
    }
}

/// A requirement row.
#[derive(Debug)]
pub struct Row {
    pub id: String,
    pub level: Level,
    pub source: String,
    pub statement: String,
    pub cases: Vec<String>,
    pub excluded: Option<String>,
}

impl Row {
    fn read(row: &Value) -> Option<Self> {
        let text = |key: &str| row.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let cases = row.get("cases").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Some(Self {
            id: text("id")?,
            level: Level::named(row.get("level")?.as_str()?)?,
            source: text("source")?,
            statement: text("statement")?,
            cases: cases.iter().map(|case| case.as_str().map(ToOwned::to_owned)).collect::<Option<_>>()?,
            excluded: text("excluded"),
        })
    }
}

/// What holds a message to its form.
pub struct Schema {
    /// The message type, if it is of a message.
    kind: Option<String>,
    value: Value,
    pub validator: Validator,
    /// The specified keys, in their order.
    pub keys: Vec<String>,
}

impl Schema {
    fn read(text: &str) -> Result<Self, String> {
        /// As much as has to keep its order.
        #[derive(serde::Deserialize)]
        struct Ordered {
            #[serde(default)]
            properties: Keys,
        }
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let ordered: Ordered = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Self::of(value, ordered.properties.0)
    }

    fn of(value: Value, keys: Vec<String>) -> Result<Self, String> {
        let kind = value.pointer("/properties/type/const").and_then(Value::as_str).map(ToOwned::to_owned);
        let validator = jsonschema::validator_for(&value).map_err(|e| e.to_string())?;
        Ok(Self { kind, value, validator, keys })
    }
}

/// The keys of an object in the order in which they stand.
#[derive(Default)]
pub struct Keys(pub Vec<String>);

impl<'de> serde::Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> serde::de::Visitor<'de> for Visit {
            type Value = Keys;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, serde::de::IgnoredAny)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Spec,
    Sdk,
}

/// What a host under test has and claims.
#[derive(Clone, Debug)]
pub struct Profile {
    pub name: String,
    pub dialect: Dialect,
    pub programs: BTreeSet<String>,
    pub adopts: BTreeSet<String>,
    pub same_machine: bool,
    pub setups: BTreeMap<String, Setup>,
}

/// How a host is started differently.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl Profile {
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Self::read(value.as_object().ok_or("it is not an object")?)
    }

    pub fn read(object: &Map<String, Value>) -> Result<Self, String> {
        const KEYS: [&str; 8] =
            ["profile", "format", "about", "dialect", "programs", "adopts", "same_machine", "setups"];
        if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("{key:?} is not a key of a profile; there are {}", KEYS.join(", ")));
        }
        let texts = |value: Option<&Value>, key: &str| -> Result<Vec<String>, String> {
            let items = value.map_or(Some(&[][..]), |value| value.as_array().map(Vec::as_slice));
            let text = |item: &Value| item.as_str().map(ToOwned::to_owned);
            items
                .and_then(|items| items.iter().map(text).collect())
                .ok_or_else(|| format!("{key} is not a list of texts"))
        };
        if object.get("format").and_then(Value::as_u64) != Some(case::FORMAT) {
            return Err(format!("format is not {}", case::FORMAT));
        }
        let mut setups = BTreeMap::new();
        for (name, setup) in object.get("setups").and_then(Value::as_object).into_iter().flatten() {
            let env = setup.get("env").and_then(Value::as_object).into_iter().flatten();
            let pair = |(name, value): (&String, &Value)| value.as_str().map(|value| (name.clone(), value.to_owned()));
            let env = env
                .map(pair)
                .collect::<Option<_>>()
                .ok_or_else(|| format!("setups.{name}.env has a value that is no text"))?;
            setups.insert(name.clone(), Setup { args: texts(setup.get("args"), "args")?, env });
        }
        Ok(Self {
            name: object.get("profile").and_then(Value::as_str).ok_or("it has no \"profile\", its name")?.to_owned(),
            dialect: match object.get("dialect").and_then(Value::as_str) {
                Some("spec") => Dialect::Spec,
                Some("sdk") => Dialect::Sdk,
                _ => return Err("dialect is neither \"spec\" nor \"sdk\"".to_owned()),
            },
            programs: texts(object.get("programs"), "programs")?.into_iter().collect(),
            adopts: texts(object.get("adopts"), "adopts")?.into_iter().collect(),
            same_machine: object.get("same_machine").and_then(Value::as_bool).unwrap_or(false),
            setups,
        })
    }

    /// What a case needs and this does not grant.
    pub fn lacks<'a>(&self, case: &'a Case) -> Vec<&'a str> {
        let grants = |need: &str| match need.strip_prefix("setup:") {
            Some(setup) => self.setups.contains_key(setup),
            None if need == "same_machine" => self.same_machine,
            // The way to the host grants these, or does not: `connect`.
            None if ["connections", "stream"].contains(&need) => true,
            None => self.programs.contains(need) || self.adopts.contains(need),
        };
        let setup = case.setup.iter().filter(|setup| !self.setups.contains_key(*setup)).map(String::as_str);
        case.needs.iter().map(String::as_str).filter(|need| !grants(need)).chain(setup).collect()
    }

    pub fn adopts(&self, ruling: &str) -> bool {
        self.adopts.contains(ruling)
    }
}
