//! Random use of a host for a while, with every invariant checked as it goes: what the wire says, and what the system says of
//! threads, descriptors, zombies and memory.
//!
//! `cargo run --release --example soak -- [--seconds N] [--seed S] [--plant FAULT | --self-test]`
//!
//! The host serves in this very process, over a pair of connections; `agent` talks to it, `plan` knows what each process must
//! come to. A run is decided by its seed, but for the timing of the machine. `--plant` puts a fault between host and agent, or
//! into this process, and the run must fail; `--self-test` does so with every fault there is.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::field_reassign_with_default,
    dead_code
)]

mod agent;
#[path = "../../tests/common/monitor.rs"]
mod monitor;
mod plan;
#[path = "../../tests/common/system.rs"]
mod system;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use a2e_proc::engine::{Config, Host};
use a2e_proc::face::a2e::{Ended, Options, serve};
use a2e_proc::transport::Connection;

use agent::{Agent, Plant};
use plan::Soak;

/// How much more memory this process may hold after a run than before, in KiB: the agent's own tables are part of it.
const MORE_MEMORY: u64 = 48 * 1024;

/// Numbers that a seed decides (splitmix64).
pub struct Random(u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

fn main() -> ExitCode {
    let mut seconds = 10;
    let mut seed = u64::from(std::process::id());
    let (mut plant, mut self_test) = (None, false);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut number = || args.next().and_then(|value| value.parse().ok());
        match flag.as_str() {
            "--seconds" => seconds = number().expect("--seconds takes a number"),
            "--seed" => seed = number().expect("--seed takes a number"),
            "--plant" => plant = Some(args.next().and_then(|name| Plant::named(&name)).expect("a known fault")),
            "--self-test" => self_test = true,
            other => {
                eprintln!("soak: unknown flag {other}; see the head of examples/soak/main.rs");
                return ExitCode::from(2);
            }
        }
    }

    // A shell's background jobs ignore SIGINT, and so would the processes that are started here.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default()).unwrap();

    if self_test {
        return if self_test_all(seconds, seed) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match run(Duration::from_secs(seconds), seed, plant) {
        Ok(summary) => {
            println!("seed {seed}, {seconds} s: {summary}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            println!("seed {seed}: FAULT: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Plants each fault in a run of its own, and sees each caught for what it is.
fn self_test_all(seconds: u64, seed: u64) -> bool {
    let mut all = true;
    for plant in Plant::ALL {
        let name = format!("{plant:?}");
        let args = ["--seconds", &seconds.to_string(), "--seed", &seed.to_string(), "--plant", &name];
        let output = std::process::Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let caught = !output.status.success() && said.contains(plant.caught_by());
        all &= caught;
        let said: String = said.chars().take(160).collect();
        println!("planted {name}: {}: {}", if caught { "caught" } else { "NOT CAUGHT" }, said.trim_end());
    }
    all
}

/// One run. The error is the first invariant that did not hold.
fn run(time: Duration, seed: u64, plant: Option<Plant>) -> Result<String, String> {
    let own = std::process::id().cast_signed();
    let config = Config {
        allowed: plan::PROGRAMS.iter().map(ToString::to_string).collect(),
        max_procs: plan::MOST,
        kill_grace: Duration::from_millis(300),
        ..Config::default()
    };
    let host = Host::new(config).map_err(|e| e.to_string())?;
    let (for_host, for_agent) = Connection::pair().map_err(|e| e.to_string())?;
    let (_keep, stop) = a2e_proc::crossbeam_channel::bounded::<()>(1);
    let serving = std::thread::spawn(move || serve(&host, for_host, &Options::default(), &stop));

    let mut soak = Soak::new(Agent::new(for_agent, plant), Random(seed), plant);
    soak.warm_up()?;
    let before = (system::holdings(own), system::rss(own));
    soak.run(time)?;
    soak.settle()?;
    let mut now = before.0;
    let settled = system::eventually(Duration::from_secs(5), || {
        now = system::holdings(own);
        now.is_within(&before.0)
    });
    if !settled {
        return Err(format!("{:?} before, {now:?} after", before.0));
    }
    let memory = system::rss(own);
    if memory > before.1 + MORE_MEMORY {
        return Err(format!("memory: {} KiB before, {memory} KiB after", before.1));
    }
    let summary = format!("{}; {} KiB before, {memory} KiB after", soak.summary(), before.1);

    let closed = Instant::now();
    soak.finish()?;
    match serving.join() {
        Ok(Ok(Ended::Clean)) if closed.elapsed() < Duration::from_secs(3) => {}
        other => return Err(format!("the host ended with {other:?} after {:?}", closed.elapsed())),
    }
    let left = system::alive(&plan::marker());
    if left.is_empty() { Ok(summary) } else { Err(format!("left behind: {left:?}")) }
}
