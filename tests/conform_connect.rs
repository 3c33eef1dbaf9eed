//! The conformance runner over connections: this host passes over a Unix socket, TCP and HTTP, a host that mixes sessions up
//! does not, and a host that cannot be reached is the harness's fault.
#![cfg(feature = "conform")]
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_a2e-proc");

fn conform(args: &[&str]) -> Output {
    let scale: &[&str] = if args.contains(&"--time-scale") { &[] } else { &["--time-scale", "3"] };
    Command::new(PROGRAM).arg("conform").args(scale).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it and returns the exit code, the judgements and what it said to people.
fn judgements(args: &[&str]) -> (i32, Vec<Value>, String) {
    let output = conform(&[args, &["--report", "jsonl"]].concat());
    let lines = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), lines, text(&output.stderr))
}

fn cases<'a>(judgements: &'a [Value], verdict: &str) -> Vec<&'a str> {
    let of = judgements.iter().filter(|judgement| judgement["verdict"] == verdict);
    of.map(|judgement| judgement["case"].as_str().unwrap()).collect()
}

/// Areas in which most depends on the connection: its beginning, its lines and its end.
const AREAS: [[&str; 2]; 5] = [
    ["--filter", "connections/*"],
    ["--filter", "framing/*"],
    ["--filter", "flow/*"],
    ["--filter", "session/*"],
    ["--filter", "output/*"],
];

fn this_host_passes_at(address: &str, untestable: usize) {
    let (code, all, said) = judgements(&[&["--connect", address], AREAS.as_flattened()].concat());
    let others: Vec<_> = all.iter().filter(|judgement| judgement["verdict"] != "pass").collect();
    assert_eq!((code, cases(&all, "untestable").len()), (0, untestable), "{said}\n{others:?}");
    assert_eq!(cases(&all, "pass").len() + untestable, all.len(), "{said}\n{others:?}");
    assert!(all.len() > 100, "{} cases", all.len());
}

#[test]
fn this_host_passes_over_a_unix_socket() {
    this_host_passes_at("unix:{tmp}/socket", 0);
}

#[test]
fn this_host_passes_over_tcp() {
    this_host_passes_at("tcp:127.0.0.1:{port}", 0);
}

/// What is not a line cannot be sent so.
#[test]
fn this_host_passes_over_http() {
    this_host_passes_at("http:127.0.0.1:{port}", 25);
}

/// One session behind all connections. `ids`: whoever asks is answered. `events`: all events go to the first.
const MIXING_HOST: &str = r#"
import json, os, signal, socket, subprocess, sys, threading
path, what, command = sys.argv[1], sys.argv[2], sys.argv[3:]
host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
signal.signal(signal.SIGTERM, lambda *_: (host.kill(), os._exit(0)))
clients = []
def requests(number, client):
    for line in client.makefile("rb"):
        message = json.loads(line)
        message["id"] = f"{number}:{message['id']}"
        host.stdin.write(json.dumps(message).encode() + b"\n")
        host.stdin.flush()
    client.shutdown(socket.SHUT_RDWR)
def answers():
    for line in host.stdout:
        message = json.loads(line)
        number, _, message["req_id"] = message["req_id"].partition(":")
        if what == "events" and message["type"] == "proc/read/event":
            number = 0
        try:
            clients[int(number)].sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass
threading.Thread(target=answers, daemon=True).start()
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
while True:
    clients.append(listener.accept()[0])
    threading.Thread(target=requests, args=(len(clients) - 1, clients[-1]), daemon=True).start()
"#;

