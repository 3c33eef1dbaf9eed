//! What may be spawned and what a child sees (R9–R14; faults 30–35).
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::{Host, Start};
use serde_json::{Value, json};

fn refusal(answer: &Value) -> String {
    assert_eq!((answer["ok"].as_bool(), answer["proc_id"].as_str()), (Some(false), Some("")), "{answer}");
    assert!(answer.get("pid").is_none(), "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}

#[test]
fn fault_30_names_are_compared_byte_for_byte() {
    let mut host = Start::bare(&["serve", "--allow", "ls"]).go();
    for name in ["/usr/bin/ls", "/bin/ls", "./ls", "ls ", "LS", "bash", ""] {
        let words = refusal(&host.try_spawn(&[name], json!({})));
        assert!(words.starts_with("command_not_allowed: ") && words.contains("not allowed"), "{words}");
    }
    let words = refusal(&host.try_spawn(&[], json!({})));
    assert!(words.starts_with("empty_command: ") && words.contains("Empty command"), "{words}");
    let proc = host.spawn(&["ls", "/"]);
    host.terminal(&proc);
    assert!(host.text(&proc, "stdout").contains("etc\n"));
    host.finish();
}

#[test]
fn fault_30_a_request_s_path_finds_no_other_program_and_its_loader_variables_are_refused() {
    let dir = std::env::temp_dir().join(format!("a2e-proc-path-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("ls"), "#!/bin/sh\necho evil\n").unwrap();
    fs::set_permissions(dir.join("ls"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut host = Host::start(&[]);
    let proc = host.spawn_with(&["ls", "/"], json!({"env": {"PATH": dir}}));
    host.terminal(&proc);
    assert!(host.text(&proc, "stdout").contains("etc\n"));
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "PYTHONPATH", "BASH_FUNC_ls%%"] {
        let words = refusal(&host.try_spawn(&["ls"], json!({"env": {name: "x"}})));
        assert!(words.starts_with("invalid_argument: ") && words.contains(name), "{words}");
    }
    host.finish();
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn fault_31_a_bad_directory_is_named() {
    let mut host = Host::start(&[]);
    for (cwd, why) in [("no/such/dir", "no such directory"), ("/etc/passwd", "not a directory")] {
        let words = refusal(&host.try_spawn(&["ls"], json!({"cwd": cwd})));
        assert!(words.starts_with("cwd_not_found: cwd") && words.contains(cwd) && words.contains(why), "{words}");
    }
    let proc = host.spawn_with(&["pwd"], json!({"cwd": "/usr"}));
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "/usr\n");
    host.finish();
}

#[test]
fn fault_32_what_cannot_be_passed_is_refused_by_name() {
    let mut host = Host::start(&[]);
    for (cmd, fields, part) in [
        (vec!["ls", "a\0b"], json!({}), "cmd[1]"),
        (vec!["ls"], json!({"env": {"A=B": "x"}}), "A=B"),
        (vec!["ls"], json!({"env": {"": "x"}}), "empty name"),
        (vec!["ls"], json!({"env": {"A": "x\0"}}), "value of A"),
        (vec!["ls"], json!({"cwd": "a\0b"}), "cwd"),
    ] {
        let words = refusal(&host.try_spawn(&cmd, fields));
        assert!(words.starts_with("invalid_argument: ") && words.contains(part), "{words}");
    }
    host.finish();
}

#[test]
fn an_allowed_program_that_is_not_there_is_named() {
    let mut host = Start::bare(&["serve", "--allow", "no-such-program-0417"]).go();
    let words = refusal(&host.try_spawn(&["no-such-program-0417"], json!({})));
    assert!(words.starts_with("program_not_found: no-such-program-0417"), "{words}");
    host.finish();
}

#[test]
fn the_quota_is_exact_and_a_place_comes_back_at_once() {
    let mut host = Host::start(&["--max-procs", "2"]);
    let first = host.spawn(&["sleep", "50"]);
    let second = host.spawn(&["sleep", "50"]);
    // Earlier reasons to refuse come first, later ones after (R10).
    assert!(refusal(&host.try_spawn(&["rm"], json!({}))).starts_with("command_not_allowed"));
    assert!(refusal(&host.try_spawn(&["ls"], json!({"env": {"": ""}}))).starts_with("invalid_argument"));
    assert!(refusal(&host.try_spawn(&["ls"], json!({"cwd": "no/such"}))).starts_with("proc_limit"));
    host.kill(&first, "SIGKILL");
    // A spawn that fails gives its place back.
    assert!(refusal(&host.try_spawn(&["ls"], json!({"cwd": "no/such"}))).starts_with("cwd_not_found"));
    for _ in 0..50 {
        let proc = host.spawn(&["true"]);
        host.terminal(&proc);
    }
    host.kill(&second, "SIGTERM");
    let both = [host.spawn(&["sleep", "50"]), host.spawn(&["sleep", "50"])];
    assert!(refusal(&host.try_spawn(&["true"], json!({}))).starts_with("proc_limit"));
    drop(both);
    host.finish();
}

#[test]
fn fault_34_a_child_inherits_what_the_operator_says() {
    for (which, sees) in [("all", true), ("none", false), ("PATH,HOME", false), ("SECRET_X,NOT_SET", true)] {
        let mut host = Start::new(&["--inherit-env", which]).env("SECRET_X", "0417").go();
        let proc = host.spawn_with(&["env"], json!({"env": {"MINE": "yes"}}));
        host.terminal(&proc);
        let env = host.text(&proc, "stdout");
        assert_eq!(env.contains("SECRET_X=0417"), sees, "{which}: {env}");
        assert!(env.contains("MINE=yes\n") && !env.contains("NOT_SET"), "{which}: {env}");
        host.finish();
    }
}

#[test]
fn fault_35_sigpipe_is_not_ignored_in_children() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"]);
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "y\n141\n");
    host.finish();
}

#[test]
fn a_child_sees_its_own_name_three_descriptors_and_a_group_of_its_own() {
    let mut host = Host::start(&[]);
    let proc = host.spawn(&["cat", "/proc/self/cmdline"]);
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "cat\0/proc/self/cmdline\0");
    // The last one is the listing itself.
    let proc = host.spawn(&["ls", "/proc/self/fd"]);
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "0\n1\n2\n3\n");
    let proc = host.sh("test $(cut -d' ' -f5 /proc/$$/stat) = $$ && echo leads");
    host.terminal(&proc);
    assert_eq!(host.text(&proc, "stdout"), "leads\n");
    host.finish();
}
