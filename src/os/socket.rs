//! What listening takes that the standard library lacks: private socket files, files left behind, keep-alive.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};

/// A socket file that goes when this is dropped, if it is still the one that was made.
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// Listens at `path`, for this user alone (mode 0600). A socket file that a host which is gone has left there is replaced.
///
/// Race: two hosts find the same file left behind.
/// 1. Both see that nobody listens.
/// 2. One replaces the file and listens.
/// 3. The other takes that one's new file for the old one, and replaces it: the first listens at no path any more.
///
/// So whoever looks holds a lock on the folder until it listens.
///
/// The file has its mode before anybody can connect to it: until a socket listens, the system refuses.
///
/// # Errors
/// When somebody listens there, something else than a socket is there, another program keeps the folder locked, or the
/// system refuses.
pub fn listen_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _lock = lock(folder)?;
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"));
        }
        Ok(_) => match try_connect(path) {
            Err(Errno::CONNREFUSED) => std::fs::remove_file(path)?,
            // One that is too busy to accept listens too.
            Ok(()) | Err(Errno::AGAIN) => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there"));
            }
            Err(e) => return Err(e.into()),
        },
    }
    let socket = new_socket(SocketFlags::CLOEXEC)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let meta = std::fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.into(), identity: (meta.dev(), meta.ino()) };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
}

/// Agents that may wait to be accepted; the system has a bound of its own.
const BACKLOG: i32 = 128;

/// How long another program may keep the folder locked. A host that begins to listen needs a moment.
const LOCKED: Duration = Duration::from_secs(2);

/// Anybody who can see the folder can lock it, so it is not waited for without end.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    let start = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::AGAIN) if start.elapsed() < LOCKED => std::thread::sleep(Duration::from_millis(10)),
            Err(Errno::AGAIN) => {
                let words = format!("another program keeps {} locked (flock)", folder.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, words));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Connects as far as that takes no waiting: one that does not accept must not hold this up.
fn try_connect(path: &Path) -> Result<(), Errno> {
    connect(new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?, &SocketAddrUnix::new(path)?)
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |meta: std::fs::Metadata| (meta.dev(), meta.ino()) == self.identity;
        if std::fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // Somebody else may have removed it just now; then it is gone as it should be.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The process that has connected a Unix socket, or listened at it, where the system tells.
#[cfg(target_os = "linux")]
pub fn peer_pid(socket: impl AsFd) -> Option<u32> {
    sockopt::socket_peercred(socket).ok().map(|peer| peer.pid.as_raw_nonzero().get().unsigned_abs())
}

/// Elsewhere it does not.
#[cfg(not(target_os = "linux"))]
pub fn peer_pid(_socket: impl AsFd) -> Option<u32> {
    None
}

/// Ends a TCP connection whose other side does not answer the system any more, after about a minute of silence; if something
/// has been written that is not acknowledged, when the system gives up (`tcp_retries2`). `TCP_USER_TIMEOUT` would be quicker
/// there, but ends the connection of an agent that lives and does not read, too, which it may (R18).
///
/// # Errors
/// When the system refuses the option.
pub fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(&socket, 3)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn an_agent_that_does_not_read_is_no_agent_that_has_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        keep_alive(&socket).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 0);
    }

    #[test]
    fn a_folder_that_others_keep_locked_is_an_error_in_bounded_time() {
        let folder = std::env::temp_dir().join(format!("a2e-proc-locked-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let held = lock(&folder).unwrap();
        let error = listen_unix(&folder.join("s")).err().unwrap();
        assert!(error.to_string().contains("locked"), "{error}");
        drop(held);
        let (_listener, file) = listen_unix(&folder.join("s")).unwrap();
        assert_eq!(std::fs::metadata(folder.join("s")).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn one_who_listens_and_does_not_accept_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("a2e-proc-busy-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("s");
        let (listener, file) = listen_unix(&path).unwrap();
        let waiting: Vec<_> = std::iter::repeat_with(|| {
            let socket = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).unwrap();
            connect(&socket, &SocketAddrUnix::new(&path).unwrap()).map(|()| socket)
        })
        .map_while(Result::ok)
        .collect();
        assert!(!waiting.is_empty());
        assert_eq!(listen_unix(&path).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        drop((listener, file));
        std::fs::remove_dir(&folder).unwrap();
    }
}
