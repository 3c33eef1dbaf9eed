//! The log on standard error, for `--log`. One thread, `log`, writes; whoever says something never waits for it.
//!
//! Agents that start a host often never read its standard error: a full pipe there must not hold a request up. So lines that
//! find no room are dropped, and counted.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use a2e_proc::log::{Level, Log};
use crossbeam_channel::{Sender, bounded};

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

enum Message {
    /// A line, and how many before it found no room.
    Line(String, u64),
    /// All that came before is written: say so.
    Flush(Sender<()>),
}

/// Has what was said written when it is dropped, at the end of the program; but not for ever, should nobody read it.
pub struct Flush(Sender<Message>);

/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_millis(200);

impl Drop for Flush {
    fn drop(&mut self) {
        let (written, is_written) = bounded(1);
        if self.0.send_timeout(Message::Flush(written), LAST_LINES).is_ok() {
            let _ = is_written.recv_timeout(LAST_LINES);
        }
    }
}

/// A log on standard error. The thread ends with the program, or when the last copy of the log is dropped.
pub fn to_stderr(level: Level) -> Result<(Log, Flush), Complaint> {
    let (lines, waiting) = bounded::<Message>(WAITING);
    let lost = AtomicU64::new(0);
    let write = move || {
        let mut stderr = std::io::stderr();
        for message in waiting {
            let (line, lost) = match message {
                Message::Line(line, lost) => (line, lost),
                Message::Flush(written) => {
                    let _ = written.send(());
                    continue;
                }
            };
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
    let flush = Flush(lines.clone());
    let log = Log::new(level, move |level, words| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let level = match level {
            Level::Error => "error",
            Level::Info => "info",
            Level::Debug => "debug",
        };
        let line = one_line(&format!("a2e-proc {now:.3} {level}: {words}"));
        let before = lost.swap(0, Ordering::Relaxed);
        if lines.try_send(Message::Line(line, before)).is_err() {
            lost.fetch_add(before + 1, Ordering::Relaxed);
        }
    });
    Ok((log, flush))
}
