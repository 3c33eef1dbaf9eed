//! Where a project's files are: what is remembered of it, what it is trusted with, and the desk's socket. Talks to the file
//! system alone; the environment comes from the caller.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::ids::stable_id;
use crate::os;

/// The longest path that a socket may have, in bytes: the system's, without the NUL.
const MOST_SOCKET: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The most of a project's own name that its folder's name shows, in characters.
const MOST_NAME: usize = 40;

/// The files of one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The project's folder, without links in it.
    pub root: PathBuf,
    /// The folder of what is kept for the project, which is this user's alone.
    pub state: PathBuf,
    /// Where the project's desk listens.
    pub socket: PathBuf,
    /// The file of agent tools, which all projects of this user share.
    pub agents: PathBuf,
    user: u32,
}

impl Paths {
    /// Those of the project at `root`, for the user with the id `user`, in the environment `env`. Nothing is made yet: see
    /// [`Paths::prepare`].
    ///
    /// What is kept goes under `XDG_STATE_HOME`, or `HOME`; the socket under `XDG_RUNTIME_DIR` if that is a directory of this
    /// user, as somebody else's could be taken away from under it.
    ///
    /// # Errors
    /// When `root` is not a directory, the environment names no folder to keep things in, or the socket's path would be
    /// too long. The words say what to set.
    pub fn of(root: &Path, user: u32, env: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let shown = root.display();
        let root = fs::canonicalize(root).map_err(|e| format!("{shown}: {e}"))?;
        if !root.is_dir() {
            return Err(format!("{shown}: not a directory"));
        }
        // The rules of the XDG directories: a path that is not absolute counts as none.
        let folder = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        let home = home.ok_or("no folder to keep things in: set HOME or XDG_STATE_HOME to an absolute path")?;
        let home = home.join("a2e-proc");
        let id = stable_id(root.as_os_str().as_bytes());
        let state = home.join("projects").join(format!("{}-{id}", short_name(&root)));
        let is_ours = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
        let socket = match folder("XDG_RUNTIME_DIR").filter(is_ours) {
            Some(runtime) => runtime.join("a2e-proc").join(format!("{id}.sock")),
            None => state.join("desk.sock"),
        };
        let length = socket.as_os_str().len();
        if length > MOST_SOCKET {
            return Err(format!(
                "{}: too long for a socket, with {length} bytes of {MOST_SOCKET}: set XDG_RUNTIME_DIR to a directory of \
                 yours with a short path",
                socket.display()
            ));
        }
        Ok(Self { root, state, socket, agents: home.join("agents.json"), user })
    }

    /// Those of the project at `root` for whoever runs this program.
    ///
    /// # Errors
    /// As [`Paths::of`].
    pub fn here(root: &Path) -> Result<Self, String> {
        Self::of(root, os::user_id(), |name| std::env::var_os(name))
    }

