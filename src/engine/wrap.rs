//! Launchers: words before a command that start it in a sandbox, in a container or on another machine (R9).
//!
//! The policy finds them when the host starts (those that cut commands off the network come from `network`), and asks them,
//! request by request, what to refuse and what to run.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::SpawnRequest;
use crate::model::{Failure, Refusal};
use crate::os;

/// Launchers that join a command's words with spaces and give them to a shell, by the name of their file.
const JOINERS: [&str; 5] = ["ssh", "slogin", "autossh", "dbclient", "rsh"];

/// A launcher that was found on this host.
pub struct Launcher {
    program: PathBuf,
    words: Vec<String>,
    starts: Starts,
}

/// How a launcher starts a command.
enum Starts {
    /// By its name, wherever that is looked up. The launcher has the host's environment alone, so that a request cannot steer
    /// it (`DOCKER_HOST`); a request's variables are set behind it, by `env`.
    ByName {
        /// The words are joined for a shell, so each is quoted.
        joined: bool,
    },
    /// From its file on this host, with the environment that it would have without a launcher.
    ByFile,
}

/// What is started for a request.
pub struct Exec<'a> {
    /// The file that is run.
    pub program: PathBuf,
    /// Its argument 0.
    pub arg0: &'a str,
    /// The arguments after it.
    pub args: Cow<'a, [String]>,
    /// Variables on top of what is inherited.
    pub env: &'a [(String, String)],
    /// Whether `program` is a launcher's, not the command's.
    pub is_launcher: bool,
}

impl Launcher {
    /// Finds the launcher that `words` name, on `path` or by its path; no words are none. It starts commands by name.
    ///
    /// # Errors
    /// When there is no such program, or a word cannot be passed to one.
    pub fn find(words: &[String], path: &OsStr) -> Result<Option<Self>, Failure> {
        let Some(name) = words.first() else { return Ok(None) };
        if words.iter().any(|word| word.contains('\0')) {
            return Err(unfit(format!("wrap: the words of {name:?} contain a NUL character")));
        }
        // A path stays what it is when it is looked up in one directory alone.
        let place = if name.contains('/') { OsStr::new(".") } else { path };
        let program = os::find_program(name, place).ok_or_else(|| {
            unfit(format!(
                "wrap: the launcher {name:?} is not found on the host's PATH; install it, give its path, or leave it out"
            ))
        })?;
        Ok(Some(Self { program, words: words.to_vec(), starts: Starts::ByName { joined: joins(words) } }))
    }

    /// The launcher in `program`, which starts commands from their files. `words` begin with its name.
    pub(super) fn by_file(program: PathBuf, words: Vec<String>) -> Self {
        Self { program, words, starts: Starts::ByFile }
    }

    /// The launcher and its arguments.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Refuses a request that could be something else to this launcher, or to `env`, than a command and its variables.
    pub fn check(&self, request: &SpawnRequest) -> Result<(), Refusal> {
        let launcher = &self.words[0];
        let invalid = |why: String| Err(Refusal::InvalidArgument { why });
        let names = || request.env.iter().map(|(name, _)| name.as_str());
        match self.starts {
            Starts::ByName { .. } => {
                let command = &request.cmd[0];
                if command.starts_with('-') || command.contains('=') {
                    return invalid(format!(
                        "cmd[0] {command:?} could be an option or a variable to {launcher} or env"
                    ));
                }
                if let Some(name) = names().find(|name| name.starts_with('-')) {
                    return invalid(format!(
                        "env name {name:?} would be an option to env, which sets it behind {launcher}"
                    ));
                }
                if names().any(|name| name == "PATH") {
                    return invalid(format!(
                        "env may not set PATH behind {launcher}: the command would be looked up by it"
                    ));
                }
            }
            // Whatever the policy denies: these could make the launcher itself do less than it should.
            Starts::ByFile => {
                if let Some(name) = names().find(|name| steers_loader(name)) {
                    return invalid(format!("env may not set {name}, which would change what {launcher} does"));
                }
            }
        }
        Ok(())
    }

    /// What to start for a request. `program` finds the command's file, if it has to be one of this host's.
    pub fn exec<'a>(
        &'a self,
        request: &'a SpawnRequest,
        program: impl FnOnce() -> Result<PathBuf, Refusal>,
    ) -> Result<Exec<'a>, Refusal> {
        let mut args = self.words[1..].to_vec();
        let env = match self.starts {
            Starts::ByName { joined } => {
                let write = |word: &str| if joined { quoted(word) } else { word.to_owned() };
                if !request.env.is_empty() {
                    args.push("env".into());
                    args.extend(request.env.iter().map(|(name, value)| write(&format!("{name}={value}"))));
                }
                args.extend(request.cmd.iter().map(|word| write(word)));
                &[][..]
            }
            Starts::ByFile => {
                let name = &request.cmd[0];
                let file = program()?;
                if !file.exists() {
                    return Err(Refusal::ProgramNotFound { name: name.clone() });
                }
                let why = || format!("the path of {name} is not UTF-8, so {} cannot be told of it", self.words[0]);
                let file = file.into_os_string().into_string();
                args.push(file.map_err(|_| Refusal::InvalidArgument { why: why() })?);
                args.extend_from_slice(&request.cmd[1..]);
                &request.env
            }
        };
        let program = self.program.clone();
        Ok(Exec { program, arg0: &self.words[0], args: Cow::Owned(args), env, is_launcher: true })
    }
}

