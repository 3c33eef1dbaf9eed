//! Lines of every kind: ids, arrays, what cannot be read, and what is very long.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::client::{call, modern, request, start};

#[test]
fn ids_come_back_as_they_were() {
    let (mut client, _hand, _opened) = start();
    let rows = [
        ("0", "0"),
        ("-7", "-7"),
        ("9007199254740993", "9007199254740993"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        (r#""""#, r#""""#),
        (r#""1""#, r#""1""#),
        (r#""\u00fc \u2028 \ud83d\ude00 \"\\\u0000""#, "\"ü \u{2028} 😀 \\\"\\\\\\u0000\""),
        (r#"5,"id":6"#, "6"),
    ];
    for (id, expected) in rows {
        client.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n"));
        assert_eq!(client.line().unwrap(), format!(r#"{{"jsonrpc":"2.0","id":{expected},"result":{{}}}}"#));
    }
}

#[test]
fn what_has_no_answer_has_none() {
    let (mut client, _hand, opened) = start();
    let deep = "[".repeat(1 << 20);
    let rows = [
        "",
        "\r",
        "   \t ",
        "{",
        "nonsense",
        "5",
        "null",
        "\"ping\"",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"} {}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1e2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"panic"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/nothing","params":5}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
        "[1,2",
        "[1,2]",
        r#"[{"jsonrpc":"2.0","method":"ping"}]"#,
        &deep,
    ];
    for row in rows {
        client.raw(format!("{row}\n"));
        client.expect_silence(&row[..row.len().min(100)]);
    }
    client.raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n");
    client.expect_silence("not UTF-8");
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn a_mark_at_the_beginning_and_carriage_returns_are_let_pass() {
    let (mut client, _hand, _opened) = start();
    client.raw("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n\r\n");
    assert_eq!(client.line().unwrap(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    // Not anywhere else.
    client.raw("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    client.expect_silence("a second mark");
}

#[test]
fn what_is_wrong_within_the_parameters_is_answered() {
    let (mut client, _hand, _opened) = start();
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    for arguments in [r#"{"text":"\ud800"}"#, r#"{"\udfff":1}"#, r#"{"text":1e999}"#, &format!("{{\"text\":{deep}}}")] {
        let params = format!(r#"{{"name":"echo","arguments":{arguments}}}"#);
        client.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{params}}}\n"));
        let answer: Value = serde_json::from_str(&client.line().unwrap()).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32602)), "{answer}");
    }
}

#[test]
fn long_lines_are_read_to_a_limit_and_written_to_another() {
    const MIB: usize = 1 << 20;
    let (mut client, _hand, _opened) = start();
    let echo = |text: &str, times: usize| call(1, "echo", json!({"text": text, "times": times}));
    // The text is in the answer twice.
    let text = "x".repeat(5 * MIB - 200);
    assert_eq!(client.ask(&echo(&text, 1))["result"]["structuredContent"]["said"], text.as_str());
    let refused = client.ask(&echo(&text, 2));
    assert_eq!(refused["error"]["code"], -32603);
    assert!(refused["error"]["message"].as_str().unwrap().contains("ask for less"), "{refused}");
    let text = "x".repeat(20 * MIB - 300);
    assert_eq!(client.ask(&echo(&text, 0))["result"]["structuredContent"]["said"], "");
    client.raw(format!("{}\n", echo(&"x".repeat(20 * MIB), 0)));
    client.raw("x".repeat(50 * MIB));
    client.raw("\n");
    client.expect_silence("lines that are too long");
}

#[test]
fn an_array_of_requests_has_an_array_of_answers() {
    let (mut client, hand, _opened) = start();
    client.send(&json!([
        request(1, "ping", json!({})),
        call(2, "hold", json!({"name": "a"})),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call(3, "echo", json!({"text": "x"})),
        request(4, "nothing", json!({})),
        modern(request(5, "tools/list", json!({}))),
        7,
    ]));
    // Nothing is said before all can be.
    assert_eq!(hand.told.recv().unwrap().0, "begun");
    client.expect_silence("a batch that is not done");
    hand.release.send(()).unwrap();
    let line: Value = serde_json::from_str(&client.line().unwrap()).unwrap();
    let mut answers: Vec<(u64, Option<i64>)> =
        line.as_array().unwrap().iter().map(|a| (a["id"].as_u64().unwrap(), a["error"]["code"].as_i64())).collect();
    answers.sort_unstable();
    assert_eq!(answers, [(1, None), (2, None), (3, None), (4, Some(-32601)), (5, Some(-32600))]);

    for (line, code) in [("[]".to_owned(), -32600), (format!("[{}1]", "1,".repeat(1000)), -32600)] {
        client.raw(format!("{line}\n"));
        let answer: Value = serde_json::from_str(&client.line().unwrap()).unwrap();
        assert_eq!((answer.get("id"), &answer["error"]["code"]), (None, &json!(code)));
        crate::schema::check("2025-11-25", "JSONRPCErrorResponse", &answer);
    }
}

#[test]
fn an_array_of_answers_keeps_to_the_limit_too() {
    let (mut client, _hand, _opened) = start();
    let text = "x".repeat(1 << 20);
    let calls: Vec<Value> = (0..8).map(|id| call(id, "echo", json!({"text": text}))).collect();
    client.send(&calls.into());
    let answers = client.next();
    let refused = answers.as_array().unwrap().iter().filter(|answer| answer["error"]["code"] == -32603).count();
    assert_eq!((answers.as_array().unwrap().len(), refused), (8, 4));
}

#[test]
fn as_many_calls_run_as_may_and_all_are_answered_in_any_order() {
    let (mut client, hand, _opened) = start();
    for id in 0..64 {
        client.send(&call(id, "hold", json!({"name": "x"})));
    }
    for _ in 0..64 {
        assert_eq!(hand.told.recv().unwrap().0, "begun");
    }
    let refused = client.ask(&call("more", "hold", json!({"name": "x"})));
    assert!(refused["error"]["message"].as_str().unwrap().contains("retry"), "{refused}");
    assert_eq!(client.ask(&request("other", "ping", json!({})))["result"], json!({}));
    for _ in 0..64 {
        hand.release.send(()).unwrap();
    }
    let answered: HashSet<u64> = (0..64).map(|_| client.next()["id"].as_u64().unwrap()).collect();
    assert_eq!(answered.len(), 64);
    assert_eq!(client.ask(&call("more", "echo", json!({})))["result"].get("isError"), None);
}

#[test]
fn an_id_in_use_is_refused_whoever_uses_it() {
    let (mut client, hand, _opened) = start();
    client.send(&call(1, "hold", json!({"name": "a"})));
    hand.told.recv().unwrap();
    let again = [call(1, "hold", json!({"name": "b"})), request(1, "ping", json!({})), call(1, "nothing", json!({}))];
    for again in again {
        client.raw(format!("{again}\n"));
        let answer: Value = serde_json::from_str(&client.line().unwrap()).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32600)), "{again}");
    }
    // Another type is another id.
    client.send(&call("1", "echo", json!({})));
    assert_eq!(client.next()["id"], "1");
    hand.release.send(()).unwrap();
    assert_eq!(client.next()["result"]["structuredContent"]["said"], "held");
    client.ask(&call(1, "echo", json!({})));
}