    /// Makes the folders, for this user alone (mode 0700).
    ///
    /// # Errors
    /// When the system refuses, or a folder is another user's.
    pub fn prepare(&self) -> io::Result<()> {
        for folder in [Some(self.state.as_path()), self.socket.parent()].into_iter().flatten() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            if fs::metadata(folder)?.uid() != self.user {
                let words = format!("{}: belongs to another user", folder.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
            }
            // One that was there before may be open to others.
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// The stored entries.
    #[must_use]
    pub fn entries(&self) -> PathBuf {
        self.state.join("entries.json")
    }

    /// The next entry's id, kept a second time.
    #[must_use]
    pub fn next_id(&self) -> PathBuf {
        self.state.join("next_id")
    }

    /// The trusted variants of commands.
    #[must_use]
    pub fn trust(&self) -> PathBuf {
        self.state.join("trust.json")
    }

    /// The file that is locked while [`Paths::trust`] is changed.
    #[must_use]
    pub fn trust_lock(&self) -> PathBuf {
        self.state.join("trust.lock")
    }

    /// Where the desk that has been opened last says that it listens. Its environment may have had it listen elsewhere than this
    /// program's would.
    #[must_use]
    pub fn announced(&self) -> Option<PathBuf> {
        let text = fs::read(self.lock()).ok().filter(|text| !text.is_empty())?;
        Some(PathBuf::from(OsStr::from_bytes(&text))).filter(|path| path.is_absolute())
    }

    /// The file that the project's desk keeps locked while it lives.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }
}

/// What a person can tell the folder by: the name of the project's, in letters that no shell minds.
fn short_name(root: &Path) -> String {
    let name = root.file_name().map_or("root".into(), |name| name.to_string_lossy());
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.trim_start_matches(['.', '-']).chars().take(MOST_NAME).map(plain).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use tempfile::TempDir;

    use super::*;

    /// The files of an empty project, with everything below one folder that goes when it is dropped.
    pub fn fixture() -> (TempDir, Paths) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        fs::create_dir(&root).unwrap();
        let paths = paths(&folder, &root, &[("HOME", folder.path().to_str().unwrap()), ("XDG_RUNTIME_DIR", "")]);
        let paths = paths.unwrap();
        paths.prepare().unwrap();
        (folder, paths)
    }

    fn paths(folder: &TempDir, root: &Path, env: &[(&str, &str)]) -> Result<Paths, String> {
        let user = fs::metadata(folder.path()).unwrap().uid();
        Paths::of(root, user, |name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_environment_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let under = |path: &str| folder.path().join(path);
        let rows: [(&[(&str, &str)], Result<(PathBuf, bool), &str>); 7] = [
            (&[("HOME", home)], Ok((under(".local/state/a2e-proc/projects"), false))),
            (&[("HOME", "/nowhere"), ("XDG_STATE_HOME", home)], Ok((under("a2e-proc/projects"), false))),
            (&[("HOME", home), ("XDG_STATE_HOME", "state")], Ok((under(".local/state/a2e-proc/projects"), false))),
            (&[("HOME", home), ("XDG_RUNTIME_DIR", home)], Ok((under(".local/state/a2e-proc/projects"), true))),
            (&[("HOME", home), ("XDG_RUNTIME_DIR", ".")], Ok((under(".local/state/a2e-proc/projects"), false))),
            (&[], Err("set HOME or XDG_STATE_HOME")),
            (&[("HOME", "home")], Err("set HOME or XDG_STATE_HOME")),
        ];
        for (env, expected) in rows {
            match (paths(&folder, folder.path(), env), expected) {
                (Ok(paths), Ok((projects, in_runtime))) => {
                    assert_eq!(paths.state.parent(), Some(projects.as_path()), "{env:?}");
                    let home = if in_runtime { under("a2e-proc") } else { paths.state.clone() };
                    assert_eq!(paths.socket.parent(), Some(home.as_path()), "{env:?}");
                    assert!(!paths.state.exists(), "{env:?}: asking where makes nothing");
                }
                (Err(words), Err(expected)) => assert!(words.contains(expected), "{env:?}: {words}"),
                (got, _) => panic!("{env:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn a_runtime_directory_of_somebody_else_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let user = fs::metadata(folder.path()).unwrap().uid() + 1;
        let paths = Paths::of(folder.path(), user, |_| Some(folder.path().into())).unwrap();
        assert!(paths.socket.starts_with(&paths.state), "{paths:?}");
        assert_eq!(paths.prepare().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_socket_fits_the_system_or_the_words_say_what_to_set() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long".repeat(30));
        let long = long.to_str().unwrap();
        let words = paths(&folder, folder.path(), &[("HOME", long)]).unwrap_err();
        assert!(words.contains("set XDG_RUNTIME_DIR"), "{words}");
        let env = [("HOME", long), ("XDG_RUNTIME_DIR", folder.path().to_str().unwrap())];
        assert!(paths(&folder, folder.path(), &env).is_ok());
    }

    #[test]
    fn one_project_has_one_folder_by_whatever_path_it_is_reached() {
        let (folder, paths) = fixture();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&paths.root, &link).unwrap();
        let home = folder.path().to_str().unwrap();
        assert_eq!(self::paths(&folder, &link, &[("HOME", home)]).unwrap(), paths);
        let other = folder.path().join("other/project");
        fs::create_dir_all(&other).unwrap();
        assert_ne!(self::paths(&folder, &other, &[("HOME", home)]).unwrap().state, paths.state);
        for wrong in ["missing", "file"] {
            fs::write(folder.path().join("file"), "").unwrap();
            assert!(self::paths(&folder, &folder.path().join(wrong), &[("HOME", home)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn folders_are_this_users_alone() {
        let (_folder, paths) = fixture();
        fs::set_permissions(&paths.state, Permissions::from_mode(0o755)).unwrap();
        paths.prepare().unwrap();
        assert_eq!(fs::metadata(&paths.state).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn names_of_folders_are_plain() {
        let rows = [("/", "root"), ("/a/Web-1.x", "Web-1.x"), ("/a/.b c\nд", "b_c__"), ("/--x", "x")];
        for (path, name) in rows {
            assert_eq!(short_name(Path::new(path)), name, "{path:?}");
        }
        assert_eq!(short_name(Path::new(&"x".repeat(200))).len(), MOST_NAME);
    }
}
