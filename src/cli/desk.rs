//! `a2e-proc desk` and `a2e-proc mcp`: a project's desk in the foreground, and MCP on standard input and output.
//!
//! Threads: `desk` serves those who connect to the desk's socket; `news` tells a person what changes. This one waits for the
//! end: of the input, or by a signal.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use a2e_proc::desk::paths::Paths;
use a2e_proc::desk::{Desk, NotOpened, View};
use a2e_proc::engine::Config;
use a2e_proc::face::mcp::{self, DeskTools, Ended, Opened, Server};
use a2e_proc::log::{Level, Log};
use a2e_proc::signals::end_signals;
use a2e_proc::transport::{Address, Connection, ListenOptions, Listener};
use clap::Args;
use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;

use super::{Complaint, Outcome, log, startup};

/// Which project.
#[derive(Args, Clone, Debug)]
pub struct Project {
    /// The project's folder, in which its solo.yml stands
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub project: PathBuf,
}

pub const DESK_HELP: &str = "\
The project's commands stand in its solo.yml (or a2e-proc.json). A command runs once a person has trusted it:
  a2e-proc trust list
Exit codes: 0 ended by a signal; 1 the system does not let it; 2 another desk runs for the project, or a file is wrong.";

pub const MCP_HELP: &str = "\
For the configuration of an MCP client: {\"command\": \"a2e-proc\", \"args\": [\"mcp\", \"--project\", \"/path/to/project\"]}
Starting it does nothing until a tool is called. If a desk runs for the project (`a2e-proc desk`), it passes everything on to it;
if not, it has a desk of its own, which ends with it.
Exit codes: 0 the client has ended it; 1 standard output is broken, or the desk that it passed on to has ended.";

impl Project {
    pub fn paths(&self) -> Result<Paths, Complaint> {
        Paths::here(&self.project).map_err(Complaint::usage)
    }
}

/// Clients that may be connected to a desk at once.
const MOST_CLIENTS: usize = 64;

/// How long a desk that has just been opened by another program may take to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(2);
const LISTENS_PAUSE: Duration = Duration::from_millis(20);

/// A desk of this program, which others may connect to.
struct Running {
    desk: Arc<Desk>,
    stop: Sender<()>,
    serving: JoinHandle<()>,
}

impl Running {
    fn open(paths: &Paths, log: &Log) -> Result<Self, NotOpened> {
        let failed = |doing: String, e: std::io::Error| NotOpened::Failed(format!("could not {doing}: {e}"));
        let mut config = Config::default();
        config.hidden_env.extend(startup::own_variables());
        let desk = Arc::new(Desk::open(paths.clone(), config, log.clone())?);
        let at = paths.socket.display();
        let options = ListenOptions { max_sessions: MOST_CLIENTS, log: log.clone(), ..ListenOptions::default() };
        let listener = Listener::bind(&Address::Unix(paths.socket.clone()), &options);
        let listener = listener.map_err(|e| failed(format!("listen at {at}"), e))?;
        desk.announce().map_err(|e| failed(format!("write {}", paths.lock().display()), e))?;
        let (stop, stopped) = bounded::<()>(1);
        let (served, log) = (Arc::clone(&desk), log.clone());
        let serve = move || mcp::serve_all(&served, &listener, &log, &stopped);
        let serving = thread::Builder::new().name("desk".into()).spawn(serve);
        let serving = serving.map_err(|e| failed("start a thread".into(), e))?;
        desk.begin();
        Ok(Self { desk, stop, serving })
    }

    /// Ends all connections and all processes, at the same time.
    fn close(self) {
        let _ = self.stop.try_send(());
        self.desk.close();
        // A connection takes no longer than the processes do.
        let _ = self.serving.join();
    }
}

/// Runs the desk until a signal comes.
pub fn desk(project: &Project, ignored: &[i32]) -> Outcome {
    let paths = project.paths()?;
    let stop = end_signals(ignored).map_err(|e| Complaint::failure(format!("could not catch signals: {e}")))?;
    let (log, _flush) = log::to_stderr(Level::Error)?;
    let running = Running::open(&paths, &log).map_err(|e| match e {
        NotOpened::Busy => Complaint::usage(format!(
            "a desk runs for {} already; a2e-proc mcp --project {0} connects to it",
            paths.root.display()
        )),
        NotOpened::Failed(words) => Complaint::failure(words),
    })?;
    tell_begin(&running.desk);
    let (ending, ended) = bounded(0);
    let told = Arc::clone(&running.desk);
    let news = thread::Builder::new().name("news".into()).spawn(move || {
        let (mut since, mut last) = (0, Vec::new());
        while let Some((version, views)) = told.news(since, A_LONG_TIME, &ended) {
            tell_changes(&last, &views);
            (since, last) = (version, views);
        }
    });
    let news = news.map_err(|e| Complaint::failure(format!("could not start a thread: {e}")));
    if news.is_ok() {
        let _ = stop.recv();
    }
    drop(ending);
    running.close();
    let _ = news?.join();
    say(format_args!("the desk is closed"));
    Ok(0)
}

