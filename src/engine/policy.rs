//! What may be spawned, and how: allowlist, arguments, environment, directory, launcher, time limit. The session asks, in this
//! order (R10): [`Policy::check`], then its quota, then [`Policy::directory`], then [`Policy::exec`].
//!
//! Pure but for the looking-up of programs and directories, which goes through `os`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config::{Config, InheritEnv};
use super::wrap::{Exec, Launcher, unfit};
use super::{SpawnRequest, network};
use crate::model::{Failure, Refusal};
use crate::os;

/// The rules of one host, worked out when it starts.
pub struct Policy {
    allowed: Vec<String>,
    programs: HashMap<String, PathBuf>,
    path: OsString,
    launcher: Option<Launcher>,
    /// Of single names, in place of `launcher`.
    own_launchers: HashMap<String, Option<Launcher>>,
    base_env: Option<Vec<(OsString, OsString)>>,
    denied_env: Vec<String>,
    default_timeout: u32,
    max_timeout: u32,
}

impl Policy {
    /// Works the rules out. Programs and launchers are looked up now, against the host's own `PATH` (R9).
    ///
    /// # Errors
    /// Of the kind [`std::io::ErrorKind::InvalidInput`] when a launcher is missing, or nothing can cut commands off the network.
    pub fn new(config: &Config) -> Result<Self, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = config.allowed.iter().filter_map(|name| Some((name.clone(), locate(name, &path)?))).collect();
        let (launcher, own_launchers) = if config.network_disabled {
            if config.wrap_by_name.values().any(|words| !words.is_empty()) || !config.wrap.is_empty() {
                return Err(unfit(
                    "network_disabled cannot be had together with wrap: a launcher such as ssh or docker needs the network, or \
                     starts the command where this host cannot cut it off; let the launcher do it (bwrap --unshare-net, docker \
                     run --network none), and leave network_disabled out"
                        .into(),
                ));
            }
            (Some(network::launcher(&path)?), HashMap::new())
        } else {
            let of_name = |(name, words): (&String, &Vec<String>)| Ok((name.clone(), Launcher::find(words, &path)?));
            let own: Result<_, Failure> = config.wrap_by_name.iter().map(of_name).collect();
            (Launcher::find(&config.wrap, &path)?, own?)
        };
        let base_env = match &config.inherit_env {
            InheritEnv::All => None,
            InheritEnv::None => Some(Vec::new()),
            InheritEnv::Only(names) => {
                Some(names.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect())
            }
        };
        Ok(Self {
            allowed: config.allowed.clone(),
            programs,
            path,
            launcher,
            own_launchers,
            base_env,
            denied_env: config.denied_env.clone(),
            default_timeout: config.default_timeout,
            max_timeout: config.max_timeout,
        })
    }

    /// Refuses what can be refused by looking at the request alone.
    pub fn check(&self, request: &SpawnRequest) -> Result<(), Refusal> {
        let name = request.cmd.first().ok_or(Refusal::EmptyCommand)?;
        if !self.allowed.contains(name) {
            return Err(Refusal::CommandNotAllowed { name: name.clone(), allowed: self.allowed.clone() });
        }
        let invalid = |why: String| Err(Refusal::InvalidArgument { why });
        if let Some(at) = request.cmd.iter().position(|word| word.contains('\0')) {
            return invalid(format!("cmd[{at}] contains a NUL character"));
        }
        if request.cwd.contains('\0') {
            return invalid("cwd contains a NUL character".into());
        }
        for (name, value) in &request.env {
            if name.is_empty() {
                return invalid("env has a variable with an empty name".into());
            }
            if name.contains(['=', '\0']) {
                return invalid(format!("env name {name:?} contains '=' or NUL"));
            }
            if value.contains('\0') {
                return invalid(format!("env value of {name} contains a NUL character"));
            }
            if self.denies(name) {
                return invalid(format!("env may not set {name}, which changes what code runs before the command"));
            }
        }
        self.launcher(&request.cmd[0]).map_or(Ok(()), |launcher| launcher.check(request))
    }

    /// What goes before a command of this name.
    pub fn launcher(&self, name: &str) -> Option<&Launcher> {
        self.own_launchers.get(name).unwrap_or(&self.launcher).as_ref()
    }

    /// The working directory, or `None` for the host's own.
    pub fn directory<'a>(&self, request: &'a SpawnRequest) -> Result<Option<&'a Path>, Refusal> {
        if request.cwd.is_empty() {
            return Ok(None);
        }
        let cwd = Path::new(&request.cwd);
        match os::check_directory(cwd) {
            Some(why) => Err(Refusal::CwdNotFound { cwd: request.cwd.clone(), why }),
            None => Ok(Some(cwd)),
        }
    }

    /// What to start for a request that has passed [`Policy::check`].
    pub fn exec<'a>(&'a self, request: &'a SpawnRequest) -> Result<Exec<'a>, Refusal> {
        let name = &request.cmd[0];
        match self.launcher(name) {
            Some(launcher) => launcher.exec(request, || self.program(name)),
            None => Ok(Exec {
                program: self.program(name)?,
                arg0: name,
                args: Cow::Borrowed(&request.cmd[1..]),
                env: &request.env,
                is_launcher: false,
            }),
        }
    }

    /// The file of an allowed name. One that was not there when the host started is looked for again.
    fn program(&self, name: &str) -> Result<PathBuf, Refusal> {
        let known = self.programs.get(name).cloned();
        known.or_else(|| locate(name, &self.path)).ok_or_else(|| Refusal::ProgramNotFound { name: name.into() })
    }

    /// What a child's environment starts from; `None` is all of the host's.
    pub fn base_env(&self) -> Option<&[(OsString, OsString)]> {
        self.base_env.as_deref()
    }

    /// How long a process may live (R12): what was asked for or the default, but never past the maximum.
    pub fn time_limit(&self, asked: Option<u32>) -> Option<Duration> {
        let seconds = match (asked.unwrap_or(self.default_timeout), self.max_timeout) {
            (0, most) => most,
            (wanted, 0) => wanted,
            (wanted, most) => wanted.min(most),
        };
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    fn denies(&self, name: &str) -> bool {
        self.denied_env.iter().any(|denied| match denied.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == denied,
        })
    }
}

