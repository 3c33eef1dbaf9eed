//! Commands of a project's file, through the tools: trust, changes of the file while the desk runs, what starts by itself, and
//! where and with what it starts.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used)]

mod desk;

use std::collections::BTreeSet;
use std::fs;

use desk::{Client, Place, alive, gone, marker, until};
use serde_json::{Value, json};

/// A project file with these commands, each with its settings beside `command`.
fn solo(commands: &[(&str, &str, &str)]) -> String {
    let mut text = "processes:\n".to_owned();
    for (name, command, more) in commands {
        text += &format!("  {name}:\n    command: {}\n", json!(command));
        for line in more.lines() {
            text += &format!("    {}\n", line.trim());
        }
    }
    text
}

fn notices(client: &mut Client) -> String {
    client.ok("list_processes", &json!({}))["notices"].to_string()
}

#[test]
fn what_is_not_trusted_is_not_started_by_any_tool() {
    let (good, bad) = (marker(), marker());
    let commands = [
        ("good", &*format!("exec sleep {good}"), ""),
        ("bad", &*format!("exec sleep {bad}"), ""),
        ("later", &*format!("exec sleep {good}1"), "auto_start: false"),
    ];
    let place = Place::with(&solo(&commands));
    place.trust("good");
    place.trust("later");
    let mut client = place.mcp();
    let (id, untrusted) = (client.id("good"), client.id("bad"));
    client.becomes(id, "running");
    let rows = ["start_process", "restart_process"];
    for tool in rows {
        let words = client.refused(tool, &json!({"process_id": untrusted}), "is not trusted");
        assert!(words.contains("a2e-proc trust grant bad"), "{words}");
    }
    client.refused("close_process", &json!({"process_id": id}), "stop_process");
    client.refused("close_process", &json!({"process_id": untrusted}), "cannot be closed");
    assert_eq!(client.entry("later").unwrap()["status"], "stopped");
    for tool in ["start_all_commands", "restart_all_commands"] {
        let all = client.ok(tool, &json!({}));
        let names: Vec<&Value> = all["processes"].as_array().unwrap().iter().map(|view| &view["name"]).collect();
        assert_eq!(names, ["good", "later"], "{all}");
        assert!(
            all["refused"][0]["name"] == "bad" && all["refused"][0]["why"].as_str().unwrap().contains("not trusted")
        );
    }
    let later = client.id("later");
    client.becomes(later, "running");
    client.ok("stop_process", &json!({"process_id": untrusted}));
    let all = client.ok("stop_all_commands", &json!({}));
    assert!(all["processes"].as_array().unwrap().len() == 3 && all["refused"] == json!([]), "{all}");
    client.becomes(id, "stopped");
    gone(&good);
    assert_eq!(alive(&bad), Vec::<u32>::new());
    // A person changes their mind; the desk need not be started again.
    place.trust("bad");
    client.ok("start_process", &json!({"process_id": untrusted}));
    client.becomes(untrusted, "running");
    let output = place.run(&["trust", "revoke", "bad"]);
    assert!(output.status.success(), "{output:?}");
    client.refused("restart_process", &json!({"process_id": untrusted}), "not trusted");
    assert_eq!(client.status(untrusted)["status"], "running", "what runs goes on");
    client.ok("stop_process", &json!({"process_id": untrusted}));
    gone(&bad);
}

#[test]
fn a_command_keeps_its_number_and_its_trust_under_another_name() {
    let marker = marker();
    let place = Place::with(&solo(&[("web", &format!("exec sleep {marker}"), "auto_start: false")]));
    place.trust("web");
    let mut client = place.mcp();
    let id = client.id("web");
    client.ok("rename_process", &json!({"process_id": id, "new_name": "the web"}));
    client.ok("restart_process", &json!({"process_name": "the web"}));
    client.becomes(id, "running");
    client.finish();
    assert!(client.ends().success());
    let mut client = place.mcp();
    assert_eq!(client.id("the web"), id);
    client.ok("start_process", &json!({"process_id": id}));
    client.becomes(id, "running");
    assert_eq!(client.list().len(), 1);
}

