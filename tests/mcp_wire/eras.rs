//! What each revision is answered, on one connection, in any order.

use std::sync::atomic::Ordering;

use a2e_proc::face::mcp::Opened;
use serde_json::{Value, json};

use crate::client::{call, modern, request, start, start_with};
use crate::schema::{self, LEGACY, MODERN};
use crate::toolbox::{Strange, TOOLS};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

#[test]
fn initialize_never_fails_on_a_version() {
    let (mut client, _hand, opened) = start();
    let wishes = [json!("1999-01-01"), json!(MODERN), json!(5), json!(null), json!("")];
    let rows = LEGACY.map(|version| (json!(version), version)).into_iter();
    for (wish, expected) in rows.chain(wishes.map(|wish| (wish, "2025-11-25"))) {
        let info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": wish, "capabilities": {}, "clientInfo": info});
        let answer = client.ask(&request(0, "initialize", params));
        let result = &answer["result"];
        assert_eq!(result["protocolVersion"], expected, "{wish}");
        assert_eq!(result["capabilities"], json!({"tools": {}}));
        assert_eq!(result["instructions"], "Be kind.");
        assert_eq!(result["serverInfo"], json!({"name": "a2e-proc", "version": env!("CARGO_PKG_VERSION")}));
    }
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}));
    assert_eq!(client.next()["result"]["protocolVersion"], "2025-11-25");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client.expect_silence("notifications/initialized");
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[test]
fn both_eras_share_a_connection() {
    let (mut client, _hand, opened) = start();
    // Nobody has said `initialize`.
    let list = client.ask(&request(1, "tools/list", json!({})));
    let list_now = client.ask(&modern(request(2, "tools/list", json!({"cursor": null}))));
    assert_eq!(list["result"]["tools"], list_now["result"]["tools"]);
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), TOOLS.len());
    let hints =
        json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": false, "openWorldHint": false});
    assert_eq!(list["result"]["tools"][0]["annotations"], hints);
    assert_eq!(list["result"].as_object().unwrap().len(), 1);

    let discovered = client.ask(&modern(request(3, "server/discover", json!({}))));
    assert_eq!(discovered["result"]["supportedVersions"], json!([MODERN]));
    assert_eq!(discovered["result"]["capabilities"], json!({"tools": {}}));
    assert_eq!(client.ask(&request(4, "ping", json!({})))["result"], json!({}));
    assert_eq!(opened.load(Ordering::SeqCst), 0);

    let echo = call(5, "echo", json!({"text": "ü\u{0}\u{2028}\"", "times": "2"}));
    let said = "ü\u{0}\u{2028}\"ü\u{0}\u{2028}\"";
    for request in [echo.clone(), modern(echo)] {
        let answer = client.ask(&request);
        assert_eq!(answer["result"]["content"], json!([{"type": "text", "text": said}]));
        assert_eq!(answer["result"]["structuredContent"], json!({"said": said}));
        assert_eq!(answer["result"].get("isError"), None);
    }
    for request in [call(6, "refuse", json!({})), modern(call(7, "refuse", json!({})))] {
        let answer = client.ask(&request);
        assert_eq!(answer["result"]["isError"], true);
        assert_eq!(answer["result"]["content"][0]["text"], "Not now. Try later.");
        assert_eq!(answer["result"].get("structuredContent"), None);
    }
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

