//! What is remembered comes back, and what is damaged is not lost.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::desk::paths::tests::fixture;

fn remembered() -> Remembered {
    let whats = [
        What::Command { key: "web".into() },
        What::Terminal { extra_args: vec![] },
        What::Agent { tool_id: "claude".into(), extra_args: vec!["-c".into()] },
    ];
    let entries = (1..).zip(whats).map(|(id, what)| Entry { id, name: format!("entry {id}"), what }).collect();
    Remembered { next_id: 4, entries }
}

#[test]
fn what_is_saved_comes_back() {
    let (_folder, paths) = fixture();
    assert_eq!(load(&paths), Ok((Remembered { next_id: 1, entries: vec![] }, vec![])));
    save(&paths, &remembered()).unwrap();
    assert_eq!(load(&paths), Ok((remembered(), vec![])));
    assert_eq!(fs::metadata(paths.entries()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&paths.state).unwrap().count(), 1, "no file is left over");
}

#[test]
fn no_id_is_given_out_twice() {
    let (_folder, paths) = fixture();
    let mut first = load(&paths).unwrap().0;
    assert_eq!([give_id(&paths, &mut first).unwrap(), give_id(&paths, &mut first).unwrap()], [1, 2]);
    // Not saved: the second place knows.
    assert_eq!(load(&paths).unwrap().0.next_id, 3);
    // The second place lost: the entries know.
    save(&paths, &Remembered { next_id: 1, ..remembered() }).unwrap();
    fs::remove_file(paths.next_id()).unwrap();
    assert_eq!(load(&paths).unwrap().0.next_id, 4);
    // The entries lost.
    let mut again = load(&paths).unwrap().0;
    assert_eq!(give_id(&paths, &mut again).unwrap(), 4);
    fs::write(paths.entries(), "[").unwrap();
    let (loaded, notices) = load(&paths).unwrap();
    assert_eq!((loaded.next_id, loaded.entries.len(), notices.len()), (5, 0, 1));
    fs::write(paths.next_id(), "five").unwrap();
    assert!(load(&paths).unwrap().1[0].contains("not a number"));
    fs::write(paths.next_id(), MOST_ID.to_string()).unwrap();
    let mut last = load(&paths).unwrap().0;
    assert_eq!(give_id(&paths, &mut last).unwrap(), MOST_ID);
    assert!(give_id(&paths, &mut last).is_err());
}

#[test]
fn a_damaged_file_is_set_aside_and_said() {
    let (_folder, paths) = fixture();
    save(&paths, &remembered()).unwrap();
    let good = fs::read_to_string(paths.entries()).unwrap();
    let rows = [
        (String::new(), "EOF"),
        (good[..60].to_owned(), "EOF"),
        (good.replace("\"id\": 2", "\"id\": 1"), "the id 1"),
        (good.replace("\"id\": 2", "\"id\": 0"), "the id 0"),
        (good.replace("\"id\": 2", "\"id\": 9007199254740992"), "the id 9007199254740992"),
        (good.replace("entry 2", "a\\nb"), "control character"),
        (good.replace("terminal", "teapot"), "unknown variant `teapot`"),
        ("{\"version\": 1, \"x\": ".to_owned() + &"[".repeat(100_000), "EOF"),
        (good.clone() + &" ".repeat(2 << 20), "longer than 1 MB"),
        ("{\"data\": 3}".to_owned(), "version"),
    ];
    for (number, (text, words)) in (1..).zip(rows) {
        fs::write(paths.entries(), &text).unwrap();
        let (loaded, notices) = load(&paths).unwrap();
        assert!(loaded.entries.is_empty(), "{words}");
        assert!(notices.len() == 1 && notices[0].contains(words), "{words}: {notices:?}");
        let aside = paths.state.join(format!("entries.json.damaged-{number}"));
        assert_eq!(fs::read_to_string(aside).unwrap(), text, "{notices:?}");
        assert!(fs::read_dir(&paths.state).unwrap().count() <= KEPT as usize);
    }
}

#[test]
fn a_file_that_may_be_good_is_left_alone() {
    let (_folder, paths) = fixture();
    let newer = r#"{"version": 2, "data": {"better": true}}"#;
    fs::write(paths.entries(), newer).unwrap();
    assert!(load(&paths).unwrap_err().contains("newer version of this program (2)"));
    assert_eq!(fs::read_to_string(paths.entries()).unwrap(), newer);
    fs::remove_file(paths.entries()).unwrap();
    fs::create_dir(paths.entries()).unwrap();
    assert!(load(&paths).unwrap_err().contains("not a plain file"));
}

#[test]
fn more_than_can_be_read_again_is_not_written() {
    let (_folder, paths) = fixture();
    save(&paths, &remembered()).unwrap();
    let mut large = remembered();
    large.entries[1].what = What::Terminal { extra_args: vec!["x".repeat(2 << 20)] };
    assert_eq!(save(&paths, &large).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(load(&paths), Ok((remembered(), vec![])));
}

#[test]
fn agent_tools_are_as_a_person_wrote_them() {
    let (_folder, paths) = fixture();
    assert_eq!(agent_tools(&paths), Ok(vec![]));
    let text = r#"{"agents": [
        {"id": "claude", "name": "Claude Code", "command": ["claude"], "enabled": false},
        {"id": "codex", "command": ["codex", "--full-auto"]}]}"#;
    fs::write(&paths.agents, text).unwrap();
    let tool = |id: &str, name: &str, command: &[&str], enabled| AgentTool {
        id: id.into(),
        name: name.into(),
        command: command.iter().map(|&word| word.into()).collect(),
        enabled,
    };
    let expected = vec![
        tool("claude", "Claude Code", &["claude"], false),
        tool("codex", "codex", &["codex", "--full-auto"], true),
    ];
    assert_eq!(agent_tools(&paths), Ok(expected));
    let rows = [
        ("{\n\"agents\": [}", "line 2 column 12"),
        ("{\"agents\": [{\"id\": \"a\"}]}", "missing field `command`"),
        ("{\"agents\": [{\"id\": \"a\", \"command\": [\"a\"], \"enable\": false}]}", "unknown field `enable`"),
        ("{\"agents\": [{\"id\": \"a\", \"command\": []}]}", "agent \"a\": the command must be"),
        ("{\"agents\": [{\"id\": \"\", \"command\": [\"a\"]}]}", "agent \"\": the id is empty"),
        ("{\"agents\": [{\"id\": \"a\", \"command\": [\"a\"]}, {\"id\": \"a\", \"command\": [\"b\"]}]}", "given twice"),
    ];
    for (text, words) in rows {
        fs::write(&paths.agents, text).unwrap();
        let got = agent_tools(&paths).unwrap_err();
        assert!(got.contains(words) && got.contains("agents.json"), "{text}: {got}");
    }
}
