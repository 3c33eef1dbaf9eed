//! What passed between the two ends, for people: the first and the last of it, with times.

use std::collections::VecDeque;

/// How many lines are kept of the beginning, and of the end.
const KEPT: usize = 100;

/// How much of a line is kept, in bytes.
const WIDTH: usize = 600;

#[derive(Default)]
pub struct Exchange {
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: usize,
}

impl Exchange {
    /// Notes a line, at a time in seconds. Arrows are as the runner sees it: → to the program under test.
    pub fn note(&mut self, at: f64, way: &str, text: &str) {
        let end = text.floor_char_boundary(WIDTH);
        let more = if end < text.len() { "…" } else { "" };
        let line = format!("{:9.1} ms {way} {}{more}", at * 1000.0, &text[..end]);
        if self.first.len() < KEPT {
            self.first.push(line);
            return;
        }
        self.last.push_back(line);
        if self.last.len() > KEPT {
            self.last.pop_front();
            self.left_out += 1;
        }
    }

    pub fn lines(&self) -> Vec<String> {
        let gap = (self.left_out > 0).then(|| format!("          … {} lines …", self.left_out));
        self.first.iter().cloned().chain(gap).chain(self.last.iter().cloned()).collect()
    }
}
