//! Output, ports and waiting, through the tools.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used)]

mod desk;

use std::time::{Duration, Instant};

use desk::shell::shell;
use desk::{Client, Place};
use serde_json::{Value, json};

/// A terminal in which `script` has run to its end.
fn ran(client: &mut Client, script: &str) -> u64 {
    let spawn = json!({"kind": "terminal", "extra_args": ["-c", script]});
    let id = client.ok("spawn_process", &spawn)["id"].as_u64().unwrap();
    client.becomes(id, "exited");
    id
}

#[test]
fn output_is_paged_backwards_without_a_gap() {
    let place = Place::new();
    let mut client = place.mcp();
    let id = ran(&mut client, "seq -f 'number %g.' 1 1000");
    let all: Vec<String> = (1..=1000).map(|n| format!("number {n}.")).collect();
    for lines in [1, 7, 50, 200] {
        let (mut seen, mut before, mut rows) = (Vec::new(), Value::Null, Vec::new());
        while seen.len() < if lines == 1 { 90 } else { 1000 } {
            let page = client.ok("get_process_output", &json!({"process_id": id, "lines": lines, "before": before}));
            let text: Vec<&str> = page["output"].as_str().unwrap().lines().collect();
            assert!(text.len() <= lines && !text.is_empty(), "{page}");
            rows.push(page["first_row"].as_u64().unwrap());
            seen.splice(0..0, text.iter().map(ToString::to_string));
            before = page["before"].clone();
            assert_eq!(before.is_null(), seen.len() == 1000, "{page}");
        }
        assert_eq!(seen, all[1000 - seen.len()..], "{lines} at a time");
        assert!(rows.is_sorted_by(|a, b| a > b), "{rows:?}");
    }
    // What is long comes in parts of about 16 kB.
    let id = ran(&mut client, "for i in $(seq 1 60); do printf \"$i-%0999d\\n\" 0; done");
    let (mut count, mut before) = (0, Value::Null);
    loop {
        let page = client.ok("get_process_output", &json!({"process_id": id, "lines": 200, "before": before}));
        let text = page["output"].as_str().unwrap();
        assert!(text.len() <= 16 * 1024, "{}", text.len());
        count += text.lines().inspect(|line| assert!(line.contains("-000"), "half a line: {line}")).count();
        before = page["before"].clone();
        if before.is_null() {
            break;
        }
    }
    assert_eq!(count, 60);
}

#[test]
fn output_is_searched_and_cleared() {
    let place = Place::new();
    let mut client = place.mcp();
    let id = ran(
        &mut client,
        "for i in $(seq 1 300); do echo \"Line $i.\"; [ $i = 150 ] && echo 'The NEEDLE (x.*)'; done; :",
    );
    let search = |client: &mut Client, pattern: &str, most: u64| {
        client.ok("search_output", &json!({"process_id": id, "pattern": pattern, "max_results": most}))
    };
    let found = search(&mut client, "needle (X.*", 100);
    assert!(found["total"] == 1 && found["matches"][0]["text"] == "The NEEDLE (x.*)", "{found}");
    let row = found["matches"][0]["row"].as_u64().unwrap();
    let around = client.ok("get_process_output", &json!({"process_id": id, "before": row + 2, "lines": 3}));
    assert_eq!(around["output"], "Line 150.\nThe NEEDLE (x.*)\nLine 151.");
    let found = search(&mut client, "LINE", 5);
    let texts: Vec<&Value> = found["matches"].as_array().unwrap().iter().map(|found| &found["text"]).collect();
    assert_eq!(texts, ["Line 296.", "Line 297.", "Line 298.", "Line 299.", "Line 300."]);
    assert_eq!(found["total"], 300);
    assert_eq!(search(&mut client, "no such thing", 5)["total"], 0);

    let last = client.output(id)["first_row"].as_u64().unwrap();
    client.ok("clear_output", &json!({"process_id": id}));
    assert_eq!(client.text(id), "");
    assert_eq!(search(&mut client, "LINE", 5)["total"], 0);
    let raw = client.ok("get_process_raw_output", &json!({"process_id": id}));
    assert_eq!(raw["output"], "", "{raw}");
    // What comes is kept, and numbered on.
    client.ok("restart_process", &json!({"process_id": id}));
    client.becomes(id, "exited");
    let shown = client.output(id);
    assert!(shown["first_row"].as_u64().unwrap() > last && shown["output"].as_str().unwrap().ends_with("Line 300."));
}

