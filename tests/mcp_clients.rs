//! The MCP clients that people use, `mcp_clients/`, against the binary: both majors of the Python and of the TypeScript SDK, each in
//! every way in which it opens a connection, and the rules of mcpscore. `mcp_clients/install.sh` installs them.
#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use a2e_proc::face::mcp;
use common::folder::Folder;
use common::system::{eventually, state};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use wait_timeout::ChildExt;

const BINARY: &str = env!("CARGO_BIN_EXE_a2e-proc");
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp_clients");
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/mcp-clients");
const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// Longer than any client takes on a machine that is busy.
const LONG: Duration = Duration::from_secs(90);

/// How long everything may take to be over. SDKs send a signal after that.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// `stubborn` has a job in the background, and both ignore that they are asked to end.
const COMMANDS: &str = "\
name: proof
processes:
  web:
    command: echo web is up; exec sleep 3771
    auto_start: false
  stubborn:
    command: set -m; trap '' HUP INT TERM; sleep 3772 & echo stubborn is up; while true; do sleep 1; done
    auto_start: false
  untrusted:
    command: echo no
    auto_start: false
";

#[test]
fn the_python_sdk_of_the_first_major() {
    play("python_v1.py", None, LEGACY);
}

#[test]
fn the_python_sdk_of_the_second_major() {
    for (mode, revision) in [("auto", MODERN), ("legacy", LEGACY), (MODERN, MODERN)] {
        play("python_v2.py", Some(mode), revision);
    }
}

#[test]
fn the_typescript_sdk_of_the_first_major() {
    play("sdk.mjs", None, LEGACY);
}

#[test]
fn the_typescript_sdk_of_the_second_major() {
    for (mode, revision) in [("auto", MODERN), ("legacy", LEGACY), (MODERN, MODERN)] {
        play("client.mjs", Some(mode), revision);
    }
}

/// Rules of mcpscore that are not followed, all of them optional by its own words: a title, a site and icons of the server, a list
/// of tools that changes, each property of each result explained. One says that `server/discover` should name the legacy
/// revisions too; they have no `server/discover`.
const NOT_FOLLOWED: [&str; 6] = [
    "server_title_present",
    "server_websiteurl_present",
    "server_icons_present",
    "capability_tools_list_changed",
    "tools_output_properties_documented",
    "protocol_version_supported_versions_include_negotiated",
];

#[test]
fn the_rules_of_mcpscore() {
    if !is_installed() {
        return;
    }
    let project = Project::new();
    let mut command = project.command(format!("{INSTALLED}/.venv-2/bin/mcpscore"));
    let options = "--no-config --smoke --call-all --json --env XDG_STATE_HOME --env XDG_RUNTIME_DIR --stdio";
    command.args(options.split(' ')).args([BINARY, "mcp", "--project"]).arg(project.root());
    let Said { code, stdout, stderr } = project.run(command);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["partial"], json!(false), "{stderr}");
    let failed: Vec<&str> = report["results"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|result| result["passed"] == json!(false))
        .map(|result| result["rule_id"].as_str().unwrap())
        .filter(|rule| !NOT_FOLLOWED.contains(rule))
        .collect();
    assert!(failed.is_empty(), "{failed:?}\n{stderr}");
    assert!(report["score"].as_u64().unwrap() >= 113, "{stderr}");
    assert_eq!(report["readiness"]["score"], report["readiness"]["max_score"], "{stderr}");
    let smoke = &report["smoke"];
    assert_eq!(smoke["summary"]["failed"], json!(0), "{stderr}");
    assert_eq!(smoke["coverage"]["tools_called"], json!(mcp::tools().len()), "{stderr}");
}

/// Who lives on is found by its environment; that has to find somebody.
#[test]
fn a_process_of_a_project_is_found() {
    let project = Project::new();
    let mut child = project.command("sleep").arg("3773").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    assert!(eventually(ENDS_WITHIN, || project.alive() == [pid]), "{:?}", project.alive());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(project.alive().is_empty());
}

