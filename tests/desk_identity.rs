//! Who a client is: one that was started in a terminal of the desk is known by that, and nobody on their word; and what is typed
//! there is no person's word.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used)]

mod desk;

use std::fs;

use desk::shell::shell;
use desk::{Client, Place, marker, until};
use serde_json::{Value, json};

/// Speaks to `a2e-proc mcp` as an agent would that runs where this does: each call of the second argument, one after the other.
/// What they answer goes to the file of the first.
const INSIDE: &str = r#"
import json, os, subprocess, sys
out, calls, command = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(number, method, params):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    server.stdin.flush()
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == number:
            return answer["result"]
info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "inside", "version": "1"}}
ask(0, "initialize", info)
answers = []
for number, (tool, arguments) in enumerate(calls, 1):
    answers.append(ask(number, "tools/call", {"name": tool, "arguments": arguments}))
with open(out + ".new", "w") as file:
    json.dump(answers, file)
os.rename(out + ".new", out)
server.stdin.close()
server.wait()
"#;

/// The words that have [`INSIDE`] make those calls, for a shell.
fn inside(place: &Place, out: &str, calls: &Value) -> String {
    let script = place.write("inside.py", INSIDE);
    let calls_file = place.write(&format!("{out}.calls"), &calls.to_string());
    let binary = env!("CARGO_BIN_EXE_a2e-proc");
    let (script, calls, project) = (script.display(), calls_file.display(), place.project.display());
    format!("python3 {script} {project}/{out} \"$(cat {calls})\" {binary} mcp --project {project}")
}

fn answers(place: &Place, out: &str) -> Vec<Value> {
    let text = until("the answers from inside", || fs::read_to_string(place.project.join(out)).ok());
    serde_json::from_str(&text).unwrap()
}

fn is_refused(answer: &Value, words: &str) -> bool {
    answer["isError"] == true && answer["content"][0]["text"].as_str().unwrap().contains(words)
}

#[test]
fn a_client_in_a_terminal_is_known_and_confirms_what_ends_it() {
    let place = Place::new();
    let _desk = place.desk();
    let mut client = place.mcp();
    let other = shell(&mut client, "other");
    let id = shell(&mut client, "mine");
    let calls = json!([
        ["whoami", {}],
        ["stop_process", {"process_id": id}],
        ["restart_process", {"process_name": "mine"}],
        ["close_process", {"process_id": id}],
        ["stop_process", {"process_id": id, "confirm_self_close": true}],
        ["close_process", {"process_id": id, "confirm_self_close": false}],
        ["stop_process", {"process_id": other}],
        ["list_processes", {}],
    ]);
    // In the foreground, as a job, in a session of its own, and with nothing in its environment.
    let keep =
        "env -i PATH=\"$PATH\" HOME=\"$HOME\" XDG_STATE_HOME=\"$XDG_STATE_HOME\" XDG_RUNTIME_DIR=\"$XDG_RUNTIME_DIR\"";
    for (out, before, after) in [("a", "", ""), ("b", "nohup", "&"), ("c", "setsid -w", ""), ("d", keep, "")] {
        client.ok("start_process", &json!({"process_id": other}));
        let words = inside(&place, out, &calls);
        client.types(id, &format!("{before} {words} {after}"));
        let answers = answers(&place, out);
        let me = &answers[0]["structuredContent"];
        assert!(
            me["is_managed"] == true && me["process"]["id"] == id && me["process"]["name"] == "mine",
            "{out}: {me}"
        );
        for (at, flag) in
            [(1, "confirm_self_stop"), (2, "confirm_self_stop"), (3, "confirm_self_close"), (5, "confirm_self_close")]
        {
            assert!(is_refused(&answers[at], flag), "{out}: {}", answers[at]);
        }
        assert!(answers[4]["isError"] == true, "{out}: {}", answers[4]);
        assert_eq!(answers[6]["structuredContent"]["status"], "stopped", "{out}: {}", answers[6]);
        assert_eq!(client.status(id)["status"], "running");
    }
    // It is confirmed.
    client
        .types(id, &inside(&place, "never", &json!([["stop_process", {"process_id": id, "confirm_self_stop": true}]])));
    client.becomes(id, "stopped");
    client.ok("start_process", &json!({"process_id": id}));
    client.asks(id);
    client.types(
        id,
        &inside(&place, "never", &json!([["close_process", {"process_id": id, "confirm_self_close": true}]])),
    );
    until("it is closed", || client.entry("mine").is_none().then_some(()));
    assert!(!place.project.join("never").exists(), "it has lived to tell");
}

