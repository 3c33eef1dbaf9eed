//! What listening takes that the standard library lacks: private socket files, files left behind, keep-alive.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt;
use rustix::process::umask;

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
/// # Errors
/// When somebody listens there, something else than a socket is there, or the system refuses.
pub fn listen_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _lock = {
        let folder = File::open(folder)?;
        flock(&folder, FlockOperation::LockExclusive)?;
        folder
    };
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            Err(e) => return Err(e),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there")),
        },
    }
    // The mode of a socket file is what the mask leaves of it, from its first moment on.
    let before = umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    let listener = listener?;
    let meta = std::fs::symlink_metadata(path)?;
    Ok((listener, SocketFile { path: path.into(), identity: (meta.dev(), meta.ino()) }))
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

/// Ends a TCP connection whose other side does not answer the system any more, after about a minute of silence.
///
/// # Errors
/// When the system refuses the option.
pub fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(&socket, 3)?;
    // The same for what has been written and is not acknowledged.
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(&socket, 60_000)?;
    Ok(())
}
