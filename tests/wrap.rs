//! Launchers in front of commands: what they get, what a request cannot do to them, and whose fault it is if they fail (R9).
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::folder::Folder;
use common::{Host, Start, binary};
use serde_json::{Value, json};

/// Prints its arguments as JSON.
const TELL: [&str; 3] = ["python3", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"];

/// Does what ssh does: joins the words behind the host with spaces, for a shell.
const SSH: &str = "shift; [ \"$1\" = -- ] && shift; exec sh -c \"$*\"";

fn output(host: &mut Host, cmd: &[&str], fields: Value) -> String {
    let proc = host.spawn_with(cmd, fields);
    let code = host.terminal(&proc);
    let text = host.text(&proc, "stdout");
    assert_eq!(common::payload(&code)["code"], 0, "{code} {text} {}", host.text(&proc, "stderr"));
    text
}

#[test]
fn a_launcher_goes_before_the_command_under_its_own_name() {
    let mut host = Host::start(&["--log", "info", "--wrap", "timeout -k '60' 60"]);
    let proc = host.sh("echo up; exec sleep 50");
    host.wait_text(&proc, "stdout", "up\n");
    let line = fs::read_to_string(format!("/proc/{}/cmdline", proc.pid)).unwrap();
    assert_eq!(line.replace('\0', " "), "timeout -k 60 60 sh -c echo up; exec sleep 50 ");
    let status = host.call("proc/status/req", json!({"proc_id": proc.id}));
    assert_eq!(status["procs"][0]["cmd"], "sh -c 'echo up; exec sleep 50'");
    host.kill(&proc, "SIGKILL");
    host.close_input();
    host.wait_end();
    let log = host.take_stderr();
    assert!(log.contains(&format!("spawned \"sh\" as pid {} behind \"timeout -k 60 60\"", proc.pid)), "{log}");
}

#[test]
fn a_request_s_variables_reach_the_command_and_not_the_launcher() {
    let folder = Folder::new();
    folder.script("box", "env >\"$(dirname \"$0\")/seen\"; shift; exec \"$@\"");
    let wrap = format!("{} --", folder.file("box").display());
    let mut host = Start::new(&["--wrap", &wrap]).env("OWN_X", "yes").go();
    let fields = json!({"env": {"DOCKER_HOST": "tcp://evil", "SSH_AUTH_SOCK": "a b", "EMPTY": ""}});
    let inside = output(&mut host, &["env"], fields);
    for line in ["DOCKER_HOST=tcp://evil\n", "SSH_AUTH_SOCK=a b\n", "EMPTY=\n", "OWN_X=yes\n"] {
        assert!(inside.contains(line), "{line}: {inside}");
    }
    let seen = fs::read_to_string(folder.file("seen")).unwrap();
    assert!(seen.contains("OWN_X=yes\n") && !seen.contains("evil") && !seen.contains("SSH_AUTH_SOCK=a b"), "{seen}");
    host.finish();
}

#[test]
fn what_could_steer_a_launcher_is_refused() {
    let mut host = Start::bare(&["serve", "--allow=-S", "--allow=A=b", "--allow=ls", "--wrap", "env"]).go();
    for (name, env, part) in [
        ("-S", json!({}), "\"-S\" could be an option"),
        ("A=b", json!({}), "\"A=b\" could be an option"),
        ("ls", json!({"PATH": "/tmp"}), "PATH"),
        ("ls", json!({"-S id": ""}), "\"-S id\" would be an option"),
        ("ls", json!({"-": ""}), "\"-\" would be an option"),
        ("ls", json!({"LD_PRELOAD": "x"}), "LD_PRELOAD"),
    ] {
        let words = host.proc_or_error(&[name], json!({"env": env})).unwrap_err();
        assert!(words.starts_with("invalid_argument: ") && words.contains(part), "{words}");
    }
    assert!(host.proc_or_error(&["id"], json!({})).unwrap_err().starts_with("command_not_allowed: "));
    // Arguments may be anything.
    let ls = output(&mut host, &["ls", "-d", "--", "/"], json!({"env": {"_X": "-S"}}));
    assert_eq!(ls, "/\n");
    host.finish();
}

#[test]
fn no_argument_becomes_another_command_over_ssh() {
    let folder = Folder::new();
    let (first, second) = (folder.file("first"), folder.file("second"));
    folder.script("ssh", SSH);
    let hostile = [
        format!("; touch {}", first.display()),
        format!("$(touch {})", first.display()),
        format!("`touch {}`", first.display()),
        format!("'; touch {}; '", first.display()),
        format!("\"; touch {}; \"", first.display()),
        format!("\\'; touch {}; \\'", first.display()),
        format!("a\ntouch {}\n", first.display()),
        format!("& touch {} &", first.display()),
        format!("> {}", second.display()),
        String::new(),
        "*".into(),
        "~".into(),
        "=ls".into(),
        "-n".into(),
        "$HOME é\t\\".into(),
        "'".into(),
        "'\"'\"'".into(),
        "\n".into(),
        "!!".into(),
    ];
    // By its name and by its path, and with something in front.
    for wrap in ["ssh worker1 --".into(), format!("{} h", folder.file("ssh").display()), "timeout 60 ssh h".to_owned()]
    {
        let mut host = Start::new(&["--wrap", &wrap]).env("PATH", &folder.first()).go();
        let cmd: Vec<&str> = TELL.into_iter().chain(hostile.iter().map(String::as_str)).collect();
        let told = output(&mut host, &cmd, json!({}));
        assert_eq!(serde_json::from_str::<Vec<String>>(&told).unwrap(), hostile, "{wrap}");
        let env: BTreeMap<String, &String> =
            hostile.iter().enumerate().map(|(at, value)| (format!("X{at:02}; touch y"), value)).collect();
        let script = "import json, os; print(json.dumps([os.environ[k] for k in sorted(os.environ) if k[0] == 'X' and ';' in k]))";
        let told = output(&mut host, &["python3", "-c", script], json!({"env": env}));
        assert_eq!(serde_json::from_str::<Vec<String>>(&told).unwrap(), hostile, "{wrap}");
        assert!(!first.exists() && !second.exists() && !Path::new("y").exists(), "{wrap}");
        host.finish();
    }
}

#[test]
fn a_host_does_not_start_without_its_launchers() {
    let folder = Folder::new();
    let file = folder.file("config");
    let serve = |args: &[&str], config: &str| {
        fs::write(&file, config).unwrap();
        let mut host = binary();
        host.args(args).arg("--config").arg(&file).stdin(Stdio::null());
        if args[0] == "run" {
            host.args(["--", "ls"]);
        }
        let output = host.output().unwrap();
        (output.status.code(), output.stdout.len(), String::from_utf8(output.stderr).unwrap())
    };
    for (args, config) in [
        (&["serve", "--wrap", "no-such-launcher -x"][..], "{}"),
        (&["serve"], r#"{"wrap": ["no-such-launcher"]}"#),
        (&["serve"], r#"{"allowed_commands": [{"name": "ls", "wrap": "no-such-launcher"}], "wrap": "env"}"#),
        (&["run"], r#"{"wrap": "no-such-launcher"}"#),
    ] {
        let (code, stdout, stderr) = serve(args, config);
        assert_eq!((code, stdout, stderr.lines().count()), (Some(2), 0, 1), "{stderr}");
        assert!(stderr.contains("launcher \"no-such-launcher\" is not found on the host's PATH"), "{stderr}");
    }
    let (code, _, stderr) = serve(&["serve", "--wrap", "ssh 'h"], "{}");
    assert!(code == Some(2) && stderr.contains("left open"), "{stderr}");
    // A flag beats the file, and no words are no launcher.
    assert_eq!(serve(&["serve", "--wrap", ""], r#"{"wrap": "no-such-launcher"}"#).0, Some(0));
}

#[test]
fn a_launcher_that_has_gone_is_told_from_a_command_that_is_not_there() {
    let folder = Folder::new();
    folder.script("box", "exec \"$@\"");
    let box_file = folder.file("box").display().to_string();
    let flags = ["serve", "--allow", "no-such-program-0417", "--allow", "ls", "--wrap", &box_file];
    let mut host = Start::bare(&flags).go();
    // Not looked up on this host: it is the launcher that does not find it.
    let proc = host.spawn(&["no-such-program-0417"]);
    let end = host.terminal(&proc);
    // 126 where the search meets a folder that this user may not enter.
    assert!([126, 127].map(Value::from).contains(&common::payload(&end)["code"]), "{end}");
    let words = host.proc_or_error(&["ls"], json!({"cwd": "/no/such"})).unwrap_err();
    assert!(words.starts_with("cwd_not_found: "), "{words}");
    fs::remove_file(&box_file).unwrap();
    let words = host.proc_or_error(&["ls"], json!({})).unwrap_err();
    assert!(words.starts_with(&format!("spawn_failed: could not start the launcher: {box_file}: ")), "{words}");
    host.finish();
}

#[test]
fn a_name_s_own_launcher_replaces_the_general_one() {
    let folder = Folder::new();
    folder.script("one", "echo one; exec \"$@\"").script("two", "echo two; exec \"$@\"");
    let config = json!({
        "wrap": "one",
        "allowed_commands": ["printf", {"name": "pwd", "wrap": ["two"]}, {"name": "echo", "wrap": []}],
    });
    fs::write(folder.file("config"), config.to_string()).unwrap();
    let file = format!("--config={}", folder.file("config").display());
    for flags in [&["serve", &file][..], &["serve", &file, "--allow=printf", "--allow=pwd", "--allow=echo"]] {
        let mut host = Start::bare(flags).env("PATH", &folder.first()).go();
        assert_eq!(host.seen[0]["accepted_caps"][0]["metadata"]["allowed_commands"], json!(["printf", "pwd", "echo"]));
        assert_eq!(output(&mut host, &["printf", "x"], json!({})), "one\nx");
        assert_eq!(output(&mut host, &["pwd"], json!({"cwd": "/usr"})), "two\n/usr\n");
        assert_eq!(output(&mut host, &["echo", "x"], json!({"env": {"PATH": "/x"}})), "x\n");
        host.finish();
    }
}

#[test]
fn bwrap_keeps_a_command_in_and_takes_all_along() {
    const BWRAP: &str = "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --die-with-parent --";
    let works = Command::new("sh").args(["-c", &format!("{BWRAP} true")]).output();
    if !works.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: bwrap cannot be used here: {works:?}");
        return;
    }
    let mut host = Host::start(&["--wrap", BWRAP]);
    let proc = host.sh("read line; echo \"got $line\"; echo $X; touch /here || exit 7");
    host.write(&proc, "it\n", true);
    let end = host.terminal(&proc);
    assert_eq!(common::payload(&end)["code"], 7);
    assert_eq!(host.text(&proc, "stdout"), "got it\n\n");
    // Also whoever has left the group, since the namespace ends.
    let marker = format!("50.{}", std::process::id());
    let proc = host.sh(&format!("setsid sleep {marker} & echo up; exec sleep {marker}"));
    host.wait_text(&proc, "stdout", "up\n");
    assert!(
        common::system::eventually(common::PATIENCE, || common::system::alive(&format!("sleep\0{marker}")).len() >= 2)
    );
    host.kill(&proc, "SIGTERM");
    common::system::assert_gone(&marker);
    host.finish();
}
