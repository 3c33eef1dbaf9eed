//! Tells which entries a change in the project's files concerns (`restart_when_changed`). The desk starts it and is called
//! back; it talks to `notify`.
//!
//! Each folder that a glob can reach is watched by itself, and no other: a tree of installed packages or of build results can
//! have more folders than the system lets anybody watch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use notify::{Config, ErrorKind, Event, EventKind, EventKindMask, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;

use super::trust::tame;

/// How long nothing may change before a burst is over.
const QUIET: Duration = Duration::from_millis(300);

/// The longest that a burst is waited for.
const MOST_BURST: Duration = Duration::from_secs(2);

/// The longest glob, in bytes.
const MOST_GLOB: usize = 1024;

/// The most opening braces in a glob.
const MOST_BRACES: usize = 16;

/// The most folders that are watched.
const MOST_FOLDERS: usize = 20_000;

/// The most folders whose change is kept; of more, all are looked at.
const MOST_FRESH: usize = 1024;

/// Folders that hold no sources: they are left out unless a glob names them.
const LEFT_OUT: [&str; 3] = [".git", "node_modules", "target"];

/// The characters of a glob that do not stand for themselves.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// A glob of files below a project's folder: `*` does not match `/`, `**` does. One that ends in `/` is all that is below.
///
/// # Errors
/// When it is none, is too long, or is not of paths below that folder.
pub(super) fn glob(pattern: &str) -> Result<Glob, String> {
    if pattern.len() > MOST_GLOB {
        return Err(format!("longer than {MOST_GLOB} bytes"));
    }
    // So many levels at most, for each of which the matcher is compiled by recursion.
    if pattern.matches('{').count() > MOST_BRACES {
        return Err(format!("more than {MOST_BRACES} braces"));
    }
    let plain = pattern.strip_prefix("./").unwrap_or(pattern);
    if plain.is_empty() || plain.starts_with('/') || plain.split('/').any(|part| part == "..") {
        return Err("must be relative to the project, and inside of it".into());
    }
    let whole = if plain.ends_with('/') { format!("{plain}**") } else { plain.to_owned() };
    GlobBuilder::new(&whole).literal_separator(true).build().map_err(|e| tame(&e.kind().to_string()))
}

/// A glob, and what can be told of it without matching.
struct Rule {
    entry: u64,
    /// The folder that all it matches is in.
    below: PathBuf,
    /// How many parts a path that it matches has; `None` if that is open.
    depth: Option<usize>,
    /// Those of [`LEFT_OUT`] that it does not name.
    left_out: Vec<&'static str>,
}

impl Rule {
    fn new(entry: u64, glob: &str) -> Self {
        let parts: Vec<&str> = glob.split('/').collect();
        let fixed = parts[..parts.len() - 1].iter().take_while(|part| !part.contains(SPECIAL));
        let names = |name: &&str| glob.split(['/', ',', '{', '}']).any(|part| part == *name);
        Self {
            entry,
            below: fixed.collect(),
            depth: (!glob.contains("**") && !glob.contains(['[', '{'])).then_some(parts.len()),
            left_out: LEFT_OUT.into_iter().filter(|name| !names(name)).collect(),
        }
    }

    fn leaves_out(&self, path: &Path) -> bool {
        path.iter().any(|part| self.left_out.iter().any(|name| part == *name))
    }

    /// Whether something that it matches can be in this folder, or further down.
    fn reaches(&self, folder: &Path) -> bool {
        (folder.starts_with(&self.below) || self.below.starts_with(folder))
            && self.depth.is_none_or(|depth| folder.iter().count() < depth)
            && !self.leaves_out(folder)
    }
}

/// The globs of all entries.
struct Rules {
    rules: Vec<Rule>,
    /// One for each rule, in their order.
    globs: GlobSet,
}

impl Rules {
    fn new(patterns: &[(u64, Vec<String>)]) -> Result<Self, String> {
        let mut rules = Vec::new();
        let mut globs = GlobSetBuilder::new();
        for (entry, pattern) in patterns.iter().flat_map(|(id, list)| list.iter().map(move |pattern| (*id, pattern))) {
            let glob = glob(pattern).map_err(|words| format!("restart_when_changed: {pattern:?}: {words}"))?;
            rules.push(Rule::new(entry, glob.glob()));
            globs.add(glob);
        }
        let globs = globs.build().map_err(|e| format!("restart_when_changed: too much in all: {e}"))?;
        Ok(Self { rules, globs })
    }

