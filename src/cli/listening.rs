//! What an operator can set of listening: flags, with the rest filled in from the file by `config_file`; who may reach what.

use std::time::Duration;

use a2e_proc::engine::AUTH_TOKEN_ENV;
use a2e_proc::face::a2e::Options;
use a2e_proc::transport::{Address, ListenOptions};
use clap::Args;

use super::Complaint;
use super::settings::{SPAN, WHOLE, at_least_one, positive_span, span};

/// Every setting; `None` where nothing was said.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Many agents")]
pub struct Listening {
    /// Serve every agent that connects to this address: unix:PATH, tcp:HOST:PORT or http:HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Address>,
    /// Let other machines connect too; agents must show a token then
    #[arg(long)]
    pub public: bool,
    /// Agents that may be connected at once [default: 64]
    #[arg(long, value_name = "N", value_parser = |text: &str| text.parse().map_err(|_| WHOLE.into()).and_then(at_least_one))]
    pub max_sessions: Option<usize>,
    /// Processes of all agents together that may run at once; 0 is no limit [default: 0]
    #[arg(long, value_name = "N")]
    pub max_total_procs: Option<usize>,
    /// Seconds that an agent may take to show its token, if there is one [default: 30]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = |text: &str| text.parse().map_err(|_| SPAN.into()).and_then(span))]
    pub handshake_within: Option<f64>,
    /// HTTP: seconds that an agent may be without a stream before its session ends [default: 60]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = |text: &str| text.parse().map_err(|_| SPAN.into()).and_then(positive_span))]
    pub resume: Option<f64>,
    /// HTTP: a name by which requests may call this host, beside localhost and numbers; repeatable
    #[arg(long = "http-host", value_name = "NAME")]
    pub http_hosts: Option<Vec<String>>,
}

/// How long an agent that has connected may take to show its token.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(30);

impl Listening {
    /// Where to listen, and how, if that was said. What it means for a session is put into `options`.
    pub fn resolve(self, options: &mut Options) -> Result<Option<(Address, ListenOptions)>, Complaint> {
        let Some(address) = self.listen else { return Ok(None) };
        // What is checked is what is listened at: a name may stand for something else the next time it is asked for.
        let address = address.resolved().map_err(|e| Complaint::usage(format!("listen: {address}: {e}")))?;
        check_reach(&address, self.public, options.auth_token.is_some())?;
        options.handshake_within = Some(self.handshake_within.map_or(HANDSHAKE_WITHIN, Duration::from_secs_f64));
        let default = ListenOptions::default();
        let listen = ListenOptions {
            max_sessions: self.max_sessions.unwrap_or(default.max_sessions),
            max_body_bytes: options.max_line_bytes,
            resume: self.resume.map_or(default.resume, Duration::from_secs_f64),
            host_names: self.http_hosts.unwrap_or(default.host_names),
            log: options.log.clone(),
        };
        Ok(Some((address, listen)))
    }
}

/// Refuses to be reached by other machines by mistake, or by anybody at all.
fn check_reach(address: &Address, public: bool, has_token: bool) -> Result<(), Complaint> {
    let is_local = address.is_local().map_err(|e| Complaint::usage(format!("listen: {address}: {e}")))?;
    let reached = format!("listen: {address} can be reached from other machines");
    if !is_local && !public {
        let words = "listen at 127.0.0.1, or add --public and a token if that is meant";
        return Err(Complaint::usage(format!("{reached}; {words}")));
    }
    if !is_local && !has_token {
        let words = "so agents must show a token: give --auth-token-file, or the variable";
        return Err(Complaint::usage(format!("{reached}, {words} {AUTH_TOKEN_ENV}")));
    }
    Ok(())
}
