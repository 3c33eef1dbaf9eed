//! What a project's file is taken for, and what is left out of it.

use std::os::unix::fs::symlink;
use std::process;

use tempfile::TempDir;

use super::*;

fn read(files: &[(&str, &str)]) -> (TempDir, Result<Project, String>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let project = Project::read(folder.path());
    (folder, project)
}

/// The one entry of a file whose only process has these lines.
fn entry(lines: &str) -> Result<Command, String> {
    let text = format!("processes:\n  web:\n    {}\n", lines.replace('\n', "\n    "));
    let mut project = read(&[("solo.yml", &text)]).1.unwrap();
    project.commands.pop().ok_or_else(|| project.notices.remove(0))
}

fn plain(name: &str, command: &str) -> Command {
    Command {
        name: name.into(),
        command: command.into(),
        working_dir: None,
        auto_start: true,
        auto_restart: false,
        restart_when_changed: vec![],
        env: BTreeMap::new(),
    }
}

#[test]
fn both_files_say_the_same() {
    let yaml = "\
name: Shop
x-common: &common
  auto_restart: true
processes:
  web:
    command: npm run dev
    working_dir: web/app
    auto_start: no
    restart_when_changed: ['src/**/*.ts', package.json]
    env: {PORT: 3000, DEBUG: true, RATE: 1.10, EMPTY: ''}
    <<: *common
  api: {command: true, restart_when_changed: '*.go'}
";
    let json = r#"{"name": "Shop", "processes": {
        "web": {"command": "npm run dev", "working_dir": "web/app", "auto_start": false, "auto_restart": true,
            "restart_when_changed": ["src/**/*.ts", "package.json"],
            "env": {"PORT": 3000, "DEBUG": true, "RATE": 1.10, "EMPTY": ""}},
        "api": {"command": "true", "restart_when_changed": "*.go"}}}"#;
    let env = [("PORT", "3000"), ("DEBUG", "true"), ("RATE", "1.10"), ("EMPTY", "")];
    let web = Command {
        working_dir: Some("web/app".into()),
        auto_start: false,
        auto_restart: true,
        restart_when_changed: vec!["src/**/*.ts".into(), "package.json".into()],
        env: env.map(|(name, value)| (name.into(), value.into())).into(),
        ..plain("web", "npm run dev")
    };
    let api = Command { restart_when_changed: vec!["*.go".into()], ..plain("api", "true") };
    for (file, text) in [("solo.yml", yaml), ("a2e-proc.json", json)] {
        let (folder, project) = read(&[(file, text)]);
        let project = project.unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        assert_eq!((project.name.as_str(), &project.root), ("Shop", &root));
        assert_eq!(project.file, Some(root.join(file)));
        assert_eq!(project.commands, [web.clone(), api.clone()], "{file}");
        assert_eq!(project.notices, [""; 0]);
    }
}

#[test]
fn without_a_file_there_is_an_empty_project() {
    for files in [&[][..], &[("solo.yml", "")], &[("solo.yml", "processes:\n")], &[("solo.yaml", "a: b")]] {
        let (folder, project) = read(files);
        let project = project.unwrap();
        assert_eq!(project.name, folder.path().file_name().unwrap().to_str().unwrap());
        assert!(project.commands.is_empty() && project.notices.is_empty(), "{project:?}");
    }
    let (_folder, both) = read(&[("solo.yml", "name: yaml"), ("a2e-proc.json", "{")]);
    let both = both.unwrap();
    assert_eq!(both.name, "yaml");
    assert!(both.notices[0].starts_with("a2e-proc.json: not read"), "{:?}", both.notices);
}

