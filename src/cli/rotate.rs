//! A file that lines are appended to, each by one `write`, and that is rotated as Python's `RotatingFileHandler` does, which the
//! published SDK uses: FILE becomes FILE.1, FILE.1 becomes FILE.2, and the oldest goes. Used by `audit`, on its thread.
//!
//! A file that was moved, removed or could not be opened is looked for again with every line.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// When a file is rotated.
#[derive(Clone, Copy)]
pub struct Rotation {
    /// The most bytes of a file; 0 means that it is never rotated.
    pub max_bytes: u64,
    /// How many old files are kept; 0 means the same.
    pub keep: u32,
}

/// A file under its name.
pub struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    /// `None` if it could not be opened again.
    file: Option<File>,
    /// Which file it is, whatever its name is now: device and inode.
    identity: (u64, u64),
    /// Its last line is not whole: the disk was full.
    torn: bool,
}

/// What came of a line.
pub struct Appended {
    /// Whether the file could be rotated, if it was due; if not, the line goes to the old one.
    pub rotated: io::Result<()>,
    /// Whether the whole line is in the file.
    pub written: io::Result<()>,
}

impl RotatingFile {
    /// Opens the file, or makes it, readable by its owner alone.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let mut this = Self { path: path.to_owned(), rotation, file: None, identity: (0, 0), torn: false };
        this.reopen()?;
        Ok(this)
    }

    /// Appends one line, which ends with a newline.
    pub fn append(&mut self, line: &[u8]) -> Appended {
        let rotated = match self.find() {
            Ok(there) if self.is_due(&there, line) => self.rotate(),
            Ok(_) => Ok(()),
            Err(e) => return Appended { rotated: Ok(()), written: Err(e) },
        };
        Appended { rotated, written: self.write(line) }
    }

    /// Sees to it that the open file is the one of that name.
    fn find(&mut self) -> io::Result<Metadata> {
        match fs::metadata(&self.path) {
            Ok(there) if self.file.is_some() && identity(&there) == self.identity => Ok(there),
            _ => self.reopen(),
        }
    }

    fn reopen(&mut self) -> io::Result<Metadata> {
        self.file = None;
        let file = open_file(&self.path)?;
        let there = file.metadata()?;
        self.identity = identity(&there);
        self.file = Some(file);
        self.torn = false;
        Ok(there)
    }

    /// An empty file is never rotated, and neither is what is no file: a device, a pipe.
    fn is_due(&self, there: &Metadata, line: &[u8]) -> bool {
        let Rotation { max_bytes, keep } = self.rotation;
        let length = there.len();
        max_bytes > 0 && keep > 0 && there.is_file() && length > 0 && length + line.len() as u64 >= max_bytes
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.rotation.keep).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        fs::rename(&self.path, self.numbered(1))?;
        self.reopen().map(drop)
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let mended = if self.torn { [b"\n", line].concat() } else { Vec::new() };
        let bytes = if self.torn { &mended } else { line };
        let count = loop {
            match file.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        // The rest would stand apart if another host came in between, and the disk has no room for it anyway.
        if let Some(last) = bytes[..count].last() {
            self.torn = *last != b'\n';
        }
        if count == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
}

fn identity(there: &Metadata) -> (u64, u64) {
    (there.dev(), there.ino())
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Whether [`RotatingFile::open`] would take this file. One that is not there is made and taken away again: nothing else tells.
pub fn probe(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        // To open a pipe could wait for its other end.
        Ok(there) if there.is_file() || there.is_dir() => open_file(path).map(drop),
        Ok(_) => Ok(()),
        Err(_) => open_file(path).and_then(|_| fs::remove_file(path)),
    }
}