    /// The entries that a change of this path concerns.
    fn concerned(&self, path: &Path) -> impl Iterator<Item = u64> {
        let matching = self.globs.matches(path).into_iter().map(|index| &self.rules[index]);
        matching.filter(|rule| !rule.leaves_out(path)).map(|rule| rule.entry)
    }

    fn reach(&self, folder: &Path) -> bool {
        self.rules.iter().any(|rule| rule.reaches(folder))
    }
}

/// What has been seen and not yet been dealt with.
#[derive(Default)]
struct Seen {
    changed: BTreeSet<u64>,
    /// Folders that may have come, gone or moved.
    fresh: BTreeSet<PathBuf>,
    trouble: Option<String>,
}

/// What the watcher's thread and ours share.
struct Shared {
    root: PathBuf,
    rules: Rules,
    seen: Mutex<Seen>,
    /// Holds one message at most: there is something in `seen`, or an end.
    wake: Sender<()>,
    is_over: AtomicBool,
}

impl Shared {
    /// Takes an event in. On the watcher's thread, which must not be kept.
    fn note(&self, event: notify::Result<Event>) {
        match event {
            Ok(event) => {
                // What was missed may be new folders; that is no reason to restart anything.
                if event.need_rescan() {
                    self.look_at(self.root.clone());
                }
                let comes_or_goes = match event.kind {
                    EventKind::Create(_) | EventKind::Remove(_) => true,
                    EventKind::Modify(what) => matches!(what, notify::event::ModifyKind::Name(_)),
                    _ => return,
                };
                for path in event.paths {
                    self.note_path(&path);
                    if comes_or_goes && !path.is_file() {
                        self.look_at(path);
                    }
                }
            }
            Err(e) => self.seen.lock().trouble = Some(words(&e)),
        }
    }

    fn note_path(&self, path: &Path) {
        let Ok(path) = path.strip_prefix(&self.root) else { return };
        let mut concerned = self.rules.concerned(path).peekable();
        if concerned.peek().is_some() {
            self.seen.lock().changed.extend(concerned);
            // If one is there already, that will do.
            let _ = self.wake.try_send(());
        }
    }

    fn look_at(&self, folder: PathBuf) {
        let is_ours = folder.strip_prefix(&self.root).is_ok_and(|below| self.rules.reach(below));
        if is_ours {
            let mut seen = self.seen.lock();
            if seen.fresh.len() >= MOST_FRESH {
                seen.fresh.clear();
                seen.fresh.insert(self.root.clone());
            } else {
                seen.fresh.insert(folder);
            }
            drop(seen);
            let _ = self.wake.try_send(());
        }
    }
}

/// Watches until it is dropped.
pub struct Watch {
    /// `None` if there is nothing to watch.
    shared: Option<Arc<Shared>>,
}

impl Watch {
    /// Calls `on_change` with the id of each entry one of whose `patterns` matches a path below `root` that has been made,
    /// changed or removed, once for a burst of changes: when nothing has changed for 300 ms, or after 2 s.
    ///
    /// The calls are made on the thread `watch`, one after the other. It ends by itself when this is dropped, and is not
    /// waited for: who drops this may hold what `on_change` waits for. So a call that is under way then still comes to its
    /// end; no other follows.
    ///
    /// # Errors
    /// When a glob is none, or the system does not let so many folders be watched; the words say what to do.
    pub fn start(
        root: &Path,
        patterns: Vec<(u64, Vec<String>)>,
        on_change: Box<dyn Fn(u64) + Send>,
    ) -> Result<Self, String> {
        let rules = Rules::new(&patterns)?;
        if rules.rules.is_empty() {
            return Ok(Self { shared: None });
        }
        let root = std::fs::canonicalize(root).map_err(|e| format!("{}: {e}", root.display()))?;
        let (wake, woken) = bounded(1);
        let shared = Arc::new(Shared { root, rules, seen: Mutex::default(), wake, is_over: AtomicBool::new(false) });
        let noting = Arc::clone(&shared);
        let config = Config::default().with_event_kinds(EventKindMask::CORE).with_follow_symlinks(false);
        let watcher = RecommendedWatcher::new(move |event| noting.note(event), config).map_err(|e| words(&e))?;
        let mut folders = Folders { watcher, watched: BTreeSet::new(), shared: Arc::clone(&shared) };
        folders.add(&shared.root, false)?;
        let run = move || folders.run(&woken, &on_change);
        thread::Builder::new().name("watch".into()).spawn(run).map_err(|e| format!("no thread to watch files: {e}"))?;
        Ok(Self { shared: Some(shared) })
    }