#[test]
fn requests_that_cannot_be_served_are_told_why() {
    let (mut client, _hand, opened) = start();
    let with = |meta: Value| request("id", "tools/list", json!({"_meta": meta}));
    let other_version = json!({VERSION: "2025-11-25", CAPABILITIES: {}});
    let rows = [
        (request("id", "nothing", json!([1])), -32601),
        (request("id", "logging/setLevel", json!({"level": "info"})), -32601),
        (request("id", "resources/list", json!({})), -32601),
        (request("id", "notifications/cancelled", json!({"requestId": 1})), -32601),
        (request("id", "server/discover", json!({})), -32602),
        (request("id", "subscriptions/listen", json!({"notifications": {}})), -32602),
        (modern(request("id", "initialize", json!({}))), -32601),
        (modern(request("id", "ping", json!({}))), -32601),
        (modern(request("id", "logging/setLevel", json!({}))), -32601),
        (modern(request("id", "subscriptions/listen", json!({}))), -32602),
        (with(json!({VERSION: MODERN})), -32602),
        (with(json!({VERSION: MODERN, CAPABILITIES: null})), -32602),
        (with(json!({VERSION: MODERN, CAPABILITIES: []})), -32602),
        (with(json!({VERSION: 5, CAPABILITIES: {}})), -32602),
        (with(json!({VERSION: null, CAPABILITIES: {}})), -32602),
        (with(other_version), -32022),
        (with(json!({VERSION: "1999-01-01"})), -32022),
        (with(json!([])), -32602),
        (request("id", "tools/list", json!({"cursor": "x"})), -32602),
        (request("id", "tools/list", json!({"cursor": ""})), -32602),
        (request("id", "tools/list", json!([])), -32602),
        (request("id", "tools/list", json!("x")), -32602),
        (request("id", "tools/call", json!({})), -32602),
        (request("id", "tools/call", json!({"name": 5})), -32602),
        (call("id", "nothing", json!({})), -32602),
        (call("id", "echo", json!([])), -32602),
        (call("id", "echo", json!("x")), -32602),
        (json!({"id": "id", "method": "ping"}), -32600),
        (json!({"jsonrpc": "1.0", "id": "id", "method": "ping"}), -32600),
        (json!({"jsonrpc": "2.0", "id": "id", "method": null}), -32600),
        (json!({"jsonrpc": "2.0", "id": "id"}), -32600),
    ];
    for (request, code) in rows {
        let answer = client.ask(&request);
        assert_eq!(answer["error"]["code"], code, "{request} → {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
        if code == -32022 {
            schema::check(MODERN, "UnsupportedProtocolVersionError", &answer);
            assert_eq!(answer["error"]["data"]["requested"], request["params"]["_meta"][VERSION]);
        }
    }
    assert_eq!(opened.load(Ordering::SeqCst), 0);
    assert_eq!(client.ask(&call("id", "malformed", json!({})))["error"]["code"], -32602);
}

#[test]
fn arguments_are_taken_as_they_are_meant() {
    let (mut client, _hand, opened) = start();
    let refused = [
        (json!({"name": "echo", "arguments": {"times": -1}}), "The argument \"times\" cannot be -1"),
        (json!({"name": "echo", "arguments": {"text": 5}}), "The argument \"text\" cannot be 5: it must be a string."),
        (json!({"name": "echo", "arguments": {"texts": "x"}}), "There is no argument \"texts\". Possible: "),
        (json!({"name": "hold", "arguments": null}), "The argument \"name\" is missing"),
        (json!({"name": "hold"}), "The argument \"name\" is missing"),
    ];
    for (params, words) in refused {
        let answer = client.ask(&request(1, "tools/call", params));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().starts_with(words), "{answer}");
    }
    assert_eq!(opened.load(Ordering::SeqCst), 0, "a bad call opens nothing");
    let taken = [
        json!({"name": "echo"}),
        json!({"name": "echo", "arguments": null}),
        json!({"name": "echo", "arguments": {"text": null, "times": 5.0}, "other": 1}),
    ];
    for params in taken {
        let answer = client.ask(&request(1, "tools/call", params));
        assert_eq!(answer["result"]["structuredContent"], json!({"said": ""}));
    }
}

#[test]
fn progress_is_told_with_a_token_alone() {
    let (mut client, _hand, _opened) = start();
    let with = |token: Value| request(1, "tools/call", json!({"name": "steps", "_meta": {"progressToken": token}}));
    for token in [json!("a"), json!(0), json!(7)] {
        for request in [with(token.clone()), modern(with(token.clone()))] {
            client.send(&request);
            for expected in 1..=3 {
                let told = client.next();
                let params = json!({
                    "progressToken": token, "progress": f64::from(expected), "total": 3.0, "message": "on the way",
                });
                assert_eq!(told["params"], params);
            }
            assert_eq!(client.next()["id"], 1);
        }
    }
    for token in [json!(null), json!(1.5), json!(true), json!({})] {
        client.ask(&with(token));
    }
    client.ask(&call(1, "steps", json!({})));
}

#[test]
fn a_desk_that_does_not_open_is_tried_again_at_the_next_call() {
    let toolbox = std::sync::Arc::new(Strange::new().0);
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let mut client = start_with(move || match tries.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Err("No room. Stop something first.".into()),
        _ => Ok(Opened::Here(toolbox.clone())),
    });
    let echo = call(1, "echo", json!({}));
    let refused = |answer: &Value| answer["result"]["content"][0]["text"] == "No room. Stop something first.";
    let answer = client.ask(&echo);
    assert!(refused(&answer) && answer["result"]["isError"] == true, "{answer}");
    // One try for both calls of a line.
    client.send(&json!([echo, call(2, "echo", json!({}))]));
    let answers = client.next();
    assert!(answers.as_array().unwrap().len() == 2 && answers.as_array().unwrap().iter().all(refused), "{answers}");
    for _ in 0..2 {
        assert_eq!(client.ask(&echo)["result"].get("isError"), None);
    }
}
