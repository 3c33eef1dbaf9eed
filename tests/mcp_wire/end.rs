//! The end: of the input, by a word from outside, of the output; with calls that run, and with clients that do not read.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use a2e_proc::crossbeam_channel::{Receiver, bounded, never};
use a2e_proc::face::mcp::{Ended, Opened};
use a2e_proc::transport::Connection;
use serde_json::{Value, json};

use crate::client::{call, request, serve_on, start, start_with};
use crate::toolbox::Strange;

/// Serving is over within this time of a word from outside, and within this time of the input's end, whatever happens.
const AFTER_STOP: Duration = Duration::from_secs(5);
const AFTER_INPUT: Duration = Duration::from_secs(6);

/// More than calls that run may take, less than any of the times above.
const SOON: Duration = Duration::from_secs(4);

#[test]
fn an_input_that_is_all_there_is_answered_to_its_last_line() {
    let (mut client, _hand, _opened) = start();
    let lines: Vec<String> = (0..50).map(|id| call(id, "echo", json!({"text": "x"})).to_string()).collect();
    // The last line has no end.
    client.raw(lines.join("\n"));
    client.close();
    let began = Instant::now();
    let mut answered: Vec<u64> = std::iter::from_fn(|| client.line())
        .map(|line| serde_json::from_str::<Value>(&line).unwrap()["id"].as_u64().unwrap())
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..50).collect::<Vec<u64>>());
    assert!(matches!(client.ends_within(SOON), Ended::Clean));
    assert!(began.elapsed() < SOON, "nothing was to be waited for: {:?}", began.elapsed());
}

#[test]
fn with_nothing_under_way_the_end_is_at_once() {
    for stop in [false, true] {
        let (mut client, _hand, _opened) = start();
        client.ask(&call(1, "echo", json!({})));
        if stop {
            client.stop.send(()).unwrap()
        } else {
            client.close()
        }
        assert!(matches!(client.ends_within(SOON), Ended::Clean));
        assert_eq!(client.line(), None);
    }
}

#[test]
fn calls_that_run_at_the_input_s_end_have_a_while_and_then_their_last_words() {
    let (mut client, hand, _opened) = start();
    for name in ["a", "b"] {
        client.send(&call(name, "hold", json!({"name": name})));
        hand.told.recv().unwrap();
    }
    client.close();
    assert!(hand.told.recv_timeout(Duration::from_millis(20)).is_err(), "cancelled too soon");
    hand.release.send(()).unwrap();
    assert_eq!(hand.told.recv().unwrap().0, "released");
    assert_eq!(hand.told.recv().unwrap().0, "cancelled");
    for _ in 0..2 {
        assert_eq!(client.next()["result"]["structuredContent"]["said"], "held");
    }
    assert_eq!(client.line(), None);
    client.ends_within(AFTER_INPUT);
}

#[test]
fn a_word_from_outside_cancels_at_once_and_waits_for_no_one_long() {
    let (mut client, hand, _opened) = start();
    for tool in ["hold", "stubborn"] {
        client.send(&call(tool, tool, json!({"name": tool})));
        hand.told.recv().unwrap();
    }
    let began = Instant::now();
    client.stop.send(()).unwrap();
    assert_eq!(hand.told.recv().unwrap(), ("cancelled", "hold".to_owned()));
    assert_eq!(client.next()["result"]["structuredContent"]["said"], "held");
    let lost = client.next();
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!("stubborn"), &json!(-32603)));
    client.ends_within(AFTER_STOP);
    assert!(began.elapsed() < AFTER_STOP);
    assert_eq!(client.line(), None);
}

#[test]
fn a_word_from_outside_shortens_the_end_of_the_input() {
    let (mut client, hand, _opened) = start();
    client.send(&call(1, "hold", json!({"name": "a"})));
    hand.told.recv().unwrap();
    client.close();
    client.stop.send(()).unwrap();
    let began = Instant::now();
    client.ends_within(AFTER_STOP);
    assert!(began.elapsed() < SOON);
}

#[test]
fn whoever_has_no_use_for_stopping_drops_it() {
    let (here, there) = Connection::pair().unwrap();
    let (stop, stopped) = bounded::<()>(1);
    drop(stop);
    let served = serve_on(here, || Err(String::new()), &stopped);
    let (mut output, mut input) = (there.output, there.input);
    output.write_all(format!("{}\n", request(1, "ping", json!({}))).as_bytes()).unwrap();
    input.read_exact(&mut [0; 10]).unwrap();
    assert!(served.try_recv().is_err());
    drop(output);
    assert!(matches!(served.recv_timeout(AFTER_INPUT).unwrap().unwrap(), Ended::Clean));
}

/// Asks for much and reads nothing of it.
fn deaf(tool: &str, rounds: u64) -> (UnixStream, Receiver<io::Result<Ended>>) {
    let (here, mut there) = UnixStream::pair().unwrap();
    let toolbox = Arc::new(Strange::new().0);
    let open = move || Ok(Opened::Here(toolbox.clone()));
    let served = serve_on(Connection::unix(here).unwrap(), open, &never::<()>());
    let arguments = json!({"text": "x".repeat(100_000)});
    let ask = |id| if tool == "ping" { request(id, "ping", json!({})) } else { call(id, tool, arguments.clone()) };
    let lines: Vec<String> = (0..rounds).map(|id| format!("{}\n", ask(id))).collect();
    // At once: a socket holds less of many small writes, and the server may have stopped reading.
    there.write_all(lines.concat().as_bytes()).unwrap();
    (there, served)
}

#[test]
fn a_client_that_does_not_read_ends_nothing_late() {
    for (tool, rounds) in [("echo", 60), ("ping", 2000)] {
        let (there, served) = deaf(tool, rounds);
        there.shutdown(Shutdown::Write).unwrap();
        let ended = served.recv_timeout(AFTER_INPUT).expect("still serving").unwrap();
        assert!(matches!(ended, Ended::Clean), "{ended:?}");
        drop(there);
    }
}

#[test]
fn a_client_that_has_gone_is_noticed_by_its_output() {
    let (there, served) = deaf("echo", 10);
    drop(there);
    let ended = served.recv_timeout(AFTER_INPUT).expect("still serving").unwrap();
    assert!(matches!(ended, Ended::OutputBroken(_)), "{ended:?}");
}

#[test]
fn a_toolbox_that_panics_loses_that_call_alone() {
    let (mut client, _hand, _opened) = start();
    for _ in 0..70 {
        assert_eq!(client.ask(&call(1, "panic", json!({})))["error"]["code"], -32603);
    }
    assert_eq!(client.ask(&call(1, "echo", json!({})))["result"].get("isError"), None);
}

#[test]
fn a_desk_that_opens_slowly_keeps_nobody_from_ending() {
    let (begun, begins) = bounded(1);
    let mut client = start_with(move || {
        let _ = begun.send(());
        let _ = never::<()>().recv_timeout(Duration::from_secs(20));
        Err("late".into())
    });
    client.send(&call(1, "echo", json!({})));
    begins.recv().unwrap();
    client.stop.send(()).unwrap();
    client.ends_within(AFTER_STOP);
    assert_eq!(client.line(), None);
}
