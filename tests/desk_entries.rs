//! Entries through the tools: what is refused and in which words, names and numbers, and what is remembered from one desk to
//! the next.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used)]

mod desk;

use std::collections::BTreeSet;

use desk::shell::shell;
use desk::{Place, gone, marker};
use serde_json::{Value, json};

/// The tools that are about one entry, with what else they need.
fn on_one() -> [(&'static str, Value); 13] {
    [
        ("get_process_status", json!({})),
        ("get_process_output", json!({})),
        ("get_process_raw_output", json!({})),
        ("search_output", json!({"pattern": "x"})),
        ("clear_output", json!({})),
        ("rename_process", json!({"new_name": "other"})),
        ("select_process", json!({})),
        ("start_process", json!({})),
        ("stop_process", json!({})),
        ("restart_process", json!({})),
        ("close_process", json!({})),
        ("get_process_ports", json!({})),
        ("send_input", json!({"input": "x"})),
    ]
}

fn with(mut arguments: Value, more: &Value) -> Value {
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

#[test]
fn who_names_no_entry_is_told_what_to_do() {
    let place = Place::new();
    let mut client = place.mcp();
    shell(&mut client, "sh");
    let rows = [
        (json!({}), "say which process"),
        (json!({"process_id": 1, "process_name": "sh"}), "not both"),
        (json!({"process_id": 999}), "no process has the id 999; list_processes shows those there are: sh (id 1)"),
        (json!({"process_name": "nobody"}), "no process is called \"nobody\"; list_processes"),
        (json!({"process_id": -1}), "no process has the id -1"),
        (json!({"process_id": "one"}), "process_id"),
        (json!({"process_id": 1.5}), "process_id"),
        (json!({"process_id": null, "process_name": null}), "say which process"),
        (json!({"process": 1}), "There is no argument \"process\""),
    ];
    let more = [("wait_for_bound_port", json!({"timeout_ms": 10}))];
    for (tool, arguments) in on_one().into_iter().chain(more) {
        for (target, words) in &rows {
            client.refused(tool, &with(arguments.clone(), target), words);
        }
    }
    let rows = [
        ("no_such_tool", json!({}), "-32602"),
        ("search_output", json!({"process_id": 1}), "pattern"),
        ("search_output", json!({"process_id": 1, "pattern": ""}), "pattern"),
        ("rename_process", json!({"process_id": 1}), "new_name"),
        ("send_input", json!({"process_id": 1}), "give input (text) or bytes"),
        ("send_input", json!({"process_id": 1, "input": "x", "bytes": [13]}), "not both"),
        ("send_input", json!({"process_id": 1, "bytes": [256]}), "bytes"),
        ("send_input", json!({"process_id": 1, "input": "x", "intent": "order"}), "intent"),
        ("spawn_process", json!({}), "kind"),
        ("spawn_process", json!({"kind": "command"}), "kind"),
        ("spawn_process", json!({"kind": "terminal", "extra_args": "-c"}), "extra_args"),
        ("spawn_process", json!({"kind": "terminal", "extra_args": ["-c", 5]}), "extra_args"),
        ("help", json!({"topic": "everything"}), "topic"),
    ];
    for (tool, arguments, words) in rows {
        client.refused(tool, &arguments, words);
    }
    client.refused("spawn_process", &json!({"kind": "terminal", "name": "odd", "extra_args": ["a\u{0}b"]}), "NUL");
    assert_eq!(client.list().len(), 1);
    // An id and flags that are spelt out will do.
    client.ok("stop_process", &json!({"process_id": "1", "confirm_self_stop": "true"}));
    client.refused("send_input", &json!({"process_id": 1, "input": "x"}), "does not run");
    for tool in ["stop_process", "get_process_output", "clear_output", "select_process", "get_process_ports"] {
        client.ok(tool, &json!({"process_name": "sh"}));
    }
}

#[test]
fn names_are_unique_and_can_be_shown() {
    let place = Place::new();
    let mut client = place.mcp();
    let id = shell(&mut client, "sh");
    let other = shell(&mut client, "Sh");
    let long = "x".repeat(129);
    for name in ["", "  ", "a\nb", "\u{1b}[31m", &long] {
        client.refused("rename_process", &json!({"process_id": id, "new_name": name}), "cannot be a name");
        client.refused("spawn_process", &json!({"kind": "terminal", "name": name}), "cannot be a name");
    }
    client.refused(
        "rename_process",
        &json!({"process_id": id, "new_name": "Sh"}),
        "is the name of the entry with the id 2",
    );
    client.refused(
        "spawn_process",
        &json!({"kind": "terminal", "name": "sh"}),
        "is the name of the entry with the id 1",
    );
    assert_eq!(client.list().len(), 2);
    // Its own name is not taken, and 128 characters are not too many.
    for name in ["sh", "漢字 🦀", &"é".repeat(128), "sh"] {
        let renamed = client.ok("rename_process", &json!({"process_id": id, "new_name": name}));
        assert_eq!(
            (&renamed["id"], &renamed["name"], &renamed["status"]),
            (&json!(id), &json!(name), &json!("running"))
        );
    }
    // In whatever case, but only if that names one.
    assert_eq!(client.ok("get_process_status", &json!({"process_name": "Sh"}))["id"], other);
    client.refused("get_process_status", &json!({"process_name": "SH"}), "no process is called");
    client.ok("rename_process", &json!({"process_id": other, "new_name": "else"}));
    assert_eq!(client.ok("get_process_status", &json!({"process_name": "SH"}))["id"], id);
    // Names that are given to what has none.
    let names: Vec<String> = (0..3)
        .map(|_| client.ok("spawn_process", &json!({"kind": "terminal"}))["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["Terminal", "Terminal 2", "Terminal 3"]);
}

#[test]
fn agents_are_those_that_a_person_has_named() {
    let place = Place::new();
    let mut client = place.mcp();
    assert_eq!(client.ok("list_agent_tools", &json!({}))["agent_tools"], json!([]));
    client.refused("spawn_agent", &json!({"agent_tool_id": "echo"}), "agents.json");
    place.agents(&json!([
        {"id": "echo", "name": "The echo", "command": ["sh", "-c", "echo \"got $*\"; exec cat", "sh", "first"]},
        {"id": "off", "command": ["sh"], "enabled": false},
        {"id": "gone", "command": ["no-such-program"]},
    ]));
    let tools = client.ok("list_agent_tools", &json!({}));
    let ids: Vec<&Value> = tools["agent_tools"].as_array().unwrap().iter().map(|tool| &tool["id"]).collect();
    assert_eq!(ids, ["echo", "off", "gone"]);
    assert_eq!(tools["agent_tools"][1]["enabled"], false);
    let rows = [
        ("spawn_agent", json!({"agent_tool_id": "none"}), "no agent has the id \"none\"; list_agent_tools"),
        ("spawn_agent", json!({"agent_tool_id": "off"}), "switched off"),
        ("spawn_agent", json!({}), "agent_tool_id"),
        ("spawn_process", json!({"kind": "agent"}), "list_agent_tools"),
        ("spawn_process", json!({"kind": "terminal", "agent_tool_id": "echo"}), "a terminal has no agent_tool_id"),
    ];
    for (tool, arguments, words) in rows {
        client.refused(tool, &arguments, words);
    }
    assert_eq!(client.list().len(), 0, "what was refused has left an entry");
    for (tool, more) in [("spawn_agent", json!({})), ("spawn_process", json!({"kind": "agent"}))] {
        let arguments = with(json!({"agent_tool_id": "echo", "extra_args": ["a b", "$c"]}), &more);
        let agent = client.ok(tool, &arguments);
        assert_eq!(agent["kind"], "agent");
        client.shows(agent["id"].as_u64().unwrap(), "got first a b $c");
    }
    assert_eq!(client.list()[1]["name"], "The echo 2");
    // What could not be started leaves no entry.
    client.refused("spawn_agent", &json!({"agent_tool_id": "gone"}), "no-such-program");
    assert_eq!(client.list().len(), 2);
    place.agents(&json!([{"id": "echo"}]));
    client.refused("list_agent_tools", &json!({}), "agents.json");
    client.refused("restart_process", &json!({"process_id": 1}), "agents.json");
    assert_eq!(client.status(1)["status"], "running");
}

#[test]
fn a_message_is_no_answer_to_the_prompt_of_an_agent_that_says_it_is_blocked() {
    let place = Place::new();
    let script = "printf '\\033]7501;state=blocked\\033\\\\proceed?'; read answer; printf '\\033]7501;state=idle\\033\\\\'; \
                  echo answered $answer; read message; echo heard $message; exec cat";
    place.agents(&json!([{"id": "asks", "command": ["sh", "-c", script]}]));
    let mut client = place.mcp();
    let id = client.ok("spawn_agent", &json!({"agent_tool_id": "asks"}))["id"].as_u64().unwrap();
    client.shows(id, "proceed?");
    client.refused("send_input", &json!({"process_id": id, "input": "do this"}), "intent \"interaction\"");
    client.ok("send_input", &json!({"process_id": id, "input": "no", "intent": "interaction"}));
    client.shows(id, "answered no");
    client.ok("send_input", &json!({"process_id": id, "input": "do this"}));
    client.shows(id, "heard do this");
}

#[test]
fn a_terminal_takes_arguments_and_is_closed_for_good() {
    let place = Place::new();
    let mut client = place.mcp();
    let marker = marker();
    let spawn = json!({"kind": "terminal", "name": "once", "extra_args": ["-c", "echo sum=$((6*7))"]});
    let id = client.ok("spawn_process", &spawn)["id"].as_u64().unwrap();
    client.becomes(id, "exited");
    assert_eq!(client.text(id), "sum=42");
    let stays = json!({"kind": "terminal", "extra_args": ["-c", format!("trap '' HUP TERM; sleep {marker} & sleep {marker}; :")]});
    let second = client.ok("spawn_process", &stays)["id"].as_u64().unwrap();
    desk::until("both sleep", || (desk::alive(&format!("sleep\0{marker}")).len() == 2).then_some(()));
    for id in [id, second] {
        let closed = client.ok("close_process", &json!({"process_id": id}));
        assert_eq!(closed["status"], "stopped", "{closed}");
        client.refused("get_process_output", &json!({"process_id": id}), "no process has the id");
    }
    gone(&marker);
    assert_eq!(client.list(), Vec::<Value>::new());
    assert_eq!(place.remembered()["data"]["entries"], json!([]));
}

#[test]
fn numbers_are_never_given_again() {
    let place = Place::new();
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let mut client = place.mcp();
        for _ in 0..4 {
            let spawn = json!({"kind": "terminal", "extra_args": ["-c", "exit 0"]});
            let id = client.ok("spawn_process", &spawn)["id"].as_u64().unwrap();
            assert!(seen.iter().all(|old| *old < id), "{id} after {seen:?}");
            seen.insert(id);
            client.ok("close_process", &json!({"process_id": id}));
        }
        client.finish();
        assert!(client.ends().success());
    }
    // Not even if the list is lost.
    std::fs::write(place.paths.entries(), "{ this is no list").unwrap();
    let mut client = place.mcp();
    let id = client.ok("spawn_process", &json!({"kind": "terminal"}))["id"].as_u64().unwrap();
    assert_eq!(id, 13);
    let damaged = place.files().into_iter().find(|(path, _)| path.to_string_lossy().ends_with(".damaged-1"));
    assert_eq!(std::fs::read_to_string(damaged.unwrap().0).unwrap(), "{ this is no list");
}

#[test]
fn terminals_are_remembered_as_stopped() {
    let place = Place::new();
    place.agents(&json!([{"id": "cat", "command": ["cat"]}]));
    let mut client = place.mcp();
    let terminal = shell(&mut client, "mine");
    let agent = client.ok("spawn_agent", &json!({"agent_tool_id": "cat", "name": "a cat"}))["id"].as_u64().unwrap();
    client.ok("rename_process", &json!({"process_id": terminal, "new_name": "still mine"}));
    client.finish();
    assert!(client.ends().success());
    let mut client = place.mcp();
    let list = client.list();
    let shown: Vec<(u64, &str, &str, &str)> = list
        .iter()
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap();
            (entry["id"].as_u64().unwrap(), text("name"), text("kind"), text("status"))
        })
        .collect();
    assert_eq!(shown, [(terminal, "still mine", "terminal", "stopped"), (agent, "a cat", "agent", "stopped")]);
    assert!(list.iter().all(|entry| entry.get("pid").is_none()), "{list:?}");
    // With its arguments, or the shell would say more than the prompt.
    client.ok("start_process", &json!({"process_id": terminal}));
    client.asks(terminal);
    client.ok("start_process", &json!({"process_id": agent}));
    client.types(agent, "mew");
    client.shows(agent, "mew\nmew");
}

#[test]
fn one_is_selected_and_everybody_can_ask_who_they_are_and_what_to_do() {
    let place = Place::with("name: The project\nprocesses: {}\n");
    let mut client = place.mcp();
    let (one, two) = (shell(&mut client, "one"), shell(&mut client, "two"));
    for id in [one, two, two, one] {
        assert_eq!(client.ok("select_process", &json!({"process_id": id}))["selected"], true);
        let selected: Vec<Value> = client.list().into_iter().filter(|entry| entry["selected"] == true).collect();
        assert!(selected.len() == 1 && selected[0]["id"] == id, "{selected:?}");
    }
    let me = client.ok("whoami", &json!({}));
    assert_eq!((&me["is_managed"], &me["project"]), (&json!(false), &json!("The project")));
    let root = std::fs::canonicalize(&place.project).unwrap();
    assert_eq!(me["directory"], root.to_str().unwrap());
    for topic in ["overview", "output", "input", "trust", "ports", "agents"] {
        let help = client.ok("help", &json!({"topic": topic}));
        assert!(help["topic"] == topic && help["text"].as_str().unwrap().len() > 100, "{help}");
    }
    client.types(one, "true");
    client.presses(one, b"\r");
    let status = client.status(one);
    let deliveries = status["input_deliveries"].as_array().unwrap();
    let shown: Vec<(&Value, &Value)> = deliveries.iter().map(|sent| (&sent["status"], &sent["bytes"])).collect();
    assert_eq!(shown, [(&json!("delivered"), &json!(4)), (&json!("delivered"), &json!(1))]);
    assert_ne!(deliveries[0]["delivery_id"], deliveries[1]["delivery_id"]);
    assert_eq!(status["pid"].as_u64().map(|pid| pid > 1), Some(true), "{status}");
}
