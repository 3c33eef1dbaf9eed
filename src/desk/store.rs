//! What is remembered of a project from one desk to the next, and the agent tools that a person has named. The desk and
//! `trust` talk to it; it talks to the file system.
//!
//! A file is replaced as a whole or not at all. One that cannot be understood is set aside, never overwritten, and said.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::paths::Paths;
use super::tree::brief;

/// The most of a file that is read, in bytes.
pub(super) const MOST_BYTES: u64 = 1 << 20;

/// The version of these files.
const VERSION: u64 = 1;

/// The most damaged copies of a file that are kept.
const KEPT: u32 = 5;

/// The highest id: what every reader of JSON takes for a whole number.
const MOST_ID: u64 = (1 << 53) - 1;

/// The longest name, in characters.
const MOST_NAME: usize = 128;

/// What a project's desk remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The id that is given out next, by [`give_id`]; no id is given out twice.
    pub next_id: u64,
    /// The entries, in the order in which they came.
    pub entries: Vec<Entry>,
}

/// Something that can be started by its id or name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 1 on.
    pub id: u64,
    /// What it is called now.
    pub name: String,
    /// What it is.
    pub what: What,
}

/// What an entry starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A command of the project's file.
    Command {
        /// Its name there; the entry may have been renamed since.
        key: String,
    },
    /// The user's shell.
    Terminal {
        /// Words after the shell's own.
        extra_args: Vec<String>,
    },
    /// An agent.
    Agent {
        /// The agent tool's id.
        tool_id: String,
        /// Words after the tool's own.
        extra_args: Vec<String>,
    },
}

/// What is remembered, and what a person should be told of it. To be called by who holds the desk's lock.
///
/// # Errors
/// When a file is there that cannot be read, or is of a newer version of this program: it must not be replaced.
pub fn load(paths: &Paths) -> Result<(Remembered, Vec<String>), String> {
    let mut notices = Vec::new();
    let damaged = |words| Unread::Damaged(format!("{}: {words}", paths.entries().display()));
    let read = read(&paths.entries()).and_then(|remembered: Option<Remembered>| match remembered {
        Some(remembered) => check(&remembered).map(|()| Some(remembered)).map_err(damaged),
        None => Ok(None),
    });
    let read = match read {
        Ok(read) => read,
        Err(Unread::Closed(words)) => return Err(words),
        Err(Unread::Damaged(words)) => {
            notices.push(set_aside(&paths.entries(), &words)?);
            None
        }
    };
    let mut remembered = read.unwrap_or(Remembered { next_id: 1, entries: Vec::new() });
    let second = match read_text(&paths.next_id()) {
        Ok(None) => Some(1),
        Ok(Some(text)) => text.trim().parse().ok(),
        Err(Unread::Damaged(_)) => None,
        Err(Unread::Closed(words)) => return Err(words),
    };
    if second.is_none() {
        notices.push(format!("{}: not a number; it is written anew", paths.next_id().display()));
    }
    let above = remembered.entries.iter().map(|entry| entry.id + 1).max().unwrap_or(1);
    remembered.next_id = remembered.next_id.max(second.unwrap_or(1)).max(above);
    Ok((remembered, notices))
}

/// Remembers all of it.
///
/// # Errors
/// When the file cannot be written, or would be longer than is read.
pub fn save(paths: &Paths, remembered: &Remembered) -> io::Result<()> {
    write(&paths.entries(), remembered)
}

/// An id for a new entry. It is kept in a file of its own before it is given out, so that it is not given out again even if
/// the entries are lost.
///
/// # Errors
/// When that file cannot be written, or no id is left.
pub fn give_id(paths: &Paths, remembered: &mut Remembered) -> io::Result<u64> {
    let id = remembered.next_id;
    if id > MOST_ID {
        return Err(io::Error::other("no id is left"));
    }
    write_text(&paths.next_id(), &format!("{}\n", id + 1))?;
    remembered.next_id = id + 1;
    Ok(id)
}

fn check(remembered: &Remembered) -> Result<(), String> {
    let mut seen = HashSet::new();
    for Entry { id, name, .. } in &remembered.entries {
        if !(1..=MOST_ID).contains(id) || !seen.insert(id) {
            return Err(format!("the id {id} is out of range, or given twice"));
        }
        check_name(name).map_err(|words| format!("the name {} {words}", brief(name)))?;
    }
    Ok(())
}

/// Whether something may be called that; otherwise what is wrong with it.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    match name.chars().count() {
        0 => Err("is empty"),
        count if count > MOST_NAME => Err("is longer than 128 characters"),
        _ if name.contains(char::is_control) => Err("has a control character in it"),
        _ => Ok(()),
    }
}

