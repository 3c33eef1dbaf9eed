//! Which commands a person has allowed this program to start. Nobody grants it but a person at a terminal; `store` keeps the
//! file.
//!
//! Trust is of a command exactly as it stood when it was granted: with one letter changed it must be granted again. Another
//! name does not matter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::paths::Paths;
use super::project::Command;
use super::store::{self, Unread};

/// All of a command that what it does depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What the shell is given.
    pub command: String,
    /// As it is written in the project's file.
    pub working_dir: Option<PathBuf>,
    /// What is added to the environment.
    pub env: BTreeMap<String, String>,
    /// Whether it starts with the desk.
    pub auto_start: bool,
    /// Whether it starts again when it has ended.
    pub auto_restart: bool,
    /// The globs of files whose change starts it again.
    pub restart_when_changed: Vec<String>,
}

/// A variant that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The command's name at that time.
    pub name: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// What.
    pub variant: Variant,
}

/// What of a project is trusted, as the file says it at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    granted: Vec<Granted>,
}

impl Trust {
    /// What the file says now, and what a person should be told of it. A file that cannot be understood trusts nothing.
    #[must_use]
    pub fn load(paths: &Paths) -> (Self, Vec<String>) {
        match store::read(&paths.trust()) {
            Ok(granted) => (Self { granted: granted.unwrap_or_default() }, Vec::new()),
            Err(Unread::Closed(words)) => (Self::default(), vec![format!("{words}: nothing is trusted")]),
            // Only who holds the lock may move the file: another may be there by now.
            Err(Unread::Damaged(words)) => match lock(paths, |file| Ok(file.try_lock()?)) {
                Ok(_lock) => Self::locked(paths).unwrap_or_else(|words| (Self::default(), vec![words])),
                Err(e) => (Self::default(), vec![format!("{words}: nothing is trusted (not set aside: {e})")]),
            },
        }
    }

    /// The same for who holds the lock. A damaged file is set aside; one that may not be replaced is an error.
    fn locked(paths: &Paths) -> Result<(Self, Vec<String>), String> {
        match store::read(&paths.trust()) {
            Ok(granted) => Ok((Self { granted: granted.unwrap_or_default() }, Vec::new())),
            Err(Unread::Closed(words)) => Err(words),
            Err(Unread::Damaged(words)) => {
                let words = store::set_aside(&paths.trust(), &words)?;
                Ok((Self::default(), vec![format!("{words}: nothing is trusted")]))
            }
        }
    }

    /// Whether a person has allowed exactly this.
    #[must_use]
    pub fn is_trusted(&self, variant: &Variant) -> bool {
        self.granted.iter().any(|granted| granted.variant == *variant)
    }

    /// What is trusted, in the order in which it was granted.
    #[must_use]
    pub fn granted(&self) -> &[Granted] {
        &self.granted
    }

    /// Trusts `variant`, which `name` has now. Returns what a person should be told of the file.
    ///
    /// # Errors
    /// When the file cannot be written, or is of a newer version of this program.
    pub fn grant(paths: &Paths, name: &str, variant: Variant) -> Result<Vec<String>, String> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let ((), notices) = change(paths, |granted| {
            if !granted.iter().any(|one| one.variant == variant) {
                granted.push(Granted { name: name.to_owned(), at, variant });
            }
        })?;
        Ok(notices)
    }

    /// Trusts `variant` no more. Returns whether it was trusted, and what a person should be told of the file.
    ///
    /// # Errors
    /// As [`Trust::grant`].
    pub fn revoke(paths: &Paths, variant: &Variant) -> Result<(bool, Vec<String>), String> {
        change(paths, |granted| {
            let before = granted.len();
            granted.retain(|one| one.variant != *variant);
            granted.len() < before
        })
    }
}

