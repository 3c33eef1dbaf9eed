//! A folder for programs that a test puts on a host's `PATH`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Goes when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("a2e-proc-folder-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Puts a script for `/bin/sh` there.
    pub fn script(&self, name: &str, text: &str) -> &Self {
        fs::write(self.file(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(self.file(name), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Puts a link to the program of that name there. False if there is none.
    pub fn link(&self, name: &str) -> bool {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
        found.is_some_and(|file| symlink(file, self.file(name)).is_ok())
    }

    /// A `PATH` of this folder, then the usual ones.
    pub fn first(&self) -> String {
        format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap())
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind is nobody's fault.
        let _ = fs::remove_dir_all(&self.0);
    }
}
