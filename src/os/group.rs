//! Whether anybody but a dead leader is left in a process group. The engine asks while it waits out a grace period.

#[cfg(target_os = "linux")]
use std::collections::HashSet;
#[cfg(target_os = "linux")]
use std::time::Instant;

#[cfg(target_os = "linux")]
use parking_lot::Mutex;
use rustix::process::Pid;

/// Whether the group holds a process that is neither dead nor a zombie.
///
/// `kill(-group, 0)` cannot tell: it counts the unreaped leader, which must stay unreaped so that the group's id cannot
/// pass to somebody else. So the process table is read; if it cannot be (no descriptor is free), somebody may live, and the
/// grace period is waited out. It is read only after a leader has died of a request, never on the way of a process that ends
/// by itself, and once for all who ask at the same time.
#[cfg(target_os = "linux")]
pub fn has_live_members(group: Pid) -> bool {
    let asked = Instant::now();
    // Held while the table is read: whoever waits for it gets the answer of a reading that began after it had asked.
    let mut census = CENSUS.lock();
    if census.began.is_none_or(|began| began < asked) {
        *census = Census { began: Some(Instant::now()), live_groups: read_live_groups() };
    }
    let group = group.as_raw_nonzero().get();
    census.live_groups.as_ref().is_none_or(|groups| groups.contains(&group))
}

#[cfg(target_os = "linux")]
static CENSUS: Mutex<Census> = Mutex::new(Census { began: None, live_groups: None });

/// The groups that had live members when the process table was last read.
#[cfg(target_os = "linux")]
struct Census {
    began: Option<Instant>,
    /// `None` if it could not be read.
    live_groups: Option<HashSet<i32>>,
}

#[cfg(target_os = "linux")]
fn read_live_groups() -> Option<HashSet<i32>> {
    let mut groups = HashSet::new();
    for entry in std::fs::read_dir("/proc").ok()? {
        let entry = entry.ok()?;
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        match std::fs::read(entry.path().join("stat")) {
            Ok(stat) => groups.extend(live_member_of(&stat)),
            Err(e) if is_nobody(&e) => {}
            Err(_) => return None,
        }
    }
    Some(groups)
}

/// Whether a process has left between the listing and the reading, or is a stranger's that may not be looked at. Any other
/// error says nothing about it.
#[cfg(target_os = "linux")]
fn is_nobody(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM))
}

/// The group of a process that lives, from its `/proc/PID/stat`: `pid (name) state parent group …`, where the name may hold
/// anything. One whose main thread alone has ended is called a zombie there, but has more threads than that one.
#[cfg(target_os = "linux")]
fn live_member_of(stat: &[u8]) -> Option<i32> {
    let end_of_name = stat.iter().rposition(|&b| b == b')')?;
    let rest = String::from_utf8_lossy(&stat[end_of_name + 1..]);
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(18).collect();
    let is_dead = matches!(*fields.first()?, "Z" | "X" | "x");
    let threads: u32 = fields.get(17).and_then(|field| field.parse().ok()).unwrap_or(1);
    let group = fields.get(2)?.parse().ok()?;
    (!is_dead || threads > 1).then_some(group)
}

/// Where there is no process table to read, the leader's own death is taken for the group's: what is left of it gets
/// SIGKILL at once instead of after the grace period.
#[cfg(not(target_os = "linux"))]
pub fn has_live_members(_group: Pid) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::live_member_of;

    #[test]
    fn a_stat_line_is_read_past_any_name() {
        let rows: [(&[u8], Option<i32>); 8] = [
            (b"12 (py) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0", Some(7)),
            (b"12 (py) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0", None),
            (b"12 (sleep) S 1 7 8 0 -1", Some(7)),
            (b"12 (a) Z 1 (b) R 3 7 9", Some(7)),
            (b"12 (sleep) Z 1 7 7 0 -1", None),
            (b"12 (\xff\xfe) T 1 7 7", Some(7)),
            (b"12 (sleep) S", None),
            (b"", None),
        ];
        for (line, expected) in rows {
            assert_eq!(live_member_of(line), expected, "{}", String::from_utf8_lossy(line));
        }
    }
}