/// Runs a client, and looks at what it has seen.
fn play(script: &str, mode: Option<&str>, revision: &str) {
    if !is_installed() {
        return;
    }
    let project = Project::new();
    let program = match script {
        "python_v1.py" => ".venv-1/bin/python",
        "python_v2.py" => ".venv-2/bin/python",
        _ => "node",
    };
    let mut command = project.command(format!("{INSTALLED}/{program}"));
    command.arg(format!("{SCRIPTS}/{script}")).arg(BINARY).arg(project.root()).args(mode);
    let said = project.run(command);
    let context = format!("{script} {mode:?}\n{}{}", said.stdout, said.stderr);
    assert_eq!(said.code, Some(0), "{context}");
    // What was said before the cancellation arrived is no fault. The answer to what was cancelled would be.
    let complaints = said.stderr.lines().filter(|line| !line.contains("progress notification for an unknown token"));
    assert_eq!(complaints.count(), 0, "{context}");

    let lines: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let order =
        "connection tools error processes refusal output delivery output cancelled stopped closed output left end";
    assert!(lines.iter().map(|line| &line["saw"]).eq(order.split(' ')), "{context}");
    let tools: Vec<&str> = mcp::tools().iter().map(|tool| tool.name).collect();
    let names = ["web", "stubborn", "untrusted"];
    // A client that asks nothing before it begins does not know who the server is.
    let server = if (script, mode) == ("python_v2.py", Some(MODERN)) { Value::Null } else { json!("a2e-proc") };
    let expected = [
        (0, json!({"saw": "connection", "version": revision, "server": server})),
        (1, json!({"saw": "tools", "names": tools, "are_checked": true})),
        (2, json!({"saw": "error", "code": -32602})),
        (3, json!({"saw": "processes", "names": names})),
        (5, json!({"saw": "output", "process": "web", "row": "web is up"})),
        (6, json!({"saw": "delivery", "delivered": true})),
        (9, json!({"saw": "stopped", "status": "stopped"})),
        (10, json!({"saw": "closed", "names": names})),
    ];
    for (at, expected) in expected {
        assert_eq!(lines[at], expected, "{context}");
    }
    let [refusal, typed, cancelled, left, end] = [4, 7, 8, 12, 13].map(|at| &lines[at]);
    assert_eq!(refusal["refused"], json!(true), "{context}");
    assert!(refusal["words"].as_str().unwrap().contains("a2e-proc trust grant untrusted"), "{context}");
    assert!(typed["row"].as_str().unwrap().ends_with("42"), "{context}");
    assert!(cancelled["progress"].as_u64().unwrap() >= 2, "{context}");
    assert_eq!((&cancelled["status"], &cancelled["is_the_same"]), (&json!("running"), &json!(true)), "{context}");
    assert!(left["pids"].as_array().unwrap().iter().all(|pid| pid.as_i64() > Some(1)), "{context}");
    assert!(end["seconds"].as_f64().unwrap() < ENDS_WITHIN.as_secs_f64(), "{context}");
}

/// Whether there are clients. Where everything is tested there have to be.
fn is_installed() -> bool {
    let is_installed = Path::new(INSTALLED).join("installed").exists();
    if !is_installed {
        let what = "the MCP clients are missing: tests/mcp_clients/install.sh";
        assert!(std::env::var_os("CI").is_none(), "{what}");
        eprintln!("skipped: {what}");
    }
    is_installed
}

/// What a client has written, and its exit code.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A project, and a folder with all that belongs to it. Whoever lives on in it is killed when it is dropped.
struct Project(Folder);

impl Project {
    fn new() -> Self {
        let project = Self(Folder::new());
        for name in ["project", "state", "run"] {
            fs::create_dir(project.0.file(name)).unwrap();
        }
        fs::write(project.root().join("solo.yml"), COMMANDS).unwrap();
        for name in ["web", "stubborn"] {
            let mut grant = project.command(BINARY);
            let output =
                grant.args(["trust", "grant", name, "--yes", "--project"]).arg(project.root()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        project
    }

    fn root(&self) -> PathBuf {
        self.0.file("project")
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("HOME", self.0.as_ref())
            .env("SHELL", "/bin/sh")
            .env("XDG_STATE_HOME", self.0.file("state"))
            .env("XDG_RUNTIME_DIR", self.0.file("run"))
            .env("NODE_PATH", format!("{INSTALLED}/node_modules"))
            .env("PYTHONPYCACHEPREFIX", format!("{INSTALLED}/pycache"));
        command
    }

    /// Runs a client to its end, and sees that the server and all its processes are gone then.
    fn run(&self, mut command: Command) -> Said {
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| self.0.file(name));
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        let mut child = command.spawn().unwrap();
        let status = child.wait_timeout(LONG).unwrap();
        if status.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let [stdout, stderr] = [stdout, stderr].map(|file| fs::read_to_string(file).unwrap());
        let code = status.unwrap_or_else(|| panic!("it has not ended: {stdout}{stderr}")).code();
        let is_over = eventually(ENDS_WITHIN, || self.alive().is_empty());
        assert!(is_over, "{:?} live on: {stdout}{stderr}", self.alive());
        Said { code, stdout, stderr }
    }

    /// Everybody with this project's folder in the environment. All that a server starts inherits that.
    fn alive(&self) -> Vec<i32> {
        let folder = self.0.as_ref().to_str().unwrap();
        let is_of = |pid: i32| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| String::from_utf8_lossy(&env).contains(folder))
        };
        let pids =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|&pid| state(pid).is_some_and(|state| state != 'Z') && is_of(pid)).collect()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        for pid in self.alive().into_iter().filter_map(Pid::from_raw) {
            // It may just have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
