//! What a host under test leaves behind. Every process of a case has the case's mark in its environment, unless the host keeps
//! its variables from it; when the case is over, whoever still has it is killed, so that one host's fault does not slow down the
//! cases after it. Asked by `program`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that holds the mark.
pub const VARIABLE: &str = "A2E_CONFORM_CASE";

/// A mark that no other case of any run has while this one goes on.
pub fn fresh_mark() -> String {
    static CASES: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), CASES.fetch_add(1, Ordering::Relaxed))
}

/// Kills every process that has this mark, and those that they have started meanwhile.
#[cfg(target_os = "linux")]
pub fn kill_marked(mark: &str) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    let setting = format!("{VARIABLE}={mark}");
    let is_marked = |pid: i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&byte| byte == 0).any(|variable| variable == setting.as_bytes())
    };
    // One that starts others faster than this is left alone.
    for _ in 0..10 {
        let Ok(entries) = std::fs::read_dir("/proc") else { return };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut killed = false;
        for pid in pids.filter(|&pid| is_marked(pid)) {
            let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
                continue;
            };
            // The id may have passed to somebody else before the handle was opened, but not since.
            if is_marked(pid) {
                killed |= pidfd_send_signal(&handle, Signal::KILL).is_ok();
            }
        }
        if !killed {
            return;
        }
    }
}

/// Elsewhere nobody says what another process's variables are.
#[cfg(not(target_os = "linux"))]
pub fn kill_marked(_mark: &str) {}
