//! A client as the published SDK's is, `clients/a2e_client.py`, over both transports and in both dialects: another language, and
//! another hand's HTTP.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::process::Command;

use common::PROGRAMS;
use common::server::Server;
use common::system::assert_gone;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/a2e_client.py");

/// Plays every flow of the client with these arguments.
fn play(args: &[&str]) {
    let output = Command::new("python3").arg(CLIENT).args(args).output().unwrap();
    let (said, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{stderr}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 8, "{said}{stderr}");
    assert_gone("sleep 3641");
}

#[test]
fn a_python_client_over_standard_streams() {
    for wire in ["spec", "sdk"] {
        let mut args = vec!["stdio", env!("CARGO_BIN_EXE_a2e-proc"), "serve", "--wire", wire];
        args.extend(PROGRAMS.iter().flat_map(|program| ["--allow", program]));
        play(&args);
    }
}

#[test]
fn a_python_client_over_http() {
    let has_requests = Command::new("python3").args(["-c", "import requests"]).output().unwrap().status.success();
    if !has_requests {
        let what = "Python's requests is missing: pip install -r tests/clients/requirements.txt";
        assert!(std::env::var_os("CI").is_none(), "{what}");
        eprintln!("skipped: {what}");
        return;
    }
    for wire in ["spec", "sdk"] {
        let server = Server::start("http:127.0.0.1:0", &["--wire", wire]);
        play(&[&format!("http://{}", server.place())]);
        assert_eq!(server.stop().0, Some(0));
    }
}
