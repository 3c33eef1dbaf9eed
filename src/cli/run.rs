//! `a2e-proc run`: one command for a person, driven through the protocol over a connection within this program.
//!
//! Threads: `host` serves; this one reads what the host says; `stdin` sends what the person types, one write at a time, and
//! `interrupts` sends kill requests for Ctrl-C and the like. The last two may sit in a read when the command has ended; they
//! end with the program.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use a2e_proc::engine::Host;
use a2e_proc::face::a2e;
use a2e_proc::signals::{EndSignal, end_signals};
use a2e_proc::transport::{Connection, Input, Output};
use a2e_proc::wire::base64;
use crossbeam_channel::{Receiver, Sender, bounded};

use super::client::{Answers, Data, HandshakeReq, KillReq, Requests, Said, Shutdown, SpawnReq, StatusReq, WriteReq};
use super::settings::{Resolved, Settings};
use super::trace::Trace;
use super::{Complaint, Outcome};

const TIMED_OUT: u8 = 124;
/// The host itself failed, as `env` and `timeout` report it.
const HOST_FAILED: u8 = 125;
const NOT_STARTED: u8 = 126;
const NOT_FOUND: u8 = 127;
/// What a shell reports of a program that wrote to a closed pipe.
const BROKEN_PIPE: u8 = 128 + 13;

/// Runs `command` and returns the code to exit with. Signals that are `ignored` are not passed on.
pub fn run(mut settings: Settings, trace: bool, command: Vec<String>, ignored: &[i32]) -> Outcome {
    if settings.allowed_commands.replace(vec![command[0].clone()]).is_some() {
        return Err(Complaint::usage("run allows the command on its line and no other: leave --allow out"));
    }
    let Resolved { config, options, flush: _flush, .. } = settings.resolve()?;
    let signals = end_signals(ignored).map_err(host_failed)?;
    let (for_host, for_client) = Connection::pair().map_err(host_failed)?;
    let auth_token = options.auth_token.clone();
    // In JSON a byte takes at most six, and the rest of a request is short.
    let most_per_write = (options.max_line_bytes.saturating_sub(512) / 6).clamp(1, 32 * 1024);
    let limits = Limits { most_per_write, max_output_bytes: config.max_output_bytes };
    let host = Host::new(config).map_err(|e| Complaint::no_host(&e, HOST_FAILED))?;
    let serving = thread::Builder::new()
        .name("host".into())
        .spawn(move || a2e::serve(&host, for_host, &options, &crossbeam_channel::never::<()>()))
        .map_err(host_failed)?;

    let trace = Trace::new(trace, auth_token.clone());
    let requests = Requests::new(for_client.output, trace.clone());
    let mut answers = Answers::new(for_client.input, trace);
    let hello = HandshakeReq {
        agent_id: "a2e-proc run",
        agent_caps: ["proc"],
        auth_token: auth_token.map(|token| token.reveal().to_owned()).unwrap_or_default(),
    };
    let outcome = drive(&requests, &mut answers, &hello, command, signals, &limits);
    // The other threads still hold the way to the host, so its input does not end by itself.
    let _ = requests.send(&Shutdown { timeout: 0 });
    drop(answers);
    match serving.join() {
        Ok(Ok(_)) => outcome,
        Ok(Err(e)) => Err(host_failed(e)),
        Err(_) => Err(host_failed("it panicked")),
    }
}

/// What `run` has to know of its host.
struct Limits {
    most_per_write: usize,
    max_output_bytes: u64,
}

/// A word to the person, beside the command's own output.
fn say(words: std::fmt::Arguments<'_>) {
    // Nobody hears it if standard error is closed.
    let _ = writeln!(anstream::stderr(), "a2e-proc: {words}");
}

fn host_failed(words: impl std::fmt::Display) -> Complaint {
    Complaint { text: format!("the host failed: {words}"), code: HOST_FAILED }
}

/// The whole conversation, up to the exit code.
fn drive(
    requests: &Requests,
    answers: &mut Answers,
    hello: &HandshakeReq,
    cmd: Vec<String>,
    signals: Receiver<EndSignal>,
    limits: &Limits,
) -> Outcome {
    let hello = requests.send(hello).and_then(|id| answers.answer_to(&id)).map_err(host_failed)?;
    if !hello.ok {
        return Err(host_failed(format!("it refused the handshake: {}{}", hello.reason, hello.message)));
    }
    let name = cmd[0].clone();
    let spawn = SpawnReq { session_id: hello.session_id, cmd };
    let spawned = requests.send(&spawn).and_then(|id| answers.answer_to(&id)).map_err(host_failed)?;
    if !spawned.ok {
        if spawned.error.starts_with("program_not_found") {
            let hint = "no such program; no shell reads this: give each word by itself, or use bash -c";
            return Err(Complaint { text: format!("{name}: {hint}"), code: NOT_FOUND });
        }
        return Err(Complaint { text: format!("{}{}", spawned.error, spawned.message), code: NOT_STARTED });
    }

    let proc_id = spawned.proc_id;
    let (taken, is_taken) = bounded(1);
    let stdin =
        Stdin { requests: requests.clone(), proc_id: proc_id.clone(), is_taken, most_per_write: limits.most_per_write };
    thread::Builder::new().name("stdin".into()).spawn(move || stdin.forward()).map_err(host_failed)?;
    let interrupts = Interrupts { requests: requests.clone(), proc_id: proc_id.clone(), signals };
    thread::Builder::new().name("interrupts".into()).spawn(move || interrupts.forward()).map_err(host_failed)?;

    match forward_output(answers, &taken, limits.max_output_bytes).map_err(host_failed)? {
        End::Exited(code) => Ok(shell_code(code)),
        End::Killed => {
            let id = requests.send(&StatusReq { proc_id }).map_err(host_failed)?;
            let said = answers.answer_to(&id).map_err(host_failed)?;
            match said.procs.first().and_then(|proc| proc.exit_code) {
                _ if said.status == "timedout" => {
                    say(format_args!("ended by the time limit: {}", said.error));
                    Ok(TIMED_OUT)
                }
                Some(code) => Ok(shell_code(code)),
                None => Err(host_failed(format!("it does not say how the command ended: {}", said.error))),
            }
        }
        End::OutputBroken(e) => {
            let _ = requests.send(&KillReq { proc_id, signal: "SIGKILL" });
            if e.kind() == io::ErrorKind::BrokenPipe {
                return Ok(BROKEN_PIPE);
            }
            Err(Complaint::failure(format!("standard output cannot be written to: {e}")))
        }
    }
}

