//! `a2e-proc serve`: one agent on standard input and output.

use a2e_proc::engine::Host;
use a2e_proc::face::a2e::{self, Ended};
use a2e_proc::log::Level;
use a2e_proc::signals::end_signals;
use a2e_proc::transport::Connection;

use super::settings::{Resolved, Settings};
use super::{Complaint, Outcome};

/// Serves until the session ends.
pub fn serve(settings: Settings) -> Outcome {
    let Resolved { config, options, flush: _flush } = settings.resolve()?;
    let failure = |doing: &str, e: std::io::Error| Complaint::failure(format!("could not {doing}: {e}"));
    let stop = end_signals().map_err(|e| failure("catch signals", e))?;
    let host = Host::new(config).map_err(|e| Complaint::no_host(&e, 1))?;
    let connection = Connection::stdio().map_err(|e| failure("use standard input and output", e))?;
    match a2e::serve(&host, connection, &options, &stop).map_err(|e| failure("start a thread", e))? {
        Ended::Clean => Ok(0),
        Ended::OutputBroken(e) => {
            options.log.say(Level::Error, format_args!("standard output is broken: {e}"));
            Err(Complaint::failure(format!("standard output is broken: {e}; every process was ended")))
        }
    }
}
