//! A project's file, `solo.yml` or `a2e-proc.json`: the commands that are stored with it. The desk reads it through here; the
//! file is written by whoever wrote the project, and is not trusted (`trust`).
//!
//! One bad entry is left out and said; only a file that cannot be read at all is an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::store::{check_name, read_file};
use super::tree::{Node, Source, Value, brief};
use super::trust::Variant;
use super::watch;

/// The files' names; the first that is there counts.
pub const FILES: [&str; 2] = ["solo.yml", "a2e-proc.json"];

/// The most commands of a project.
const MOST_COMMANDS: usize = 256;

/// The most globs of a command.
const MOST_PATTERNS: usize = 64;

/// The most notices; more would not be read.
const MOST_NOTICES: usize = 64;

/// What a project's folder says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// As the file has it, or the folder's name.
    pub name: String,
    /// The project's folder, without links in it.
    pub root: PathBuf,
    /// In the file's order; no two have one name.
    pub commands: Vec<Command>,
    /// What a person should be told: what was left out or not understood, with its line and column.
    pub notices: Vec<String>,
    /// The file that was read, if there is one.
    pub file: Option<PathBuf>,
}

/// A stored command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its name in the file: 1 to 128 characters, no control characters.
    pub name: String,
    /// What a shell is given.
    pub command: String,
    /// As it is written: relative to the project's folder, without `..`. What it leads to is asked of
    /// [`Command::directory`].
    pub working_dir: Option<PathBuf>,
    /// Whether it starts with the desk.
    pub auto_start: bool,
    /// Whether it starts again when it has ended.
    pub auto_restart: bool,
    /// Globs of the files whose change starts it again, relative to the project's folder.
    pub restart_when_changed: Vec<String>,
    /// What is added to its environment.
    pub env: BTreeMap<String, String>,
}

impl Project {
    /// Reads the file in `root`. Without one, the project has no commands.
    ///
    /// # Errors
    /// When the folder or the file cannot be read; the words name the file and, where it is about its text, line and column.
    pub fn read(root: &Path) -> Result<Self, String> {
        let shown = root.display();
        let root = fs::canonicalize(root).map_err(|e| format!("{shown}: {e}"))?;
        let mut project = Self {
            name: root.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy().into_owned()),
            root,
            commands: Vec::new(),
            notices: Vec::new(),
            file: None,
        };
        for name in FILES {
            let path = project.root.join(name);
            if let Some(read) = &project.file {
                if path.exists() {
                    project.notices.push(format!("{name}: not read, as there is {}", read.display()));
                }
                continue;
            }
            if let Some(bytes) = read_file(&path).map_err(|e| format!("{}: {e}", path.display()))? {
                project.file = Some(path);
                project.fill(&Source::new(name, &bytes)?)?;
            }
        }
        if project.notices.len() > MOST_NOTICES {
            let more = project.notices.split_off(MOST_NOTICES).len();
            project.notices.push(format!("and {more} more"));
        }
        Ok(project)
    }

    fn fill(&mut self, source: &Source<'_>) -> Result<(), String> {
        let root = source.parse()?;
        let pairs = match &root.value {
            Value::Null => return Ok(()),
            Value::Map(pairs) => pairs,
            _ => return Err(source.at(&root, "not a map of settings")),
        };
        for (key, node) in pairs {
            match (key.as_str(), &node.value) {
                ("name", _) => match text(source, key, node) {
                    Ok(name) if check_name(&name).is_ok() => self.name = name,
                    Ok(name) => self.notices.push(source.at(node, format_args!("name: {} is none", brief(&name)))),
                    Err(words) => self.notices.push(words),
                },
                ("processes", Value::Null) => {}
                ("processes", Value::Map(processes)) => self.take(source, processes),
                ("processes", _) => return Err(source.at(node, "processes: not a map of commands by name")),
                _ => self.notices.extend(unknown(source, key, node)),
            }
        }
        Ok(())
    }

    fn take(&mut self, source: &Source<'_>, processes: &[(String, Node)]) {
        for (name, node) in processes {
            let left_out = |words: &str| format!("{words}; the process {} is left out", brief(name));
            if self.commands.len() == MOST_COMMANDS {
                self.notices.push(left_out(&source.at(node, format_args!("more than {MOST_COMMANDS} processes"))));
                return;
            }
            match Command::read(source, name, node, &mut self.notices) {
                Ok(command) => self.commands.push(command),
                Err(words) => self.notices.push(left_out(&words)),
            }
        }
    }
}

