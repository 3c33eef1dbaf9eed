//! One desk and several who use it at once: restarts that meet, programs that open it at the same moment, and its end.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used)]

mod desk;

use std::thread;

use desk::{Client, Place, alive, children, gone, marker, until};
use serde_json::json;

/// What keeps a record of a second copy, should there ever be one: a process that holds a lock for as long as it lives.
fn single(marker: &str) -> String {
    let command = format!("exec 9>lock; flock -n 9 || {{ echo $$ >>copies; exit 99; }}; exec sleep {marker}");
    format!("processes:\n  web:\n    command: {}\n", json!(command))
}

#[test]
fn a_storm_of_restarts_leaves_one_copy() {
    let marker = marker();
    let place = Place::with(&single(&marker));
    place.trust("web");
    let desk = place.desk();
    let mut client = place.connect();
    let id = client.id("web");
    client.becomes(id, "running");
    let rounds: [&[&str]; 3] = [&["restart_process"], &["restart_process"], &["stop_process", "start_process"]];
    thread::scope(|scope| {
        for tools in rounds {
            let place = &place;
            scope.spawn(move || {
                let mut client = place.mcp();
                for round in 0..30 {
                    for tool in tools {
                        let view = client.ok(tool, &json!({"process_id": id}));
                        assert!(view["id"] == id && view["name"] == "web", "{round}: {view}");
                    }
                }
                // Many that were sent at once all have an answer too.
                let calls: Vec<u64> = (0..30).map(|_| client.begin(tools[0], &json!({"process_id": id}))).collect();
                for call in calls {
                    client.end(call).unwrap();
                }
            });
        }
    });
    client.ok("start_process", &json!({"process_id": id}));
    let pid = client.becomes(id, "running")["pid"].as_u64().unwrap();
    until("it sleeps", || (alive(&marker) == [u32::try_from(pid).unwrap()]).then_some(()));
    assert_eq!(std::fs::read_to_string(place.project.join("copies")).ok(), None, "there were two at once");
    assert_eq!(client.list().len(), 1);
    desk.end();
    gone(&marker);
}

/// Some clients pass little of their environment on.
#[test]
fn a_client_whose_environment_would_have_it_look_elsewhere_finds_the_desk() {
    let place = Place::new();
    let desk = place.desk();
    place.connect().ok("spawn_process", &json!({"kind": "terminal", "name": "here"}));
    let mut command = place.binary(&["mcp"]);
    command.env_remove("XDG_RUNTIME_DIR");
    let mut client = Client::start(command);
    client.initialize();
    assert_eq!(client.list()[0]["name"], "here");
    desk.end();
}

#[test]
fn entries_that_many_add_at_once_are_all_there() {
    let place = Place::new();
    let desk = place.desk();
    let mut added: Vec<(u64, String)> = thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|number| {
                let place = &place;
                scope.spawn(move || {
                    let mut client = place.mcp();
                    let spawn = json!({"kind": "terminal", "extra_args": ["-c", "exit 0"]});
                    (0..12)
                        .map(|count| {
                            let id = client.ok("spawn_process", &spawn)["id"].as_u64().unwrap();
                            let name = format!("{number} of {count}");
                            client.ok("rename_process", &json!({"process_id": id, "new_name": name}));
                            (id, name)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    added.sort();
    let listed = |client: &mut Client| -> Vec<(u64, String)> {
        let list = client.list();
        list.iter().map(|entry| (entry["id"].as_u64().unwrap(), entry["name"].as_str().unwrap().to_owned())).collect()
    };
    assert_eq!(listed(&mut place.connect()), added);
    desk.end();
    assert_eq!(listed(&mut place.mcp()), added);
}

#[test]
fn of_two_that_find_no_desk_one_opens_it() {
    for round in 0..8 {
        let place = Place::new();
        let mut clients = [place.mcp(), place.mcp()];
        let spawn = json!({"kind": "terminal", "extra_args": ["-c", "exec cat"]});
        let calls = [0, 1].map(|at| clients[at].begin("spawn_process", &spawn));
        let ids = [0, 1].map(|at| clients[at].end(calls[at]).unwrap()["id"].as_u64().unwrap());
        assert!(ids == [1, 2] || ids == [2, 1], "{ids:?}");
        for client in &mut clients {
            for id in ids {
                client.becomes(id, "running");
            }
        }
        // What one does the other sees.
        let [one, other] = &mut clients;
        one.types(ids[1], "from the one");
        other.shows(ids[1], "from the one\nfrom the one");
        // The desk ends with the program that has it, and the other is told; in the other order nothing happens to it.
        let (first, second) = if round % 2 == 0 { (one, other) } else { (other, one) };
        let has_desk = !children(first.pid()).is_empty();
        assert_ne!(has_desk, !children(second.pid()).is_empty(), "both have a desk, or neither");
        first.finish();
        assert!(first.ends().success());
        if !has_desk {
            assert_eq!(second.list().len(), 2);
            second.finish();
        }
        assert_eq!(second.ends().code(), Some(i32::from(has_desk)));
    }
}

#[test]
fn who_was_passed_on_to_a_desk_ends_with_it() {
    for kill in [false, true] {
        let place = Place::new();
        let desk = place.desk();
        let mut clients = [place.mcp(), place.mcp()];
        let spawn = json!({"kind": "terminal", "extra_args": ["-c", "exec cat"]});
        let id = clients[0].ok("spawn_process", &spawn)["id"].as_u64().unwrap();
        clients[1].becomes(id, "running");
        let wait = json!({"process_id": id, "timeout_ms": 30_000});
        let calls = [0, 1].map(|at| clients[at].begin("wait_for_bound_port", &wait));
        // So that both calls are there before the desk is not.
        for client in &mut clients {
            client.list();
        }
        if kill {
            desk.kill();
        } else {
            desk.end();
        }
        for (client, call) in clients.iter_mut().zip(calls) {
            match client.end(call) {
                // A desk that closes still has the time to say so.
                Ok(data) => assert!(!kill && data["bound"] == false, "{data}"),
                Err(words) => assert!(words.contains("the desk has ended") || !kill, "{words}"),
            }
            assert_eq!(client.ends().code(), Some(1));
        }
    }
}

#[test]
fn a_second_desk_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    let desk = place.desk();
    let output = place.run(&["desk"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("a desk runs for"), "{output:?}");
    let mut client = place.mcp();
    client.ok("spawn_process", &json!({"kind": "terminal", "name": "mine"}));
    assert_eq!(place.connect().list().len(), 1);
    // The person at the desk is told what happens there.
    client.ok("select_process", &json!({"process_id": 1}));
    client.ok("close_process", &json!({"process_id": 1}));
    for words in
        ["MCP clients connect with", "terminal 1 mine: running, pid", "mine is selected", "terminal 1 mine: closed"]
    {
        until(words, || desk.said().contains(words).then_some(()));
    }
    desk.end();
    // Another project has another.
    let (one, other) = (Place::new(), Place::new());
    let _desks = (one.desk(), other.desk());
    one.mcp().ok("spawn_process", &json!({"kind": "terminal"}));
    assert_eq!(other.mcp().list().len(), 0);
}
