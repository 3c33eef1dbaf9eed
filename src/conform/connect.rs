//! Where a host is that is reached over a connection: its address, what a case fills in there, and how it is dialled
//! (`conformance/README.md`, Over a socket or HTTP). `judge` starts hosts by it, `peer` opens connections.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use super::case::{Case, Verb};

/// A connected socket. One of TCP too: reading, writing and shutting down are the same calls, whatever the type is named after.
pub type Socket = UnixStream;

/// What the system may hold of what a host has sent and nobody has read, in bytes.
const RECEIVE_BUFFER: usize = 64 * 1024;

/// How a host is reached. The texts are paths and `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(String),
    Tcp(String),
    Http(String),
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, place) = text.split_once(':').unwrap_or((text, ""));
        let has_port = place.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && !port.is_empty());
        match scheme {
            "unix" if !place.is_empty() => Ok(Self::Unix(place.to_owned())),
            "tcp" if has_port => Ok(Self::Tcp(place.to_owned())),
            "http" if has_port && !place.contains('/') => Ok(Self::Http(place.to_owned())),
            _ => Err(format!("{text:?} is no address; one is unix:PATH, tcp:HOST:PORT or http:HOST:PORT")),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let scheme = match self {
            Self::Unix(_) => "unix",
            Self::Tcp(_) => "tcp",
            Self::Http(_) => "http",
        };
        write!(f, "{scheme}:{}", self.place())
    }
}

impl Address {
    /// The path, or the host and the port.
    pub fn place(&self) -> &str {
        let (Self::Unix(place) | Self::Tcp(place) | Self::Http(place)) = self;
        place
    }

    /// Connects.
    pub fn dial(&self) -> io::Result<Socket> {
        let place = match self {
            Self::Unix(path) => return UnixStream::connect(path),
            Self::Tcp(place) | Self::Http(place) => place,
        };
        let socket = TcpStream::connect(place)?;
        // A socket that finds nobody at a port of the range it gets its own from can come to be connected to itself.
        if socket.local_addr()? == socket.peer_addr()? {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        socket.set_nodelay(true)?;
        // The system may take many megabytes by itself, and then a host that waits for its agent never seems to.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        Ok(Socket::from(OwnedFd::from(socket)))
    }
}

/// What `--connect` says: where hosts are reached, with places to fill in for each case, and who starts them.
pub struct Connect {
    /// As on the command line.
    address: String,
    /// Somebody else has started the host.
    pub running: bool,
}

impl Connect {
    /// # Errors
    /// What is wrong with the address.
    pub fn new(address: &str, running: bool) -> Result<Self, String> {
        let this = Self { address: address.to_owned(), running };
        if running && this.differs() {
            return Err(format!("--running: {address} is filled in for each case, and this host runs already"));
        }
        fill(address, Path::new("/"), 1).parse::<Address>().map_err(|e| format!("--connect: {e}"))?;
        Ok(this)
    }

    /// Whether each case has an address of its own, so that several can be played at once.
    pub fn differs(&self) -> bool {
        ["{tmp}", "{port}"].iter().any(|place| self.address.contains(place))
    }

    pub fn is_http(&self) -> bool {
        self.address.starts_with("http:")
    }

    /// The address as it stands on the command line, for a shell.
    pub fn quoted(&self) -> String {
        super::quoted(&self.address)
    }

    /// The address and a command, filled in for one case.
    ///
    /// # Errors
    /// If there is no free port, or the address is none.
    pub fn filled(&self, command: &str, folder: &Path) -> Result<(Address, String, Port), String> {
        let port = free_port()?;
        Ok((fill(&self.address, folder, port.number).parse()?, fill(command, folder, port.number), port))
    }

    /// Whether somebody listens, for a host that runs already.
    ///
    /// # Errors
    /// That nobody does, and what to do.
    pub fn try_running(&self) -> Result<(), String> {
        let address: Address = self.address.parse()?;
        let hint = "start the host first, or leave --running out";
        address.dial().map(drop).map_err(|e| format!("nobody listens at {address}: {e}; {hint}"))
    }
}

fn fill(text: &str, folder: &Path, port: u16) -> String {
    text.replace("{tmp}", &folder.to_string_lossy()).replace("{port}", &port.to_string())
}

/// A port that is one case's own while this is held.
pub struct Port {
    number: u16,
    /// The same port of another protocol, by which other runs see that it is taken while nobody listens yet.
    _claim: UdpSocket,
}

/// A port of the loopback interface that nobody has, and that no other case gets, of this run or another. It lies below the ports
/// that the system gives to whoever connects.
fn free_port() -> Result<Port, String> {
    const FIRST: u16 = 10_240;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Runs beside this one begin elsewhere, far away even if they were started at the same time.
    let start = std::process::id().wrapping_mul(0x9E37_79B1) % u32::from(COUNT);
    for _ in 0..COUNT {
        let offset = (start + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).map_err(|e| e.to_string())?;
        let Ok(claim) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(Port { number: port, _claim: claim });
        }
    }
    Err("no port of 127.0.0.1 is free".to_owned())
}

/// What the way to the host does not give to a case.
pub fn lacks(connect: Option<&Connect>, case: &Case) -> Vec<&'static str> {
    let needs = |need: &str| case.needs.iter().any(|needed| needed == need);
    let has = |wanted: fn(&Verb) -> bool| case.steps.iter().any(|step| wanted(&step.verb));
    let running = connect.is_some_and(|connect| connect.running);
    [
        (connect.is_none() && needs("connections"), "a second connection, which takes --connect"),
        (connect.is_some_and(Connect::is_http) && needs("stream"), "a stream of bytes, which HTTP is not"),
        (running && case.setup.is_some(), "a host that is started with a setup"),
        (running && has(|verb| matches!(verb, Verb::Signal(_))), "a host that can be sent a signal"),
        (running && has(|verb| matches!(verb, Verb::HostExit(_))), "a host whose exit is seen"),
    ]
    .into_iter()
    .filter_map(|(lacks, what)| lacks.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_filled_in() {
        for text in ["unix:/a b", "tcp:127.0.0.1:1", "tcp:[::1]:80", "http:localhost:8765"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "/a", "unix:", "tcp:80", "tcp::80", "tcp:host:", "http:host:80/path", "udp:host:80"] {
            assert!(text.parse::<Address>().unwrap_err().contains("unix:PATH"), "{text}");
        }
        let connect = Connect::new("unix:{tmp}/s", false).unwrap();
        let (address, command, _port) = connect.filled("host '{tmp}/s' {port} {other}", Path::new("/t")).unwrap();
        assert_eq!(address, Address::Unix("/t/s".to_owned()));
        let port = command.strip_prefix("host '/t/s' ").and_then(|rest| rest.strip_suffix(" {other}"));
        assert!(port.is_some_and(|port| port.parse::<u16>().is_ok()), "{command}");
        assert!(Connect::new("tcp:127.0.0.1:{port}", true).is_err());
    }

    #[test]
    fn a_port_is_given_once() {
        let ports: std::collections::BTreeSet<_> = (0..50).map(|_| free_port().unwrap().number).collect();
        assert_eq!(ports.len(), 50);
    }
}
