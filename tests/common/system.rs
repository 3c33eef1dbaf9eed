//! What the system says of processes: who lives, who is a zombie, what a host holds.

use std::fs;
use std::time::{Duration, Instant};

/// Processes that live (zombies do not) and have `marker` in their command line.
pub fn alive(marker: &str) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| pid != own && state(pid).is_some_and(|state| state != 'Z') && has(pid, marker)).collect()
}

fn has(pid: i32, marker: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
}

/// The state letter of a process.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Looks until `done`, for at most `within`. The system has no event for this.
pub fn eventually(within: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asserts that nobody with this marker lives any more, soon.
pub fn assert_gone(marker: &str) {
    assert_gone_within(marker, Duration::from_secs(2));
}

/// The same, but not so soon.
pub fn assert_gone_within(marker: &str, within: Duration) {
    assert!(eventually(within, || alive(marker).is_empty()), "still there: {:?}", alive(marker));
}

/// What a process holds.
#[derive(Debug, Clone, Copy)]
pub struct Holdings {
    pub descriptors: usize,
    pub threads: usize,
    pub zombies: usize,
}

impl Holdings {
    /// Whether nothing has come to these. Fewer is well: what was counted first may have been on its way out, since the
    /// threads of a process end just after its last event is sent.
    pub fn is_within(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors && self.threads <= before.threads && self.zombies <= before.zombies
    }
}

pub fn holdings(pid: i32) -> Holdings {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let zombies = children(pid).into_iter().filter(|&child| state(child) == Some('Z')).count();
    Holdings { descriptors: count("fd"), threads: count("task"), zombies }
}

/// The children of a process, of all its threads.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads.flat_map(|thread| of_thread(thread).split_whitespace().flat_map(str::parse).collect::<Vec<i32>>()).collect()
}

/// Resident memory, in KiB.
pub fn rss(pid: i32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most that it ever was, in KiB.
pub fn peak_rss(pid: i32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: i32, which: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time used so far, in clock ticks of 1/100 s.
pub fn cpu_ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
