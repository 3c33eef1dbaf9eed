//! Real programs on terminals of the desk, seen and typed into through the tools as an agent does.
#![cfg(all(feature = "mcp", feature = "cli"))]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod desk;

use std::fs;
use std::path::Path;

use desk::shell::shell;
use desk::{Client, Place, memory, until};
use serde_json::json;

/// A shell in an empty project.
fn begin() -> (Place, Client, u64) {
    let place = Place::new();
    let mut client = place.mcp();
    let id = shell(&mut client, "sh");
    (place, client, id)
}

/// Has the shell run a line, and waits for the end of it.
fn run(client: &mut Client, id: u64, line: &str) -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    client.asks(id);
    client.types(id, &format!("{line}; echo end-$(({count}+0))-"));
    client.shows(id, &format!("\nend-{count}-"))
}

fn alternate_screen(client: &mut Client, id: u64, is_on: bool) {
    until(&format!("alternate screen: {is_on}"), || (client.output(id)["alternate_screen"] == is_on).then_some(()));
}

const UP: [u8; 3] = [27, 91, 65];
const CONTROL_C: [u8; 1] = [3];

#[test]
fn bash_asks_remembers_and_is_interrupted() {
    let (_place, mut client, id) = begin();
    client.types(id, "echo a$((1+1))b");
    client.shows(id, "\na2b\ngo>");
    client.presses(id, &UP);
    client.presses(id, b"\r");
    let lines = client.shows(id, "a2b\ngo> echo a$((1+1))b\na2b\ngo>");
    assert_eq!(lines.matches("\na2b").count(), 2, "{lines}");
    client.types(id, "sh -c 'echo up=$((2+3)); exec sleep 600'");
    client.shows(id, "up=5");
    client.presses(id, &CONTROL_C);
    client.asks(id);
    client.types(id, "echo code=$?");
    client.shows(id, "code=130");
    client.types(id, "exit 7");
    let ended = client.becomes(id, "failed");
    assert_eq!(ended["exit_code"], 7, "{ended}");
    client.refused("send_input", &json!({"process_id": id, "input": "ls"}), "start_process");
    // What it has shown stays, and the next one goes on below.
    client.ok("start_process", &json!({"process_id": id}));
    client.types(id, "echo again=$((4*2))");
    let lines = client.shows(id, "again=8");
    assert!(lines.contains("code=130"), "{lines}");
}

#[test]
fn python_is_talked_to_line_by_line() {
    let (_place, mut client, id) = begin();
    client.types(id, "python3 -q");
    client.shows(id, ">>>");
    client.types(id, "6 * 7");
    client.shows(id, "\n42\n>>>");
    client.types(id, "for i in range(3): print('n', i * 2)\n");
    client.shows(id, "\nn 0\nn 2\nn 4\n>>>");
    client.types(id, "1 / 0");
    client.shows(id, "ZeroDivisionError");
    client.presses(id, &[4]);
    run(&mut client, id, "echo back");
}

#[test]
fn an_editor_has_the_screen_and_gives_it_back() {
    // Keys that begin to type, and those that save and quit.
    let editors: [(&str, &str, &[u8], &[u8]); 2] =
        [("/usr/bin/vim", "vim -u NONE -N -n", b"i", b"\x1b:wq\r"), ("/usr/bin/nano", "nano", b"", b"\x18y\r")];
    let Some((_, start, begin_typing, save)) = editors.iter().find(|(path, ..)| Path::new(path).exists()) else {
        eprintln!("skipped: neither vim nor nano is installed");
        return;
    };
    let (place, mut client, id) = begin();
    run(&mut client, id, "echo before=$((3+4))");
    client.types(id, &format!("{start} note.txt"));
    alternate_screen(&mut client, id, true);
    client.shows(id, "note.txt");
    if !begin_typing.is_empty() {
        client.presses(id, begin_typing);
        client.shows(id, "INSERT");
    }
    client.types(id, "first line");
    client.ok("send_input", &json!({"process_id": id, "input": "héllo 漢字 from here", "submit": false}));
    client.shows(id, "first line\nhéllo 漢字 from here");
    client.presses(id, save);
    alternate_screen(&mut client, id, false);
    let lines = client.shows(id, "before=7");
    assert!(!lines.contains("from here"), "{lines}");
    let lines = run(&mut client, id, "echo after=$((3+5))");
    assert!(lines.contains("after=8"), "{lines}");
    assert_eq!(fs::read_to_string(place.project.join("note.txt")).unwrap(), "first line\nhéllo 漢字 from here\n");
}