/// As good as for ever; news are waited for again if nothing has happened in that time.
const A_LONG_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A line for the person at the desk. Nobody hears it if standard error is closed.
fn say(words: std::fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "a2e-proc: {words}");
}

fn tell_begin(desk: &Desk) {
    let paths = desk.paths();
    say(format_args!("the desk of {} ({})", desk.project(), paths.root.display()));
    for notice in desk.notices() {
        say(format_args!("note: {notice}"));
    }
    say(format_args!("MCP clients connect with: a2e-proc mcp --project {}", paths.root.display()));
    say(format_args!("or at the socket {}", paths.socket.display()));
}

fn tell_changes(before: &[View], now: &[View]) {
    for view in now {
        let old = before.iter().find(|old| old.id == view.id);
        let is_news = old.is_none_or(|old| old.status != view.status || old.pid != view.pid || old.name != view.name);
        if is_news {
            let pid = view.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            let code = view.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
            let why = view.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let (kind, status) = (view.kind.as_str(), view.status.as_str());
            say(format_args!("{kind} {} {}: {status}{pid}{code}{why}", view.id, view.name));
        }
        if view.is_selected && !old.is_some_and(|old| old.is_selected) {
            say(format_args!("{} is selected", view.name));
        }
    }
    for old in before.iter().filter(|old| now.iter().all(|view| view.id != old.id)) {
        say(format_args!("{} {} {}: closed", old.kind.as_str(), old.id, old.name));
    }
}

/// Serves MCP on standard input and output.
pub fn mcp(project: &Project) -> Outcome {
    let paths = project.paths()?;
    // On standard streams any of them means that whoever started this is done with it.
    let stop = end_signals(&[]).map_err(|e| Complaint::failure(format!("could not catch signals: {e}")))?;
    let (log, _flush) = log::to_stderr(Level::Error)?;
    let connection =
        Connection::stdio().map_err(|e| Complaint::failure(format!("could not use standard input and output: {e}")))?;
    let own: Arc<Mutex<Option<Running>>> = Arc::default();
    let (opened, open_log) = (Arc::clone(&own), log.clone());
    let open = move || {
        let (here, running) = open(&paths, &open_log)?;
        *opened.lock() = running;
        Ok(here)
    };
    let server = Server { tools: mcp::tools(), instructions: mcp::INSTRUCTIONS, open: Box::new(open) };
    let ended = mcp::serve(connection, &Arc::new(server), &stop);
    // The server is done with it: whatever still runs answers nobody.
    let running = own.lock().take();
    if let Some(running) = running {
        running.close();
    }
    match ended.map_err(|e| Complaint::failure(format!("could not start a thread: {e}")))? {
        Ended::Clean => Ok(0),
        Ended::OutputBroken(e) => {
            Err(Complaint::failure(format!("standard output is broken: {e}; every process was ended")))
        }
        Ended::DeskEnded => Err(Complaint::failure("the desk that this was connected to has ended")),
    }
}

/// The project's desk: the one that runs, or one of this program's own.
///
/// Race: two programs find no desk at the same time.
/// 1. Neither can connect.
/// 2. One opens the desk, under its lock, and goes on to listen.
/// 3. The other finds it locked, and connects as soon as it can.
fn open(paths: &Paths, log: &Log) -> Result<(Opened, Option<Running>), String> {
    let start = Instant::now();
    loop {
        let sockets = [paths.announced(), Some(paths.socket.clone())];
        if let Some(there) = sockets.iter().flatten().find_map(|socket| connect(socket)) {
            return Ok((Opened::There(there), None));
        }
        match Running::open(paths, log) {
            Ok(running) => {
                let tools = DeskTools::new(Arc::clone(&running.desk), None);
                return Ok((Opened::Here(Arc::new(tools)), Some(running)));
            }
            Err(NotOpened::Failed(words)) => return Err(words),
            Err(NotOpened::Busy) if start.elapsed() >= LISTENS_WITHIN => {
                return Err(format!(
                    "another program has the desk of this project open (it holds {}), and does not answer at {}; end it, or try \
                     again",
                    paths.lock().display(),
                    paths.announced().unwrap_or_else(|| paths.socket.clone()).display()
                ));
            }
            // The system has no event for a socket that comes to be.
            Err(NotOpened::Busy) => thread::sleep(LISTENS_PAUSE),
        }
    }
}

fn connect(socket: &Path) -> Option<Connection> {
    Connection::unix(UnixStream::connect(socket).ok()?).ok()
}