#[test]
fn what_cannot_be_text_is_made_text() {
    let place = Place::new();
    let mut client = place.mcp();
    let id = ran(
        &mut client,
        r"printf 'a\377b\0c\342\202\n'; printf '\355\240\200|\n'; head -c 100000 /dev/urandom; echo; echo done",
    );
    // The client has parsed each answer, so it was JSON; and nothing steers a terminal.
    let shown = client.text(id);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    for tool in ["get_process_raw_output", "get_process_output"] {
        client.ok(tool, &json!({"process_id": id, "lines": 200}));
    }
    client.ok("search_output", &json!({"process_id": id, "pattern": "\u{fffd}", "max_results": 100}));
}

/// Binds a port once a line is typed, says which, and goes on.
const BINDS: &str = "
import socket, time
input('ready ')
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen()
print('port=%d=' % s.getsockname()[1], flush=True)
time.sleep(600)
";

#[test]
fn a_port_is_waited_for() {
    let place = Place::new();
    place.write("binds.py", BINDS);
    let mut client = place.mcp();
    let id = shell(&mut client, "sh");
    // Not the shell itself, but what it has started.
    client.types(id, "python3 binds.py");
    client.shows(id, "ready");
    assert_eq!(client.ok("get_process_ports", &json!({"process_id": id}))["ports"], json!([]));
    let still = client.ok("wait_for_bound_port", &json!({"process_id": id, "timeout_ms": 300}));
    assert!(still["bound"] == false && still["status"] == "running", "{still}");

    // One that is cancelled has no answer, and the process lives on.
    let cancelled = client.begin("wait_for_bound_port", &json!({"process_id": id, "timeout_ms": 30_000}));
    let waiting = client.begin("wait_for_bound_port", &json!({"process_id": id, "timeout_ms": 30_000}));
    client.cancel(cancelled);
    client.types(id, "");
    let bound = client.end(waiting).unwrap();
    assert_eq!(bound["bound"], true, "{bound}");
    let shown = client.shows(id, "port=");
    let port: u64 = shown.split("port=").nth(1).unwrap().split('=').next().unwrap().parse().unwrap();
    let ports = client.ok("get_process_ports", &json!({"process_id": id}));
    let (first, shell) = (&ports["ports"][0], client.status(id));
    assert!(first["port"] == port && first["address"] == "127.0.0.1" && first["is_local"] == true, "{ports}");
    assert_eq!(shell["status"], "running");
    assert_ne!(first["pid"], shell["pid"]);
    assert!(client.unanswered(cancelled), "a cancelled call was answered");

    client.ok("stop_process", &json!({"process_id": id}));
    assert_eq!(client.ok("get_process_ports", &json!({"process_id": id}))["ports"], json!([]));
    let start = Instant::now();
    let none = client.ok("wait_for_bound_port", &json!({"process_id": id, "timeout_ms": 30_000}));
    assert!(none["bound"] == false && none["status"] == "stopped", "{none}");
    assert!(start.elapsed() < Duration::from_secs(20), "nothing can come of a wait for what does not run");
}

#[test]
fn input_can_wait_for_what_it_brings() {
    let place = Place::new();
    let mut client = place.mcp();
    let id = shell(&mut client, "sh");
    let sent = client.ok("send_input", &json!({"process_id": id, "input": "echo sum=$((3*5))", "wait_ms": 3000}));
    assert!(sent["output"].as_str().unwrap().contains("\nsum=15\n"), "{sent}");
    for wait in [json!(1), json!(-7), json!("250")] {
        let start = Instant::now();
        let sent = client.ok("send_input", &json!({"process_id": id, "input": "true", "wait_ms": wait}));
        assert!(sent["output"].is_string() && start.elapsed() >= Duration::from_millis(250), "{sent}");
    }
    let sent = client.ok("send_input", &json!({"process_id": id, "input": "true"}));
    assert!(sent.get("output").is_none(), "{sent}");
    // It ends meanwhile; what it has said is there.
    let sent =
        client.ok("send_input", &json!({"process_id": id, "input": "echo last=$((4*5)); exit 3", "wait_ms": 3000}));
    assert!(sent["output"].as_str().unwrap().contains("last=20") && sent["status"] == "failed", "{sent}");
}
