//! A session over HTTP and its streams: what waits for one, what one that broke gets to see, and when the session is over.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::PATIENCE;
use common::server::{Events, http, http_agent, is_end, open_session, request, send, spawn};
use common::system::{alive, assert_gone, assert_gone_within, eventually};
use serde_json::{Value, json};

#[test]
fn what_is_said_waits_for_a_stream() {
    let server = http(&[]);
    let session = open_session(&server);
    send(&server, &session, &spawn(&["seq", "100"]));
    // All of it is over before anybody listens.
    let (mut texts, mut events) = (String::new(), Events::open(&server, &session, ""));
    loop {
        let message = events.message();
        match message["type"].as_str() {
            Some("proc/spawn/resp") => assert!(texts.is_empty()),
            _ if is_end(&message) => break,
            _ => texts.push_str(common::payload(&message)["text"].as_str().unwrap()),
        }
    }
    assert_eq!(texts, (1..=100).map(|n| format!("{n}\n")).collect::<String>());
}

#[test]
fn a_stream_that_breaks_goes_on_after_the_last_event_that_came_through() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    let most = 20_000;
    send(&server, &session, &spawn(&["seq", &most.to_string()]));
    let (mut ids, mut texts, mut last) = (Vec::new(), String::new(), String::new());
    let mut breaks = 0;
    loop {
        // Now and then it breaks, at any place.
        if ids.len() % 997 == 500 && ids.len() / 997 >= breaks {
            events.break_off();
            events = Events::open(&server, &session, &last);
            breaks += 1;
        }
        let (id, line) = events.next().expect("the stream goes on");
        last.clone_from(&id);
        ids.push(id.parse::<u64>().unwrap());
        let message: Value = serde_json::from_str(&line).unwrap();
        if is_end(&message) {
            break;
        }
        texts.push_str(common::payload(&message)["text"].as_str().unwrap_or_default());
    }
    assert!(breaks > 10, "{breaks}");
    assert!(ids.iter().zip(1..).all(|(id, number)| *id == number), "no event is missing and none came twice");
    assert_eq!(texts, (1..=most).map(|n| format!("{n}\n")).collect::<String>());
}

#[test]
fn without_a_last_event_id_a_stream_goes_on_with_what_no_stream_was_given() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    send(&server, &session, &json!({"type": "ping", "id": "1"}));
    assert_eq!(events.message()["req_id"], "1");
    events.break_off();
    send(&server, &session, &json!({"type": "ping", "id": "2"}));
    let mut events = Events::open(&server, &session, "");
    assert_eq!(events.message()["req_id"], "2");
    // A newer stream takes the place of an older one, which ends.
    let mut newer = Events::open(&server, &session, "");
    assert!(events.next().is_none());
    send(&server, &session, &json!({"type": "ping", "id": "3"}));
    assert_eq!(newer.message()["req_id"], "3");
}

#[test]
fn a_stream_that_asks_for_what_is_not_kept_any_more_is_told() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    send(&server, &session, &spawn(&["sh", "-c", "seq 400000"]));
    events.wait(is_end);
    events.break_off();
    let headers = format!("{session}Last-Event-ID: 1\r\n");
    let (status, _, body) = request(&server, "GET", "/stream", &headers, "");
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("are not kept any more"), "{body}");
}

#[test]
fn a_stream_that_goes_on_after_what_never_came_is_told_and_loses_nothing() {
    let server = http(&[]);
    let session = open_session(&server);
    send(&server, &session, &spawn(&["seq", "20000"]));
    let (status, _, body) = request(&server, "GET", "/stream", &format!("{session}Last-Event-ID: 500\r\n"), "");
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("has not had an event 500"), "{body}");
    // A stream that is there is not sent away for it either.
    let mut events = Events::open(&server, &session, "");
    let (status, ..) = request(&server, "GET", "/stream", &format!("{session}Last-Event-ID: 99999999\r\n"), "");
    assert_eq!(status, 409);
    let mut count = 0;
    while !is_end(&events.message()) {
        count += 1;
    }
    assert_eq!(count, 20_001, "the answer and every line");
}

#[test]
fn a_session_whose_last_words_were_read_is_forgotten() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    assert_eq!(request(&server, "DELETE", "/session", &session, "").0, 200);
    assert!(events.next().is_none());
    assert!(eventually(PATIENCE, || request(&server, "GET", "/stream", &session, "").0 == 404));
}

#[test]
fn a_session_without_a_stream_ends_after_a_while() {
    let server = http(&["--resume", "1"]);
    let (session, mut events) = http_agent(&server);
    send(&server, &session, &spawn(&["sleep", "3611.7"]));
    events.message();
    // While there is a stream it stays.
    std::thread::sleep(Duration::from_millis(1500)); // what must not happen has no event
    send(&server, &session, &json!({"type": "ping", "id": "1"}));
    events.wait(|message| message["type"] == "pong");
    events.break_off();
    assert_eq!(alive("3611.7").len(), 1);
    assert_gone_within("3611.7", Duration::from_secs(10));
    let gone = || request(&server, "POST", "/send", &session, "{}").0 == 404;
    assert!(eventually(PATIENCE, gone));
}

#[test]
fn a_session_can_be_ended() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    send(&server, &session, &spawn(&["sleep", "3612.7"]));
    events.message();
    assert_eq!(request(&server, "DELETE", "/session", &session, "").0, 200);
    assert_eq!(common::payload(&events.wait(is_end)), json!({}));
    assert!(events.next().is_none(), "the stream ends with the session");
    assert_eq!(request(&server, "POST", "/send", &session, "{}").0, 404);
    assert_gone("3612.7");

    // A shutdown is an end too, and what it leaves to be read can be read afterwards.
    let session = open_session(&server);
    send(&server, &session, &spawn(&["sleep", "3612.7"]));
    send(&server, &session, &json!({"type": "shutdown", "id": "2", "timeout": 1}));
    assert_gone_within("3612.7", Duration::from_secs(5));
    let mut events = Events::open(&server, &session, "");
    events.wait(is_end);
    assert!(events.next().is_none());
}
