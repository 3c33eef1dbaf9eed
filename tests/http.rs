//! The published SDK's transport, as `curl` would use it: its paths, and what happens to those who send something else or do not
//! read.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::server::{Events, exchange, http, http_agent, is_end, open_session, read_answer, request, send, spawn};
use common::system::{alive, assert_gone, assert_gone_within, eventually, holdings, rss};
use serde_json::{Value, json};

#[test]
fn a_process_over_http() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    send(&server, &session, &spawn(&["cat"]));
    let spawned = events.message();
    assert_eq!((spawned["type"].as_str(), spawned["ok"].as_bool()), (Some("proc/spawn/resp"), Some(true)));
    let proc_id = spawned["proc_id"].as_str().unwrap();
    // What some clients take for the end of a line comes through whole.
    let text = "é\u{2028}\u{85}≤\n";
    send(
        &server,
        &session,
        &json!({"type": "proc/write/req", "id": "w", "proc_id": proc_id, "data": text, "eof": true}),
    );
    let mut came = String::new();
    loop {
        let (id, line) = events.next().unwrap();
        assert!(id.parse::<u64>().is_ok());
        assert!(!line.contains(['\u{2028}', '\u{85}']));
        let message: Value = serde_json::from_str(&line).unwrap();
        if is_end(&message) {
            break;
        }
        if message["type"] == "proc/read/event" {
            came.push_str(common::payload(&message)["text"].as_str().unwrap());
        }
    }
    assert_eq!(came, text);
}

#[test]
fn nobody_without_a_session_has_a_long_body_read() {
    let server = http(&[]);
    let long = "Content-Length: 8000000\r\n";
    for (path, headers, status) in
        [("/send", "", 400), ("/send", "X-Session-Id: nonsense\r\n", 404), ("/session", "", 413), ("/nowhere", "", 413)]
    {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{long}\r\n");
        assert_eq!(common::server::exchange(&server, head.as_bytes()).0, status, "{path} {headers}");
    }
}