#[test]
fn the_projects_file_may_change_while_the_desk_runs() {
    let (one, two) = (marker(), marker());
    let first = format!("exec sleep {one}");
    let place = Place::with(&solo(&[("web", &first, "")]));
    place.trust("web");
    let mut client = place.mcp();
    let id = client.id("web");
    let pid = client.becomes(id, "running")["pid"].clone();

    // A new one appears, and is not started by itself.
    let second = format!("exec sleep {two}");
    place.solo(&solo(&[("web", &first, ""), ("api", &second, "")]));
    let api = client.id("api");
    assert!(api > id && client.status(api)["status"] == "stopped");
    client.refused("start_process", &json!({"process_id": api}), "not trusted");

    // A changed one goes on as it was, and is not started as it is now.
    place.solo(&solo(&[("web", &format!("{first} 1"), ""), ("api", &second, "")]));
    client.refused("restart_process", &json!({"process_id": id}), "not trusted");
    let status = client.status(id);
    assert!(status["pid"] == pid && status["command"] == format!("{first} 1"), "{status}");
    // As it was, it is trusted again.
    place.solo(&solo(&[("web", &first, ""), ("api", &second, "")]));
    client.ok("restart_process", &json!({"process_id": id}));
    until("another process", || (client.becomes(id, "running")["pid"] != pid).then_some(()));

    // A broken file is said, and what was there before is in force.
    place.solo("processes: [what, is, this\n");
    let said = notices(&mut client);
    assert!(said.contains("solo.yml") && said.contains("still in force"), "{said}");
    assert_eq!(client.id("api"), api);
    client.ok("restart_process", &json!({"process_id": id}));

    // One that is gone is shown until it has stopped, and cannot be started any more.
    place.solo(&solo(&[("api", &second, "")]));
    assert_eq!(client.becomes(id, "running")["name"], "web");
    client.refused("restart_process", &json!({"process_id": id}), "no more");
    assert_eq!(alive(&one).len(), 1);
    client.ok("stop_process", &json!({"process_id": id}));
    gone(&one);
    until("it is not shown", || client.entry("web").is_none().then_some(()));
    assert_eq!(notices(&mut client), "null");
}

#[test]
fn names_stay_unique_when_a_command_comes_and_goes() {
    let command = ("web", "exec sleep 600", "auto_start: false");
    let place = Place::with(&solo(&[command]));
    let mut client = place.mcp();
    client.id("web");
    place.solo("processes: {}\n");
    assert_eq!(client.entry("web"), None);
    client.ok("spawn_process", &json!({"kind": "terminal", "name": "web"}));
    client.ok("spawn_process", &json!({"kind": "terminal", "name": "api"}));
    place.solo(&solo(&[command, ("api", "exec sleep 600", "auto_start: false")]));
    let list = client.list();
    let names: BTreeSet<&str> = list.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert!(list.len() == 4 && names.len() == 4, "{list:?}");
    // Each is found by its name.
    for entry in &list {
        let status = client.ok("get_process_status", &json!({"process_name": entry["name"]}));
        assert_eq!(status["id"], entry["id"]);
    }
}