    /// What has kept it from watching all, since this was asked last.
    pub fn trouble(&self) -> Option<String> {
        self.shared.as_ref()?.seen.lock().trouble.take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.is_over.store(true, Ordering::Release);
            let _ = shared.wake.try_send(());
        }
    }
}

/// The folders that are watched; the thread's own.
struct Folders {
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    shared: Arc<Shared>,
}

impl Folders {
    fn run(mut self, woken: &Receiver<()>, on_change: &dyn Fn(u64)) {
        let shared = Arc::clone(&self.shared);
        let is_over = || shared.is_over.load(Ordering::Acquire);
        while woken.recv().is_ok() && !is_over() {
            self.refresh();
            let start = Instant::now();
            while !shared.seen.lock().changed.is_empty() {
                let left = MOST_BURST.saturating_sub(start.elapsed()).min(QUIET);
                if left.is_zero() || woken.recv_timeout(left).is_err() || is_over() {
                    break;
                }
                self.refresh();
            }
            let changed = std::mem::take(&mut shared.seen.lock().changed);
            for id in changed {
                if is_over() {
                    return;
                }
                on_change(id);
            }
        }
    }

    /// Looks at the folders of which it is not known what has become of them. What is in a new one has changed: it may have
    /// been there before the folder was watched.
    fn refresh(&mut self) {
        let fresh = std::mem::take(&mut self.shared.seen.lock().fresh);
        for folder in fresh {
            // On some systems a watch stays with a folder that is moved, and goes on under its old name.
            let below = |path: &&PathBuf| path.starts_with(&folder);
            let gone: Vec<PathBuf> = self.watched.range(folder.clone()..).take_while(below).cloned().collect();
            for path in gone {
                // Where it does not stay, there is none any more.
                let _ = self.watcher.unwatch(&path);
                self.watched.remove(&path);
            }
            let is_folder = std::fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_dir());
            if is_folder && let Err(words) = self.add(&folder, folder != self.shared.root) {
                self.shared.seen.lock().trouble = Some(words);
            }
        }
    }

    /// Watches a folder and those below it that a glob can reach, and notes what is in them if it `is_new`.
    fn add(&mut self, folder: &Path, is_new: bool) -> Result<(), String> {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            if self.watched.len() >= MOST_FOLDERS {
                return Err(format!("restart_when_changed: more than {MOST_FOLDERS} folders to watch: {NARROW}"));
            }
            // Before it is read: what comes in between is seen twice rather than never.
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => self.watched.insert(folder.clone()),
                Err(e) if is_passing(&e) => continue,
                Err(e) => return Err(words(&e)),
            };
            for file in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = file.path();
                if is_new {
                    self.shared.note_path(&path);
                }
                let below = path.strip_prefix(&self.shared.root).unwrap_or(&path);
                // Links are not followed: they may lead out, or round in a circle.
                if file.file_type().is_ok_and(|kind| kind.is_dir()) && self.shared.rules.reach(below) {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }
}

/// Whether a folder has gone since it was seen, or is closed to this user.
fn is_passing(error: &notify::Error) -> bool {
    match &error.kind {
        ErrorKind::PathNotFound => true,
        ErrorKind::Io(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// What a person can do about too many folders.
const NARROW: &str = "name the folders that matter in restart_when_changed, as in \"src/**\"";

fn words(error: &notify::Error) -> String {
    let limit =
        |name: &str| format!("files cannot be watched, as the system's limit {name} is reached: raise it (sysctl)");
    match &error.kind {
        ErrorKind::MaxFilesWatch => format!("{}, or {NARROW}", limit("fs.inotify.max_user_watches")),
        // EMFILE: too many of them in this program, or of this user.
        ErrorKind::Io(e) if e.raw_os_error() == Some(24) => limit("fs.inotify.max_user_instances"),
        _ => format!("files cannot be watched: {error}"),
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
