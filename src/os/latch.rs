//! Something that happens once, for threads that wait on descriptors (`poll`): shut until it is opened, and open from then on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub use imp::Latch;

#[cfg(target_os = "linux")]
mod imp {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::OwnedFd;

    /// One descriptor: what a process costs in descriptors, every later spawn pays for, since the system copies the table of them
    /// for the child.
    pub struct Latch(OwnedFd);

    impl Latch {
        /// A shut one.
        ///
        /// # Errors
        /// When the system gives no descriptor.
        pub fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// Opens it.
        pub fn open(&self) {
            // Fails only if the count is at its end, and then it is open.
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }
    }

    impl AsFd for Latch {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::*;
    use parking_lot::Mutex;
    use std::io::{PipeReader, PipeWriter};

    /// A pipe whose other end is closed to open it.
    pub struct Latch(PipeReader, Mutex<Option<PipeWriter>>);

    impl Latch {
        /// A shut one.
        ///
        /// # Errors
        /// When the system gives no descriptors.
        pub fn new() -> io::Result<Self> {
            let (reader, writer) = io::pipe()?;
            Ok(Self(reader, Mutex::new(Some(writer))))
        }

        /// Opens it.
        pub fn open(&self) {
            self.1.lock().take();
        }
    }

    impl AsFd for Latch {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn whoever_waits_is_woken_and_whoever_comes_later_does_not_wait() {
        let latch = Latch::new().unwrap();
        let is_open = |patience| crate::os::wait_readable(&latch, None, patience).unwrap().data;
        assert!(!is_open(Some(Duration::ZERO)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| is_open(None));
            latch.open();
            latch.open();
            assert!(waiting.join().unwrap());
        });
        assert!(is_open(None) && is_open(None));
    }
}
