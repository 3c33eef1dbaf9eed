//! Trying a program out: how it ends, and what it says on standard error, within a time. The engine asks at its start.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use wait_timeout::ChildExt;

/// Runs a command to its end, without input or output.
///
/// # Errors
/// When it does not start, or does not end within `patience`: then it is killed.
pub fn try_out(mut command: Command, patience: Duration) -> io::Result<(ExitStatus, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let Some(status) = child.wait_timeout(patience)? else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it does not end within {patience:?}")));
    };
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What it has said is there; whoever it may have left behind with the pipe is not waited for.
        let pending = super::pending_bytes(&stderr).unwrap_or(0);
        let _ = stderr.by_ref().take(pending).read_to_end(&mut said);
    }
    Ok((status, String::from_utf8_lossy(&said).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn how_it_ends_and_what_it_says() {
        let (status, said) = try_out(shell("echo no >&2; exit 3"), Duration::from_secs(30)).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(3), "no\n"));
        // Somebody who keeps the pipe is not waited for.
        assert!(try_out(shell("sleep 5 & exit 0"), Duration::from_secs(30)).unwrap().0.success());
        let error = try_out(shell("exec sleep 1000"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