impl Command {
    fn read(source: &Source<'_>, name: &str, node: &Node, notices: &mut Vec<String>) -> Result<Self, String> {
        check_name(name).map_err(|words| source.at(node, format_args!("the name {words}")))?;
        let Value::Map(pairs) = &node.value else { return Err(source.at(node, "not a map with a command in it")) };
        let mut command = Self {
            name: name.to_owned(),
            command: String::new(),
            working_dir: None,
            auto_start: true,
            auto_restart: false,
            restart_when_changed: Vec::new(),
            env: BTreeMap::new(),
        };
        for (key, node) in pairs {
            match key.as_str() {
                "command" => command.command = text(source, key, node)?,
                // A key with nothing after it is as good as none.
                _ if matches!(node.value, Value::Null) => {}
                "working_dir" => command.working_dir = Some(working_dir(source, node)?),
                "auto_start" => command.auto_start = flag(source, key, node)?,
                "auto_restart" => command.auto_restart = flag(source, key, node)?,
                "restart_when_changed" => command.restart_when_changed = patterns(source, node)?,
                "env" => command.env = env(source, node)?,
                _ => notices.extend(unknown(source, key, node)),
            }
        }
        if command.command.trim().is_empty() {
            return Err(source.at(node, "no command is given"));
        }
        Ok(command)
    }

    /// The directory that it starts in, without links. To be asked at each start: the file system may have changed since.
    ///
    /// # Errors
    /// When it is not a directory, or not inside of the project's folder `root`.
    pub fn directory(&self, root: &Path) -> Result<PathBuf, String> {
        let asked = self.working_dir.as_deref().map_or_else(|| root.to_owned(), |written| root.join(written));
        let failed = |e| format!("{}: {e}", brief(&asked.to_string_lossy()));
        let found = fs::canonicalize(&asked).map_err(failed)?;
        if !found.starts_with(fs::canonicalize(root).map_err(failed)?) {
            return Err(format!("{}: leads out of the project", brief(&asked.to_string_lossy())));
        }
        if !found.is_dir() {
            return Err(format!("{}: not a directory", brief(&asked.to_string_lossy())));
        }
        Ok(found)
    }

    /// All of it that trust depends on: not the name.
    #[must_use]
    pub fn variant(&self) -> Variant {
        Variant {
            command: self.command.clone(),
            working_dir: self.working_dir.clone(),
            env: self.env.clone(),
            auto_start: self.auto_start,
            auto_restart: self.auto_restart,
            restart_when_changed: self.restart_when_changed.clone(),
        }
    }
}

/// A key that means nothing here; one with `x-` before it says so itself.
fn unknown(source: &Source<'_>, key: &str, node: &Node) -> Option<String> {
    (!key.starts_with("x-")).then(|| source.at(node, format_args!("unknown key {}", brief(key))))
}

/// A text that can be handed to a program: a number or a truth value stands for itself.
fn text(source: &Source<'_>, key: &str, node: &Node) -> Result<String, String> {
    let text = source.text(node).ok_or_else(|| source.at(node, format_args!("{}: not a text", brief(key))))?;
    if text.contains('\0') {
        return Err(source.at(node, format_args!("{}: has a NUL in it", brief(key))));
    }
    Ok(text.to_owned())
}

fn flag(source: &Source<'_>, key: &str, node: &Node) -> Result<bool, String> {
    match node.value {
        Value::Bool(flag) => Ok(flag),
        _ => Err(source.at(node, format_args!("{key}: neither true nor false"))),
    }
}

fn working_dir(source: &Source<'_>, node: &Node) -> Result<PathBuf, String> {
    let path = PathBuf::from(text(source, "working_dir", node)?);
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !path.components().all(is_inside) {
        return Err(source.at(node, "working_dir: must be relative, and inside of the project"));
    }
    Ok(path)
}

fn patterns(source: &Source<'_>, node: &Node) -> Result<Vec<String>, String> {
    let nodes = match &node.value {
        Value::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if nodes.len() > MOST_PATTERNS {
        return Err(source.at(node, format_args!("restart_when_changed: more than {MOST_PATTERNS} globs")));
    }
    let pattern = |node| {
        let text = text(source, "restart_when_changed", node)?;
        watch::glob(&text).map_err(|words| source.at(node, format_args!("restart_when_changed: {words}")))?;
        Ok(text)
    };
    nodes.iter().map(pattern).collect()
}

fn env(source: &Source<'_>, node: &Node) -> Result<BTreeMap<String, String>, String> {
    let Value::Map(pairs) = &node.value else { return Err(source.at(node, "env: not a map of texts by name")) };
    let pair = |(name, node): &(String, Node)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(source.at(node, format_args!("env: {} cannot be a variable's name", brief(name))));
        }
        Ok((name.clone(), text(source, name, node)?))
    };
    pairs.iter().map(pair).collect()
}

#[cfg(test)]
#[path = "project_tests.rs"]
mod tests;
