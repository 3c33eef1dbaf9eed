//! Which entry a connection comes from: one whose process has opened it, or one that descends from it. It is not taken on its word.

use super::{Desk, Refused, Target};
use crate::os;

/// Whether a process descends from a desk, or from what one has started, as far as the system tells: one of those that it comes
/// from was started with the variable by which such a process knows its entry, or is this very program. What has cut itself off
/// from its parents and its environment is not told apart from anybody else's.
#[must_use]
pub fn is_managed(pid: u32) -> bool {
    let is_set =
        |environment: Vec<u8>| environment.split(|&byte| byte == 0).any(|variable| variable.starts_with(VARIABLE));
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(std::process::id());
    os::lineage(pid).into_iter().any(|ancestor| {
        std::fs::read(format!("/proc/{ancestor}/environ")).is_ok_and(is_set)
            || (ancestor != pid && own.is_some() && program(ancestor) == own)
    })
}

/// [`super::ID_VARIABLE`] as it stands in an environment.
const VARIABLE: &[u8] = b"A2E_PROC_ID=";

impl Desk {
    /// The entry that the process with this id belongs to, if it is one of this desk's.
    pub fn caller(&self, pid: u32) -> Option<u64> {
        let line = os::lineage(pid);
        let state = self.shared.state.lock();
        let leads = |id: &u32| {
            let of = |entry: &&super::Entry| entry.terminal.as_ref().is_some_and(|terminal| terminal.pid() == *id);
            state.entries.values().find(of).map(|entry| entry.id)
        };
        // The nearest comes first.
        line.iter().find_map(leads)
    }

    /// The ports at which an entry's process and its descendants listen.
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn ports(&self, target: &Target) -> Result<Vec<os::Port>, Refused> {
        let pid = self.view(target)?.pid;
        Ok(pid.map(os::listening).unwrap_or_default())
    }
}
