//! When the system says no: an error for the request that names the cause, nothing else affected, full recovery (R10, R11;
//! fault 33).
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use common::{Host, Start, payload, system};
use serde_json::json;

#[test]
fn fault_33_descriptors_run_out_and_come_back() {
    let mut host = Start::under("ulimit -n 64", &["--max-procs", "200"]).go();
    let mut good = Vec::new();
    let mut refused = 0;
    for _ in 0..100 {
        match host.proc_or_error(&["sleep", "951.0417"], json!({})) {
            Ok(proc) => good.push(proc),
            Err(words) => {
                refused += 1;
                assert!(words.starts_with("spawn_failed: ") && words.contains("os error 24"), "{words}");
            }
        }
    }
    assert!(good.len() > 5 && refused > 20, "{} started, {refused} refused", good.len());
    assert_eq!(system::alive("951.0417").len(), good.len(), "a refused spawn left a child");
    assert_eq!(host.status(&good[0])["status"], "running");
    for proc in &good {
        assert_eq!(host.kill(proc, "SIGKILL")["state"], "killed");
    }
    for _ in 0..20 {
        let proc = host.spawn(&["true"]);
        assert_eq!(payload(&host.terminal(&proc)), json!({"code": 0}));
    }
    host.finish();
}

/// A user that nobody else is: the limit counts all that a user runs.
fn user() -> String {
    (1_000_000 + std::process::id()).to_string()
}

