//! Which launcher cuts commands off the network on this host. The policy asks once, when the host starts.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use super::wrap::{Launcher, unfit};
use crate::model::Failure;
use crate::os;

/// The launchers, in the order in which they are tried. Each gives a command a network namespace of its own, and no way back:
/// a superuser's command behind a bare `unshare --net` could enter the host's namespace again (`setns`). The first has a user
/// namespace against that, without the second; the other does without the privileges that it takes.
const WAYS: [&[&str]; 2] = [
    &["unshare", "--map-current-user", "--net", "--"],
    &[
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--unshare-net",
        "--cap-drop",
        "CAP_SYS_ADMIN",
        "--cap-drop",
        "CAP_SYS_PTRACE",
        "--",
    ],
];

/// How long a launcher may take to start `true` and end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first launcher on `path` behind which `true` runs.
///
/// # Errors
/// When there is none; it says what each of them lacks.
pub fn launcher(path: &OsStr) -> Result<Launcher, Failure> {
    let mut faults = Vec::new();
    for words in WAYS {
        match try_way(words, path) {
            Ok(launcher) => return Ok(launcher),
            Err(fault) => faults.push(fault),
        }
    }
    Err(unfit(format!(
        "network_disabled: commands cannot be cut off the network here: {}; install util-linux (unshare) or bubblewrap (bwrap), \
         and let this user make namespaces (sysctl user.max_user_namespaces, or the container's security profile)",
        faults.join("; ")
    )))
}

/// The launcher of these words, or why it cannot be used.
fn try_way(words: &[&str], path: &OsStr) -> Result<Launcher, String> {
    let name = words[0];
    let find = |name| os::find_program(name, path).ok_or_else(|| format!("{name} is not on the host's PATH"));
    let (program, nothing) = (find(name)?, find("true")?);
    let mut probe = Command::new(&program);
    probe.args(&words[1..]).arg(nothing);
    let (status, said) = os::try_out(probe, PATIENCE).map_err(|e| format!("{name} does not start: {e}"))?;
    if status.success() {
        return Ok(Launcher::by_file(program, words.iter().map(ToString::to_string).collect()));
    }
    Err(match said.lines().next() {
        Some(line) => format!("{name} fails: {line}"),
        None => format!("{name} fails: {status}"),
    })
}
