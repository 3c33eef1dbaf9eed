//! A desk that is killed at any moment: what it remembered is whole, and nothing of it goes on.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used)]

mod desk;

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use desk::{Client, Place, alive, gone, marker, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const ROUNDS: u32 = 30;

/// The most that a round adds; a desk takes 256 entries.
const MOST: u32 = 200;

/// Something between 0 and `below`, which nobody needs to be good.
fn random(below: u32) -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_micros() % below
}

/// A terminal with jobs in groups of their own, and some that ignore what a terminal says when it goes.
fn stubborn(marker: &str) -> String {
    format!(
        "set -m; nohup sleep {marker} >/dev/null 2>&1 & sleep {marker} & \
         (trap '' HUP TERM; sleep {marker}; :) & trap '' HUP TERM; sleep {marker}; :"
    )
}

/// What a client was told before the desk was gone.
#[derive(Default)]
struct Told {
    /// Names by number, empty where the last word is not known; `None` is closed.
    names: BTreeMap<u64, Option<String>>,
    /// The marker of one whose start had no answer.
    unanswered: Option<String>,
}

/// Adds, renames and closes until the desk is gone.
fn work(mut client: Client, marker: &str) -> Told {
    let mut told = Told::default();
    for count in 0..MOST {
        let own = format!("{marker}{count:03}");
        let spawn = json!({"kind": "terminal", "extra_args": ["-c", stubborn(&own)]});
        told.unanswered = Some(own);
        let Some(view) = client.attempt("spawn_process", &spawn) else { break };
        told.unanswered = None;
        let id = view["id"].as_u64().unwrap();
        told.names.insert(id, Some(String::new()));
        let name = format!("{marker} {count}");
        if client.attempt("rename_process", &json!({"process_id": id, "new_name": name})).is_none() {
            break;
        }
        told.names.insert(id, Some(name));
        if count % 3 == 0 {
            if client.attempt("close_process", &json!({"process_id": id})).is_none() {
                // Whether it is there yet is not known.
                told.names.remove(&id);
                break;
            }
            told.names.insert(id, None);
        }
    }
    told
}

/// Asserts that nothing is left of those that the client knew of. The one that was being started when the desk was killed may
/// be: nobody had written down yet that it was there. It is killed here.
fn gone_but(unanswered: Option<&str>, marker: &str) {
    let is_known = |pid: &u32| unanswered.is_none_or(|unanswered| !alive(unanswered).contains(pid));
    until("those that were started are gone", || alive(marker).iter().all(|pid| !is_known(pid)).then_some(()));
    until("the last is killed", || {
        let left = alive(marker);
        for &pid in &left {
            // It may have ended in between.
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
        }
        left.is_empty().then_some(())
    });
}

fn check(client: &mut Client, told: &Told) {
    let list = client.list();
    let entries: BTreeMap<u64, &str> =
        list.iter().map(|entry| (entry["id"].as_u64().unwrap(), entry["name"].as_str().unwrap())).collect();
    for (id, name) in &told.names {
        match (name, entries.get(id)) {
            (None, found) => assert_eq!(found, None, "{id} was closed"),
            (Some(name), Some(found)) => assert!(name.is_empty() || name == found, "{id}: {name} is {found}"),
            (Some(name), None) => panic!("{id} ({name}) is lost: {list:?}"),
        }
    }
    assert!(list.iter().all(|entry| entry["status"] == "stopped"), "{list:?}");
}

#[test]
fn what_a_killed_desk_was_told_is_kept_and_what_it_started_is_gone() {
    let place = Place::new();
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let desk = place.desk();
        let mut client = place.connect();
        check(&mut client, &told);
        for entry in client.list() {
            client.ok("close_process", &json!({"process_id": entry["id"]}));
        }
        let marker = marker();
        told = thread::scope(|scope| {
            let working = scope.spawn(|| work(client, &marker));
            // Some time after it has begun; there is nothing to wait for.
            thread::sleep(Duration::from_millis(u64::from(random(400))));
            desk.kill();
            working.join().unwrap()
        });
        gone_but(told.unanswered.as_deref(), &marker);
        if place.paths.entries().exists() {
            place.remembered();
        }
        let files = place.files();
        let damaged = files.iter().any(|(path, _)| path.to_string_lossy().contains("damaged"));
        assert!(!damaged, "round {round}: {files:?}");
    }
    let mut client = place.mcp();
    check(&mut client, &told);
    // Files that were half written do not heap up.
    let files = place.files();
    assert!(files.len() < 20 + ROUNDS as usize, "{files:?}");
}

#[test]
fn sessions_die_with_a_killed_desk_whatever_they_ignore() {
    let (marker, place) = (marker(), Place::new());
    let command = format!("trap '' HUP TERM INT; sleep {marker}; sleep {marker}; :");
    place.solo(&format!("processes: {{web: {{command: {}, auto_restart: true}}}}", json!(command)));
    place.trust("web");
    let desk = place.desk();
    let mut client = place.mcp();
    let id = client.id("web");
    client.becomes(id, "running");
    for _ in 0..3 {
        client.ok("spawn_process", &json!({"kind": "terminal", "extra_args": ["-c", stubborn(&marker)]}));
    }
    until("all of them sleep", || (alive(&format!("sleep\0{marker}")).len() == 1 + 3 * 4).then_some(()));
    desk.kill();
    gone(&marker);
    // The socket that it left is no hindrance: to a desk, and to who finds none.
    assert!(place.paths.socket.exists());
    place.desk().end();
    let desk = place.desk();
    desk.kill();
    assert!(place.paths.socket.exists());
    let mut client = place.mcp();
    let entry = client.id("web");
    client.becomes(entry, "running");
    assert_eq!(place.connect().list().len(), 4);
}

#[test]
fn a_killed_client_takes_its_own_desk_along() {
    let (marker, place) = (marker(), Place::new());
    let mut client = place.mcp();
    client.ok("spawn_process", &json!({"kind": "terminal", "extra_args": ["-c", stubborn(&marker)]}));
    until("all of them sleep", || (alive(&format!("sleep\0{marker}")).len() == 4).then_some(()));
    client.kill();
    gone(&marker);
    assert_eq!(place.mcp().list()[0]["status"], "stopped");
    assert!(fs::read_to_string(place.paths.next_id()).unwrap().trim() == "2");
}
