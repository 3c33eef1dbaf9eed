//! Whether anybody but a dead leader is left in a process group. The engine asks while it waits out a grace period.

#[cfg(target_os = "linux")]
use std::collections::HashSet;
#[cfg(target_os = "linux")]
use std::time::Instant;

#[cfg(target_os = "linux")]
use parking_lot::Mutex;
use rustix::process::Pid;
#[cfg(target_os = "linux")]
use rustix::process::{getpriority_pgrp, getpriority_process, setpriority_pgrp, setpriority_process};

/// Whether the group holds a process that is neither dead nor a zombie, beside its leader, which has left and is not reaped.
///
/// `kill(-group, 0)` cannot tell: it counts the leader, which must stay unreaped so that the group's id cannot pass to somebody
/// else. Reading the process table can, but takes longer the more processes the machine has; so the group is asked first for
/// something that all its members have ([`best_of_others`]), and the table is read only as far as that leaves a doubt. If it
/// cannot be read (no descriptor is free), somebody may live, and the grace period is waited out.
#[cfg(target_os = "linux")]
pub fn has_live_members(group: Pid) -> bool {
    let id = group.as_raw_nonzero().get();
    match best_of_others(group) {
        Ok(Others::None) => false,
        Ok(Others::OnlyWorst) => WORST_ONES.has(|live| live.groups.contains(&id)),
        Ok(Others::Some) | Err(_) => EVERYBODY.has(|live| live.groups.contains(&id)),
    }
}

/// Who is in a group beside its dead leader, dead or alive, as far as the system says at once.
#[cfg(target_os = "linux")]
enum Others {
    /// Somebody.
    Some,
    /// Nobody.
    None,
    /// Nobody but such as have the worst priority, perhaps.
    OnlyWorst,
}

/// The worst priority that a process can have.
#[cfg(target_os = "linux")]
const WORST: i32 = 19;

/// The one thing that the system says of all members of a group at once is the best priority among them. The dead leader counts
/// as well, so it is given the worst there is, and what is better then is somebody else's. If nobody's is, all are given the next
/// better one, and the leader the worst again: then that is told apart too. It takes a privilege, which containers may lack.
#[cfg(target_os = "linux")]
fn best_of_others(group: Pid) -> rustix::io::Result<Others> {
    setpriority_process(Some(group), WORST)?;
    // Anything else is a better one, or comes of a system that only seems to know the call.
    if getpriority_pgrp(Some(group))? != WORST {
        return Ok(Others::Some);
    }
    let were_set = setpriority_pgrp(Some(group), WORST - 1).is_ok();
    let all_were_given = were_set && getpriority_pgrp(Some(group))? == WORST - 1;
    setpriority_process(Some(group), WORST)?;
    if getpriority_pgrp(Some(group))? < WORST {
        // They were asked to end; until they do, they are what they were.
        let _ = setpriority_pgrp(Some(group), WORST);
        return Ok(Others::Some);
    }
    Ok(if all_were_given { Others::None } else { Others::OnlyWorst })
}

/// Whether anybody of the session lives; its leader has left and is not reaped.
#[cfg(all(target_os = "linux", feature = "mcp"))]
pub fn session_has_live_members(session: Pid) -> bool {
    let session = session.as_raw_nonzero().get();
    EVERYBODY.has(|live| live.sessions.contains(&session))
}

/// A reading of the process table, which serves all who ask at the same time.
#[cfg(target_os = "linux")]
struct Census {
    /// Only of processes that have the worst priority: which those are takes one call each, not a file.
    only_worst: bool,
    last: Mutex<Reading>,
}

#[cfg(target_os = "linux")]
struct Reading {
    began: Option<Instant>,
    /// `None` if the table could not be read.
    live: Option<Live>,
}

/// The groups and the sessions that had live members.
#[cfg(target_os = "linux")]
#[derive(Default)]
struct Live {
    groups: HashSet<i32>,
    sessions: HashSet<i32>,
}

