//! The same work without a host: one thread a process that reads lines and encodes the same JSON, and one that writes. It
//! runs as a process of its own, as the host does, so that its output goes the same way.
//!
//! And the least that whoever does something for another process can do: [`relay`] reads a word, does what it says with
//! `std::process`, and answers with a word.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

/// What makes this program the floor instead of the bench.
pub const FLAG: &str = "--floor";

/// What makes it the relay.
pub const RELAY: &str = "--relay";

/// Bytes that a reader collects before it hands them on.
const BATCH: usize = 64 * 1024;

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    version: &'static str,
    ts: f64,
    proc_id: &'a str,
    stream_type: &'static str,
    data: &'a str,
    req_id: &'static str,
}

#[derive(Serialize)]
struct Data<'a> {
    text: &'a str,
}

/// Starts `count` times the command, and passes on what all of them write.
pub fn main(count: &str, cmd: impl Iterator<Item = String>) -> ExitCode {
    let cmd: Vec<String> = cmd.collect();
    let (sender, batches) = sync_channel::<Vec<u8>>(32);
    let writer = std::thread::spawn(move || {
        let mut output = std::io::stdout().lock();
        for batch in batches {
            output.write_all(&batch).unwrap();
        }
        output.flush().unwrap();
    });
    let readers: Vec<_> = (0..count.parse().unwrap())
        .map(|_| {
            let mut child = Command::new(&cmd[0]).args(&cmd[1..]).stdout(Stdio::piped()).spawn().unwrap();
            let stdout = child.stdout.take().unwrap();
            let sender = sender.clone();
            let reader = std::thread::spawn(move || read(stdout, &sender));
            (child, reader)
        })
        .collect();
    drop(sender);
    for (mut child, reader) in readers {
        reader.join().unwrap();
        child.wait().unwrap();
    }
    writer.join().unwrap();
    ExitCode::SUCCESS
}

fn read(stdout: ChildStdout, sender: &SyncSender<Vec<u8>>) {
    let mut lines = BufReader::with_capacity(BATCH, stdout);
    let (mut line, mut data, mut batch) = (Vec::new(), Vec::new(), Vec::with_capacity(BATCH * 2));
    let proc_id = uuid::Uuid::new_v4().simple().to_string();
    let mut number: u128 = uuid::Uuid::new_v4().as_u128();
    while lines.read_until(b'\n', &mut line).unwrap() > 0 {
        data.clear();
        serde_json::to_writer(&mut data, &Data { text: &String::from_utf8_lossy(&line) }).unwrap();
        // Ids that need no system call: the floor is to be as fast as it can be.
        number = number.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(1);
        let mut hex = uuid::Uuid::encode_buffer();
        let id = &*uuid::Builder::from_random_bytes(number.to_ne_bytes()).into_uuid().simple().encode_lower(&mut hex);
        let event = Event {
            kind: "proc/read/event",
            id,
            version: "1.0",
            ts: SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64(),
            proc_id: &proc_id,
            stream_type: "stdout",
            data: std::str::from_utf8(&data).unwrap(),
            req_id: "1",
        };
        serde_json::to_writer(&mut batch, &event).unwrap();
        batch.push(b'\n');
        if batch.len() >= BATCH {
            sender.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH * 2))).unwrap();
        }
        line.clear();
    }
    sender.send(batch).unwrap();
}

/// Spawns or ends a process at each word.
pub fn relay() -> ExitCode {
    let mut child: Option<Child> = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match (line.strip_prefix("spawn "), child.take()) {
            (Some(program), _) => child = Some(bare(&[program, "1000"])),
            (None, Some(mut child)) => {
                if line == "kill" {
                    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
                }
                child.wait().unwrap();
            }
            (None, None) => return ExitCode::FAILURE,
        }
        println!("done");
    }
    ExitCode::SUCCESS
}

/// A relay that runs, to ask.
pub struct Relay {
    child: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Relay {
    pub fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.arg(RELAY).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (words, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, words, answers }
    }

    /// Has it `spawn PROGRAM`, `kill` what it has spawned, or `wait` for that, and waits for the word that it is done.
    pub fn ask(&mut self, what: &str) {
        self.words.write_all(format!("{what}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }

    pub fn finish(mut self) {
        drop(self.words);
        self.child.wait().unwrap();
    }
}

/// How many seconds the floor takes for `count` processes of this command.
pub fn seconds(count: usize, cmd: &[&str]) -> f64 {
    let start = Instant::now();
    let mut floor = Command::new(std::env::current_exe().unwrap())
        .args([FLAG, &count.to_string()])
        .args(cmd)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = floor.stdout.take().unwrap();
    let mut buffer = vec![0; 1024 * 1024];
    while output.read(&mut buffer).unwrap() > 0 {}
    assert!(floor.wait().unwrap().success());
    start.elapsed().as_secs_f64()
}

/// A process with three pipes, without a host.
pub fn bare(cmd: &[&str]) -> Child {
    Command::new(cmd[0])
        .args(&cmd[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
