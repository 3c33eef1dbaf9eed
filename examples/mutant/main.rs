//! A host that breaks exactly one thing: `mutant NAME COMMAND ARGS…` stands between a runner and a real host and changes what
//! passes. `tests/mutants.rs` holds that the conformance kit catches every one of them; `mutant --list` names them.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod message;
mod requests;
mod responses;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use signal_hook::iterator::Signals;

/// What comes of a line.
pub enum Fate {
    /// It passes unchanged.
    Pass,
    /// These lines pass in its place.
    Become(Vec<String>),
    /// These lines go back to where it came from, and it does not pass.
    Answer(Vec<String>),
}

/// What a mutant remembers.
#[derive(Default)]
pub struct Memory {
    pub count: usize,
    pub held: Vec<String>,
    pub seen: Vec<String>,
    pub processes: Vec<(String, i64)>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args == ["--list"] {
        let all = requests::NAMES.iter().chain(responses::NAMES).chain(PROCESS);
        all.for_each(|name| println!("{name}"));
        return;
    }
    let [name, program, rest @ ..] = &args[..] else { panic!("mutant NAME COMMAND ARGS…") };
    std::process::exit(run(name, program, rest));
}

/// Mutants of the host's life rather than of its lines.
const PROCESS: &[&str] =
    &["exits-with-1", "exits-late", "ignores-signals", "lives-on-at-end-of-input", "takes-all-output"];

fn run(name: &str, program: &str, args: &[String]) -> i32 {
    let known = requests::NAMES.iter().chain(responses::NAMES).chain(PROCESS).any(|known| *known == name);
    assert!(known || name == "none", "there is no mutant {name:?}");
    let mut host = Command::new(program);
    host.args(args);
    let mut host = host.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&host);
    let (mut to_host, from_host) = (host.stdin.take().unwrap(), host.stdout.take().unwrap());
    let out = Arc::new(Mutex::new(std::io::stdout()));
    let memory = Arc::new(Mutex::new(Memory::default()));

    // Signals to the host reach this first.
    let mut signals = Signals::new([15, 2, 1]).unwrap();
    let passes_on = name != "ignores-signals";
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if passes_on {
                let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    });
    // A host that is killed takes its own along: this one is killed in its place.
    let (name_in, out_in, memory_in) = (name.to_owned(), Arc::clone(&out), Arc::clone(&memory));
    std::thread::spawn(move || {
        let mut stdin = BufReader::new(std::io::stdin());
        let mut line = Vec::new();
        while stdin.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
            let fate = match std::str::from_utf8(&line) {
                Ok(text) => requests::change(&name_in, text.trim_end_matches('\n'), &mut memory_in.lock().unwrap()),
                Err(_) if name_in == "bad-lines-swallowed" => Fate::Become(Vec::new()),
                Err(_) => Fate::Pass,
            };
            let written = match fate {
                Fate::Pass => to_host.write_all(&line),
                Fate::Become(lines) => {
                    lines.iter().try_for_each(|line| to_host.write_all(format!("{line}\n").as_bytes()))
                }
                Fate::Answer(lines) => {
                    say(&out_in, &lines);
                    Ok(())
                }
            };
            if written.is_err() {
                break;
            }
            line.clear();
        }
        if name_in == "lives-on-at-end-of-input" {
            std::thread::sleep(Duration::from_secs(600));
        }
    });
    // One that takes all that its processes say, whether anybody reads it or not.
    let from_host: Box<dyn Read> = if name == "takes-all-output" {
        let (mut reader, mut writer) = (from_host, Hoard::default());
        let hoard = writer.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut reader, &mut writer);
            writer.0.0.lock().unwrap().1 = true;
            writer.0.1.notify_all();
        });
        Box::new(hoard)
    } else {
        Box::new(from_host)
    };
    let mut from_host = BufReader::new(from_host);
    let mut line = Vec::new();
    while from_host.by_ref().read_until(b'\n', &mut line).unwrap_or(0) > 0 {
        let text = String::from_utf8(line.clone()).unwrap();
        let text = text.trim_end_matches('\n');
        // Out of the match, so that nobody waits for the memory while this waits for the runner.
        let fate = responses::change(name, text, &mut memory.lock().unwrap());
        match fate {
            Fate::Pass => say(&out, &[text.to_owned()]),
            Fate::Become(lines) | Fate::Answer(lines) => say(&out, &lines),
        }
        line.clear();
    }
    let code = host.wait().unwrap().code().unwrap_or(1);
    if name == "exits-late" {
        std::thread::sleep(Duration::from_secs(600));
    }
    if name == "exits-with-1" { 1 } else { code }
}

/// Bytes without bound, and whether that is all.
#[derive(Clone, Default)]
struct Hoard(Arc<Held>);

/// The bytes, whether they are all, and who waits for more.
type Held = (Mutex<(VecDeque<u8>, bool)>, Condvar);

impl Write for Hoard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.0.lock().unwrap().0.extend(bytes);
        self.0.1.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Hoard {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut held = self.0.0.lock().unwrap();
        while held.0.is_empty() && !held.1 {
            held = self.0.1.wait(held).unwrap();
        }
        held.0.read(buffer)
    }
}

/// Writes lines, of which one that begins with a NUL is written as bytes that are not UTF-8.
fn say(out: &Mutex<std::io::Stdout>, lines: &[String]) {
    let mut out = out.lock().unwrap();
    for line in lines {
        let bytes = match line.strip_prefix('\0') {
            Some(rest) => [rest.as_bytes(), b"\xff"].concat(),
            None => line.clone().into_bytes(),
        };
        // A runner that has seen enough closes its side.
        if out.write_all(&[&bytes[..], b"\n"].concat()).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }
}