#[test]
fn what_ends_too_often_is_started_again_no_more() {
    let place = Place::with(&solo(&[
        ("fails", "echo round; exit 1", "auto_restart: true\nauto_start: false"),
        ("once", "echo round; exit 1", "auto_start: false"),
    ]));
    place.trust("fails");
    place.trust("once");
    let mut client = place.mcp();
    let rounds = |client: &mut Client, id: u64| client.text(id).matches("round").count();
    let paused = |client: &mut Client, id: u64| {
        until("it is paused", || client.status(id).get("why").is_some().then_some(()));
        let status = client.status(id);
        assert!(status["why"].as_str().unwrap().contains("10 times"), "{status}");
        assert!(status["status"] == "failed" && status["exit_code"] == 1, "{status}");
    };
    let (id, once) = (client.id("fails"), client.id("once"));
    client.ok("start_process", &json!({"process_id": id}));
    paused(&mut client, id);
    assert_eq!(rounds(&mut client, id), 11);
    // Whoever starts it has a new patience.
    client.ok("clear_output", &json!({"process_id": id}));
    client.ok("start_process", &json!({"process_id": id}));
    until("eleven more", || (rounds(&mut client, id) == 11).then_some(()));
    paused(&mut client, id);
    client.ok("start_process", &json!({"process_id": once}));
    client.becomes(once, "failed");
    assert_eq!(rounds(&mut client, once), 1);
}

#[test]
fn it_is_started_anew_when_its_files_change() {
    let marker = marker();
    let place = Place::with(&solo(&[(
        "web",
        &format!("echo round; exec sleep {marker}"),
        "restart_when_changed: ['src/**/*.txt', '*.toml']",
    )]));
    fs::create_dir_all(place.project.join("src/deep")).unwrap();
    place.trust("web");
    let mut client = place.mcp();
    let id = client.id("web");
    let mut pid = client.becomes(id, "running")["pid"].clone();
    for (count, file) in (2..).zip(["src/a.txt", "src/deep/b.txt", "x.toml", "src/a.txt"]) {
        // These are none of its files.
        place.write("other.txt", "x");
        place.write("src/a.rs", "x");
        place.write(file, &count.to_string());
        let now = until("another process", || {
            let status = client.status(id);
            (status["status"] == "running" && status["pid"] != pid).then(|| status["pid"].clone())
        });
        pid = now;
        let shown = client.shows(id, "round\n".repeat(count).trim_end());
        assert_eq!(shown.matches("round").count(), count, "{file}: {shown}");
        assert_eq!(alive(&marker).len(), 1);
    }
    client.ok("stop_process", &json!({"process_id": id}));
    place.write("src/a.txt", "one that is stopped");
    assert_eq!(client.status(id)["status"], "stopped");
}

#[test]
fn a_command_knows_its_entry_and_starts_inside_of_the_project() {
    let say = "echo id=$A2E_PROC_ID project=$A2E_PROC_PROJECT own=$OWN term=$TERM dir=$PWD; tty; stty size";
    let place = Place::with(&solo(&[
        ("here", say, "working_dir: sub\nenv: {OWN: 'a b', A2E_PROC_ID: '99', A2E_PROC_PROJECT: /else}"),
        ("up", say, "working_dir: ../p"),
        ("root", say, "working_dir: /tmp"),
        ("link", say, "working_dir: out"),
        ("none", say, "working_dir: missing"),
    ]));
    let root = fs::canonicalize(&place.project).unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    std::os::unix::fs::symlink("/tmp", root.join("out")).unwrap();
    for name in ["here", "link", "none"] {
        place.trust(name);
    }
    let mut client = place.mcp();
    let id = client.id("here");
    let status = client.becomes(id, "exited");
    assert_eq!(status["exit_code"], 0);
    let shown = client.text(id);
    let root = root.to_str().unwrap();
    let expected = format!("id={id} project={root} own=a b term=xterm-256color dir={root}/sub");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0] == expected && lines[1].starts_with("/dev/pts/") && lines[2] == "40 120", "{shown}");
    // Those that are written wrong are left out, and said.
    let said = notices(&mut client);
    assert!(client.entry("up").is_none() && client.entry("root").is_none());
    assert!(
        said.contains("working_dir: must be relative") && said.contains(r#"the process \"up\" is left out"#),
        "{said}"
    );
    assert!(said.contains(r#"the process \"root\" is left out"#), "{said}");
    let link = client.id("link");
    client.refused("start_process", &json!({"process_id": link}), "leads out of the project");
    let none = client.id("none");
    client.refused("restart_process", &json!({"process_id": none}), "missing");
}
