//! The conformance runner from outside: this host passes, the small host and the small client of the kit pass, and the runner
//! says no where it should, in every form of report.
#![cfg(feature = "conform")]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const KIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance");

fn conform(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_a2e-proc")).arg("conform").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it and returns the judgements, by `--report jsonl`.
fn judgements(args: &[&str]) -> (i32, Vec<Value>, String) {
    let output = conform(&[args, &["--report", "jsonl"]].concat());
    let lines = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), lines, text(&output.stderr))
}

fn count(judgements: &[Value], verdict: &str) -> usize {
    judgements.iter().filter(|judgement| judgement["verdict"] == verdict).count()
}

fn kit(path: &str) -> String {
    format!("{KIT}/{path}")
}

/// A file of this test's own.
fn file(name: &str, content: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("a2e-proc-conform-{}-{name}", std::process::id()));
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn this_host_passes_every_case() {
    let (code, all, said) = judgements(&["--time-scale", "3"]);
    // Its standard streams are one connection.
    let takes_two = |case: &&Value| case["case"].as_str().unwrap().starts_with("connections/");
    let two = all.iter().filter(takes_two).count();
    assert_eq!((code, count(&all, "pass"), count(&all, "untestable")), (0, all.len() - two, two), "{said}");
    assert!(all.len() >= 150 && two >= 10, "{} cases", all.len());
}

/// What is different in the other dialect is the events.
#[test]
fn this_host_passes_in_the_sdk_s_dialect() {
    let host = format!("{} serve --wire sdk", env!("CARGO_BIN_EXE_a2e-proc"));
    let profile = kit("profile/a2e-proc-sdk.json");
    let areas = ["output/*", "bytes/*", "end/*", "wire/*"].map(|area| ["--filter", area]);
    let (code, all, said) =
        judgements(&[&["--host", &host, "--profile", &profile, "--time-scale", "3"], areas.as_flattened()].concat());
    assert_eq!((code, count(&all, "fail"), count(&all, "warn")), (0, 0, 0), "{said}");
    assert!(count(&all, "pass") > 30, "{said}");
}

#[test]
fn the_small_host_of_the_kit_passes_what_it_claims() {
    let host = format!("python3 {}", kit("examples/minimal_host.py"));
    let profile = kit("profile/minimal.json");
    // The areas where a host has most to do; Python takes its time to start, once for each case.
    let areas = ["spawn/*", "output/*", "write/*", "end/*", "status/*"].map(|area| ["--filter", area]);
    let (code, all, said) =
        judgements(&[&["--host", &host, "--profile", &profile, "--time-scale", "3"], areas.as_flattened()].concat());
    assert_eq!((code, count(&all, "fail")), (0, 0), "{said}");
    assert!(count(&all, "pass") >= 150, "{said}");
}

#[test]
fn the_small_client_of_the_kit_passes() {
    let client = format!("python3 {}", kit("examples/minimal_client.py"));
    let (code, all, said) = judgements(&["--client", &client, "--time-scale", "3"]);
    assert_eq!((code, count(&all, "pass")), (0, all.len()), "{said}");
    assert!(all.len() >= 10, "{said}");
}

#[test]
fn a_client_that_breaks_off_fails() {
    let (code, all, _) = judgements(&["--client", "true", "--filter", "client/handshake*"]);
    assert_eq!((code, count(&all, "pass")), (1, 0), "{all:?}");
}

