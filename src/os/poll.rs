//! Waiting on descriptors, and asking what they hold. The readers and writers of pipes call it, and the transports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Makes reads or writes on this end of a pipe return instead of wait. The other end is not affected.
///
/// # Errors
/// What the system says, on a descriptor that does not know the mode.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// What [`wait_readable`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// There is something to read, or the end.
    pub data: bool,
    /// `wake` is readable: its latch is open, or its other end closed.
    pub woken: bool,
}

/// Waits until `fd` can be read, or `wake` can, or `timeout` has passed (both false).
///
/// # Errors
/// What the system says to `poll`.
pub fn wait_readable(fd: impl AsFd, wake: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> io::Result<Ready> {
    wait(fd.as_fd(), PollFlags::IN, wake, timeout)
}

/// Waits until `fd` can be written, has lost its reader, or `wake` can be read.
///
/// # Errors
/// What the system says to `poll`.
pub fn wait_writable(fd: impl AsFd, wake: Option<BorrowedFd<'_>>) -> io::Result<Ready> {
    wait(fd.as_fd(), PollFlags::OUT, wake, None)
}

fn wait(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    wake: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        // With nothing to wake it the descriptor itself stands in its place, asking for nothing.
        let (waker, wake_flags) = wake.map_or((fd, PollFlags::empty()), |wake| (wake, PollFlags::IN));
        let mut fds = [PollFd::from_borrowed_fd(fd, flags), PollFd::from_borrowed_fd(waker, wake_flags)];
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut fds, left.as_ref()) {
            Ok(_) => {
                return Ok(Ready {
                    data: !fds[0].revents().is_empty(),
                    woken: wake.is_some() && !fds[1].revents().is_empty(),
                });
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether the other side of an input has gone, though there may be more to read. False where that cannot be told.
pub fn is_hung_up(fd: impl AsFd) -> bool {
    // Of a socket, the other side may have closed one direction only.
    #[cfg(target_os = "linux")]
    let closed = PollFlags::HUP | PollFlags::RDHUP;
    #[cfg(not(target_os = "linux"))]
    let closed = PollFlags::HUP;
    let mut fds = [PollFd::new(&fd, closed)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && fds[0].revents().intersects(closed)
}

/// Whether it is a pipe or a socket.
pub fn is_stream(fd: impl AsFd) -> bool {
    let kind = rustix::fs::fstat(fd).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket))
}

/// Whether a write of a pipe's or a socket's least size would return at once, be it with an error.
pub fn is_writable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && !fds[0].revents().is_empty()
}

/// How many bytes can be read from a pipe now.
///
/// # Errors
/// What the system says, on a descriptor that does not know.
pub fn pending_bytes(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(fd)?)
}
