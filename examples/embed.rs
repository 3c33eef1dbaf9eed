//! The engine as a library: spawn a process, write to it, read what it says, and kill it.
//!
//! Run it with `cargo run --example embed --no-default-features`.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use a2e_proc::engine::{Closing, Config, EventKind, Host, Reply, SpawnRequest};
use a2e_proc::model::Signal;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host::new(Config { allowed: vec!["cat".into()], ..Config::default() })?;
    let (session, events) = host.open_session();

    // The process's events wait until the gate is opened; here nothing has to be said first.
    let spawned = session.spawn(&SpawnRequest { cmd: vec!["cat".into()], ..SpawnRequest::default() })?;
    println!("spawned pid {}", spawned.pid);
    spawned.gate.open();
    let id = spawned.id.as_str();

    // Answers come when there is one: a write's when its bytes are in the pipe.
    let (reply, written) = Reply::channel();
    session.write(id, b"hello from the other side\n".to_vec(), false, reply);
    written.recv()?.result?;

    // Events come on a channel, in order. Each holds what one read gave, cut into lines.
    let event = events.recv_timeout(Duration::from_secs(5))?;
    if let EventKind::Output { stream, chunk } = &event.kind {
        for piece in chunk.pieces() {
            print!("{stream:?}: {}", piece.text());
        }
    }

    // A kill is answered when the process and its whole group have ended.
    let (reply, killed) = Reply::channel();
    session.kill(id, Signal::Term, reply);
    println!("killed: {:?}", killed.recv()??);

    // The last event of a process is how it ended.
    let event = events.recv_timeout(Duration::from_secs(5))?;
    if let EventKind::Ended(outcome) = &event.kind {
        println!("it ended with {:?}, asked for by {:?}", outcome.exit, outcome.cause);
    }
    session.close(Closing::END_OF_INPUT);
    Ok(())
}