#[test]
fn a_failure_shows_the_exchange_the_step_and_both_sides() {
    let output = conform(&["--host", "true", "--filter", "session/ping*", "--level", "must"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["fail session/ping", " ms → {", "missing", "expected: {", "came:     it ended with code 0"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn every_form_of_report_says_the_same() {
    let junit = file("report.xml", "");
    let junit = junit.to_str().unwrap();
    let wanted = ["--host", "cat", "--filter", "session/ping*", "--time-scale", "0.1"];
    let output = conform(&[&wanted[..], &["--report", "tap", "--report", &format!("junit={junit}")]].concat());
    let tap = text(&output.stdout);
    assert!(tap.starts_with("TAP version 14\n1..") && tap.contains("\nnot ok 1 - session/ping"), "{tap}");
    let xml = fs::read_to_string(junit).unwrap();
    let (failures, failed) = (xml.matches("<failure ").count(), tap.matches("\nnot ok ").count());
    assert!(failures > 0 && failures == failed, "{xml}\n{tap}");
    assert!(xml.ends_with("</testsuite>\n"), "{xml}");
    assert_eq!(output.status.code(), Some(1));
    fs::remove_file(junit).unwrap();
}

#[test]
fn a_baseline_excuses_what_it_names_and_nothing_else() {
    let (_, cases, _) = judgements(&["--host", "cat", "--filter", "session/ping*", "--time-scale", "0.1"]);
    let failing: String = cases.iter().map(|case| format!("{}\n", case["case"].as_str().unwrap())).collect();
    let known = file("known", &format!("# what cat cannot do\n{failing}"));
    let baseline = ["--baseline", known.to_str().unwrap(), "--filter", "session/ping*"];
    let output = conform(&[&["--host", "cat", "--time-scale", "0.1"], &baseline[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    // This host does not fail them, and a baseline that is out of date is an error.
    let output = conform(&baseline);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("take it out"), "{}", text(&output.stdout));
    fs::write(&known, "no/such-case\n").unwrap();
    let output = conform(&baseline);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no/such-case"), "{}", text(&output.stderr));
    fs::remove_file(known).unwrap();
}

#[test]
fn what_cannot_be_done_is_said_and_has_its_code() {
    let profile = file("profile.json", r#"{"profile":"x","format":1,"dialect":"spec","programms":["bash"]}"#);
    let rows: [(&[&str], i32, &str); 6] = [
        (&["--filter", "no/such/*"], 2, "no case matches"),
        (&["--filter", "["], 2, "--filter"),
        (&["--explain", "R13-99"], 2, "R13-1"),
        (&["--time-scale", "0"], 2, "--time-scale"),
        (&["--kit", "/nowhere"], 2, "/nowhere"),
        (&["--profile", profile.to_str().unwrap()], 2, "programms"),
    ];
    for (args, code, words) in rows {
        let output = conform(args);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{args:?}: {:?}, {said}", output.status);
    }
    fs::remove_file(profile).unwrap();
}

#[test]
fn a_case_that_is_malformed_is_the_harness_s_fault() {
    let kit = std::env::temp_dir().join(format!("a2e-proc-kit-{}", std::process::id()));
    for (path, content) in [
        ("cases/session/bad.jsonl", "{\"case\":\"session/bad\",\"format\":1}\n"),
        ("profile/a2e-proc.json", r#"{"profile":"x","format":1,"dialect":"spec"}"#),
    ] {
        fs::create_dir_all(kit.join(path).parent().unwrap()).unwrap();
        fs::write(kit.join(path), content).unwrap();
    }
    let (code, all, _) = judgements(&["--kit", kit.to_str().unwrap()]);
    assert_eq!((code, count(&all, "harness-error")), (3, 1), "{all:?}");
    assert!(all[0]["words"].as_str().unwrap().contains("level"), "{all:?}");
    fs::remove_dir_all(kit).unwrap();
}

#[test]
fn cases_and_requirements_are_explained() {
    let list = text(&conform(&["--list", "--filter", "R13-*"]).stdout);
    let case = list.split_whitespace().next().unwrap();
    let of_case = text(&conform(&["--explain", case]).stdout);
    assert!(of_case.contains("holds R13-1") && of_case.contains("{\"case\""), "{of_case}");
    let of_row = text(&conform(&["--explain", "r13-1"]).stdout);
    assert!(of_row.starts_with("R13-1  MUST  ruling R13\n") && of_row.contains(&format!("held by {case}")), "{of_row}");
}

#[test]
fn the_runner_checks_itself() {
    let output = conform(&["--self-test"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).ends_with(": 0 wrong\n"), "{}", text(&output.stdout));
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_host_leaves_behind_is_killed() {
    let marker = format!("3621.{}", std::process::id());
    let host = format!("sh -c 'setsid sleep {marker} >/dev/null 2>&1 & cat'");
    assert_eq!(conform(&["--host", &host, "--filter", "session/ping", "--time-scale", "0.2"]).status.code(), Some(1));
    let left = Command::new("pgrep").args(["-f", &format!("^sleep {marker}")]).output().unwrap();
    assert_eq!(text(&left.stdout), "");
}
