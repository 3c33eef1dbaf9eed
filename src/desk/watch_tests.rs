//! Real files in a real folder, and who is told of them.

use std::fs;

use crossbeam_channel::unbounded;
use tempfile::TempDir;

use super::*;

/// Far more than it takes.
const LONG: Duration = Duration::from_secs(20);

/// Long enough for what would be wrong to come.
const SHORT: Duration = Duration::from_millis(700);

fn watch(folder: &TempDir, patterns: &[(u64, &[&str])]) -> (Watch, Receiver<u64>) {
    let patterns = patterns.iter().map(|(id, list)| (*id, list.iter().map(|&glob| glob.into()).collect())).collect();
    let (sender, changes) = unbounded();
    let on_change = Box::new(move |id| sender.send(id).unwrap());
    (Watch::start(folder.path(), patterns, on_change).unwrap(), changes)
}

/// Waits until all of `ids` have been told. Those in `before` may come again: a slow machine can cut a burst in two.
fn expect(changes: &Receiver<u64>, before: &[u64], ids: &[u64]) {
    let mut missing: BTreeSet<u64> = ids.iter().copied().collect();
    while !missing.is_empty() {
        let id = changes.recv_timeout(LONG).unwrap_or_else(|e| panic!("{missing:?}: {e}"));
        assert!(missing.remove(&id) || ids.contains(&id) || before.contains(&id), "{id}, not {ids:?}");
    }
}

#[test]
fn each_entry_is_told_of_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |below: &str| folder.path().join(below);
    for below in ["src/deep", "docs", "target"] {
        fs::create_dir_all(path(below)).unwrap();
    }
    fs::write(path("old.rs"), "").unwrap();
    let rules: [(u64, &[&str]); 5] =
        [(1, &["src/**/*.rs", "*.rs"]), (2, &["docs/*"]), (3, &["*.rs"]), (4, &["target/*"]), (5, &["docs/new/**/x"])];
    let (watch, changes) = watch(&folder, &rules);
    fs::write(path("src/deep/a.rs"), "").unwrap();
    expect(&changes, &[], &[1]);
    fs::remove_file(path("old.rs")).unwrap();
    expect(&changes, &[1], &[1, 3]);
    // A folder that comes later, and at once what is in it.
    fs::create_dir_all(path("docs/new/er")).unwrap();
    fs::write(path("docs/new/er/x"), "").unwrap();
    expect(&changes, &[1, 3], &[2, 5]);
    // As editors save.
    fs::write(path("target/new"), "").unwrap();
    fs::rename(path("target/new"), path("target/x")).unwrap();
    expect(&changes, &[1, 2, 3, 5], &[4]);
    assert_eq!(watch.trouble(), None);
}

#[test]
fn reading_is_no_change_nor_is_what_no_glob_matches() {
    let folder = tempfile::tempdir().unwrap();
    let path = |below: &str| folder.path().join(below);
    for below in ["src", "node_modules/x", ".git"] {
        fs::create_dir_all(path(below)).unwrap();
    }
    fs::write(path("src/a.rs"), "").unwrap();
    let (_watch, changes) = watch(&folder, &[(1, &["**/*.rs"])]);
    fs::read(path("src/a.rs")).unwrap();
    fs::create_dir_all(path("src/target")).unwrap();
    for below in ["src/a.txt", "node_modules/x/a.rs", ".git/a.rs", "src/target/a.rs"] {
        fs::write(path(below), "").unwrap();
    }
    assert_eq!(changes.recv_timeout(SHORT).ok(), None);
}

#[test]
fn a_burst_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let (_watch, changes) = watch(&folder, &[(1, &["**"])]);
    for n in 0..200 {
        fs::write(folder.path().join(format!("{n}")), "").unwrap();
    }
    let told = std::iter::from_fn(|| changes.recv_timeout(SHORT).ok()).count();
    // Twice or more if this thread is kept from running for so long.
    assert!((1..10).contains(&told), "{told}");
}

#[test]
fn a_folder_that_is_moved_is_watched_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |below: &str| folder.path().join(below);
    fs::create_dir_all(path("a/deep")).unwrap();
    let (_watch, changes) = watch(&folder, &[(1, &["a/**/*.rs"]), (2, &["b/**/*.rs"])]);
    fs::rename(path("a"), path("b")).unwrap();
    fs::write(path("b/deep/x.rs"), "").unwrap();
    // The file may be seen under the old name before the move is.
    expect(&changes, &[1], &[2]);
    while changes.recv_timeout(SHORT).is_ok() {}
    fs::write(path("b/deep/x.rs"), "1").unwrap();
    expect(&changes, &[], &[2]);
    // To where no glob reaches, and back.
    fs::rename(path("b"), path("c")).unwrap();
    while changes.recv_timeout(SHORT).is_ok() {}
    fs::write(path("c/deep/x.rs"), "2").unwrap();
    assert_eq!(changes.recv_timeout(SHORT).ok(), None);
    fs::rename(path("c"), path("b")).unwrap();
    expect(&changes, &[], &[2]);
    while changes.recv_timeout(SHORT).is_ok() {}
    fs::remove_dir_all(path("b")).unwrap();
    expect(&changes, &[], &[2]);
    while changes.recv_timeout(SHORT).is_ok() {}
    fs::create_dir_all(path("b/deep")).unwrap();
    fs::write(path("b/deep/x.rs"), "2").unwrap();
    expect(&changes, &[], &[2]);
}

