//! Which ports a process and those that it has started listen at, and from whom a process descends. The desk asks; the system
//! tells of both only through `/proc`.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::process::Pid;

use super::group::{self, Member};

/// A TCP port that is listened at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// The address of this machine at which it is; unspecified is all of them.
    pub address: IpAddr,
    /// The process that listens.
    pub pid: u32,
}

impl Port {
    /// Whether a client on this machine reaches it at `localhost`.
    pub fn is_local(&self) -> bool {
        self.address.is_loopback() || self.address.is_unspecified()
    }
}

/// Of the listing of processes no more generations are followed: it is read while they come and go.
const GENERATIONS: usize = 64;

/// The ports at which the leader of a session, the others in it, and their descendants listen, in order.
pub fn listening(leader: u32) -> Vec<Port> {
    let family = family(leader);
    let sockets = listening_sockets();
    let mut ports: Vec<Port> = Vec::new();
    for &pid in family.iter().filter(|_| !sockets.is_empty()) {
        let held: HashSet<u64> = sockets_of(pid).collect();
        let of_pid = sockets.iter().filter(|(inode, ..)| held.contains(inode));
        ports.extend(of_pid.map(|&(_, address, number)| Port { number, address, pid: pid.unsigned_abs() }));
    }
    ports.sort_unstable();
    // A socket that several hold, as a server and its workers do, is one.
    ports.dedup_by_key(|port| (port.number, port.address));
    ports
}

/// The ids of a process, of those it descends from, and of the sessions of all of them: a process whose parent has ended is
/// handed on to another, but stays in its session.
pub fn lineage(pid: u32) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut next = i32::try_from(pid).ok().and_then(Pid::from_raw);
    for _ in 0..GENERATIONS {
        let Some(member) = next.and_then(group::live_member) else { break };
        let own = next.map_or(0, |pid| pid.as_raw_nonzero().get());
        ids.extend([own, member.session].iter().filter(|&&id| id > 0).map(|id| id.unsigned_abs()));
        next = Pid::from_raw(member.parent).filter(|parent| parent.as_raw_nonzero().get() > 1);
    }
    ids
}

/// The leader, who is in its session, and all who descend from them.
fn family(leader: u32) -> HashSet<i32> {
    let Ok(leader) = i32::try_from(leader) else { return HashSet::new() };
    let all: HashMap<i32, Member> = group::processes()
        .into_iter()
        .flatten()
        .filter_map(|pid| Some((pid.as_raw_nonzero().get(), group::live_member(pid)?)))
        .collect();
    let mut family: HashSet<i32> =
        all.iter().filter(|&(&pid, member)| pid == leader || member.session == leader).map(|(&pid, _)| pid).collect();
    for _ in 0..GENERATIONS {
        let children = all.iter().filter(|(pid, member)| family.contains(&member.parent) && !family.contains(pid));
        let children: Vec<i32> = children.map(|(&pid, _)| pid).collect();
        if children.is_empty() {
            break;
        }
        family.extend(children);
    }
    family
}

/// The inodes of the sockets that a process holds.
fn sockets_of(pid: i32) -> impl Iterator<Item = u64> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

/// Every TCP socket of this machine that listens: its inode, address and port.
fn listening_sockets() -> Vec<(u64, IpAddr, u16)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(listening_socket).collect()
}

/// One line of `/proc/net/tcp`: `sl local_address rem_address st … uid timeout inode …`, with the address as words of 32 bits in
/// the byte order of the machine.
fn listening_socket(line: &str) -> Option<(u64, IpAddr, u16)> {
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != LISTENS {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    Some((fields.get(9)?.parse().ok()?, address_of(address)?, u16::from_str_radix(port, 16).ok()?))
}

fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for at in 0..4 {
                octets[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(octets).to_canonical())
        }
        _ => None,
    }
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0 100 0";
        assert_eq!(listening_socket(v4), Some((12345, "127.0.0.1".parse().unwrap(), 8080)));
        let v6 = "   1: 00000000000000000000000001000000:0016 0:0 0A 0:0 0:0 0 0 0 77 1";
        assert_eq!(listening_socket(v6), Some((77, "::1".parse().unwrap(), 22)));
        for nothing in [
            "",
            "0: 0100007F:1F90 0:0 01 0:0 0:0 0 0 0 5",
            "0: xyz:1 0:0 0A 0 0 0 0 0 5",
            "0: é100007:1 0 0A 0 0 0 0 0 5",
        ] {
            assert_eq!(listening_socket(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_port_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.local_addr().unwrap().port();
        let found = listening(std::process::id());
        assert!(found.iter().any(|port| port.number == number && port.is_local()), "{found:?}");
    }

    #[test]
    fn a_process_descends_from_this_one() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let line = lineage(child.id());
        assert!(line.contains(&child.id()) && line.contains(&std::process::id()), "{line:?}");
        assert!(lineage(0).is_empty() && lineage(u32::MAX).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