/// Whether one of these words is a launcher that joins what follows: any of them, since `timeout 60 ssh HOST` joins too.
fn joins(words: &[String]) -> bool {
    words.iter().any(|word| Path::new(word).file_name().is_some_and(|file| JOINERS.iter().any(|name| file == *name)))
}

/// Why a host cannot do what its configuration says. The kind, [`io::ErrorKind::InvalidInput`], tells it from a fault of the
/// system's.
pub(super) fn unfit(words: String) -> Failure {
    Failure::new("serve as configured", io::Error::new(io::ErrorKind::InvalidInput, words))
}

/// Whether the dynamic loader or the C library does other things for a variable of this name.
fn steers_loader(name: &str) -> bool {
    name.starts_with("LD_") || ["GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH"].contains(&name)
}

/// `word` as a POSIX shell needs it written to take it for one word, whatever is in it.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(words: &[&str]) -> Launcher {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let starts = Starts::ByName { joined: joins(&words) };
        Launcher { program: "/launcher".into(), words, starts }
    }

    fn request(cmd: &[&str], env: &[(&str, &str)]) -> SpawnRequest {
        SpawnRequest {
            cmd: cmd.iter().map(ToString::to_string).collect(),
            env: env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            ..SpawnRequest::default()
        }
    }

    fn file() -> Result<PathBuf, Refusal> {
        Ok("/bin/sh".into())
    }

    #[test]
    fn the_words_stand_before_the_command_and_the_variables_between() {
        let rows: [(&[&str], &[(&str, &str)], &[&str]); 5] = [
            (&["box", "--"], &[], &["--", "ls", "a b", ""]),
            (&["box"], &[("A", "x y"), ("B", "")], &["env", "A=x y", "B=", "ls", "a b", ""]),
            (&["/usr/bin/ssh", "h", "--"], &[], &["h", "--", "'ls'", "'a b'", "''"]),
            (&["timeout", "9", "ssh", "h"], &[], &["9", "ssh", "h", "'ls'", "'a b'", "''"]),
            (&["ssh", "h"], &[("A", "it's")], &["h", "env", "'A=it'\"'\"'s'", "'ls'", "'a b'", "''"]),
        ];
        for (words, env, expected) in rows {
            let (launcher, request) = (launcher(words), request(&["ls", "a b", ""], env));
            let exec = launcher.exec(&request, file).unwrap();
            assert_eq!(exec.args[..], *expected, "{words:?} {env:?}");
            assert_eq!((exec.arg0, exec.env, exec.is_launcher), (words[0], &[][..], true));
        }
    }

    #[test]
    fn a_launcher_by_file_gets_the_file_and_passes_variables_on() {
        let launcher = Launcher::by_file("/launcher".into(), vec!["box".into(), "--".into()]);
        let request = request(&["sh", "-c"], &[("A", "b")]);
        let exec = launcher.exec(&request, file).unwrap();
        assert_eq!((&exec.args[..], exec.env), (&["--".into(), "/bin/sh".into(), "-c".into()][..], &request.env[..]));
        let missing = launcher.exec(&request, || Ok("/no/such".into())).err();
        assert_eq!(missing, Some(Refusal::ProgramNotFound { name: "sh".into() }));
    }

    #[test]
    fn what_a_launcher_could_take_for_something_else_is_refused() {
        let by_name = launcher(&["box"]);
        let by_file = Launcher::by_file("/launcher".into(), vec!["box".into()]);
        let rows: [(&Launcher, &str, &str, &str); 10] = [
            (&by_name, "ls", "A", ""),
            (&by_name, "ls", "PATH_X", ""),
            (&by_name, "-S", "A", "cmd[0]"),
            (&by_name, "A=b", "A", "cmd[0]"),
            (&by_name, "ls", "-S", "\"-S\" would be an option"),
            (&by_name, "ls", "PATH", "PATH"),
            (&by_file, "-S", "PATH", ""),
            (&by_file, "ls", "LD_X", "LD_X"),
            (&by_file, "ls", "GCONV_PATH", "GCONV_PATH"),
            (&by_file, "ls", "GLIBC_TUNABLES", "GLIBC_TUNABLES"),
        ];
        for (launcher, command, name, expected) in rows {
            let result = launcher.check(&request(&[command], &[(name, "x")]));
            match expected {
                "" => assert_eq!(result, Ok(()), "{command} {name}"),
                part => assert!(
                    matches!(&result, Err(Refusal::InvalidArgument { why }) if why.contains(part)),
                    "{result:?}"
                ),
            }
        }
    }

    #[test]
    fn a_launcher_is_found_or_named() {
        let find = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            Launcher::find(&words, OsStr::new("/usr/bin:/bin")).map(|launcher| launcher.map(|found| found.program))
        };
        assert!(find(&[]).unwrap().is_none());
        assert!(find(&["sh", "-x"]).unwrap().unwrap().is_absolute());
        assert_eq!(find(&["/bin/sh"]).unwrap(), Some("/bin/sh".into()));
        for words in [&["no-such-launcher"][..], &["/no/such"], &["/etc/passwd"], &["sh", "\0"], &[""]] {
            let failure = find(words).unwrap_err();
            assert_eq!(failure.source.kind(), io::ErrorKind::InvalidInput);
            assert!(failure.to_string().contains(&format!("{:?}", words[0])), "{failure}");
        }
    }
}