/// A name with a slash is a path from the host's directory; any other is looked up in `path`.
fn locate(name: &str, path: &OsStr) -> Option<PathBuf> {
    if name.contains('/') { std::path::absolute(name).ok() } else { os::find_program(name, path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(change: impl FnOnce(&mut Config)) -> Policy {
        let mut config = Config { allowed: vec!["ls".into(), "sh".into()], ..Config::default() };
        change(&mut config);
        Policy::new(&config).unwrap()
    }

    fn request(cmd: &[&str], env: &[(&str, &str)]) -> SpawnRequest {
        SpawnRequest {
            cmd: cmd.iter().map(ToString::to_string).collect(),
            env: env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            ..SpawnRequest::default()
        }
    }

    #[test]
    fn refusals_in_their_order() {
        let policy = policy(|_| {});
        let rows: [(&[&str], &[(&str, &str)], &str); 16] = [
            (&["ls"], &[], ""),
            (&["ls", "-l"], &[("PATH", "/x"), ("A", ""), ("PYTHONUNBUFFERED", "1")], ""),
            (&[], &[("", "")], "EmptyCommand"),
            (&[""], &[], "CommandNotAllowed"),
            (&["rm", "a\0b"], &[], "CommandNotAllowed"),
            (&["/bin/ls"], &[], "CommandNotAllowed"),
            (&["./ls"], &[], "CommandNotAllowed"),
            (&["ls "], &[], "CommandNotAllowed"),
            (&["LS"], &[], "CommandNotAllowed"),
            (&["ls\0"], &[], "CommandNotAllowed"),
            (&["ls", "a\0b"], &[], "cmd[1]"),
            (&["ls"], &[("", "x")], "empty name"),
            (&["ls"], &[("A=B", "x")], "A=B"),
            (&["ls"], &[("A", "x\0")], "value of A"),
            (&["ls"], &[("LD_PRELOAD", "x")], "LD_PRELOAD"),
            (&["ls"], &[("BASH_ENV", "x")], "BASH_ENV"),
        ];
        for (cmd, env, expected) in rows {
            let result = policy.check(&request(cmd, env));
            match expected {
                "" => assert_eq!(result, Ok(()), "{cmd:?} {env:?}"),
                words => assert!(format!("{result:?}").contains(words), "{cmd:?} {env:?}: {result:?}"),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_passes_that_is_not_allowed_or_cannot_be_passed(
            cmd in proptest::collection::vec("ls|sh|\\PC{0,6}|[a\0=/]{0,4}", 0..4),
            env in proptest::collection::vec(("[A-Z_=\0]{0,5}|LD_[A-Z]{0,3}", "[a\0]{0,3}"), 0..4),
        ) {
            let request = SpawnRequest { cmd, env, ..SpawnRequest::default() };
            if policy(|_| {}).check(&request).is_ok() {
                assert!(["ls", "sh"].contains(&request.cmd[0].as_str()));
                assert!(request.cmd.iter().all(|word| !word.contains('\0')));
                for (name, value) in &request.env {
                    assert!(!name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
                    assert!(!name.starts_with("LD_"));
                }
            }
        }
    }

    #[test]
    fn time_limits() {
        let seconds = |limit: Option<Duration>| limit.map_or(0, |limit| limit.as_secs());
        for (default, most, asked, expected) in [
            (0, 0, None, 0),
            (5, 0, None, 5),
            (5, 0, Some(0), 0),
            (5, 0, Some(9), 9),
            (0, 7, None, 7),
            (5, 7, None, 5),
            (9, 7, None, 7),
            (5, 7, Some(0), 7),
            (5, 7, Some(100_000), 7),
            (5, 7, Some(6), 6),
        ] {
            let policy = policy(|config| (config.default_timeout, config.max_timeout) = (default, most));
            assert_eq!(seconds(policy.time_limit(asked)), expected, "{default} {most} {asked:?}");
        }
    }

    #[test]
    fn a_program_is_found_on_the_path_or_refused_by_name() {
        let policy = policy(|config| config.allowed.push("no-such-program".into()));
        assert!(policy.program("ls").unwrap().is_absolute());
        assert_eq!(policy.program("no-such-program"), Err(Refusal::ProgramNotFound { name: "no-such-program".into() }));
    }

    #[test]
    fn a_directory_is_refused_by_name() {
        let policy = policy(|_| {});
        let directory = |cwd: &str| {
            let request = SpawnRequest { cwd: cwd.into(), ..SpawnRequest::default() };
            policy.directory(&request).map(|dir| dir.map(Path::to_path_buf))
        };
        assert_eq!(directory(""), Ok(None));
        assert_eq!(directory("/"), Ok(Some("/".into())));
        for (cwd, expected) in [("no/such", "no such directory"), ("Cargo.toml", "not a directory")] {
            assert_eq!(directory(cwd), Err(Refusal::CwdNotFound { cwd: cwd.into(), why: expected }));
        }
    }
}