/// A copy of the binary that any user may run, or `None` where users cannot be changed.
fn for_nobody() -> Option<PathBuf> {
    let dir = std::env::temp_dir().join(format!("a2e-proc-nobody-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.join("a2e-proc");
    fs::copy(env!("CARGO_BIN_EXE_a2e-proc"), &copy).unwrap();
    let works = std::process::Command::new("setpriv")
        .args(["--reuid", &user(), "--clear-groups"])
        .arg(&copy)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    works.then_some(copy)
}

#[test]
fn threads_and_processes_run_out_and_come_back() {
    // The limit counts a user's processes and threads, and does not bind root: so the host is another user here.
    let Some(copy) = for_nobody() else {
        assert!(!rustix::process::geteuid().is_root(), "setpriv is needed for this test");
        return;
    };
    for limit in [20, 21, 22, 23, 24] {
        let prelude =
            format!("exec prlimit --nproc={limit} setpriv --reuid {} --clear-groups {} \"$@\"", user(), copy.display());
        let mut host = Start::under(&prelude, &["--max-procs", "200", "--no-watchdog"]).go();
        let mut good = Vec::new();
        let mut causes = Vec::new();
        for _ in 0..12 {
            let answer = host.try_spawn(&["sleep", "952.0417"], json!({}));
            match answer["ok"].as_bool() {
                Some(true) => good.push(answer["proc_id"].as_str().unwrap().to_owned()),
                _ => causes.push(answer["error"].as_str().unwrap().to_owned()),
            }
        }
        assert!(!good.is_empty() && !causes.is_empty(), "{limit}: {} started; {causes:?}", good.len());
        for cause in &causes {
            assert!(cause.starts_with("spawn_failed: ") && cause.contains("os error 11"), "{cause}");
        }
        assert!(
            system::eventually(Duration::from_secs(5), || system::alive("952.0417").len() == good.len()),
            "{limit}: a spawn that failed left a child"
        );
        for id in &good {
            assert_eq!(host.call("proc/kill/req", json!({"proc_id": id, "signal": "SIGKILL"}))["state"], "killed");
        }
        assert!(system::eventually(Duration::from_secs(5), || system::alive("952.0417").is_empty()));
        // Its threads may take a moment to be gone.
        let mut recovered = false;
        for _ in 0..50 {
            recovered = host.try_spawn(&["true"], json!({}))["ok"] == json!(true);
            if recovered {
                break;
            }
        }
        assert!(recovered, "{limit}: it did not recover");
        host.close_input();
        assert_eq!(host.wait_end().0, Some(0));
    }
    fs::remove_dir_all(copy.parent().unwrap()).unwrap();
}

/// An allocation that fails ends a program, so a spawn is refused while there is memory left for what runs.
#[test]
fn memory_runs_out_and_comes_back() {
    for kib in ["100000", "120000", "150000"] {
        let mut host = Start::under(&format!("ulimit -v {kib}"), &["--max-procs", "2000"]).go();
        let mut good = Vec::new();
        let mut refused = 0;
        for _ in 0..400 {
            match host.proc_or_error(&["sleep", "953.0417"], json!({})) {
                Ok(proc) => good.push(proc),
                Err(words) => {
                    refused += 1;
                    assert_eq!(words, "spawn_failed: could not start one more process: out of memory");
                }
            }
        }
        assert!(refused > 0, "{kib} KiB were enough for {} processes", good.len());
        assert_eq!(system::alive("953.0417").len(), good.len(), "a refused spawn left a child");
        for proc in &good {
            assert_eq!(host.kill(proc, "SIGKILL")["state"], "killed");
        }
        assert!(!good.is_empty(), "{kib} KiB were too little for one process");
        // Threads end just after the last event of their process, and give their memory back then.
        let show = "echo \"$GLIBC_TUNABLES$A2E_PROC_SET_TUNABLES\"";
        let mut again = None;
        let starts = || {
            again = host.proc_or_error(&["sh", "-c", show], json!({})).ok();
            again.is_some()
        };
        assert!(system::eventually(common::PATIENCE, starts), "{kib} KiB: no process after those were killed");
        let again = again.unwrap();
        assert_eq!(payload(&host.terminal(&again)), json!({"code": 0}));
        assert_eq!(host.text(&again, "stdout"), "\n", "a child inherits what the host has set for itself");
        host.finish();
    }
}

#[test]
fn arguments_that_are_too_long_are_named_so() {
    let mut host = Host::start(&[]);
    let words = host.try_spawn(&["true", &"x".repeat(3 << 20)], json!({}))["error"].as_str().unwrap().to_owned();
    assert!(words.starts_with("spawn_failed: ") && words.contains("Argument list too long"), "{words}");
    let proc = host.spawn(&["true"]);
    host.terminal(&proc);
    host.finish();
}

#[test]
fn a_program_that_is_being_written_is_tried_again_briefly() {
    let file = std::env::temp_dir().join(format!("a2e-proc-busy-{}", std::process::id()));
    fs::copy("/bin/true", &file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = file.to_str().unwrap();
    let writer = File::options().append(true).open(&file).unwrap();
    let mut host = Host::start(&["--allow", path]);
    let words = host.try_spawn(&[path], json!({}))["error"].as_str().unwrap().to_owned();
    assert!(words.starts_with("spawn_failed: ") && words.contains("busy"), "{words}");
    // Closed while the host tries: now it starts.
    let id = host.send("proc/spawn/req", json!({"cmd": [path]}));
    drop(writer);
    assert_eq!(host.answer(&id)["ok"], json!(true));
    host.finish();
    fs::remove_file(file).unwrap();
}

#[test]
fn a_program_or_directory_that_has_gone_is_named() {
    let dir = std::env::temp_dir().join(format!("a2e-proc-gone-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let program = dir.join("tool");
    fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = program.to_str().unwrap().to_owned();
    let mut host = Host::start(&["--allow", &path]);
    let mut words = |fields| host.try_spawn(&[&path], fields)["error"].as_str().unwrap().to_owned();
    let interpreter = words(json!({}));
    assert!(interpreter.starts_with("spawn_failed: ") && interpreter.contains("interpreter"), "{interpreter}");
    fs::remove_file(&program).unwrap();
    assert!(words(json!({})).starts_with("program_not_found: "));
    let cwd = dir.to_str().unwrap().to_owned();
    fs::remove_dir_all(&dir).unwrap();
    assert!(words(json!({"cwd": cwd})).starts_with("cwd_not_found: "));
    host.finish();
}
