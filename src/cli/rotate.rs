//! A file that lines are appended to, each by one `write`, and that is rotated as Python's `RotatingFileHandler` does, which the
//! published SDK uses: FILE becomes FILE.1, FILE.1 becomes FILE.2, and the oldest goes. Used by `audit`, on its thread.
//!
//! A file that was moved, removed or could not be opened is looked for again with every line.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

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
        // Another run, or another host, may have been cut off in the middle of a line.
        self.torn = there.is_file() && ends_torn(&self.path, there.len());
        Ok(there)
    }

    /// An empty file is never rotated, and neither is what is no file: a device, a pipe.
    fn is_due(&self, there: &Metadata, line: &[u8]) -> bool {
        let Rotation { max_bytes, keep } = self.rotation;
        let length = there.len();
        max_bytes > 0 && keep > 0 && there.is_file() && length > 0 && length + line.len() as u64 >= max_bytes
    }

    /// The file gives up its name first: if that cannot be done, the old ones stay where they are, however often it is tried.
    fn rotate(&mut self) -> io::Result<()> {
        let aside = self.numbered(0);
        fs::rename(&self.path, &aside)?;
        let moved = self.shift().and_then(|()| fs::rename(&aside, self.numbered(1)));
        if moved.is_err() {
            // If this fails too, the file is looked for with the next line, and begun anew.
            let _ = fs::rename(&aside, &self.path);
        }
        moved.and_then(|()| self.reopen().map(drop))
    }

    /// FILE.1 becomes FILE.2, and so on.
    fn shift(&self) -> io::Result<()> {
        for number in (1..self.rotation.keep).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
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

/// Whether a file of this length ends in the middle of a line. One that cannot be read is taken to be whole.
fn ends_torn(path: &Path, length: u64) -> bool {
    use std::os::unix::fs::FileExt;
    let mut last = [b'\n'];
    let read = |file: File| file.read_exact_at(&mut last, length.saturating_sub(1));
    length > 0 && File::open(path).and_then(read).is_ok() && last != [b'\n']
}

/// Whether [`RotatingFile::open`] would take this file. Nothing is made or changed for that.
pub fn probe(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        // To open a pipe could wait for its other end.
        Ok(there) if there.is_file() || there.is_dir() => open_file(path).map(drop),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // A link to a file that is not there yet is followed when the file is opened.
            let target = fs::read_link(path).map_or_else(|_| path.to_owned(), |to| path.with_file_name(to));
            let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !fs::metadata(folder)?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            Ok(access(folder, AccessFlags::W_OK | AccessFlags::X_OK)?)
        }
        Err(e) => Err(e),
    }
}