#[test]
fn changes_without_end_are_told_of_in_the_meantime() {
    let folder = tempfile::tempdir().unwrap();
    let (_watch, changes) = watch(&folder, &[(1, &["**"])]);
    let start = Instant::now();
    while changes.is_empty() && start.elapsed() < LONG {
        fs::write(folder.path().join("x"), "x").unwrap();
    }
    let told = start.elapsed();
    assert!(told >= QUIET && told < LONG, "{told:?}");
}

#[test]
fn the_thread_ends_when_it_is_dropped() {
    struct Gone(Sender<()>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (sender, gone) = bounded(1);
    let guard = Gone(sender);
    let on_change = Box::new(move |_| {
        let _ = &guard;
        panic!("nothing has changed");
    });
    let watch = Watch::start(folder.path(), vec![(1, vec!["**".into()])], on_change).unwrap();
    assert!(gone.is_empty());
    drop(watch);
    assert_eq!(gone.recv_timeout(LONG), Ok(()));
}

#[test]
fn without_globs_nothing_is_watched_and_a_bad_one_is_told() {
    let nowhere = Path::new("/nowhere");
    assert!(Watch::start(nowhere, vec![(1, vec![])], Box::new(|_| {})).is_ok());
    let rows = ["", "/etc/*", "../x", "a/../b", "[", "{a", &"x".repeat(2000), &"{a,".repeat(300)];
    for pattern in rows {
        let words = Watch::start(nowhere, vec![(1, vec![pattern.into()])], Box::new(|_| {})).err().unwrap();
        assert!(words.starts_with("restart_when_changed: "), "{words}");
    }
    assert!(Watch::start(nowhere, vec![(1, vec!["a".into()])], Box::new(|_| {})).is_err());
}

#[test]
fn only_folders_that_a_glob_can_reach_are_watched() {
    let rows = [
        ("**", "a/b", true),
        ("**/*.rs", "node_modules", false),
        ("**/*.rs", "a/target/b", false),
        ("target/**", "target/b", true),
        ("{target,dist}/**", "target", true),
        ("src/**", "", true),
        ("src/**", "src/a/b", true),
        ("src/**", "docs", false),
        ("a/b/*.c", "a", true),
        ("a/b/*.c", "a/b", true),
        ("a/b/*.c", "a/b/c", false),
        ("*.json", "", true),
        ("*.json", "a", false),
        ("*/x.json", "a", true),
        ("*/x.json", "a/b", false),
        ("[ab/]/x", "a/b", true),
        ("./src/", "src/a", true),
    ];
    for (pattern, folder, expected) in rows {
        let rules = Rules::new(&[(1, vec![pattern.into()])]).unwrap();
        assert_eq!(rules.reach(Path::new(folder)), expected, "{pattern} {folder}");
    }
}

#[test]
fn limits_are_told_with_what_to_do() {
    let rows = [
        (notify::Error::new(ErrorKind::MaxFilesWatch), "max_user_watches is reached: raise it (sysctl), or name"),
        (notify::Error::io(std::io::Error::from_raw_os_error(24)), "max_user_instances is reached: raise it"),
        (notify::Error::generic("odd"), "files cannot be watched: odd"),
    ];
    for (error, expected) in rows {
        assert!(words(&error).contains(expected), "{}", words(&error));
    }
}

#[test]
fn many_large_globs_are_taken_or_refused_soon() {
    let kinds = ["?*x", "[!\u{e0}-\u{ff}]", "**/", "{a,b*}/", "\\*"];
    let globs = kinds.iter().map(|kind| {
        let most = if kind.contains('{') { MOST_BRACES } else { MOST_GLOB / kind.len() - 1 };
        kind.repeat(most) + "x"
    });
    for glob in globs {
        let start = Instant::now();
        let patterns: Vec<(u64, Vec<String>)> = (0..256).map(|id| (id, vec![format!("{id}{glob}"); 4])).collect();
        if let Ok(rules) = Rules::new(&patterns) {
            rules.concerned(Path::new(&"x/".repeat(2000))).for_each(drop);
        }
        assert!(start.elapsed() < LONG, "{glob}: {:?}", start.elapsed());
    }
}
