//! The binary for people: `run`, configuration, help, and exit codes.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::binary;
use rustix::process::{Pid, Signal, kill_process};

fn run(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = binary()
        .arg("run")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    let feeder = std::thread::spawn(move || drop(input.write_all(&stdin)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn run_is_the_command_s_output_and_its_exit_code() {
    let rows: [(&[&str], i32, &str, &str); 10] = [
        (&["--", "echo", "hi"], 0, "hi\n", ""),
        (&["--", "sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\n", "err\n"),
        (&["--", "sh", "-c", "kill -KILL $$"], 137, "", ""),
        (&["--", "sh", "-c", "kill -TERM $$"], 143, "", ""),
        (
            &["--default-timeout", "1", "--", "sleep", "50"],
            124,
            "",
            "a2e-proc: ended by the time limit: timeout of 1 s\n",
        ),
        (
            &["--max-output-bytes", "4", "--", "echo", "123456"],
            0,
            "1234",
            "a2e-proc: output past 4 bytes was discarded\n",
        ),
        (&["echo", "-v"], 0, "-v\n", ""),
        (&["--wire", "sdk", "--", "echo", "hi"], 0, "hi\n", ""),
        (&["--", "/bin/echo", "with a path"], 0, "with a path\n", ""),
        (&["--", "echo", "-v"], 0, "-v\n", ""),
    ];
    for (args, code, stdout, stderr) in rows {
        let output = run(args, b"");
        let got = (output.status.code(), text(&output.stdout), text(&output.stderr));
        assert_eq!(got, (Some(code), stdout, stderr), "{args:?}");
    }
}

#[test]
fn run_says_why_a_command_does_not_start() {
    let rows: [(&[&str], i32, &str); 4] = [
        (&["--", "no-such-program-0417"], 127, "no-such-program-0417: no such program"),
        (&["--", "/etc/passwd"], 126, "spawn_failed"),
        (&["--allow", "ls", "--", "ls"], 2, "leave --allow out"),
        (&["--config", "no/such/file", "--", "ls"], 2, "no/such/file"),
    ];
    for (args, code, words) in rows {
        let output = run(args, b"");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(words) && stderr.lines().count() == 1, "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_misspelt_flag_is_not_taken_for_the_command() {
    for args in [
        &["run", "--trase", "--", "ls"][..],
        &["run", "-t", "ls"],
        &["serve", "--alow", "ls"],
        &["serve", "--allow", "a,b"],
    ] {
        let output = binary().args(args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn run_passes_any_bytes_through_both_ways() {
    let mut bytes = vec![0; 2_000_000];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    assert!(run(&["--", "cat"], &bytes).stdout == bytes);
    // With requests so short, a write carries less than a hundred bytes.
    let file = config("{\"max_line_bytes\": 1024}");
    let output = run(&["--config", file.to_str().unwrap(), "--", "cat"], &bytes[..20_000]);
    assert!(output.stdout == bytes[..20_000]);
    fs::remove_file(file).unwrap();
}

#[test]
fn run_shows_the_protocol_when_asked() {
    let output = run(&["--trace", "--", "echo", "hi"], b"");
    let trace = text(&output.stderr);
    for part in ["→ {\"type\":\"proc/spawn/req\"", "← {\"type\":\"proc/spawn/resp\"", "{\\\"text\\\":\\\"hi\\\\n\\\"}"]
    {
        assert!(trace.contains(part), "{part}: {trace}");
    }
    assert!(!trace.contains('\u{1b}'), "colours are for terminals");
    assert_eq!(text(&output.stdout), "hi\n");
}

#[test]
fn run_never_shows_a_token() {
    for token in ["s3cret-0417", r#"s3cret "0417\""#, "s3cret\u{1}0417"] {
        let output =
            binary().args(["run", "--trace", "--", "echo", "hi"]).env("A2E_AUTH_TOKEN", token).output().unwrap();
        assert_eq!(text(&output.stdout), "hi\n");
        let said = text(&output.stderr);
        assert!(said.contains("handshake") && !said.contains("s3cret") && !said.contains("0417"), "{said}");
    }
}

#[test]
fn run_passes_an_interrupt_on() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut child =
            binary().args(["run", "--", "sh", "-c", "echo up; exec sleep 50"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal:?}");
    }
}

#[test]
fn run_ends_when_nobody_wants_its_output() {
    let start = Instant::now();
    let bin = env!("CARGO_BIN_EXE_a2e-proc");
    let script =
        format!("{bin} run -- yes | head -1; echo ${{PIPESTATUS[0]}}; {bin} run -- echo hi >/dev/full; echo $?");
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(text(&output.stdout), "y\n141\n1\n");
    assert!(text(&output.stderr).contains("standard output cannot be written to"));
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// A configuration file of this text.
fn config(text: &str) -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("a2e-proc-config-{}-{}.json", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(name);
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_mistake_in_the_configuration_is_one_line_with_file_line_and_key() {
    let rows = [
        ("{\n  \"max_procs\": \"4\"\n}", ":2: max_procs: invalid type"),
        ("{\n  \"max_porcs\": 4\n}", ":2: unknown key \"max_porcs\"; did you mean \"max_procs\"?"),
        ("{\n  nope\n}", ":2: not a JSON object"),
        ("{\"max_procs\": 0}", ":1: max_procs: must be at least 1"),
        ("{\"max_line_bytes\": 10}", ":1: max_line_bytes: must be at least 1024"),
        ("{\"kill_grace\": -1}", ":1: kill_grace: must be a number of seconds"),
        ("{\"auth_token_file\": \"/no/such\"}", "auth_token_file: /no/such: cannot be read"),
        ("{\"DISABLE_NETWORK\": 1}", ":1: DISABLE_NETWORK: invalid type"),
    ];
    for (content, words) in rows {
        let file = config(content);
        let output = binary().args(["serve", "--config"]).arg(&file).stdin(Stdio::null()).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{content}: {stderr}");
        assert!(stderr.contains(words) && stderr.lines().count() == 1, "{content}: {stderr}");
        fs::remove_file(file).unwrap();
    }
    let missing = binary().args(["serve", "--config", "/no/such"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/no/such: cannot be read"));
}

#[test]
fn a_flag_beats_the_file_and_the_file_beats_the_default() {
    let file =
        config("{\"MAX_PROCS\": 9, \"ALLOWED_COMMANDS\": [\"true\"], \"timeout\": 5, \"DISABLE_NETWORK\": false}");
    let file_flag = format!("--config={}", file.display());
    let mut host = common::Start::bare(&["serve", &file_flag, "--max-procs", "3"]).go();
    let hello = host.seen[0].clone();
    let meta = &hello["accepted_caps"][0]["metadata"];
    assert_eq!(
        (&meta["max_procs"], &meta["default_timeout"], &meta["kill_grace"]),
        (&3.into(), &5.into(), &2.0.into())
    );
    assert_eq!(meta["allowed_commands"], serde_json::json!(["true"]));
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    host.finish();
    fs::remove_file(file).unwrap();
}

#[test]
fn the_log_says_what_happens_on_standard_error_alone() {
    let mut host = common::Host::start(&["--log", "debug"]);
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    host.send_raw(b"{\"type\":\"handshake/req\",\"id\":\"h\",\"agent_id\":\"a\\nb\"}\n");
    host.wait(|message| message["req_id"] == "h");
    host.close_input();
    assert_eq!(host.wait_end().0, Some(0));
    let log = host.take_stderr();
    for part in [
        "info: handshake of \"test\"",
        "debug: \"r2\": proc/spawn/req",
        "info: spawned \"true\"",
        "closing the session",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(log.lines().all(|line| line.starts_with("a2e-proc ")), "{log}");
}

#[test]
fn help_teaches() {
    let help = |args: &[&str]| String::from_utf8(binary().args(args).output().unwrap().stdout).unwrap();
    assert!(help(&["--help"]).contains("a2e-proc run -- python3 -c"));
    for flag in [
        "--config",
        "--allow",
        "--max-procs",
        "--default-timeout",
        "--max-timeout",
        "--kill-grace",
        "--max-output-bytes",
        "--inherit-env",
        "--auth-token-file",
        "--wire",
        "--log",
    ] {
        assert!(help(&["serve", "--help"]).contains(flag), "{flag}");
    }
    assert!(help(&["run", "--help"]).contains("124"));
    assert_eq!(binary().output().unwrap().status.code(), Some(2));
    assert_eq!(binary().args(["serve", "--no-such-flag"]).output().unwrap().status.code(), Some(2));
}
