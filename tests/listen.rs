//! Many agents at sockets: who may connect, what they see of each other (R7), and what ends with whom (R8).
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use common::server::{Server, hello};
use common::system::{alive, assert_gone, eventually, holdings, rss};
use common::{PATIENCE, Proc, binary};
use rustix::process::Signal;
use serde_json::json;

/// An address in a folder of its own, which goes with it.
fn unix_address() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("a2e.sock").display());
    (folder, address)
}

/// What `serve` says of an address at which it cannot listen.
fn refusal(flags: &[&str]) -> String {
    let output = binary().arg("serve").args(flags).env_remove("A2E_AUTH_TOKEN").output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_agent_at_either_socket_is_served_as_on_standard_input() {
    let (_folder, address) = unix_address();
    for address in [address.as_str(), "tcp:127.0.0.1:0", "tcp:localhost:0"] {
        let server = Server::start(address, &[]);
        let mut agent = server.agent();
        let cat = agent.spawn(&["cat"]);
        agent.write(&cat, "to and fro\n", true);
        agent.terminal(&cat);
        assert_eq!(agent.text(&cat, "stdout"), "to and fro\n");
        agent.finish();
        let (code, _, stderr) = server.stop();
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
    }
}

#[test]
fn a_unix_socket_is_private_and_goes_with_the_host() {
    let (folder, address) = unix_address();
    let path = folder.path().join("a2e.sock");
    let server = Server::start(&address, &[]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let said = refusal(&["--listen", &address]);
    assert!(said.contains("another program listens there"), "{said}");
    let (code, ..) = server.stop();
    assert_eq!(code, Some(0));
    assert!(!path.exists());
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_a_file_is_not() {
    let (folder, address) = unix_address();
    let path = folder.path().join("a2e.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "nobody listens, and the file is still there");
    Server::start(&address, &[]).agent().finish();

    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    let said = refusal(&["--listen", &address]);
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn of_hosts_that_find_the_same_file_left_behind_one_listens() {
    let (folder, address) = unix_address();
    drop(UnixListener::bind(folder.path().join("a2e.sock")).unwrap());
    let start = || binary().args(["serve", "--listen", &address]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut hosts: Vec<_> = (0..8).map(|_| start()).collect();
    let mut running = || hosts.iter_mut().filter_map(|host| host.try_wait().unwrap().is_none().then_some(())).count();
    assert!(eventually(PATIENCE, || running() == 1), "{} hosts", running());
    assert!(UnixStream::connect(folder.path().join("a2e.sock")).is_ok(), "the one that is left is reached");
    for mut host in hosts {
        let _ = host.kill();
        host.wait().unwrap();
    }
}

#[test]
fn other_machines_are_let_in_only_on_purpose_and_with_a_token() {
    for (flags, words) in [
        (&["--listen", "tcp:0.0.0.0:0"][..], "add --public"),
        (&["--listen", "tcp:0.0.0.0:0", "--public"], "agents must show a token"),
        (&["--listen", "http:0.0.0.0:0", "--public"], "agents must show a token"),
        (&["--listen", "nonsense"], "give unix:PATH"),
        (&["--listen", "tcp:127.0.0.1"], "has no port"),
        (&["--listen", "unix:/no/such/folder/s"], "could not listen at unix:/no/such/folder/s"),
    ] {
        let said = refusal(flags);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_token_is_asked_of_each_agent_and_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "s3cret\n").unwrap();
    let flags = ["--auth-token-file", file.to_str().unwrap(), "--public", "--handshake-within", "1"];
    let server = Server::start("tcp:0.0.0.0:0", &flags);
    let place = server.place().replace("0.0.0.0", "127.0.0.1");
    let connect = || {
        let stream = std::net::TcpStream::connect(&place).unwrap();
        let input = stream.try_clone().unwrap();
        common::Host::over(Some(std::os::fd::OwnedFd::from(stream).into()), input, None)
    };
    let mut good = connect();
    let mut fields = hello();
    fields["auth_token"] = json!("s3cret");
    good.shake_hands(fields);
    let sleeper = good.spawn(&["sleep", "3601.7"]);

    let mut silent = connect();
    let start = Instant::now();
    let denied = silent.call("proc/status/req", json!({"proc_id": sleeper.id}));
    assert_eq!(denied["code"], "unauthorized");
    silent.wait_end();
    assert!(start.elapsed() >= Duration::from_millis(900), "it was given its time");

    // Whoever has shown it stays.
    assert_eq!(good.status(&sleeper)["status"], "running");
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", server.pid())).unwrap();
    assert!(!arguments.contains("s3cret"));
    good.finish();
}

#[test]
fn agents_see_nothing_of_each_other() {
    let server = Server::start("tcp:127.0.0.1:0", &["--max-procs", "2"]);
    let (mut one, mut other) = (server.agent(), server.agent());
    assert_ne!(one.session_id, other.session_id);
    let sleeper = one.spawn(&["sleep", "3602.7"]);
    let ended = one.spawn(&["true"]);
    one.terminal(&ended);
    for foreign in [&sleeper, &ended] {
        let unknown = |answer: serde_json::Value| {
            assert!(answer["error"].as_str().unwrap().starts_with("unknown_proc: "), "{answer}");
        };
        unknown(other.write(foreign, "x", false));
        unknown(other.kill(foreign, "SIGKILL"));
        unknown(other.status(foreign));
    }
    let all = other.call("proc/status/req", json!({"proc_id": ""}));
    assert_eq!(all["procs"], json!([]));
    let theirs = json!({"session_id": one.session_id, "cmd": ["true"]});
    assert_eq!(other.call("proc/spawn/req", theirs)["code"], "unauthorized");

    // The quota is each agent's own.
    let more = one.spawn(&["sleep", "3602.7"]);
    assert!(one.try_spawn(&["true"], json!({}))["error"].as_str().unwrap().starts_with("proc_limit: "));
    let free = other.spawn(&["cat"]);
    assert_eq!(one.status(&sleeper)["status"], "running", "nothing has happened to it");
    for (agent, proc) in [(&mut one, more), (&mut other, free)] {
        agent.kill(&proc, "SIGKILL");
    }
    one.finish();
    other.finish();
    assert_gone("3602.7");
}

#[test]
fn all_agents_share_the_places_of_the_host() {
    let server = Server::start("tcp:127.0.0.1:0", &["--max-total-procs", "3"]);
    let (mut one, mut other) = (server.agent(), server.agent());
    let held: Vec<Proc> = (0..2).map(|_| one.spawn(&["cat"])).collect();
    let _last = other.spawn(&["cat"]);
    let refused = other.try_spawn(&["cat"], json!({}));
    assert!(refused["error"].as_str().unwrap().starts_with("proc_limit: all sessions of this host"), "{refused}");
    one.kill(&held[0], "SIGKILL");
    other.spawn(&["cat"]);
    // Places come back with a session that ends.
    other.break_off();
    let start = Instant::now();
    while one.try_spawn(&["true"], json!({}))["ok"] != json!(true) {
        assert!(start.elapsed() < PATIENCE);
    }
    one.finish();
}

#[test]
fn a_connection_that_breaks_takes_its_processes_along_and_no_others() {
    let server = Server::start("tcp:127.0.0.1:0", &[]);
    let (mut one, mut other) = (server.agent(), server.agent());
    one.sh("trap '' TERM; sleep 3603.7 & sleep 3603.7");
    one.spawn(&["yes"]);
    one.pause();
    let stays = other.spawn(&["sleep", "3604.7"]);
    assert!(eventually(PATIENCE, || alive("3603.7").len() == 3));
    one.break_off();
    common::system::assert_gone_within("3603.7", Duration::from_secs(8));
    assert_eq!(other.status(&stays)["status"], "running");
    other.finish();
    assert_gone("3604.7");
}

#[test]
fn a_flood_in_one_session_does_not_hold_up_another() {
    let server = Server::start("tcp:127.0.0.1:0", &[]);
    let (mut flooded, mut stalled, mut other) = (server.agent(), server.agent(), server.agent());
    flooded.keep_output = false;
    flooded.spawn(&["yes"]);
    stalled.spawn(&["yes"]);
    stalled.pause();
    let reading = std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            flooded.wait_next();
        }
        flooded
    });
    let cat = other.spawn(&["cat"]);
    for round in 0..50 {
        let line = format!("{round}\n");
        other.write(&cat, &line, false);
        other.wait_text(&cat, "stdout", &line);
    }
    drop(reading.join().unwrap());
    other.finish();
}

#[test]
fn there_are_so_many_places_and_one_is_free_again_when_an_agent_has_gone() {
    let server = Server::start("tcp:127.0.0.1:0", &["--max-sessions", "2"]);
    let (one, other) = (server.agent(), server.agent());
    let mut third = server.connect();
    let told = third.wait(|message| message["type"] == "error");
    assert_eq!((told["code"].as_str(), told["retryable"].as_bool()), (Some("runtime_error"), Some(true)), "{told}");
    assert!(told["message"].as_str().unwrap().contains("2 sessions"), "{told}");
    third.wait_end();
    one.finish();
    let mut fourth = server.connect();
    let start = Instant::now();
    // The place comes back when the session's thread is through.
    while {
        fourth.send("ping", json!({}));
        fourth.wait(|message| message["type"] != "")
    }["type"]
        == "error"
    {
        assert!(start.elapsed() < PATIENCE);
        fourth = server.connect();
    }
    fourth.finish();
    other.finish();
}

#[test]
fn what_a_browser_can_be_made_to_send_is_not_taken_for_requests() {
    let server = Server::start("tcp:127.0.0.1:0", &[]);
    let body = r#"{"type":"proc/spawn/req","id":"1","cmd":["sleep","3605.7"]}"#;
    let head = format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len() + 1);
    let mut stream = server.tcp();
    let _ = stream.write_all(format!("{head}{body}\n").as_bytes());
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    assert_eq!(said, "");
    assert_gone("3605.7");
}

#[test]
fn agents_that_are_refused_and_do_not_read_keep_nobody_waiting() {
    let server = Server::start("tcp:127.0.0.1:0", &["--max-sessions", "1"]);
    let one = server.agent();
    let mut refused: Vec<_> = (0..100).map(|_| server.tcp()).collect();
    // They are taken in order; the last is told, or sent away without a word.
    let _ = refused[99].read(&mut [0]);
    one.finish();
    let start = Instant::now();
    // A place is free again; each of the hundred would take a fifth of a second if they were told one after the other.
    while start.elapsed() < PATIENCE {
        let mut stream = server.tcp();
        stream.write_all(b"{\"type\":\"ping\",\"id\":\"1\"}\n").unwrap();
        let mut said = [0; 12];
        if stream.read_exact(&mut said).is_ok() && &said == b"{\"type\":\"pon" {
            assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
            drop(refused);
            return;
        }
    }
    panic!("no place is free");
}

#[test]
fn a_signal_ends_every_session_and_each_agent_hears_of_its_processes() {
    let (_folder, address) = unix_address();
    let server = Server::start(&address, &[]);
    let mut agents: Vec<_> = (0..5).map(|_| server.agent()).collect();
    let sleepers: Vec<Proc> = agents.iter_mut().map(|agent| agent.spawn(&["sleep", "3606.7"])).collect();
    server.signal(Signal::TERM);
    for (agent, sleeper) in agents.iter_mut().zip(&sleepers) {
        assert_eq!(agent.terminal(sleeper)["stream_type"], "killed");
        agent.wait_end();
    }
    let (code, took, _) = server.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert_gone("3606.7");
}

#[test]
fn agents_that_come_and_go_leave_nothing() {
    let server = Server::start("tcp:127.0.0.1:0", &["--max-sessions", "300"]);
    let pid = server.pid();
    let visit = |round: u64| {
        let mut agent = server.agent();
        let proc = agent.spawn(&["sleep", "3607.7"]);
        match round % 3 {
            0 => {
                agent.kill(&proc, "SIGKILL");
                agent.finish();
            }
            1 => agent.break_off(),
            // In the middle of a line.
            _ => {
                agent.send_raw(b"{\"type\":\"pi");
                agent.break_off();
            }
        }
    };
    (0..20).for_each(visit);
    let settled = |before: &common::system::Holdings| eventually(PATIENCE, || holdings(pid).is_within(before));
    drop(server.agent());
    let idle = server.agent();
    assert!(eventually(PATIENCE, || alive("3607.7").is_empty()));
    std::thread::sleep(Duration::from_millis(100)); // nothing tells when the threads of the last session have gone
    let before = (holdings(pid), rss(pid));
    (0..200).for_each(visit);
    assert!(settled(&before.0), "{:?} before, {:?} after", before.0, holdings(pid));
    assert_gone("3607.7");
    assert!(rss(pid) < before.1 + 16 * 1024, "{} KiB before, {} KiB after", before.1, rss(pid));
    idle.finish();
}
