//! Whatever the README shows is executed: its console sessions, its Python program, its Rust example, its two commands.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../README.md");

/// The fenced blocks of one kind.
fn blocks(kind: &str) -> Vec<String> {
    let fence = format!("\n```{kind}\n");
    README.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// A shell in the project's folder, with the built binary on its `PATH`.
fn shell(script: &str) -> Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_a2e-proc")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg(script)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PATH", path)
        .env_remove("A2E_AUTH_TOKEN");
    command
}

/// Whether a line that was printed is the one that is shown, in which `…` stands for anything.
fn fits(shown: &str, printed: &str) -> bool {
    let parts: Vec<&str> = shown.split('…').collect();
    let Some(mut rest) = printed.strip_prefix(parts[0]) else { return false };
    if parts.len() == 1 {
        return rest.is_empty();
    }
    for part in &parts[1..parts.len() - 1] {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(parts[parts.len() - 1])
}

#[test]
fn the_console_sessions_print_what_is_shown() {
    let sessions = blocks("console");
    assert!(sessions.len() >= 4);
    for session in sessions {
        // One shell for a session, so that `$?` means what it says. Each command's output follows a marker.
        let mut script = String::new();
        let mut shown: Vec<Vec<&str>> = Vec::new();
        for line in session.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => {
                    script.push_str(&format!("(exit $code); echo '--- next'; {command}\ncode=$?\n"));
                    shown.push(Vec::new());
                }
                None => shown.last_mut().unwrap().push(line),
            }
        }
        let output =
            shell(&format!("exec 2>&1; code=0\n{}", script.replace("echo $?", "echo $code"))).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed: Vec<Vec<&str>> = printed.split("--- next\n").skip(1).map(|part| part.lines().collect()).collect();
        assert_eq!(printed.len(), shown.len(), "{session}");
        for (shown, mut printed) in shown.into_iter().zip(printed) {
            let all = printed.join("\n");
            // Two streams in one place have no order of their own, so each line may stand anywhere.
            for line in shown {
                let Some(at) = printed.iter().position(|printed| fits(line, printed)) else {
                    panic!("shown, but not printed: {line}\nprinted:\n{all}");
                };
                printed.remove(at);
            }
            assert!(printed.is_empty(), "printed, but not shown: {printed:?}");
        }
    }
}

#[test]
fn the_python_programs_print_what_is_shown() {
    let (programs, shown) = (blocks("python"), blocks("text"));
    assert_eq!(programs.len(), shown.len());
    for (program, shown) in programs.iter().zip(&shown) {
        let output = shell("exec python3 -c \"$PROGRAM\"").env("PROGRAM", program).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), shown, "{stderr}");
    }
}

#[test]
fn the_rust_program_is_the_example_that_ci_runs() {
    let example = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/embed.rs")).unwrap();
    assert!(example.contains(&blocks("rust")[0]), "README.md and examples/embed.rs differ");
    assert!(example.lines().count() < 60);
}

#[test]
fn the_two_commands_are_what_ci_runs() {
    let commands = &blocks("sh")[0];
    let (run, test) = commands.split_once('\n').unwrap();
    let ci = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/run")).unwrap();
    for command in [run, test] {
        assert!(ci.lines().any(|line| line.trim() == command), ".ci/run does not run {command:?}");
    }
    let args = run.strip_prefix("cargo run --release -- ").unwrap();
    let output = shell(&format!("a2e-proc {args}")).output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"1\n".to_vec()));
}

#[test]
fn the_configuration_is_taken_as_it_is_shown() {
    let output = shell("a2e-proc serve --config <(printf '%s' \"$CONFIG\") </dev/null")
        .env("CONFIG", blocks("json").iter().find(|block| block.contains("\"allowed")).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The rows of the README's table of tools.
fn tool_rows() -> String {
    let mut rows = String::from("| tool | arguments | what it does |\n|---|---|---|\n");
    for tool in a2e_proc::face::mcp::tools() {
        let arguments: Vec<String> =
            tool.input["properties"].as_object().unwrap().keys().map(|name| format!("`{name}`")).collect();
        let arguments = if arguments.is_empty() { "–".to_owned() } else { arguments.join(", ") };
        let first = tool.description.split_inclusive(". ").next().unwrap().trim();
        rows += &format!("| `{}` | {arguments} | {first} |\n", tool.name);
    }
    rows
}

/// `README_TOOLS=write cargo test --test readme` writes it.
#[test]
fn the_table_of_tools_is_what_clients_are_told() {
    let (begin, end) = ("<!-- tools: written by tests/readme.rs -->\n", "<!-- end of tools -->");
    let (before, rest) = README.split_once(begin).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    if std::env::var_os("README_TOOLS").is_some_and(|word| word == "write") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        fs::write(path, format!("{before}{begin}{}{end}{after}", tool_rows())).unwrap();
        return;
    }
    assert_eq!(shown, tool_rows());
}

/// What clients are configured with starts a server that answers.
#[test]
fn the_configuration_of_clients_starts_a_server() {
    let of_clients = blocks("json").into_iter().find(|block| block.contains("mcpServers")).unwrap();
    let configured: serde_json::Value = serde_json::from_str(&of_clients).unwrap();
    let server = &configured["mcpServers"]["processes"];
    let words: Vec<&str> = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let command = format!("{} {}", server["command"].as_str().unwrap(), words.join(" "));
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let output = shell(&format!("printf '%s\\n' '{hello}' | {command}")).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("list_processes"));
    let toml = blocks("toml").into_iter().find(|block| block.contains("mcp_servers")).unwrap();
    let same = |word: &&str| *word == "." || toml.contains(&format!("{word:?}"));
    assert!(words.iter().all(same), "{toml}");
    let agents = blocks("json").into_iter().find(|block| block.contains("agents")).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&agents).unwrap()["agents"][0]["command"].is_array());
}

#[test]
fn the_links_lead_somewhere() {
    for target in README.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        let found = target.starts_with("https://") || Path::new(env!("CARGO_MANIFEST_DIR")).join(target).exists();
        assert!(found, "{target}");
    }
}

#[test]
fn a_shown_line_fits_what_it_stands_for() {
    for (shown, printed, expected) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a…c", "abbc", true),
        ("a…c", "abcd", false),
        ("…", "", true),
        ("{\"id\":\"…\",\"ts\":…}", "{\"id\":\"7\",\"ts\":1.5}", true),
        ("{\"id\":\"…\",\"ts\":…}", "{\"ts\":1.5}", false),
    ] {
        assert_eq!(fits(shown, printed), expected, "{shown} {printed}");
    }
}