#[test]
fn a_command_does_not_stop_itself_along_with_the_others() {
    let (place, marker) = (Place::new(), marker());
    let calls =
        json!([["whoami", {}], ["stop_all_commands", {}], ["restart_all_commands", {}], ["list_processes", {}]]);
    let me = format!("{}; exec sleep {marker}", inside(&place, "out", &calls));
    let solo = json!({"processes": {
        "me": {"command": me, "auto_start": false},
        "other": {"command": format!("exec sleep {marker}")},
    }});
    place.solo(&solo.to_string());
    place.trust("me");
    place.trust("other");
    let _desk = place.desk();
    let mut client = place.mcp();
    let id = client.id("me");
    client.ok("start_process", &json!({"process_id": id}));
    let answers = answers(&place, "out");
    assert_eq!(answers[0]["structuredContent"]["process"]["id"], id);
    for at in [1, 2] {
        let all = &answers[at]["structuredContent"];
        assert!(all["refused"][0]["name"] == "me" && all["processes"][0]["name"] == "other", "{all}");
        assert_eq!(all["processes"].as_array().unwrap().len(), 1, "{all}");
    }
    assert_eq!(client.status(id)["status"], "running");
}

#[test]
fn nobody_is_taken_on_their_word() {
    let place = Place::new();
    let desk = place.desk();
    let mut owner = place.mcp();
    let id = shell(&mut owner, "mine");
    let mut command = place.binary(&["mcp"]);
    command.env("A2E_PROC_ID", id.to_string()).env("A2E_PROC_PROJECT", &place.project);
    let mut client = Client::start(command);
    client.initialize();
    let me = client.ok("whoami", &json!({}));
    assert!(me["is_managed"] == false && me.get("process").is_none(), "{me}");
    client.ok("restart_process", &json!({"process_id": id}));
    client.ok("stop_process", &json!({"process_id": id}));
    client.ok("close_process", &json!({"process_id": id}));
    // Nor is who is in another desk's terminal somebody here.
    desk.end();
    let other = Place::new();
    let _desks = (place.desk(), other.desk());
    let mut there = other.mcp();
    let id = shell(&mut there, "there");
    there.types(id, &inside(&place, "out", &json!([["whoami", {}]])));
    // The desk of the other project has other folders than this one.
    let answers = answers(&place, "out");
    assert_eq!(answers[0]["structuredContent"]["is_managed"], false, "{answers:?}");
}

#[test]
fn what_is_typed_into_a_terminal_grants_no_trust() {
    let place = Place::with("processes: {web: {command: exec sleep 600, auto_start: false}}");
    let _desk = place.desk();
    let mut client = place.mcp();
    let id = shell(&mut client, "sh");
    let grant = format!("{} trust grant web --project {}", env!("CARGO_BIN_EXE_a2e-proc"), place.project.display());
    let before = [
        "",
        "env -u A2E_PROC_ID -u A2E_PROC_PROJECT",
        "env -i PATH=\"$PATH\" XDG_STATE_HOME=\"$XDG_STATE_HOME\"",
        "setsid -w",
        "nohup",
        "unset A2E_PROC_ID; exec bash --norc -c 'exec \"$@\"; :' bash",
        "setsid -w env -u A2E_PROC_ID",
    ];
    for (count, before) in before.into_iter().enumerate() {
        client.types(id, &format!("( {before} {grant} --yes ); echo code-{count}=$?"));
        let shown = client.shows(id, &format!("\ncode-{count}="));
        assert!(shown.contains(&format!("\ncode-{count}=2")), "{before}: {shown}");
        client.ok("clear_output", &json!({"process_id": id}));
    }
    // Nor does it ask there.
    client.types(id, &grant);
    client.shows(id, "a terminal of your own");
    assert!(!place.paths.trust().exists());
    let web = client.id("web");
    client.refused("start_process", &json!({"process_id": web}), "not trusted");
}
