//! Cancelling at every point, and subscriptions, which end in no other way.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{call, cancelled, modern, request, start};

#[test]
fn a_cancelled_call_ends_and_is_not_answered() {
    let (mut client, hand, _opened) = start();
    for hold in [call(1, "hold", json!({"name": "a"})), modern(call("1", "hold", json!({"name": "a"})))] {
        client.send(&hold);
        assert_eq!(hand.told.recv().unwrap().0, "begun");
        client.send(&cancelled(hold["id"].clone()));
        assert_eq!(hand.told.recv().unwrap().0, "cancelled");
        client.send(&cancelled(hold["id"].clone()));
        client.expect_silence("a cancelled call");
        // Its id is free.
        assert_eq!(client.ask(&call(hold["id"].clone(), "echo", json!({})))["result"].get("isError"), None);
    }
}

#[test]
fn cancelling_what_is_not_there_does_nothing() {
    let (mut client, hand, _opened) = start();
    client.send(&cancelled(1));
    client.send(&call(1, "hold", json!({"name": "a"})));
    assert_eq!(hand.told.recv().unwrap().0, "begun");
    let odd = [json!("1"), json!(2), json!(null), json!(1.0), json!(true), json!({"requestId": 1}), json!([1])];
    for id in odd {
        client.send(&cancelled(id.clone()));
        client.expect_silence(&id.to_string());
    }
    for params in [json!(null), json!({}), json!([1]), json!(1)] {
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        client.expect_silence(&params.to_string());
    }
    hand.release.send(()).unwrap();
    assert_eq!(client.next()["id"], 1);
    assert_eq!(hand.told.recv().unwrap().0, "released");
    client.send(&cancelled(1));
    client.expect_silence("what has been answered");
}

#[test]
fn a_thread_that_does_not_hear_answers_nobody_else() {
    let (mut client, hand, _opened) = start();
    client.send(&call(1, "stubborn", json!({"name": "a"})));
    assert_eq!(hand.told.recv().unwrap().0, "begun");
    client.send(&cancelled(1));
    client.send(&call(1, "hold", json!({"name": "b"})));
    assert_eq!(hand.told.recv().unwrap(), ("begun", "b".to_owned()));
    hand.release.send(()).unwrap();
    assert_eq!(client.next()["result"]["structuredContent"]["said"], "held");
}

#[test]
fn cancelling_races_with_starting_and_answering() {
    let (mut client, _hand, _opened) = start();
    for round in 0..500 {
        // One write, so that both are there at once; or the answer is under way already.
        let (echo, stop) = (call(round, "echo", json!({})), cancelled(round));
        client.send(&echo);
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        client.send(&stop);
    }
    client.send(&request("end", "ping", json!({})));
    let mut answered = Vec::new();
    loop {
        let answer = client.next();
        match answer["id"].as_u64() {
            Some(id) => answered.push(id),
            None => break,
        }
    }
    let count = answered.len();
    answered.sort_unstable();
    answered.dedup();
    assert_eq!(answered.len(), count, "an answer came twice");
}

#[test]
fn a_cancelled_request_in_an_array_is_left_out_of_the_answers() {
    let (mut client, hand, _opened) = start();
    client.send(&json!([call(1, "hold", json!({"name": "a"})), call(2, "echo", json!({}))]));
    assert_eq!(hand.told.recv().unwrap().0, "begun");
    client.send(&cancelled(1));
    let answers = client.next();
    assert!(answers.as_array().unwrap().len() == 1 && answers[0]["id"] == 2, "{answers}");
    client.send(&json!([call(1, "hold", json!({"name": "a"})), cancelled(1)]));
    client.expect_silence("an array of which nothing is left");
}

fn listen(id: impl Into<Value>) -> Value {
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["file:///x"]});
    modern(request(id, "subscriptions/listen", json!({"notifications": filter})))
}

fn subscription(line: &Value) -> &Value {
    line.pointer("/params/_meta/io.modelcontextprotocol~1subscriptionId").unwrap()
}

#[test]
fn a_subscription_stays_open_until_it_is_cancelled_or_all_ends() {
    let (mut client, _hand, opened) = start();
    for id in [json!(1), json!("1")] {
        client.send(&listen(id.clone()));
        let acknowledged = client.next();
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(subscription(&acknowledged), &id);
        assert_eq!(acknowledged["params"]["notifications"], json!({}), "nothing of it ever changes");
    }
    client.send(&listen("1"));
    assert_eq!(client.next()["error"]["code"], -32600);
    client.send(&cancelled(1));
    client.expect_silence("a cancelled subscription");
    client.send(&cancelled(1));
    client.expect_silence("a subscription that is cancelled twice");
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 0);
    client.close();
    let closed = client.next();
    assert_eq!((&closed["id"], closed.get("error")), (&json!("1"), None));
    let id = closed.pointer("/result/_meta/io.modelcontextprotocol~1subscriptionId");
    assert_eq!(id, Some(&json!("1")));
    let word = client.next();
    assert_eq!((&word["method"], &word["params"]["requestId"]), (&json!("notifications/cancelled"), &json!("1")));
    assert_eq!(client.line(), None);
    client.ends_within(Duration::from_secs(10));
}

#[test]
fn subscriptions_are_bounded() {
    let (mut client, _hand, _opened) = start();
    for id in 0..64 {
        client.send(&listen(id));
        assert_eq!(subscription(&client.next()), id);
    }
    assert_eq!(client.ask(&listen(64))["error"]["code"], -32603);
    client.send(&cancelled(0));
    client.send(&listen(64));
    assert_eq!(subscription(&client.next()), 64);
}
