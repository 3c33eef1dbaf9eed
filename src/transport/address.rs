//! Where a host listens, as an operator writes it: `unix:PATH`, `tcp:HOST:PORT`, `http:HOST:PORT`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a host listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket: lines both ways.
    Unix(PathBuf),
    /// A TCP socket, by name or number and port: lines both ways.
    Tcp(String),
    /// A TCP socket that speaks HTTP, by name or number and port: the published SDK's transport.
    Http(String),
}

impl Address {
    /// The TCP addresses that it stands for; none of a Unix socket.
    ///
    /// # Errors
    /// When a name cannot be resolved.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Unix(_) => Ok(Vec::new()),
            Self::Tcp(name) | Self::Http(name) => Ok(name.to_socket_addrs()?.collect()),
        }
    }

    /// The same by number: of a name that stands for several, the first.
    ///
    /// # Errors
    /// When a name cannot be resolved, or stands for nothing.
    pub fn resolved(&self) -> io::Result<Self> {
        let found = self.resolve()?;
        match (self, found.first()) {
            (Self::Unix(_), _) => Ok(self.clone()),
            (_, Some(first)) => Ok(self.with(*first)),
            (_, None) => Err(io::Error::new(io::ErrorKind::NotFound, "the name stands for no address")),
        }
    }

    /// Whether only programs of this machine can reach it.
    ///
    /// # Errors
    /// When a name cannot be resolved.
    pub fn is_local(&self) -> io::Result<bool> {
        Ok(self.resolve()?.iter().all(|address| address.ip().is_loopback()))
    }

    /// The same with the port that the system has given.
    pub(super) fn with(&self, bound: SocketAddr) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(path.clone()),
            Self::Tcp(_) => Self::Tcp(bound.to_string()),
            Self::Http(_) => Self::Http(bound.to_string()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(name) => write!(f, "tcp:{name}"),
            Self::Http(name) => write!(f, "http:{name}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms = "give unix:PATH, tcp:HOST:PORT or http:HOST:PORT";
        let (kind, place) = text.split_once(':').ok_or(forms)?;
        let place = if kind == "http" { place.trim_start_matches("//").trim_end_matches('/') } else { place };
        let with_port = || match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(place.to_owned()),
            _ => Err(format!("{text:?} has no port; {forms}, such as {kind}:127.0.0.1:8765")),
        };
        match kind {
            "unix" if place.is_empty() => Err(format!("{text:?} has no path; {forms}")),
            "unix" => Ok(Self::Unix(place.into())),
            "tcp" => Ok(Self::Tcp(with_port()?)),
            "http" if cfg!(feature = "http") => Ok(Self::Http(with_port()?)),
            "http" => Err("this program was built without the feature \"http\"".into()),
            _ => Err(format!("{text:?} is no address; {forms}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_an_operator_writes_them() {
        for good in ["unix:/tmp/a2e.sock", "unix:a:b", "tcp:127.0.0.1:0", "tcp:[::1]:8765", "tcp:localhost:1"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for (bad, words) in [
            ("", "give unix:PATH"),
            ("8765", "give unix:PATH"),
            ("unix:", "no path"),
            ("tcp:8765", "no port"),
            ("tcp:127.0.0.1", "no port"),
            ("tcp::8765", "no port"),
            ("tcp:127.0.0.1:99999", "no port"),
            ("udp:127.0.0.1:1", "no address"),
        ] {
            let error = bad.parse::<Address>().unwrap_err();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }

    #[test]
    fn an_address_knows_who_can_reach_it() {
        for (text, local) in [
            ("unix:/x", true),
            ("tcp:127.0.0.1:1", true),
            ("tcp:127.9.9.9:1", true),
            ("tcp:[::1]:1", true),
            ("tcp:0.0.0.0:1", false),
            ("tcp:[::]:1", false),
            ("tcp:192.0.2.1:1", false),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().is_local().unwrap(), local, "{text}");
        }
        assert!("tcp:no such name:1".parse::<Address>().unwrap().is_local().is_err());
    }
}
