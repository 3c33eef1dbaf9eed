//! Commands that are cut off the network: by each launcher that can, with everything else as it is, or not at all.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;

use common::folder::Folder;
use common::{Host, Start, binary, payload};
use serde_json::json;

/// A `PATH` of the tests' programs and this launcher alone.
fn only(launcher: &str) -> Folder {
    let folder = Folder::new();
    for name in ["sh", "bash", "python3", "cat", "true", "sleep", "ls", "env", "nsenter", launcher] {
        folder.link(name);
    }
    folder
}

/// Runs `look` with each launcher that this machine has, and says which it has not.
fn with_each(look: impl Fn(&str, &mut Host)) {
    for launcher in ["unshare", "bwrap"] {
        let folder = only(launcher);
        let path = folder.as_ref().to_str().unwrap();
        let start =
            || binary().args(["serve", "--no-network"]).env("PATH", path).stdin(Stdio::null()).output().unwrap();
        let output = start();
        if output.status.code() == Some(2) {
            eprintln!("skipped: {launcher}: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        }
        let mut host = Start::new(&["--allow=nsenter", "--no-network", "--log=info"]).env("PATH", path).go();
        look(launcher, &mut host);
        host.close_input();
        assert_eq!(host.wait_end().0, Some(0));
        let log = host.take_stderr();
        assert!(log.contains(&format!("behind \"{launcher} ")), "{log}");
    }
}

fn code(host: &mut Host, cmd: &[&str]) -> i64 {
    let proc = host.spawn(cmd);
    let end = host.terminal(&proc);
    payload(&end)["code"].as_i64().unwrap_or_else(|| panic!("{end}"))
}

#[test]
fn a_command_cannot_connect_or_get_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let python = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 20)");
    let bash = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let connects = [&["python3", "-c", &python][..], &["bash", "-c", &bash]];
    let mut host = Host::start(&[]);
    for cmd in connects {
        assert_eq!(code(&mut host, cmd), 0, "{cmd:?}");
    }
    assert_eq!(host.seen[0]["accepted_caps"][0]["metadata"].get("network_disabled"), None);
    host.finish();
    with_each(|launcher, host| {
        assert_eq!(host.seen[0]["accepted_caps"][0]["metadata"]["network_disabled"], json!(true));
        for cmd in connects {
            assert_eq!(code(host, cmd), 1, "{launcher} {cmd:?}");
        }
        // Not even a superuser's command may enter the host's own network again.
        let own = format!("--net=/proc/{}/ns/net", host.pid());
        assert_ne!(code(host, &["nsenter", &own, "true"]), 0, "{launcher}");
        assert_ne!(code(host, &["nsenter", &own, "bash", "-c", &bash]), 0, "{launcher}");
    });
}

#[test]
fn all_else_is_as_it_was() {
    with_each(|launcher, host| {
        assert_eq!(code(host, &["sh", "-c", "exit 7"]), 7);
        let killed = code(host, &["sh", "-c", "kill -KILL $$"]);
        assert_eq!(killed, if launcher == "unshare" { -9 } else { 137 }, "{launcher}");
        let proc = host.spawn_with(
            &["sh", "-c", "echo $PWD $PATH $0; exec cat"],
            json!({"cwd": "/usr", "env": {"PATH": "/x:/bin"}}),
        );
        host.write(&proc, "typed\n", true);
        host.terminal(&proc);
        let text = host.text(&proc, "stdout");
        assert!(text.starts_with("/usr /x:/bin /") && text.ends_with("/sh\ntyped\n"), "{text}");
        // The whole group ends.
        let marker = format!("51.{}", std::process::id());
        let proc = host.sh(&format!("sleep {marker} & echo up; wait"));
        host.wait_text(&proc, "stdout", "up\n");
        assert_eq!(host.kill(&proc, "SIGTERM")["state"], "killed");
        common::system::assert_gone(&marker);
        for name in ["LD_PRELOAD", "GCONV_PATH"] {
            let words = host.proc_or_error(&["ls"], json!({"env": {name: "x"}})).unwrap_err();
            assert!(words.starts_with("invalid_argument: ") && words.contains(name), "{words}");
        }
        let status = host.call("proc/status/req", json!({"proc_id": proc.id}));
        assert!(status["procs"][0]["cmd"].as_str().unwrap().starts_with("sh -c "), "{status}");
    });
}

#[test]
fn a_list_of_denied_variables_does_not_open_a_way() {
    let folder = only("unshare");
    folder.link("bwrap");
    fs::write(folder.file("config"), r#"{"denied_env": [], "DISABLE_NETWORK": true, "allowed_commands": ["ls", "no-such-program-0417", "/no/such"]}"#).unwrap();
    let file = format!("--config={}", folder.file("config").display());
    let start = binary().args(["serve", &file]).stdin(Stdio::null()).output().unwrap();
    if start.status.code() == Some(2) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&start.stderr));
        return;
    }
    let mut host = Start::bare(&["serve", &file]).go();
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES"] {
        let words = host.proc_or_error(&["ls"], json!({"env": {name: "x"}})).unwrap_err();
        assert!(words.starts_with("invalid_argument: ") && words.contains(name), "{words}");
    }
    for name in ["no-such-program-0417", "/no/such"] {
        let words = host.proc_or_error(&[name], json!({})).unwrap_err();
        assert!(words.starts_with(&format!("program_not_found: {name}")), "{words}");
    }
    host.finish();
}

#[test]
fn a_host_that_cannot_cut_commands_off_does_not_start() {
    let empty = Folder::new();
    let folder = Folder::new();
    fs::write(folder.file("on"), r#"{"network_disabled": true}"#).unwrap();
    fs::write(folder.file("own"), r#"{"allowed_commands": [{"name": "ls", "wrap": "env"}]}"#).unwrap();
    folder.script("unshare", "echo forbidden >&2; exit 1");
    assert!(folder.link("true"));
    let (on, own) = (folder.file("on"), folder.file("own"));
    let file = |path: &std::path::Path| format!("--config={}", path.display());
    let missing = ["unshare is not on the host's PATH", "bwrap is not on the host's PATH", "bubblewrap"];
    let rows: [(&[&str], &Folder, &[&str]); 6] = [
        (&["serve", "--no-network"], &empty, &missing),
        (&["serve", &file(&on)], &empty, &missing),
        (&["run", "--no-network", "--", "ls"], &empty, &missing),
        (&["serve", "--no-network"], &folder, &["unshare fails: forbidden", "bwrap is not"]),
        (&["serve", "--no-network", "--wrap", "ssh h"], &empty, &["cannot be had together with wrap"]),
        (&["serve", "--no-network", &file(&own)], &empty, &["cannot be had together with wrap"]),
    ];
    for (args, path, parts) in rows {
        let output = binary().args(args).env("PATH", path.as_ref()).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len(), stderr.lines().count()),
            (Some(2), 0, 1),
            "{args:?}: {stderr}"
        );
        assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {stderr}");
    }
}