#[test]
fn a_pager_pages() {
    let (place, mut client, id) = begin();
    let lines: String = (1..=500).map(|n| format!("line {n}.\n")).collect();
    place.write("lines.txt", &lines);
    client.types(id, "less lines.txt");
    let shown = client.shows(id, "line 39.");
    assert!(shown.contains("line 1.") && !shown.contains("line 40."), "{shown}");
    assert_eq!(client.output(id)["alternate_screen"], true);
    client.presses(id, b" ");
    let shown = client.shows(id, "line 78.");
    assert!(shown.contains("line 40.") && !shown.contains("line 39."), "{shown}");
    client.presses(id, b"G");
    let shown = client.shows(id, "line 500.");
    assert!(!shown.contains("line 78."), "{shown}");
    client.types(id, "?line 222");
    client.shows(id, "line 222.");
    client.presses(id, b"q");
    alternate_screen(&mut client, id, false);
    let shown = client.text(id);
    assert!(shown.contains("go> less lines.txt") && !shown.contains("line 222."), "{shown}");
}

#[test]
fn top_goes_on_until_it_is_quit() {
    let (_place, mut client, id) = begin();
    client.types(id, "top -d 0.3");
    let first = client.shows(id, "%CPU");
    until("top shows something else", || (client.text(id) != first).then_some(()));
    client.presses(id, b"q");
    run(&mut client, id, "echo back");
}

#[test]
fn wide_characters_and_colours_are_shown_as_they_are() {
    let (place, mut client, id) = begin();
    let text = "漢字かな|🦀🚀|e\u{301}|ß|é|\u{1f468}|end";
    place.write("wide.txt", &format!("{text}\n"));
    let lines = run(&mut client, id, "cat wide.txt");
    assert!(lines.lines().any(|line| line == text), "{lines}");
    // Typed, shown by the line editor, deleted in part, and run.
    client.ok("send_input", &json!({"process_id": id, "input": "echo '漢字🦀x", "submit": false}));
    client.shows(id, "go> echo '漢字🦀x");
    client.presses(id, &[0x7f, 0x7f]);
    client.types(id, "語'");
    let lines = client.shows(id, "\n漢字語\n");
    assert!(lines.contains("go> echo '漢字語'"), "{lines}");
    let found = client.ok("search_output", &json!({"process_id": id, "pattern": "字語"}));
    assert_eq!(found["total"], 2, "{found}");

    place.write("colours.txt", "\x1b[31mred\x1b[0m and \x1b[1;38;5;42mgreen\x1b[m\n\x1b]0;title\x07plain\n");
    let lines = run(&mut client, id, "cat colours.txt");
    assert!(lines.contains("\nred and green\nplain\n") && !lines.contains('\u{1b}'), "{lines:?}");
    let coloured = client.ok("get_process_output", &json!({"process_id": id, "colours": true}));
    let coloured = coloured["output"].as_str().unwrap();
    assert!(coloured.contains("\x1b[31mred\x1b[m and \x1b[") && !coloured.contains("title"), "{coloured:?}");
    let raw = client.ok("get_process_raw_output", &json!({"process_id": id}));
    assert!(raw["output"].as_str().unwrap().contains("\x1b]0;title\x07plain\r\n"), "{raw}");
}

/// Reads its keys as they come, and says what each read gave. The first argument says whether it takes pastes; the second for
/// how long it does not look, in seconds.
const READS_KEYS: &str = r#"
import os, sys, time, tty
tty.setraw(0)
if sys.argv[1] == "on":
    os.write(1, b"\x1b[?2004h")
os.write(1, b"ready\r\n")
time.sleep(float(sys.argv[2]))
while True:
    keys = os.read(0, 65536)
    os.write(1, ("read %r\r\n" % keys).encode())
    if b"." in keys:
        break
"#;