#[test]
fn a_bad_entry_does_not_take_the_others_along() {
    let rows = [
        ("command:", "solo.yml:3:"),
        ("command: ''", "solo.yml:3:5: no command is given"),
        ("auto_start: true", "solo.yml:3:5: no command is given"),
        ("command: [a]", "solo.yml:3:14: \"command\": not a text"),
        ("command: \"a\\0b\"", "has a NUL"),
        ("command: a\nworking_dir: /tmp", "solo.yml:4:18: working_dir: must be relative"),
        ("command: a\nworking_dir: a/../../b", "working_dir: must be relative"),
        ("command: a\nauto_start: 1", "auto_start: neither true nor false"),
        ("command: a\nauto_restart: 'true'", "auto_restart: neither true nor false"),
        ("command: a\nenv: {A: null}", "\"A\": not a text"),
        ("command: a\nenv: {A: [b]}", "\"A\": not a text"),
        ("command: a\nenv: {'': b}", "\"\" cannot be a variable's name"),
        ("command: a\nenv: {A=B: b}", "\"A=B\" cannot be a variable's name"),
        ("command: a\nenv: [A=b]", "env: not a map"),
        ("command: a\nrestart_when_changed: ['[']", "restart_when_changed: "),
        ("command: a\nrestart_when_changed: [/etc/*]", "relative to the project"),
        ("command: a\nrestart_when_changed: {a: b}", "not a text"),
    ];
    for (lines, words) in rows {
        let got = entry(lines).unwrap_err();
        assert!(got.contains(words) && got.ends_with("the process \"web\" is left out"), "{lines}: {got}");
    }
    let text = "processes:\n  bad: 3\n  \"a\\nb\": {command: x}\n  good: {command: x, auto_strat: 1}\nprocceses: {}\n";
    let project = read(&[("solo.yml", text)]).1.unwrap();
    assert_eq!(project.commands, [plain("good", "x")]);
    let expected = [
        "solo.yml:2:8: not a map with a command in it; the process \"bad\" is left out",
        "solo.yml:3:11: the name has a control character in it; the process \"a\\nb\" is left out",
        "solo.yml:4:34: unknown key \"auto_strat\"",
        "solo.yml:5:12: unknown key \"procceses\"",
    ];
    assert_eq!(project.notices, expected);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let rows = [
        ("solo.yml", "processes: [\n", "solo.yml:"),
        ("solo.yml", "- a\n", "solo.yml:1:1: not a map"),
        ("solo.yml", "processes: [a]\n", "solo.yml:1:12: processes: not a map"),
        ("solo.yml", "processes:\n  a: {command: x}\n  a: {command: y}\n", "solo.yml:3:3"),
        ("a2e-proc.json", "{\"processes\": {\"a\": {}, \"a\": {}}}", "a2e-proc.json:1:25"),
        ("a2e-proc.json", "processes: {}", "a2e-proc.json:1:1: expected value"),
    ];
    for (file, text, words) in rows {
        let got = read(&[(file, text)]).1.unwrap_err();
        assert!(got.starts_with(words) && !got.contains('\n'), "{text}: {got}");
    }
    let long = format!("name: {}", "x".repeat(2 << 20));
    assert!(read(&[("solo.yml", &long)]).1.unwrap_err().contains("longer than 1 MB"));
    let folder = tempfile::tempdir().unwrap();
    let made = process::Command::new("mkfifo").arg(folder.path().join("solo.yml")).status().unwrap();
    assert!(made.success());
    assert!(Project::read(folder.path()).unwrap_err().contains("not a plain file"));
}

#[test]
fn numbers_are_bounded() {
    let many: String = (0..300).map(|n| format!("  p{n}: {{command: x, oops: 1}}\n")).collect();
    let project = read(&[("solo.yml", &format!("processes:\n{many}"))]).1.unwrap();
    assert_eq!((project.commands.len(), project.notices.len()), (MOST_COMMANDS, MOST_NOTICES + 1));
    assert_eq!(project.notices[MOST_NOTICES], "and 193 more");
    assert!(entry(&format!("command: a\nrestart_when_changed: [{}]", "a, ".repeat(65))).is_err());
    let long = "é".repeat(129);
    let project = read(&[("solo.yml", &format!("processes: {{{long}: {{command: x}}}}"))]).1.unwrap();
    assert!(project.commands.is_empty() && project.notices[0].contains("longer than 128"), "{:?}", project.notices);
}

#[test]
fn a_directory_is_inside_of_the_project_when_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap().join("root");
    fs::create_dir_all(root.join("web/app")).unwrap();
    fs::create_dir(root.join("../root2")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    symlink("web", root.join("in")).unwrap();
    symlink("../root2", root.join("out")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let rows = [
        (None, Ok("")),
        (Some("."), Ok("")),
        (Some("web/./app"), Ok("web/app")),
        (Some("in/app"), Ok("web/app")),
        (Some("out"), Err("leads out of the project")),
        (Some("file"), Err("not a directory")),
        (Some("missing"), Err("No such file")),
        (Some("loop"), Err("symbolic links")),
    ];
    for (written, expected) in rows {
        let command = Command { working_dir: written.map(PathBuf::from), ..plain("web", "x") };
        match (command.directory(&root), expected) {
            (Ok(got), Ok(inside)) => assert_eq!(got, root.join(inside).components().collect::<PathBuf>()),
            (Err(words), Err(expected)) => assert!(words.contains(expected), "{written:?}: {words}"),
            (got, _) => panic!("{written:?}: {got:?}"),
        }
    }
}
