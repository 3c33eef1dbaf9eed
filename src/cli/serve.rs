//! `a2e-proc serve`: one agent on standard input and output, or many at an address.

use std::io::Write;

use a2e_proc::engine::Host;
use a2e_proc::face::a2e::{self, Ended};
use a2e_proc::log::Level;
use a2e_proc::signals::end_signals;
use a2e_proc::transport::{Connection, Listener};

use super::settings::{Resolved, Settings};
use super::{Complaint, Outcome};

/// Serves until the session ends, or a signal comes; one that listens leaves those alone that it was started to ignore.
pub fn serve(settings: Settings, ignored: &[i32]) -> Outcome {
    let Resolved { config, options, listen, flush: _flush } = settings.resolve()?;
    let failure = |doing: &str, e: std::io::Error| Complaint::failure(format!("could not {doing}: {e}"));
    // On standard streams any of them means that whoever started this host is done with it (R8). One that listens may be meant to
    // outlive that, and says so as with every program, by `nohup`.
    let ignored = if listen.is_some() { ignored } else { &[] };
    let stop = end_signals(ignored).map_err(|e| failure("catch signals", e))?;
    let host = Host::new(config).map_err(|e| Complaint::no_host(&e, 1))?;
    if let Some((address, listening)) = listen {
        let listener = Listener::bind(&address, &listening).map_err(|e| failure(&format!("listen at {address}"), e))?;
        // Whoever has started this needs to know when, and at which port if it asked for any.
        let _ = writeln!(anstream::stderr(), "a2e-proc: listening at {}", listener.address());
        a2e::serve_all(&host, &listener, &options, &stop);
        return Ok(0);
    }
    let connection = Connection::stdio().map_err(|e| failure("use standard input and output", e))?;
    match a2e::serve(&host, connection, &options, &stop).map_err(|e| failure("start a thread", e))? {
        Ended::Clean => Ok(0),
        Ended::OutputBroken(e) => {
            options.log.say(Level::Error, format_args!("standard output is broken: {e}"));
            Err(Complaint::failure(format!("standard output is broken: {e}; every process was ended")))
        }
    }
}