#[test]
fn who_sends_something_else_is_told_what_is_wrong() {
    let server = http(&["--max-sessions", "3"]);
    let session = open_session(&server);
    let unknown = "X-Session-Id: nonsense\r\n";
    for (method, path, headers, status, words) in [
        ("GET", "/health", "", 200, r#"{"status":"ok"}"#),
        ("GET", "/health?x=1", "", 200, "ok"),
        ("POST", "/send", "", 400, r#"{"detail":"Missing X-Session-Id"}"#),
        ("GET", "/stream", "", 400, "Missing X-Session-Id"),
        ("DELETE", "/session", "", 400, "Missing X-Session-Id"),
        ("POST", "/send", unknown, 404, r#"{"detail":"Session not found"}"#),
        ("GET", "/stream", unknown, 404, "Session not found"),
        ("GET", "/nowhere", "", 404, "/health"),
        ("GET", "/session", "", 405, "use POST"),
        ("GET", "/send", &session, 405, "use POST"),
        ("POST", "/stream", &session, 405, "use GET"),
        ("PUT", "/health", "", 405, "use GET"),
        ("GET", "/health", "Origin: http://evil.example\r\n", 403, "another site"),
        ("GET", "/health", "Origin: null\r\n", 403, "another site"),
        ("GET", "/health", "Origin: http://localhost\r\n", 200, "ok"),
        ("POST", "/send", "Transfer-Encoding: chunked\r\n", 501, "Content-Length"),
    ] {
        let (got, _, body) = request(&server, method, path, headers, "");
        assert_eq!(got, status, "{method} {path} {headers}: {body}");
        assert!(body.contains(words), "{method} {path} {headers}: {body}");
        assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
    }
    let many = "X: y\r\n".repeat(100);
    let long = "x".repeat(20_000);
    for (bytes, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET /health HTTP/1.1\r\n\r\n".into(), 400),
        ("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(), 403),
        ("GET /health HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n".into(), 400),
        ("POST /send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab".into(), 400),
        ("POST /send HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".into(), 400),
        ("POST /send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n".into(), 413),
        ("POST /send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8388609\r\n\r\n".into(), 413),
        (format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 431),
    ] {
        let (got, _, body) = exchange(&server, bytes.as_bytes());
        assert_eq!(got, status, "{}: {body}", &bytes[..bytes.len().min(80)]);
    }
    // Places are bounded, and come back.
    let more = [open_session(&server), open_session(&server)];
    assert_eq!(request(&server, "POST", "/session", "", "").0, 503);
    assert_eq!(request(&server, "DELETE", "/session", &more[0], "").0, 200);
    assert!(eventually(PATIENCE, || request(&server, "POST", "/session", "", "").0 == 200));
}

#[test]
fn a_connection_can_be_used_again_and_a_body_is_one_message() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    let mut stream = server.tcp();
    let body = "{\"type\":\"ping\",\r\n\"id\":\"1\"}\n";
    let length = body.len();
    let post = format!("POST /send HTTP/1.1\r\nHost: localhost\r\n{session}Content-Length: {length}\r\n\r\n{body}");
    // Two at once, and the last asks to be asked for its body.
    stream.write_all(format!("{post}{post}").as_bytes()).unwrap();
    let expect = post.replace("\r\n\r\n{", "\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n{");
    let (head, body) = expect.split_once("\r\n\r\n").unwrap();
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"100 Continue\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    stream.write_all(body.as_bytes()).unwrap();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(String::from_utf8(said).unwrap().matches("{\"ok\":true}").count(), 3);
    for _ in 0..3 {
        assert_eq!(events.message()["type"], "pong");
    }
    // A bad message is answered in the stream, as ever.
    assert_eq!(request(&server, "POST", "/send", &session, "{nope").0, 200);
    assert_eq!(events.message()["code"], "parse_error");
}

#[test]
fn who_is_slow_or_says_nothing_is_dropped_and_holds_nobody_up() {
    let server = http(&["--max-sessions", "2"]);
    let start = Instant::now();
    let silent: Vec<TcpStream> = (0..20).map(|_| server.tcp()).collect();
    let mut slow = server.tcp();
    slow.write_all(b"GET /health HT").unwrap();
    assert_eq!(request(&server, "GET", "/health", "", "").0, 200, "others are served meanwhile");
    let dripping = {
        let mut stream = server.tcp();
        std::thread::spawn(move || {
            // A byte now and then does not make it any longer.
            while stream.write_all(b"X").is_ok() && start.elapsed() < 2 * PATIENCE {
                std::thread::sleep(Duration::from_millis(200));
            }
            start.elapsed()
        })
    };
    assert_eq!(read_answer(&mut slow).0, 408);
    for mut stream in silent {
        assert_eq!(read_answer(&mut stream).0, 0, "closed without a word");
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(dripping.join().unwrap() < PATIENCE);
    // More than may be connected at once are told so, and later ones are served again.
    let crowd: Vec<TcpStream> = (0..100).map(|_| server.tcp()).collect();
    assert_eq!(request(&server, "GET", "/health", "", "").0, 503);
    drop(crowd);
    assert!(eventually(PATIENCE, || request(&server, "GET", "/health", "", "").0 == 200));
}

#[test]
fn a_body_that_drips_is_dropped() {
    let server = http(&[]);
    let session = open_session(&server);
    let mut stream = server.tcp();
    stream.set_read_timeout(Some(3 * PATIENCE)).unwrap();
    let head = format!("POST /send HTTP/1.1\r\nHost: localhost\r\n{session}Content-Length: 1000000\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut drops = stream.try_clone().unwrap();
    let start = Instant::now();
    let dripping = std::thread::spawn(move || {
        while drops.write_all(b"x").is_ok() && start.elapsed() < 3 * PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(read_answer(&mut stream).0, 408);
    dripping.join().unwrap();
    assert!(start.elapsed() < 2 * PATIENCE, "{:?}", start.elapsed());
}

/// Waits until a process has used no processor time for a while: it is held up, for which there is no event.
fn wait_until_it_stands_still(pid: i32) {
    let mut ticks = u64::MAX;
    let stands_still = || {
        std::thread::sleep(Duration::from_millis(300));
        let now = common::system::cpu_ticks(pid);
        std::mem::replace(&mut ticks, now) == now
    };
    assert!(eventually(PATIENCE, stands_still));
}

#[test]
fn a_client_that_does_not_read_its_stream_costs_little() {
    let server = http(&[]);
    let (session, events) = http_agent(&server);
    let before = rss(server.pid());
    send(&server, &session, &spawn(&["yes", &"x".repeat(1000)]));
    // The system's buffers and the mailbox fill up; then `yes` has to wait, and its processor time stands still.
    let yes = || alive(&"x".repeat(1000)).first().copied();
    assert!(eventually(PATIENCE, || yes().is_some()));
    let pid = yes().unwrap();
    wait_until_it_stands_still(pid);
    // What the system holds is kept too, for a stream that breaks.
    assert!(rss(server.pid()) < before + 32 * 1024, "{} KiB before, {} KiB now", before, rss(server.pid()));
    // It can still be asked for things.
    send(&server, &session, &json!({"type": "shutdown", "id": "2", "timeout": 1}));
    assert!(eventually(PATIENCE, || yes().is_none()));
    drop(events);
}

#[test]
fn an_agent_that_reads_late_hears_how_its_processes_ended() {
    let server = http(&[]);
    let (session, mut events) = http_agent(&server);
    // It says more than the systems and the mailbox hold, and nobody reads.
    send(&server, &session, &spawn(&["yes", "3614.7"]));
    assert!(eventually(PATIENCE, || alive("3614.7").len() == 1));
    wait_until_it_stands_still(alive("3614.7")[0]);
    assert_eq!(request(&server, "DELETE", "/session", &session, "").0, 200);
    assert_gone_within("3614.7", Duration::from_secs(10));
    events.wait(is_end);
    assert!(events.next().is_none());
}

#[test]
fn sessions_that_come_and_go_leave_nothing() {
    let server = http(&["--max-sessions", "100", "--resume", "1"]);
    let pid = server.pid();
    let visit = |round: u64| {
        let start = Instant::now();
        let session = loop {
            let (status, _, body) = request(&server, "POST", "/session", "", "");
            if status == 200 {
                let answer: Value = serde_json::from_str(&body).unwrap();
                break format!("X-Session-Id: {}\r\n", answer["session_id"].as_str().unwrap());
            }
            assert!(start.elapsed() < PATIENCE, "{status} {body}");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut events = Events::open(&server, &session, "");
        send(&server, &session, &spawn(&["sleep", "3613.7"]));
        match round % 3 {
            0 => drop(request(&server, "DELETE", "/session", &session, "")),
            1 => events.break_off(),
            _ => {
                events.message();
                send(&server, &session, &json!({"type": "shutdown", "id": "2", "timeout": 0}));
                while events.next().is_some() {}
            }
        }
    };
    (0..20).for_each(visit);
    assert!(eventually(PATIENCE, || alive("3613.7").is_empty()));
    // The program's five, `accept`, and three that wait for the next process.
    let calm = || holdings(pid).threads <= 9;
    assert!(eventually(PATIENCE, calm), "{:?}", holdings(pid));
    let before = (holdings(pid), rss(pid));
    (0..100).for_each(visit);
    assert_gone_within("3613.7", Duration::from_secs(10));
    let settled = || holdings(pid).is_within(&before.0);
    assert!(eventually(PATIENCE, settled), "{:?} before, {:?} after", before.0, holdings(pid));
    assert!(rss(pid) < before.1 + 16 * 1024, "{} KiB before, {} KiB after", before.1, rss(pid));
    assert_gone("3613.7");
}
