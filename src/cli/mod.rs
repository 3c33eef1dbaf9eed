//! The command line: which subcommand, with what settings, and what its end means as an exit code. Floor 5.

mod audit;
mod client;
mod config;
mod config_file;
#[cfg(feature = "mcp")]
mod desk;
mod keys;
mod listening;
mod log;
mod rotate;
mod run;
mod serve;
mod settings;
mod startup;
mod trace;
#[cfg(feature = "mcp")]
mod trust;

use std::io::Write;
use std::process::ExitCode;

use a2e_proc::model::Failure;
use clap::{Parser, Subcommand};

use listening::Listening;
use settings::Settings;

/// The command line.
#[derive(Parser)]
#[command(name = "a2e-proc", version, about, long_about = None, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve one agent on standard input and output, or many at an address
    ///
    /// Reads A2E requests from standard input, one JSON object a line, and writes answers and events to standard output.
    /// Ends when the input does, on a shutdown request, or on SIGTERM, SIGINT or SIGHUP, and takes every process along. With
    /// --listen each connection is a session of its own, and only the signals end the host.
    #[command(after_help = SERVE_HELP)]
    Serve {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        listening: Listening,
    },
    /// Say what a configuration file comes to, or print one with every key
    Config {
        #[command(subcommand)]
        action: config::Action,
    },
    /// Hold a host, or a client, in any language to the cases of the conformance kit
    ///
    /// Starts the host anew for each case, plays the case and watches every line. Without --host it tests this program's own
    /// host. What the cases hold, and how to write a profile for a host, is in conformance/README.md.
    #[cfg(feature = "conform")]
    #[command(after_help = crate::conform::HELP)]
    Conform {
        #[command(flatten)]
        options: Box<crate::conform::Options>,
    },
    /// Run a project's desk: its commands, terminals and agents, for MCP clients
    ///
    /// Starts the project's trusted commands, and listens on a Unix socket of this user for `a2e-proc mcp` to connect. Says on
    /// standard error what starts and ends. Ends with SIGTERM, SIGINT or SIGHUP, and takes every process along.
    #[cfg(feature = "mcp")]
    #[command(after_help = desk::DESK_HELP)]
    Desk {
        #[command(flatten)]
        project: desk::Project,
    },
    /// Serve MCP on standard input and output: tools for a project's commands, terminals and agents
    ///
    /// For MCP clients of every revision from 2024-11-05 to 2026-07-28.
    #[cfg(feature = "mcp")]
    #[command(after_help = desk::MCP_HELP)]
    Mcp {
        #[command(flatten)]
        project: desk::Project,
    },
    /// Say which of a project's commands MCP clients may run
    #[cfg(feature = "mcp")]
    #[command(after_help = trust::HELP)]
    Trust {
        #[command(subcommand)]
        action: trust::Action,
    },
    /// Run one command through the protocol, as a person would without it
    ///
    /// Starts a host in this program and drives it over A2E: the command's output and input are yours, Ctrl-C reaches it as
    /// SIGINT, and its exit code becomes this program's. The command is allowed by being on the line.
    #[command(after_help = RUN_HELP, override_usage = "a2e-proc run [OPTIONS] [--] <CMD> [ARGS]...")]
    Run {
        #[command(flatten)]
        settings: Settings,
        /// Show each line of the protocol on standard error
        #[arg(long)]
        trace: bool,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, value_names = ["CMD", "ARGS"])]
        command: Vec<String>,
    },
}

const EXAMPLES: &str = "\
Examples:
  a2e-proc run -- python3 -c 'print(1)'           run a command through the protocol
  a2e-proc run --trace -- bash -c 'echo hi'       and see what is said
  a2e-proc serve --allow bash --allow make        serve an agent on stdin and stdout";

const SERVE_HELP: &str = "\
A flag beats the configuration file, and the file beats the default.
Exit codes: 0 the session has ended; 1 standard output is broken; 2 the command line or the file is wrong.
Try it:
  printf '%s\\n' '{\"type\":\"proc/spawn/req\",\"id\":\"1\",\"cmd\":[\"ls\"]}' | a2e-proc serve";

const RUN_HELP: &str = "\
Exit codes: the command's own; 128+N if signal N ended it; 124 if its time limit did; 125 if the host failed;
126 if the command could not be started; 127 if it was not found; 2 if the command line or the file is wrong.";

/// What a subcommand comes to: an exit code, or a line for standard error and a code.
type Outcome = Result<u8, Complaint>;

/// Why the program cannot do what it was asked.
pub struct Complaint {
    text: String,
    code: u8,
}

impl Complaint {
    /// The arguments or the configuration are wrong.
    fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 2 }
    }

    /// The host did not start: it cannot do what it is configured to do, or the system did not let it, which is `code`.
    fn no_host(failure: &Failure, code: u8) -> Self {
        let is_usage = failure.source.kind() == std::io::ErrorKind::InvalidInput;
        Self { text: failure.to_string(), code: if is_usage { 2 } else { code } }
    }

    /// The system did not let it.
    fn failure(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 1 }
    }
}

/// Runs what the command line asks for.
pub fn main() -> ExitCode {
    let ignored = startup::prepare();
    let outcome = match Arguments::parse().command {
        Command::Serve { settings, listening } => serve::serve(Settings { listening, ..settings }, &ignored),
        Command::Config { action } => config::config(action),
        #[cfg(feature = "conform")]
        Command::Conform { options } => crate::conform::run(&options).map_err(|fault| match fault {
            crate::conform::Fault::Usage(text) => Complaint::usage(text),
            crate::conform::Fault::Harness(text) => Complaint { text, code: 3 },
        }),
        #[cfg(feature = "mcp")]
        Command::Desk { project } => desk::desk(&project, &ignored),
        #[cfg(feature = "mcp")]
        Command::Mcp { project } => desk::mcp(&project),
        #[cfg(feature = "mcp")]
        Command::Trust { action } => trust::trust(&action),
        Command::Run { settings, trace, command } => run::run(settings, trace, command, &ignored),
    };
    match outcome {
        Ok(code) => code.into(),
        Err(complaint) => {
            // Nobody is left to be told if standard error is closed too.
            let _ = writeln!(anstream::stderr(), "a2e-proc: {}", complaint.text);
            complaint.code.into()
        }
    }
}