/// An exit code as shells report it: 128 and more for signals.
fn shell_code(code: i32) -> u8 {
    let code = if code < 0 { 128 - code } else { code };
    u8::try_from(code).unwrap_or(u8::MAX)
}

enum End {
    Exited(i32),
    Killed,
    OutputBroken(io::Error),
}

/// Passes output on until the command has ended, and tells the stdin thread of each write that was taken.
fn forward_output(answers: &mut Answers, taken: &Sender<Said>, max_output_bytes: u64) -> io::Result<End> {
    let (mut stdout, mut stderr) = (Output::stdout()?, Output::stderr()?);
    loop {
        let said = answers.next()?;
        match (said.kind.as_str(), said.stream_type.as_str()) {
            ("proc/read/event", "killed") => return Ok(End::Killed),
            ("proc/read/event", stream) => {
                let data = said.payload()?;
                if let Some(code) = data.code {
                    return Ok(End::Exited(code));
                }
                if data.dropped {
                    say(format_args!("output past {max_output_bytes} bytes was discarded"));
                }
                let bytes = exact_bytes(data)?;
                if stream == "stderr" {
                    // Like a shell's: a command may write to a standard error that nobody reads.
                    let _ = stderr.write_all(&bytes);
                } else if let Err(e) = stdout.write_all(&bytes) {
                    return Ok(End::OutputBroken(e));
                }
            }
            // The stdin thread may have ended: it does at the end of the input.
            ("proc/write/resp", _) => drop(taken.try_send(said)),
            _ => {}
        }
    }
}

fn exact_bytes(data: Data) -> io::Result<Vec<u8>> {
    match data.base64 {
        Some(text) => base64::decode(&text).map_err(io::Error::other),
        None => Ok(data.text.into_bytes()),
    }
}

/// The way of standard input.
struct Stdin {
    requests: Requests,
    proc_id: String,
    is_taken: Receiver<Said>,
    most_per_write: usize,
}

impl Stdin {
    /// Sends what is read until the input ends or the command takes no more. The next write waits for the last one's answer,
    /// so that a slow command slows whoever types.
    fn forward(self) {
        let Ok(mut stdin) = Input::stdin() else { return };
        let mut buffer = vec![0; self.most_per_write];
        loop {
            let count = match stdin.read(&mut buffer) {
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // An input that cannot be read has ended.
                Err(_) => 0,
            };
            let (data, encoding) = match std::str::from_utf8(&buffer[..count]) {
                Ok(text) => (text.to_owned(), None),
                Err(_) => (base64::encode(&buffer[..count]), Some("base64")),
            };
            let write = WriteReq { proc_id: self.proc_id.clone(), data, eof: count == 0, encoding };
            let Ok(id) = self.requests.send(&write) else { return };
            let taken = self.is_taken.recv().is_ok_and(|said| said.req_id == id && said.ok);
            if count == 0 || !taken {
                return;
            }
        }
    }
}

/// The way of Ctrl-C and the like.
struct Interrupts {
    requests: Requests,
    proc_id: String,
    signals: Receiver<EndSignal>,
}

impl Interrupts {
    /// Asks the command to end, as the signal says; whoever asks again means it.
    fn forward(self) {
        let kill = |signal| self.requests.send(&KillReq { proc_id: self.proc_id.clone(), signal });
        let mut asked = false;
        for signal in self.signals {
            let (name, code) = match signal {
                EndSignal::Interrupt => ("SIGINT", 130),
                EndSignal::Hangup => ("SIGTERM", 129),
                EndSignal::Terminate => ("SIGTERM", 143),
            };
            if !asked {
                let _ = kill(name);
                asked = signal != EndSignal::Interrupt;
                continue;
            }
            let _ = kill("SIGKILL");
            let _ = self.requests.send(&Shutdown { timeout: 0 });
            // If the rest of this program does not come to its end by itself now, it hangs in an output that nobody reads.
            thread::sleep(Duration::from_secs(1));
            std::process::exit(code);
        }
    }
}