#[test]
fn a_message_is_a_paste_where_pastes_are_taken_and_enter_comes_after_it() {
    let place = Place::new();
    let script = place.write("agent.py", READS_KEYS);
    let agent = |id: &str, on: &str, pause: &str| json!({"id": id, "command": ["python3", script, on, pause]});
    place.agents(&json!([agent("on", "on", "0"), agent("off", "off", "0"), agent("slow", "on", "0.7")]));
    let mut client = place.mcp();
    let message = "a\u{1b}[201~\nid";
    let rows = [
        ("on", json!({"input": message}), r"\x1b[200~a\rid\x1b[201~ \r"),
        ("off", json!({"input": message}), r"a\rid \r"),
        ("slow", json!({"input": message}), r"\x1b[200~a\rid\x1b[201~ \r"),
        ("on", json!({"input": "a\nid", "intent": "interaction"}), r"a\rid \r"),
        ("on", json!({"input": "a\nid", "submit": false}), r"a\rid"),
        ("on", json!({"input": "a\u{1b}[20\u{1b}[201~1~b"}), r"\x1b[200~ab\x1b[201~ \r"),
        ("on", json!({"input": ""}), r"\r"),
        ("off", json!({"bytes": [27, 91, 65, 0]}), r"\x1b[A\x00"),
    ];
    for (agent, input, expected) in rows {
        let id = client.ok("spawn_agent", &json!({"agent_tool_id": agent}))["id"].as_u64().unwrap();
        client.shows(id, "ready");
        let mut arguments = input.clone();
        arguments["process_id"] = json!(id);
        let sent = client.ok("send_input", &arguments);
        assert_eq!(sent["delivered"], true, "{sent}");
        client.presses(id, b".");
        client.becomes(id, "exited");
        let shown = client.text(id);
        let mut reads: Vec<&str> =
            shown.lines().filter_map(|line| line.strip_prefix("read b'")?.strip_suffix('\'')).collect();
        // The last may have come with what was before it.
        let last = reads.pop().unwrap().strip_suffix('.').unwrap();
        reads.extend(Some(last).filter(|last| !last.is_empty()));
        let enter = expected.strip_suffix(" \\r");
        assert_eq!(reads.concat(), expected.replace(' ', ""), "{agent} {input}: {shown}");
        if enter.is_some() {
            assert_eq!(reads.last(), Some(&r"\r"), "{agent} {input}: Enter came with the text: {shown}");
        }
        client.ok("close_process", &json!({"process_id": id}));
    }
}

#[test]
fn a_title_without_an_end_takes_no_memory() {
    let (_place, mut client, id) = begin();
    let total = |client: &mut Client| {
        client.ok("get_process_raw_output", &json!({"process_id": id, "lines": 1}))["total_bytes"].as_u64().unwrap()
    };
    run(&mut client, id, "yes warm | head -c 2000000");
    let (before, begun) = (memory(client.pid()), total(&mut client));
    client.types(id, r#"sh -c "printf '\033]0;'; yes""#);
    until("20 MB of title", || (total(&mut client) > begun + 20_000_000).then_some(()));
    let after = memory(client.pid());
    assert!(after < before + 16, "{before} MB have become {after} MB");
    client.presses(id, &CONTROL_C);
    client.asks(id);
    client.types(id, "echo back=$((40+2))");
    client.shows(id, "back=42");
}

#[test]
fn all_that_was_written_before_the_end_is_there() {
    let place = Place::with("processes: {hello: {command: \"python3 -c \\\"print('hello'*4096,end='')\\\"\"}}");
    place.trust("hello");
    let mut client = place.mcp();
    let id = client.id("hello");
    let ended = client.becomes(id, "exited");
    assert_eq!(ended["exit_code"], 0);
    let raw = client.ok("get_process_raw_output", &json!({"process_id": id, "lines": 200}));
    assert_eq!((&raw["total_bytes"], &raw["before"]), (&json!(20_480), &json!(4096)), "{raw}");
    assert_eq!(raw["output"].as_str().unwrap().len(), 16_384);
    let older = client.ok("get_process_raw_output", &json!({"process_id": id, "before": raw["before"]}));
    assert_eq!((older["output"].as_str().unwrap().len(), &older["before"]), (4096, &json!(0)));
    let mut whole = String::new();
    let mut before = None;
    loop {
        let page = client.ok("get_process_output", &json!({"process_id": id, "lines": 200, "before": before}));
        whole.insert_str(0, page["output"].as_str().unwrap());
        match page.get("before") {
            Some(older) => before = Some(older.clone()),
            None => break,
        }
    }
    // Lines without an end are ended somewhere.
    assert_eq!(whole.replace('\n', ""), "hello".repeat(4096));
}

#[test]
fn a_long_line_is_cut_by_the_system_where_lines_are_read_and_whole_where_keys_are() {
    let (_place, mut client, id) = begin();
    let long = "x".repeat(8000);
    client.types(id, "stty -echo; echo ready=$((1+1)); head -1 | wc -c; stty echo");
    client.shows(id, "ready=2");
    client.types(id, &long);
    client.shows(id, "\n4096\n");
    client.types(id, &format!("v={long}"));
    client.types(id, "echo length=${#v}");
    client.shows(id, "length=8000");
}
