//! The log on standard error, for `--log`. One thread, `log`, writes; whoever says something never waits for it.
//!
//! Agents that start a host often never read its standard error: a full pipe there must not hold a request up. So lines that
//! find no room are dropped, and counted.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use a2e_proc::log::{Level, Log};
use crossbeam_channel::bounded;

use super::Complaint;

/// Lines that may wait to be written.
const WAITING: usize = 1024;

/// The longest line that is logged, in bytes.
const LONGEST: usize = 2000;

/// What is said as one line of bounded length: agents' own words are in it.
fn one_line(words: &str) -> String {
    let shown = &words[..words.floor_char_boundary(LONGEST)];
    shown.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A log on standard error. The thread ends with the program, or when the last copy of the log is dropped.
pub fn to_stderr(level: Level) -> Result<Log, Complaint> {
    let (lines, waiting) = bounded::<String>(WAITING);
    let lost = Arc::new(AtomicU64::new(0));
    let lost_before = Arc::clone(&lost);
    let write = move || {
        let mut stderr = std::io::stderr();
        for line in waiting {
            let lost = lost_before.swap(0, Ordering::Relaxed);
            let gap =
                if lost > 0 { format!("a2e-proc: {lost} lines of the log were lost here\n") } else { String::new() };
            if stderr.write_all(format!("{gap}{line}\n").as_bytes()).is_err() {
                break;
            }
        }
    };
    thread::Builder::new()
        .name("log".into())
        .spawn(write)
        .map_err(|e| Complaint::failure(format!("could not start the log's thread: {e}")))?;
    Ok(Log::new(level, move |level, words| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let level = match level {
            Level::Error => "error",
            Level::Info => "info",
            Level::Debug => "debug",
        };
        let line = one_line(&format!("a2e-proc {now:.3} {level}: {words}"));
        if lines.try_send(line).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }))
}