/// Changes the file under its lock, from reading to writing, so that of two changes at once neither is lost.
fn change<T>(paths: &Paths, how: impl FnOnce(&mut Vec<Granted>) -> T) -> Result<(T, Vec<String>), String> {
    let failed = |e: io::Error| format!("{}: {e}", paths.trust().display());
    let _lock = lock(paths, File::lock).map_err(failed)?;
    let (mut trust, notices) = Trust::locked(paths)?;
    let result = how(&mut trust.granted);
    store::write(&paths.trust(), &trust.granted).map_err(failed)?;
    Ok((result, notices))
}

/// The lock is held until the file is dropped.
fn lock(paths: &Paths, how: impl FnOnce(&File) -> io::Result<()>) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(paths.trust_lock())?;
    how(&file)?;
    Ok(file)
}

/// All that a person must see before they trust a command, in lines for a terminal. Nothing in the file can hide or move any
/// of it.
#[must_use]
pub fn show(command: &Command, root: &Path) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{label:<21} {value}");
    };
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    line("name", &visible(&command.name));
    line("command", &visible(&command.command));
    match command.directory(root) {
        Ok(directory) => line("directory", &visible(&directory.to_string_lossy())),
        Err(words) => line("directory", &format!("refused: {words}")),
    }
    for (name, value) in &command.env {
        line("environment", &format!("{}={}", visible(name), visible(value)));
    }
    line("auto_start", yes(command.auto_start));
    line("auto_restart", yes(command.auto_restart));
    for pattern in &command.restart_when_changed {
        line("restart_when_changed", &visible(pattern));
    }
    text
}

/// Letters that show as nothing, or as a space.
const BLANK: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// Whether a letter shows as nothing, changes the one before it, moves the cursor or turns the direction of writing.
fn is_hidden(c: char) -> bool {
    BLANK.contains(&c) || (!['"', '\'', '\\'].contains(&c) && c.escape_debug().len() > 1)
}

/// A text in quotes, whole, on one line: hidden letters stand as their numbers. No two texts look the same by it.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => shown.extend(['\\', c]),
            _ if BLANK.contains(&c) => shown.extend(c.escape_unicode()),
            _ if is_hidden(c) => shown.extend(c.escape_debug()),
            _ => shown.push(c),
        }
    }
    shown.push('"');
    shown
}

