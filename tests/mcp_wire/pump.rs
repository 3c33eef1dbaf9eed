//! A desk at the other end of a connection: lines go there and come back, and when that end goes the client is told.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use a2e_proc::crossbeam_channel::{Receiver, bounded, never};
use a2e_proc::face::mcp::{Ended, Opened};
use a2e_proc::transport::Connection;
use serde_json::{Value, json};

use crate::client::{Client, call, cancelled, modern, once, request, serve_on, start_with};
use crate::toolbox::{Hand, Strange};

/// A client whose desk is served elsewhere, over a socket; and how serving there has ended.
fn start() -> (Client, Hand, Receiver<std::io::Result<Ended>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let (toolbox, hand) = Strange::new();
    let toolbox = Arc::new(toolbox);
    let open = move || Ok(Opened::Here(toolbox.clone()));
    let served = serve_on(Connection::unix(far).unwrap(), open, &never::<()>());
    (start_with(once(Connection::unix(near).unwrap())), hand, served)
}

/// A client, and the bare other end of its desk's connection.
fn bare() -> (Client, BufReader<UnixStream>, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let reader = BufReader::new(far.try_clone().unwrap());
    (start_with(once(Connection::unix(near).unwrap())), reader, far)
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

#[test]
fn all_goes_there_from_the_first_call_on() {
    let (mut client, hand, there) = start();
    client.ask(&request(1, "ping", json!({})));
    let steps = request(2, "tools/call", json!({"name": "steps", "_meta": {"progressToken": "t"}}));
    client.send(&modern(steps));
    for expected in 1..=3 {
        assert_eq!(client.next()["params"]["progress"], f64::from(expected));
    }
    assert_eq!(client.next()["id"], 2);
    client.ask(&modern(request(3, "tools/list", json!({}))));
    client.send(&call(4, "hold", json!({"name": "a"})));
    hand.told.recv().unwrap();
    client.send(&cancelled(4));
    assert_eq!(hand.told.recv().unwrap().0, "cancelled");
    client.send(&json!([call(5, "echo", json!({})), request(6, "ping", json!({}))]));
    assert_eq!(client.next().as_array().unwrap().len(), 2);
    // What runs at the input's end is answered, and the end passed on.
    client.send(&call(7, "hold", json!({"name": "b"})));
    assert_eq!(hand.told.recv().unwrap().0, "begun");
    client.close();
    hand.release.send(()).unwrap();
    assert_eq!(client.next()["id"], 7);
    assert_eq!(client.line(), None);
    assert!(matches!(client.ends_within(Duration::from_secs(10)), Ended::Clean));
    assert!(matches!(there.recv_timeout(Duration::from_secs(10)).unwrap().unwrap(), Ended::Clean));
}

#[test]
fn lines_pass_as_they_came() {
    let (mut client, mut from, mut to) = bare();
    client.raw("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    client.line().unwrap();
    let odd = [
        "[{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}, {\"method\":\"tools/call\",\"jsonrpc\":\"2.0\",\"id\":3,\"params\":{\"name\":\"echo\"}}]\r\n",
        "  {\"jsonrpc\" : \"2.0\", \"method\":\"x\", \"params\": \"\\ud800\"}\n",
        "neither JSON nor anything\n",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}\n",
    ];
    for odd in odd {
        client.raw(odd);
        assert_eq!(line(&mut from), odd);
    }
    let back = ["{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{} }\n", "what\n", "\n"];
    to.write_all(back.concat().as_bytes()).unwrap();
    for back in back {
        assert_eq!(client.line().unwrap() + "\n", back);
    }
}

#[test]
fn a_desk_that_ends_leaves_no_request_without_an_answer() {
    let (mut client, mut from, mut to) = bare();
    let listen = modern(request("mine", "subscriptions/listen", json!({"notifications": {}})));
    client.send(&listen);
    client.next();
    for id in [1, 2, 3] {
        client.send(&call(id, "echo", json!({})));
    }
    client.send(&cancelled(2));
    (0..4).for_each(|_| drop(line(&mut from)));
    to.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n").unwrap();
    assert_eq!(client.next()["id"], 1);
    // Half a line is not passed on as if it were whole by mistake: it has an end by then.
    drop((from, to));
    let mut rest: Vec<Value> = (0..3).map(|_| client.next()).collect();
    rest.sort_by_key(Value::to_string);
    let lost = rest.iter().find(|line| line["id"] == 3).unwrap();
    assert!(lost["error"]["message"].as_str().unwrap().contains("the desk has ended"), "{lost}");
    assert!(rest.iter().any(|line| line["id"] == "mine" && line.get("error").is_none()), "{rest:?}");
    assert!(rest.iter().any(|line| line["method"] == "notifications/cancelled"), "{rest:?}");
    assert_eq!(client.line(), None);
    assert!(matches!(client.ends_within(Duration::from_secs(10)), Ended::DeskEnded));
}

#[test]
fn a_desk_that_says_nothing_holds_up_no_end() {
    for stop in [false, true] {
        let (mut client, mut from, _to) = bare();
        client.send(&call(1, "echo", json!({})));
        line(&mut from);
        if stop {
            client.stop.send(()).unwrap()
        } else {
            client.close()
        }
        // It hears of the end.
        assert_eq!(line(&mut from), "");
        assert!(client.next()["error"]["message"].as_str().unwrap().contains("start the server again"));
        assert_eq!(client.line(), None);
        client.ends_within(Duration::from_secs(10));
    }
}

#[test]
fn a_desk_that_takes_no_lines_holds_up_no_end() {
    let (mut client, _from, _to) = bare();
    let text = "x".repeat(4 << 20);
    client.send(&call(1, "echo", json!({"text": text})));
    client.stop.send(()).unwrap();
    client.ends_within(Duration::from_secs(10));
}

#[test]
fn a_connection_that_opens_late_is_closed_again() {
    let (near, far) = UnixStream::pair().unwrap();
    let (begun, begins) = bounded(1);
    let (go, goes) = bounded::<()>(1);
    let open = once(Connection::unix(near).unwrap());
    let mut client = start_with(move || {
        let _ = begun.send(());
        let _ = goes.recv();
        open()
    });
    client.send(&call(1, "echo", json!({})));
    begins.recv().unwrap();
    client.stop.send(()).unwrap();
    client.ends_within(Duration::from_secs(10));
    go.send(()).unwrap();
    let mut from = BufReader::new(far);
    // Perhaps the line that has opened it, and then the end.
    while !line(&mut from).is_empty() {}
}