#[cfg(target_os = "linux")]
static EVERYBODY: Census = Census::new(false);
#[cfg(target_os = "linux")]
static WORST_ONES: Census = Census::new(true);

#[cfg(target_os = "linux")]
impl Census {
    const fn new(only_worst: bool) -> Self {
        Self { only_worst, last: Mutex::new(Reading { began: None, live: None }) }
    }

    /// Whether that is so, among those that are counted.
    fn has(&self, is_so: impl FnOnce(&Live) -> bool) -> bool {
        let asked = Instant::now();
        // Held while the table is read: whoever waits for it gets the answer of a reading that began after it had asked.
        let mut last = self.last.lock();
        if last.began.is_none_or(|began| began < asked) {
            *last = Reading { began: Some(Instant::now()), live: self.read() };
        }
        last.live.as_ref().is_none_or(is_so)
    }

    fn read(&self) -> Option<Live> {
        let mut live = Live::default();
        for pid in processes()? {
            if self.only_worst && getpriority_process(Some(pid)) != Ok(WORST) {
                continue;
            }
            match read_stat(pid) {
                Ok(stat) => {
                    if let Some(member) = live_member_of(&stat) {
                        live.groups.insert(member.group);
                        live.sessions.insert(member.session);
                    }
                }
                Err(e) if is_nobody(&e) => {}
                Err(_) => return None,
            }
        }
        Some(live)
    }
}

/// Every process there is; `None` if they cannot be listed.
#[cfg(target_os = "linux")]
pub fn processes() -> Option<Vec<Pid>> {
    let pid_of = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        Some(entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw))
    };
    let all: Option<Vec<_>> = std::fs::read_dir("/proc").ok()?.map(pid_of).collect();
    Some(all?.into_iter().flatten().collect())
}

#[cfg(target_os = "linux")]
fn read_stat(pid: Pid) -> std::io::Result<Vec<u8>> {
    std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero()))
}

/// The group and the session of a process, if it lives.
#[cfg(all(target_os = "linux", feature = "mcp"))]
pub fn live_member(pid: Pid) -> Option<Member> {
    live_member_of(&read_stat(pid).ok()?)
}

/// Whether a process has left between the listing and the reading, or is a stranger's that may not be looked at. Any other
/// error says nothing about it.
#[cfg(target_os = "linux")]
fn is_nobody(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM))
}

/// What a process belongs to.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The process that started it, or that it was left to.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
}

/// What a process that lives belongs to, from its `/proc/PID/stat`: `pid (name) state parent group session …`, where the name may hold
/// anything. One whose main thread alone has ended is called a zombie there, but has more threads than that one.
#[cfg(target_os = "linux")]
fn live_member_of(stat: &[u8]) -> Option<Member> {
    let end_of_name = stat.iter().rposition(|&b| b == b')')?;
    let rest = String::from_utf8_lossy(&stat[end_of_name + 1..]);
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(18).collect();
    let is_dead = matches!(*fields.first()?, "Z" | "X" | "x");
    let threads: u32 = fields.get(17).and_then(|field| field.parse().ok()).unwrap_or(1);
    let number = |at: usize| fields.get(at)?.parse().ok();
    let member = Member { parent: number(1)?, group: number(2)?, session: number(3)? };
    (!is_dead || threads > 1).then_some(member)
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
        let rows: [(&[u8], Option<i32>); 9] = [
            (b"12 (py) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0", Some(7)),
            (b"12 (py) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0", None),
            (b"12 (sleep) S 1 7 8 0 -1", Some(7)),
            (b"12 (a) Z 1 (b) R 3 7 9 0", Some(7)),
            (b"12 (sleep) Z 1 7 7 0 -1", None),
            (b"12 (\xff\xfe) T 1 7 7", Some(7)),
            (b"12 (sleep) S 1 7", None),
            (b"12 (sleep) S", None),
            (b"", None),
        ];
        for (line, expected) in rows {
            assert_eq!(live_member_of(line).map(|member| member.group), expected, "{}", String::from_utf8_lossy(line));
        }
    }
}
