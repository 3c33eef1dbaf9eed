//! `a2e-proc mcp` begins without a trace and ends in time, whatever runs.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used)]

mod desk;

use std::fs;
use std::time::{Duration, Instant};

use desk::{Client, Place, alive, children, gone, marker, signal, until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// What an end may take: clients give 2 s. Machines that tests run on may be busy.
const MOST: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(3);

#[test]
fn nothing_is_done_before_a_tool_is_called() {
    let marker = marker();
    let place = Place::with(&format!("processes: {{web: {{command: exec sleep {marker}}}}}"));
    place.trust("web");
    let before = place.files();
    let mut client = place.mcp();
    let tools = client.ask("tools/list", &json!({}));
    let tools = client.answer(tools);
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 20);
    for (method, params) in
        [("ping", json!({})), ("server/discover", modern()), ("tools/list", modern()), ("no/such", json!({}))]
    {
        let asked = client.ask(method, &params);
        client.answer(asked);
    }
    assert_eq!(place.files(), before);
    assert_eq!(children(client.pid()), Vec::<u32>::new());
    assert_eq!(alive(&marker), Vec::<u32>::new());
    // Another is not hindered by it, and has it all.
    place.desk().end();
    client.list();
    assert!(place.files().len() > before.len());
    until("the command runs", || (alive(&marker).len() == 1).then_some(()));
    client.finish();
    assert!(client.ends().success());
    gone(&marker);
}

fn modern() -> Value {
    json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }})
}

#[test]
fn what_is_kept_is_this_users_alone() {
    let place = Place::with("processes: {web: {command: 'true'}}");
    let mut client = place.mcp();
    client.ok("spawn_process", &json!({"kind": "terminal"}));
    place.trust("web");
    let files = place.files();
    assert!(files.len() >= 8, "{files:?}");
    for (path, mode) in files {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            // Folders above the program's own are for other programs too.
            assert!(mode == 0o700 || !path.to_string_lossy().contains("/p-"), "{path:?}: {mode:o}");
            assert_eq!(mode & 0o022, 0, "{path:?}: {mode:o}");
        } else if meta.is_file() {
            assert_eq!(mode, 0o600, "{path:?}: {mode:o}");
        } else {
            // A socket: whoever cannot pass the folder cannot reach it.
            let folder = fs::metadata(path.parent().unwrap()).unwrap();
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(folder.permissions().mode() & 0o777, 0o700, "{path:?}");
        }
    }
}

type End = fn(&mut Client);

#[test]
fn it_ends_in_time_with_all_that_runs() {
    let ends: [(&str, End, i32); 4] = [
        ("the end of the input", |client| client.finish(), 0),
        ("SIGTERM", |client| signal(client.pid(), Signal::TERM), 0),
        ("SIGINT", |client| signal(client.pid(), Signal::INT), 0),
        ("SIGHUP", |client| signal(client.pid(), Signal::HUP), 0),
    ];
    for (name, end, code) in ends {
        let (marker, place) = (marker(), Place::new());
        let mut client = place.mcp();
        let scripts = [
            format!("exec sleep {marker}"),
            format!("trap '' TERM HUP INT; sleep {marker}; sleep {marker}; :"),
            format!("set -m; (trap '' TERM HUP; sleep {marker}; :) & nohup sleep {marker}; :"),
            format!("trap '' TERM HUP; while :; do echo {marker}; done"),
        ];
        let mut last = 0;
        for script in scripts {
            let spawn = json!({"kind": "terminal", "extra_args": ["-c", script]});
            last = client.ok("spawn_process", &spawn)["id"].as_u64().unwrap();
        }
        until("they sleep", || (alive(&format!("sleep\0{marker}")).len() == 4).then_some(()));
        client.shows(last, &marker);
        // One that waits is no hindrance.
        client.begin("wait_for_bound_port", &json!({"process_id": 1, "timeout_ms": 30_000}));
        client.list();
        let start = Instant::now();
        end(&mut client);
        let status = client.ends();
        let took = start.elapsed();
        assert_eq!(status.code(), Some(code), "{name}");
        assert!(took < MOST + SLACK, "{name} took {took:?}");
        assert_eq!(alive(&marker), Vec::<u32>::new(), "{name}: they have outlived it");
        assert!(!place.paths.socket.exists(), "{name}: its socket is left");
    }
}

#[test]
fn a_client_that_reads_nothing_is_no_hindrance() {
    let (marker, place) = (marker(), Place::new());
    // Nobody reads standard output; the pipe is full before long.
    let mut command = place.binary(&["mcp"]);
    let mut child = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let spawn = json!({"kind": "terminal", "extra_args": ["-c", format!("trap '' TERM HUP; sleep {marker}; :")]});
    let call = |id: u32, tool: &str, arguments: &Value| {
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        )
    };
    use std::io::Write;
    input.write_all(call(0, "spawn_process", &spawn).as_bytes()).unwrap();
    for id in 1..60 {
        input.write_all(call(id, "help", &json!({"topic": "input"})).as_bytes()).unwrap();
    }
    until("it sleeps", || (alive(&format!("sleep\0{marker}")).len() == 1).then_some(()));
    let start = Instant::now();
    drop(input);
    let status = until("its end", || child.try_wait().unwrap());
    let took = start.elapsed();
    assert!(took < MOST + SLACK, "{status} took {took:?}");
    gone(&marker);
}
