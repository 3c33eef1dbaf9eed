//! The order of the source: every file says whom it talks to, is not too long, and uses only what stands below it.
//! ARCHITECTURE.md draws the floors.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// The longest a source file may be.
const MOST_LINES: usize = 400;

/// Each module of the library, and the modules that it may use beside itself. What is not listed here is not allowed to be.
const MAY_USE: &[(&str, &[&str])] = &[
    // Floor 0.
    ("ids", &[]),
    ("model", &["ids"]),
    ("log", &[]),
    ("count", &[]),
    ("audit", &[]),
    // Floor 1.
    ("wire", &["model", "ids"]),
    ("os", &["model"]),
    // Floor 2. The engine does not know the wire; a transport does not know what its lines say.
    ("engine", &["model", "log", "count", "os"]),
    ("transport", &["model", "ids", "log", "count", "os"]),
    // Floor 3.
    ("desk", &["model", "ids", "log", "count", "os", "engine"]),
    // Floor 4.
    ("face", &["model", "ids", "log", "audit", "wire", "engine", "transport", "desk"]),
    // Floor 5: the binary, which uses the library as anybody would.
    ("cli", &["model", "log", "audit", "wire", "engine", "transport", "desk", "face", "signals", "conform"]),
    ("main", &["cli", "conform"]),
    // Beside the floors: the conformance runner uses nothing of the host.
    ("conform", &[]),
];

/// Crates that belong to some modules alone: system calls, signals, JSON.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("rustix", &["os", "conform"]),
    ("wait_timeout", &["os", "conform"]),
    ("signal_hook", &["os", "cli"]),
    ("nix", &["cli", "conform"]),
    ("close_fds", &["cli"]),
    ("shlex", &["cli"]),
    ("serde", &["wire", "desk", "face/mcp", "cli", "conform"]),
    ("serde_json", &["wire", "desk", "face/mcp", "cli", "conform"]),
    ("pty_process", &["os"]),
    ("vt100", &["engine"]),
    ("serde_saphyr", &["desk"]),
    ("notify", &["desk"]),
    ("uuid", &["ids"]),
    ("httparse", &["transport", "conform"]),
];

/// What is wrong with a file, given its path under `src`, without the ending.
fn faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//!") {
        faults.push(format!("{path}: does not open with //!"));
    }
    let lines = text.lines().count();
    if lines > MOST_LINES {
        faults.push(format!("{path}: has {lines} lines; at most {MOST_LINES}"));
    }
    let own = path.split('/').next().unwrap();
    if own == "lib" {
        return faults;
    }
    let Some((_, may_use)) = MAY_USE.iter().find(|(module, _)| *module == own) else {
        faults.push(format!("{path}: {own} is not a module that tests/floors.rs knows"));
        return faults;
    };
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap();
        for used in modules_used(path, code) {
            if used != own && !may_use.contains(&used.as_str()) {
                faults.push(format!("{path}:{}: {own} may not use {used}", number + 1));
            }
        }
        for (name, homes) in ONLY_IN {
            let is_home = |home: &&str| own == *home || path.starts_with(&format!("{home}/"));
            if starts_path(code, name) && !homes.iter().any(is_home) {
                faults.push(format!("{path}:{}: {name} belongs to {homes:?}", number + 1));
            }
        }
    }
    faults
}

/// Whether a path in `code` begins with the crate `name`.
fn starts_path(code: &str, name: &str) -> bool {
    code.match_indices(&format!("{name}::"))
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

/// The top modules of this package that a line of code names: by `crate::`, by the library's name, or by climbing up.
fn modules_used(path: &str, code: &str) -> Vec<String> {
    let name_after = |rest: &str| -> String { rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut used: Vec<String> = ["crate::", "a2e_proc::"]
        .iter()
        .flat_map(|root| code.match_indices(root).map(|(at, _)| name_after(&code[at + root.len()..])))
        .collect();
    // How many modules a file stands below the root: `mod.rs` is its directory's module.
    let depth = path.split('/').filter(|part| *part != "mod").count();
    let climb = "super::".repeat(depth);
    used.extend(code.match_indices(&climb).map(|(at, _)| name_after(&code[at + climb.len()..])));
    used.retain(|name| !name.is_empty());
    used
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_file_keeps_to_its_floor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&root);
    assert!(files.len() > 30, "the sources were not found");
    let mut all = Vec::new();
    for file in files {
        let path = file.strip_prefix(&root).unwrap().with_extension("");
        all.extend(faults(path.to_str().unwrap(), &fs::read_to_string(&file).unwrap()));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn every_test_opens_with_what_it_is_about_and_is_not_too_long() {
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not open with //!", file.display());
        assert!(text.lines().count() <= MOST_LINES, "{} has {} lines", file.display(), text.lines().count());
    }
}

#[test]
fn what_is_put_in_wrong_is_found() {
    let long = format!("//! Long.\n{}", "\n".repeat(MOST_LINES));
    let rows: [(&str, &str, &str); 13] = [
        ("model", "//! Words.\nuse crate::engine::Host;\n", "model:2: model may not use engine"),
        ("engine/bus", "//! Bus.\nuse crate::wire::VERSION;\n", "engine may not use wire"),
        ("engine/bus", "//! Bus.\nuse super::super::face::a2e;\n", "engine may not use face"),
        ("engine/mod", "//! Engine.\nuse super::transport::Line;\n", "engine may not use transport"),
        ("engine/bus", "//! Bus.\nfn f() { crate::face::x() }\n", "engine may not use face"),
        ("engine/bus", "//! Bus.\nuse rustix::process::Pid;\n", "rustix belongs to"),
        ("engine/bus", "//! Bus.\nuse serde::Serialize;\n", "serde belongs to"),
        ("transport/line", "//! Lines.\nuse crate::wire::VERSION;\n", "transport may not use wire"),
        ("cli/run", "//! Run.\nuse a2e_proc::os::spawn;\n", "cli may not use os"),
        ("face/a2e/mod", "//! A2E.\nuse serde_json::Value;\n", "serde_json belongs to"),
        ("attic", "//! Attic.\n", "not a module"),
        ("engine/bus", "use std::fmt;\n", "does not open with //!"),
        ("engine/bus", &long, "has 401 lines"),
    ];
    for (path, text, expected) in rows {
        let found = faults(path, text);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{expected}: {found:?}");
    }
    let fine = "//! Bus.\nuse crate::model::ProcId; // not crate::wire\nuse super::text::Chunk;\n";
    assert_eq!(faults("engine/bus", fine), [""; 0]);
}
