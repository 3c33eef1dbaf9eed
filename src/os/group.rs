//! Whether anybody but a dead leader is left in a process group. The engine asks while it waits out a grace period.

use rustix::process::Pid;

/// Whether the group holds a process that is neither dead nor a zombie.
///
/// `kill(-group, 0)` cannot tell: it counts the unreaped leader, which must stay unreaped so that the group's id cannot
/// pass to somebody else. So the process table is read. It is read only after a leader has died of a request, never on
/// the way of a process that ends by itself.
#[cfg(target_os = "linux")]
pub fn has_live_members(group: Pid) -> bool {
    let Ok(table) = std::fs::read_dir("/proc") else {
        return false;
    };
    let group = group.as_raw_nonzero().get();
    table
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|entry| std::fs::read(entry.path().join("stat")).ok())
        .any(|stat| is_live_member(&stat, group))
}

/// Reads one `/proc/PID/stat`: `pid (name) state parent group …`, where the name may hold anything.
#[cfg(target_os = "linux")]
fn is_live_member(stat: &[u8], group: i32) -> bool {
    let Some(end_of_name) = stat.iter().rposition(|&b| b == b')') else {
        return false;
    };
    let rest = String::from_utf8_lossy(&stat[end_of_name + 1..]);
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next();
    let member_of = fields.nth(1).and_then(|field| field.parse::<i32>().ok());
    member_of == Some(group) && !matches!(state, Some("Z" | "X" | "x") | None)
}

/// Where there is no process table to read, the leader's own death is taken for the group's: what is left of it gets
/// SIGKILL at once instead of after the grace period.
#[cfg(not(target_os = "linux"))]
pub fn has_live_members(_group: Pid) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::is_live_member;

    #[test]
    fn a_stat_line_is_read_past_any_name() {
        let rows: [(&[u8], bool); 6] = [
            (b"12 (sleep) S 1 7 7 0 -1", true),
            (b"12 (a) Z 1 (b) R 3 7 9", true),
            (b"12 (sleep) Z 1 7 7 0 -1", false),
            (b"12 (sleep) S 1 8 7 0 -1", false),
            (b"12 (\xff\xfe) T 1 7 7", true),
            (b"", false),
        ];
        for (line, expected) in rows {
            assert_eq!(is_live_member(line, 7), expected, "{}", String::from_utf8_lossy(line));
        }
    }
}