/// Words of another library that may quote a file, on one line and without hidden letters.
pub(super) fn tame(words: &str) -> String {
    words.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::desk::paths::tests::fixture;

    fn command(command: &str) -> Command {
        Command {
            name: "web".into(),
            command: command.into(),
            working_dir: None,
            auto_start: true,
            auto_restart: false,
            restart_when_changed: vec!["src/**".into()],
            env: BTreeMap::from([("A".into(), "1".into())]),
        }
    }

    #[test]
    fn any_change_but_of_the_name_takes_trust_away() {
        let (_folder, paths) = fixture();
        let granted = command("npm start");
        assert!(!Trust::load(&paths).0.is_trusted(&granted.variant()));
        assert_eq!(Trust::grant(&paths, "web", granted.variant()), Ok(vec![]));
        let (trust, notices) = Trust::load(&paths);
        assert!(notices.is_empty() && trust.is_trusted(&granted.variant()));
        assert_eq!((trust.granted().len(), trust.granted()[0].name.as_str()), (1, "web"));
        let renamed = Command { name: "site".into(), ..granted.clone() };
        assert!(trust.is_trusted(&renamed.variant()));
        let changed = [
            Command { command: "npm start ".into(), ..granted.clone() },
            Command { working_dir: Some("web".into()), ..granted.clone() },
            Command { auto_start: false, ..granted.clone() },
            Command { auto_restart: true, ..granted.clone() },
            Command { restart_when_changed: vec![], ..granted.clone() },
            Command { env: BTreeMap::from([("A".into(), "2".into())]), ..granted.clone() },
            Command { env: BTreeMap::new(), ..granted.clone() },
        ];
        for command in changed {
            assert!(!trust.is_trusted(&command.variant()), "{command:?}");
        }
        assert_eq!(Trust::revoke(&paths, &granted.variant()), Ok((true, vec![])));
        assert_eq!(Trust::revoke(&paths, &granted.variant()), Ok((false, vec![])));
        assert!(!Trust::load(&paths).0.is_trusted(&granted.variant()));
        assert_eq!(fs::metadata(paths.trust()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn grants_at_once_lose_nothing() {
        let (_folder, paths) = fixture();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let paths = &paths;
                scope.spawn(move || {
                    for n in 0..8 {
                        Trust::grant(paths, "x", command(&format!("{worker} {n}")).variant()).unwrap();
                    }
                });
            }
        });
        assert_eq!(Trust::load(&paths).0.granted().len(), 32);
    }

    #[test]
    fn a_file_that_cannot_be_understood_trusts_nothing() {
        let granted = command("npm start").variant();
        let (_folder, paths) = fixture();
        Trust::grant(&paths, "web", granted.clone()).unwrap();
        let good = fs::read_to_string(paths.trust()).unwrap();
        let rows = [
            (good[..good.len() / 2].to_owned(), true),
            (good.replace("\"auto_start\"", "\"auto_strat\""), true),
            (good.replace("\"version\": 1", "\"version\": 2"), false),
        ];
        for (text, is_damaged) in rows {
            assert_ne!(text, good);
            fs::write(paths.trust(), &text).unwrap();
            let (trust, notices) = Trust::load(&paths);
            assert!(!trust.is_trusted(&granted), "{text}");
            assert!(notices.len() == 1 && notices[0].contains("nothing is trusted"), "{notices:?}");
            assert_eq!(!paths.trust().exists(), is_damaged, "{notices:?}");
            assert_eq!(Trust::grant(&paths, "web", granted.clone()).is_ok(), is_damaged, "{text}");
        }
        assert_eq!(fs::read_to_string(paths.state.join("trust.json.damaged-1")).unwrap(), good[..good.len() / 2]);
        assert!(paths.state.join("trust.json.damaged-2").exists());
    }

    #[test]
    fn a_damaged_file_that_is_being_changed_stays_where_it_is() {
        let (_folder, paths) = fixture();
        fs::write(paths.trust(), "{").unwrap();
        let lock = lock(&paths, File::lock).unwrap();
        assert!(Trust::load(&paths).1[0].contains("not set aside"));
        assert!(paths.trust().exists());
        drop(lock);
        assert!(Trust::load(&paths).1[0].contains("damaged-1"));
    }

    #[test]
    fn nothing_in_a_command_can_hide() {
        let (_folder, paths) = fixture();
        let mut hostile = command("echo hi\r\u{1b}[2Krm -rf ~\n# \u{202e}olleh\u{200b}\u{a0}\u{3164}\u{e0041}");
        hostile.env.insert("PATH".into(), "\u{9b}31m'\"\\".into());
        let shown = show(&hostile, &paths.root);
        let expected = [
            r#""echo hi\r\u{1b}[2Krm -rf ~\n# \u{202e}olleh\u{200b}\u{a0}\u{3164}\u{e0041}""#,
            r#""PATH"="\u{9b}31m'\"\\""#,
            r#""A"="1""#,
            r#""src/**""#,
            paths.root.to_str().unwrap(),
        ];
        for part in expected {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.replace('\n', "").contains(char::is_control), "{shown:?}");
        assert_eq!(shown.lines().count(), 8, "{shown}");
        hostile.working_dir = Some("missing".into());
        assert!(show(&hostile, &paths.root).contains("refused:"));
    }

    proptest! {
        #[test]
        fn two_texts_never_look_the_same(a in ".{0,12}", b in r#"(\\|"|u|\{|\}|n|\n|2|e){0,12}"#, c in r#"(\\|"|u|\{|\}|n|\n|2|e){0,12}"#) {
            prop_assert_eq!(a == b, visible(&a) == visible(&b));
            prop_assert_eq!(b == c, visible(&b) == visible(&c));
            let hidden = |c: char| c.is_control() || c == '\u{202e}';
            prop_assert!(!visible(&a).contains(hidden));
        }
    }
}
