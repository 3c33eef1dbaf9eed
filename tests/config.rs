//! `a2e-proc config`: what it says of a file is what `serve` does with it; and the README's way from the SDK's YAML.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::binary;

fn file(text: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("a2e-proc-check-{}-{}.json", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(name);
    fs::write(&file, text).unwrap();
    file
}

fn check(file: &PathBuf) -> Output {
    binary().args(["config", "check"]).arg(file).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn each_key_is_told_with_its_value_its_meaning_and_whether_it_does_anything() {
    let file = file(
        r#"{"MAX_PROCS": 10, "timeout": 0, "kill_grace": 2, "enabled": true, "priority": 5, "audit_keep": 3, "log": null}"#,
    );
    let output = check(&file);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let said = text(&output.stdout);
    for line in [
        "  MAX_PROCS = 10 (the default is 64): processes that may run at once, per session",
        "  timeout = 0 (same as the default): seconds a process may live",
        "  kill_grace = 2 (same as the default): ",
        "  enabled = true (no effect): a key of the published SDK's",
        "  priority = 5 (no effect): ",
        "  audit_keep = 3 (no effect without audit): ",
        "  log = null (same as the default): ",
        "  allowed_commands = [\"python3\",\"bash\",\"ls\"]: programs that may be run",
        "  audit = null: ",
        "  denied_env = [\"LD_*\"",
    ] {
        assert_eq!(said.lines().filter(|said| said.starts_with(line)).count(), 1, "{line}\n{said}");
    }
    assert!(!said.contains("  max_procs"), "{said}");
    fs::remove_file(file).unwrap();
}

#[test]
fn what_serve_refuses_is_refused_in_the_same_words() {
    for content in [
        "{\n\"max_porcs\": 4}",
        "{\"max_procs\": 0}",
        "[]",
        "{\"priorty\": 5}",
        "{\"auth_token_file\": \"/no/such\"}",
        "{\"audit\": \"/no/such/audit.log\"}",
        "{\"audit_keep\": 1001}",
        "{\"max_procs\": 4, \"MAX_PROCS\": 4}",
        "{\"resume\": 0}",
        "{\"wrap\": [\"no-such-launcher\"]}",
        "{\"network_disabled\": true, \"wrap\": [\"ssh\", \"h\"]}",
    ] {
        let file = file(content);
        let (checked, served) =
            (check(&file), binary().args(["serve", "--config"]).arg(&file).stdin(Stdio::null()).output().unwrap());
        assert_eq!((checked.status.code(), checked.stdout.len()), (Some(2), 0), "{content}");
        assert_eq!(text(&checked.stderr), text(&served.stderr), "{content}");
        assert_eq!(served.status.code(), Some(2), "{content}");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_check_leaves_no_audit_file_behind() {
    let audit = std::env::temp_dir().join(format!("a2e-proc-check-{}.log", std::process::id()));
    let file = file(&format!("{{\"audit\": {audit:?}}}"));
    assert_eq!(check(&file).status.code(), Some(0));
    assert!(!audit.exists());
    fs::write(&audit, "kept\n").unwrap();
    assert_eq!(check(&file).status.code(), Some(0));
    assert_eq!(fs::read_to_string(&audit).unwrap(), "kept\n");
    fs::remove_file(&audit).unwrap();
    // A link to where it is going to be stays a link.
    let target = audit.with_extension("target");
    std::os::unix::fs::symlink(&target, &audit).unwrap();
    assert_eq!(check(&file).status.code(), Some(0));
    assert_eq!((fs::read_link(&audit).unwrap() == target, target.exists()), (true, false));
    fs::remove_file(audit).unwrap();
    fs::remove_file(file).unwrap();
}

#[test]
fn the_example_is_taken_by_check_and_by_serve() {
    let output = binary().args(["config", "example"]).output().unwrap();
    assert!(output.status.success());
    let file = file(text(&output.stdout));
    let checked = check(&file);
    assert_eq!((checked.status.code(), text(&checked.stderr)), (Some(0), ""));
    assert!(text(&checked.stdout).trim_end().ends_with("and not these keys, whose defaults hold:"), "a key is missing");
    let served = binary().args(["serve", "--config"]).arg(&file).stdin(Stdio::null()).output().unwrap();
    assert!(served.status.success(), "{}", text(&served.stderr));
    fs::remove_file(file).unwrap();
}

const YAML: &str = "\
host_id: example
transport: {type: subprocess}
plugins:
  - name: tools
    type: tools
    cls: example.Tools
  - name: processes
    type: procs
    cls: a2e.caps.proc.plugin.ProcPlugin
    metadata:
      enabled: true
      ALLOWED_COMMANDS:
        - bash
        - cat
      DEFAULT_TIMEOUT: 30
      MAX_PROCS: 5
      DISABLE_NETWORK: false
";

#[test]
fn the_readme_s_command_makes_a_file_of_the_sdk_s_yaml() {
    if !Command::new("python3").args(["-c", "import yaml"]).stderr(Stdio::null()).status().unwrap().success() {
        eprintln!("skipped: python3 has no yaml (PyYAML)");
        return;
    }
    let readme = include_str!("../README.md");
    let command = readme.lines().find(|line| line.starts_with("python3 -c 'import sys, json, yaml;")).unwrap();
    let dir = std::env::temp_dir().join(format!("a2e-proc-yaml-{}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("config.yaml"), YAML).unwrap();
    let made = Command::new("sh").args(["-c", command]).current_dir(&dir).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let checked = check(&dir.join("a2e-proc.json"));
    let said = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    for line in [
        "  enabled = true (no effect): ",
        "  ALLOWED_COMMANDS = [\"bash\",\"cat\"] (the default is [\"python3\",\"bash\",\"ls\"]): ",
        "  DEFAULT_TIMEOUT = 30 (the default is 0): ",
        "  MAX_PROCS = 5 (the default is 64): ",
        "  DISABLE_NETWORK = false (same as the default): ",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    fs::remove_dir_all(dir).unwrap();
}
