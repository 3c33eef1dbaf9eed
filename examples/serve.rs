//! A2E served within a program: a host on one end of a pair of connections, an agent on the other.
//!
//! Run it with `cargo run --example serve --no-default-features`.
#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader, Write};
use std::thread;

use a2e_proc::crossbeam_channel::never;
use a2e_proc::engine::{Config, Host};
use a2e_proc::face::a2e::{Options, serve};
use a2e_proc::transport::Connection;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host::new(Config { allowed: vec!["echo".into()], ..Config::default() })?;
    let (for_host, for_agent) = Connection::pair()?;
    let serving = thread::spawn(move || serve(&host, for_host, &Options::default(), &never::<()>()));

    // The agent writes requests, one JSON object a line, and reads answers and events.
    let Connection { input, output: mut to_host, .. } = for_agent;
    writeln!(to_host, r#"{{"type":"proc/spawn/req","id":"1","cmd":["echo","hello"]}}"#)?;
    for line in BufReader::new(input).lines() {
        let line = line?;
        println!("{line}");
        // The last event of a process tells its exit code.
        if line.contains(r#"{\"code\":"#) {
            break;
        }
    }
    // The end of its input is the end of the session.
    drop(to_host);
    println!("{:?}", serving.join().expect("the host does not panic")?);
    Ok(())
}
