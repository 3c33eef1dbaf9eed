//! The steps of a case but its expectations: what is sent and done to the program under test, and how it all ends. `play` calls
//! it between blocks.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use serde_json::{Value, json};

use super::case::{Canned, Role, Step, Verb};
use super::kit::Dialect;
use super::monitor::Monitor;
use super::pattern::{self, brief};
use super::play::{Branch, Came, Failure, Other, Played, Player, Stop, failed, violated};

/// How long a program has for its end when the case is over, in seconds, to be scaled.
const END: f64 = 5.0;

/// How the exchange shows what goes to the program, on each connection.
const TO: [&str; 2] = ["→", "b →"];

impl Player<'_> {
    /// Any step but an expectation.
    pub fn step(&mut self, step: &Step) -> Played {
        match &step.verb {
            Verb::Send(message) => {
                self.sent = self.other.peer().now();
                self.send(message, step)?;
            }
            Verb::SendRaw(parts) => {
                self.open(step)?;
                self.sent = self.other.peer().now();
                self.monitors[step.on].sent_raw();
                for (bytes, times) in parts {
                    // In larger pieces, so that eight million single bytes are not as many writes.
                    let at_once = (65_536 / bytes.len().max(1)).clamp(1, *times);
                    let piece = bytes.repeat(at_once);
                    (0..times / at_once).for_each(|_| self.other.peer().send(step.on, &piece));
                    self.other.peer().send(step.on, &bytes.repeat(times % at_once));
                }
                let size: usize = parts.iter().map(|(bytes, times)| bytes.len() * times).sum();
                let shown = parts.first().map(|(bytes, _)| String::from_utf8_lossy(bytes).into_owned());
                self.exchange.note(self.sent, TO[step.on], &format!("{size} bytes: {}", shown.unwrap_or_default()));
            }
            Verb::Quiet(seconds) => self.quiet(step, *seconds)?,
            Verb::Par(branches) => {
                let sent = self.sent;
                self.branches(branches.iter().map(|rest| Branch::new(rest, sent)).collect())?;
            }
            Verb::Reading(reading) => self.other.peer().set_reading(*reading),
            Verb::CloseStdin => {
                self.open(step)?;
                self.sent = self.other.peer().now();
                self.close_input(step.on);
            }
            Verb::Signal(name) => {
                self.note(&format!("({name})"));
                for monitor in &mut self.monitors {
                    if name == "SIGKILL" {
                        monitor.broken_off();
                    }
                    monitor.ends();
                }
                self.sent = self.other.peer().now();
                self.other.peer().signal(name);
            }
            Verb::HostExit(pattern) => self.host_exit(step, pattern)?,
            Verb::Fifo(name) => self.fifo(name).map_err(|e| Stop::Harness(format!("fifo {name}: {e}")))?,
            Verb::Released(name) => self.released(step, name)?,
            Verb::FromHost(lines) => self.say(step.on, lines)?,
            Verb::Expect(_) | Verb::Collect(_) => {}
        }
        Ok(())
    }

    /// Opens the connection that a step is about, if it is the first of it.
    fn open(&mut self, step: &Step) -> Played {
        while self.open <= step.on {
            let opened = self.other.peer().open();
            opened.map_err(|e| failed("missing", step.line, "another connection".to_owned(), e))?;
            self.open += 1;
        }
        Ok(())
    }

    fn close_input(&mut self, on: usize) {
        let now = self.other.peer().now();
        self.exchange.note(now, TO[on], "(its input is closed)");
        self.monitors[on].ends();
        self.other.peer().close_input(on);
    }

    pub fn send(&mut self, message: &Value, step: &Step) -> Played {
        self.open(step)?;
        let harness = |e: String| Stop::Harness(format!("line {}: {e}", step.line));
        let mut filled = pattern::fill(message, &self.bindings).map_err(harness)?;
        self.ids += 1;
        let fresh = format!("{:032x}", self.ids);
        if let Some(object) = filled.as_object_mut() {
            let mut add = |key: &str, value: Value| {
                if message.get(key).is_none() {
                    object.insert(key.to_owned(), value);
                }
            };
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            add("version", json!("1.0"));
            add("ts", json!(since.as_secs_f64()));
            if self.case.role == Role::Client {
                add("id", json!(fresh));
                if self.dialect == Dialect::Spec
                    && let Some(data) = object.get_mut("data")
                    && message["type"] == "proc/read/event"
                {
                    *data = json!(data.to_string());
                }
            }
        }
        self.monitors[step.on].sent(&filled);
        let text = filled.to_string();
        let now = self.other.peer().now();
        self.exchange.note(now, TO[step.on], &text);
        self.other.peer().send(step.on, format!("{text}\n").as_bytes());
        Ok(())
    }

    pub fn note(&mut self, words: &str) {
        let now = self.other.peer().now();
        self.exchange.note(now, TO[0], words);
    }

    fn say(&mut self, on: usize, lines: &[Canned]) -> Played {
        match &mut self.other {
            Other::Canned(canned) => canned.will_say(on, lines),
            Other::Program(_) => return Err(Stop::Harness("from_host stands only in self-tests".to_owned())),
        }
        Ok(())
    }

    fn quiet(&mut self, step: &Step, seconds: f64) -> Played {
        let until = self.other.peer().now() + seconds;
        let came = match self.next(until, step.line)? {
            Came::Nothing => return Ok(()),
            Came::Line(at, on, line) => self.saw(at, on, &line, step.line)?.1,
            Came::Exit(_, code) => format!("it ended with code {code}"),
        };
        Err(failed("quiet", step.line, format!("nothing for {seconds} s"), came))
    }

    fn host_exit(&mut self, step: &Step, pattern: &Value) -> Played {
        let deadline = self.sent + step.within * self.time_scale;
        let (at, code) = self.until_exit(step.line, deadline, &format!("its end: {}", brief(pattern)))?;
        if let Err(why) = pattern::fits(pattern, &json!({"code": code}), &mut self.bindings) {
            return Err(failed("exit", step.line, brief(pattern), why));
        }
        let took = at - self.sent;
        if took < step.after {
            return Err(failed(
                "early",
                step.line,
                format!("its end not before {} s", step.after),
                format!("after {took:.3} s"),
            ));
        }
        Ok(())
    }

    /// Takes what still comes, of which only events need not have been expected.
    fn until_exit(&mut self, line: usize, deadline: f64, expected: &str) -> Result<(f64, i32), Stop> {
        loop {
            match self.next(deadline, line)? {
                Came::Line(at, on, text) => {
                    let (message, shown) = self.saw(at, on, &text, line)?;
                    if self.case.role == Role::Host && message["type"] != "proc/read/event" {
                        return Err(failed("unexpected", line, expected.to_owned(), shown));
                    }
                }
                Came::Exit(at, code) => return Ok((at, code)),
                Came::Nothing => return Err(failed("exit", line, expected.to_owned(), "it goes on".to_owned())),
            }
        }
    }

    /// What every case ends with.
    pub fn end(&mut self) -> Played {
        let host = self.case.role == Role::Host;
        if !self.ended {
            (0..self.open).for_each(|on| self.close_input(on));
            let deadline = self.other.peer().now() + END * self.time_scale;
            let ended = self.until_exit(0, deadline, "its end, with code 0, within 5 s");
            let ended = match ended {
                Err(Stop::Failed(failure)) if failure.rule == "exit" && !self.ends_by_itself => return Ok(()),
                Err(Stop::Failed(failure)) if failure.rule == "exit" => {
                    return Err(Stop::Failed(Failure { rule: "monitor:exit".to_owned(), ..failure }));
                }
                other => other?,
            };
            if ended.1 != 0 && self.ends_by_itself {
                return Err(failed("monitor:exit", 0, "its end with code 0".to_owned(), format!("code {}", ended.1)));
            }
        }
        let at_the_end =
            |monitor: &Monitor| monitor.at_the_end().map_err(|violation| violated(violation, 0, String::new()));
        if host { self.monitors.iter().try_for_each(at_the_end) } else { Ok(()) }
    }

    fn fifo(&mut self, name: &str) -> std::io::Result<()> {
        let path = self.folder.join(name);
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let file = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
        self.fifos.push((name.to_owned(), file));
        Ok(())
    }

    fn released(&mut self, step: &Step, name: &str) -> Played {
        let deadline = self.sent + step.within * self.time_scale;
        let harness = |e: String| Stop::Harness(format!("line {}: released {name}: {e}", step.line));
        let found = self.fifos.iter_mut().find(|(known, _)| known == name);
        let (_, file) = found.ok_or_else(|| harness("there is no such fifo".to_owned()))?;
        loop {
            match file.read(&mut [0; 4096]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let left = deadline - self.other.peer().now();
                    if left <= 0.0 {
                        let expected = format!("nobody has {name} open");
                        return Err(failed("released", step.line, expected, "somebody still has".to_owned()));
                    }
                    let timeout =
                        PollTimeout::try_from(std::time::Duration::from_secs_f64(left)).unwrap_or(PollTimeout::MAX);
                    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
                    poll(&mut fds, timeout).map_err(|e| harness(e.to_string()))?;
                }
                Err(e) => return Err(harness(e.to_string())),
            }
        }
    }
}