/// A program that a person has named as an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTool {
    /// What it is asked for by.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// Whether it may be started.
    pub enabled: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentsFile {
    agents: Vec<AgentLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentLine {
    id: String,
    name: Option<String>,
    command: Vec<String>,
    enabled: Option<bool>,
}

/// The agent tools of this user, in the file's order. No file: none.
///
/// # Errors
/// When there is a file that is not as it should be; the words say where and what.
pub fn agent_tools(paths: &Paths) -> Result<Vec<AgentTool>, String> {
    let file = paths.agents.display();
    let text = match read_text(&paths.agents) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(Vec::new()),
        Err(Unread::Closed(words) | Unread::Damaged(words)) => return Err(words),
    };
    let AgentsFile { agents } = serde_json::from_str(&text).map_err(|e| format!("{file}: {e}"))?;
    let mut seen = HashSet::new();
    let mut tools = Vec::new();
    for AgentLine { id, name, command, enabled } in agents {
        let wrong = |words: &str| Err(format!("{file}: agent {}: {words}", brief(&id)));
        if let Err(words) = check_name(&id) {
            return wrong(&format!("the id {words}"));
        }
        if !seen.insert(id.clone()) {
            return wrong("the id is given twice");
        }
        let name = name.unwrap_or_else(|| id.clone());
        if let Err(words) = check_name(&name) {
            return wrong(&format!("the name {words}"));
        }
        if command.first().is_none_or(String::is_empty) || command.iter().any(|word| word.contains('\0')) {
            return wrong("the command must be a list of words, the first a program");
        }
        tools.push(AgentTool { id, name, command, enabled: enabled.unwrap_or(true) });
    }
    Ok(tools)
}

/// Why a file that is there gives nothing; the words begin with its path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It holds nothing that can be understood.
    Damaged(String),
    /// It may be good: the system does not let it be read, or a newer version of this program has written it.
    Closed(String),
}

#[derive(Serialize)]
struct Written<'a, T> {
    version: u64,
    data: &'a T,
}

/// Decoded before the rest, which another version may have changed.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

#[derive(Deserialize)]
struct Body<T> {
    data: T,
}

/// What [`write`] has written there; `None` if there is no file.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Unread> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let damaged = |e: serde_json::Error| Unread::Damaged(format!("{}: {e}", path.display()));
    let Head { version } = serde_json::from_str(&text).map_err(damaged)?;
    if version > VERSION {
        let words = format!("{}: written by a newer version of this program ({version})", path.display());
        return Err(Unread::Closed(words));
    }
    let Body { data } = serde_json::from_str(&text).map_err(damaged)?;
    Ok(Some(data))
}

fn read_text(path: &Path) -> Result<Option<String>, Unread> {
    match read_file(path) {
        Ok(Some(bytes)) => {
            let damaged = |_| Unread::Damaged(format!("{}: not UTF-8", path.display()));
            String::from_utf8(bytes).map(Some).map_err(damaged)
        }
        Ok(None) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => Err(Unread::Damaged(format!("{}: {e}", path.display()))),
        Err(e) => Err(Unread::Closed(format!("{}: {e}", path.display()))),
    }
}

/// A file's bytes; `None` if there is none. What is not a plain file is not opened, as a pipe would wait for a writer.
pub(super) fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 1 MB"));
    }
    Ok(Some(bytes))
}

/// Replaces the file by `data`, with the version of these files.
pub(super) fn write<T: Serialize>(path: &Path, data: &T) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(&Written { version: VERSION, data })?;
    text.push('\n');
    write_text(path, &text)
}

/// A crash leaves the old file or the new one. The new one is this user's alone (mode 0600), as `tempfile` has it.
fn write_text(path: &Path, text: &str) -> io::Result<()> {
    // It could not be read again.
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "there is more than 1 MB to remember"));
    }
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

/// Moves a damaged file away, to a name that is new. The oldest go when there are too many. Returns what to say.
pub(super) fn set_aside(path: &Path, words: &str) -> Result<String, String> {
    let failed = |e: io::Error| format!("{words}; it cannot be set aside: {e}");
    let place = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    };
    let prefix = place(0);
    let prefix = prefix.file_name().unwrap_or_default().to_string_lossy();
    let prefix = prefix.trim_end_matches('0');
    let mut newest: u32 = 0;
    for file in fs::read_dir(path.parent().unwrap_or(Path::new("."))).map_err(failed)?.flatten() {
        let name = file.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix)).and_then(|number| number.parse().ok());
        newest = newest.max(number.unwrap_or(0));
    }
    let number = newest.checked_add(1).ok_or_else(|| format!("{words}; it cannot be set aside: no name is left"))?;
    fs::rename(path, place(number)).map_err(failed)?;
    if let Some(oldest) = number.checked_sub(KEPT) {
        // One more than should be kept does no harm.
        let _ = fs::remove_file(place(oldest));
    }
    Ok(format!("{words}; it is set aside as {}", place(number).display()))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
