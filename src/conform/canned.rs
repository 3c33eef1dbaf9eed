//! What a self-test has in the place of a program: canned lines, on a clock that only they move. `play` talks to it as to a
//! program (`conformance/README.md`, Write a runner).

use std::collections::VecDeque;

use super::case::Canned;
use super::peer::{Next, Peer};

#[derive(Default)]
pub struct CannedPeer {
    now: f64,
    waiting: VecDeque<(f64, usize, Canned)>,
    exited: Option<(f64, i32)>,
    /// The self-test says when the host ends; otherwise it does when its input is closed.
    says_when: bool,
    is_stopped: bool,
    /// For each connection, whether its input is open.
    inputs: Vec<bool>,
}

impl CannedPeer {
    pub fn new(says_when: bool) -> Self {
        Self { says_when, inputs: vec![true], ..Self::default() }
    }

    /// Lines that come from now on, on one of the connections.
    pub fn will_say(&mut self, on: usize, lines: &[Canned]) {
        for line in lines {
            let (Canned::Line { at, .. } | Canned::Exit { at, .. }) = line;
            self.waiting.push_back((self.now + at, on, line.clone()));
        }
    }
}

impl Peer for CannedPeer {
    fn open(&mut self) -> Result<(), String> {
        self.inputs.push(true);
        Ok(())
    }

    fn send(&mut self, _: usize, _: &[u8]) {}

    fn close_input(&mut self, on: usize) {
        self.inputs[on] = false;
    }

    fn next(&mut self, deadline: f64) -> Next {
        if let Some((at, code)) = self.exited {
            return Next::Exit(at, code);
        }
        if self.waiting.is_empty() && !self.inputs.contains(&true) && !self.says_when {
            self.exited = Some((self.now, 0));
            return Next::Exit(self.now, 0);
        }
        match self.waiting.front() {
            Some((at, ..)) if *at <= deadline && !self.is_stopped => {}
            _ => {
                self.now = deadline;
                return Next::Nothing;
            }
        }
        match self.waiting.pop_front() {
            Some((at, on, Canned::Line { text, .. })) => {
                self.now = self.now.max(at);
                Next::Line(self.now, on, text.into_bytes())
            }
            Some((at, _, Canned::Exit { code, .. })) => {
                self.now = self.now.max(at);
                self.exited = Some((self.now, code));
                Next::Exit(self.now, code)
            }
            None => Next::Nothing,
        }
    }

    fn now(&self) -> f64 {
        self.now
    }

    fn signal(&mut self, _: &str) {}

    fn set_reading(&mut self, reading: bool) {
        self.is_stopped = !reading;
    }
}