#[test]
fn a_host_that_mixes_sessions_up_fails_every_case_of_two() {
    let script = std::env::temp_dir().join(format!("a2e-proc-mixing-{}.py", std::process::id()));
    std::fs::write(&script, MIXING_HOST).unwrap();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/profile/a2e-proc.json");
    let by_events = "connections/output-goes-to-the-one-that-spawned";
    for (what, filter) in [("ids", "connections/*"), ("events", by_events)] {
        let host = format!("python3 '{}' {{tmp}}/s {what} '{PROGRAM}' serve", script.display());
        let (code, all, said) =
            judgements(&["--host", &host, "--connect", "unix:{tmp}/s", "--profile", profile, "--filter", filter]);
        assert_eq!(code, 1, "{said}");
        // By what it does, not by what it leaves undone at the end.
        let by_a_step = |case: &Value| case["failure"]["line"].as_u64().is_some_and(|line| line > 0);
        let passed: Vec<_> = all.iter().filter(|case| case["verdict"] != "fail" || !by_a_step(case)).collect();
        let passed: Vec<_> = passed.iter().map(|case| case["case"].as_str().unwrap()).collect();
        assert_eq!(passed, if what == "ids" { vec![by_events] } else { vec![] }, "{what}: {said}");
    }
    std::fs::remove_file(script).unwrap();
}

#[test]
fn a_host_that_is_not_there_is_the_harness_s_fault() {
    let ping = ["--filter", "session/ping"];
    let rows: [(&[&str], &[&str]); 4] = [
        // It exits.
        (&["--host", "echo no socket for me >&2; false", "--connect", "unix:{tmp}/s"], &["exited", "no socket for me"]),
        // It never listens.
        (
            &[
                "--host",
                "sh -c 'echo still thinking >&2; exec sleep 60'",
                "--connect",
                "unix:{tmp}/s",
                "--time-scale",
                "0.1",
            ],
            &["does not listen", "1.0s", "still thinking"],
        ),
        // It speaks another protocol.
        (
            &["--connect", "http:127.0.0.1:{port}", "--host", "python3 -m http.server {port}"],
            &["POST /session was answered 501"],
        ),
        // No path can be as long.
        (&["--connect", &format!("unix:{{tmp}}/{}", "s".repeat(200))], &["unix:", "shorter"]),
    ];
    for (args, words) in rows {
        let output = conform(&[args, &ping].concat());
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        assert!(words.iter().all(|words| said.contains(words)), "{args:?}: {said}");
    }
}

#[test]
fn what_cannot_be_is_said_before_anything_is_played() {
    let rows: [(&[&str], i32, &str); 5] = [
        (&["--connect", "unix:/nowhere/socket", "--running"], 3, "nobody listens at unix:/nowhere/socket"),
        (&["--connect", "tcp:127.0.0.1:{port}", "--running"], 2, "{port}"),
        (&["--connect", "127.0.0.1:80"], 2, "unix:PATH"),
        (&["--running"], 2, "--connect"),
        (&["--client", "true", "--connect", "unix:/s"], 2, "--client"),
    ];
    for (args, code, words) in rows {
        let output = conform(args);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{args:?}: {:?}, {said}", output.status);
    }
}

/// A process that ends with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Somebody else has started it, so what takes its start or its end cannot be tested; the rest can.
#[test]
fn a_host_that_runs_already_is_played_with_as_it_is() {
    let folder = std::env::temp_dir().join(format!("a2e-proc-running-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let address = format!("unix:{}/socket", folder.display());
    let _host = Running(Command::new(PROGRAM).args(["serve", "--listen", &address]).spawn().unwrap());
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/profile/a2e-proc.json");
    let running = ["--connect", &address, "--running", "--profile", profile];
    // It says nothing when it listens, so the runner tries again.
    let started = std::time::Instant::now();
    while conform(&[&running[..], &["--filter", "session/ping"]].concat()).status.code() == Some(3) {
        assert!(started.elapsed().as_secs() < 30, "the host does not listen");
    }
    let areas = ["--filter", "session/*", "--filter", "connections/*"];
    let (code, all, said) = judgements(&[&running[..], &areas].concat());
    assert_eq!((code, cases(&all, "pass").len() + cases(&all, "untestable").len()), (0, all.len()), "{said}");
    assert!(cases(&all, "pass").len() > 40, "{said}");
    assert!(cases(&all, "untestable").contains(&"session/sigterm"), "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}
