//! Whoever is at the other end, as `play` sees it: a `program`, or in a self-test a `canned` one.

/// What comes next, at a time in seconds since the start. Connections have numbers, from 0.
#[derive(Debug)]
pub enum Next {
    Line(f64, usize, Vec<u8>),
    /// Text on standard output, though the lines go over a connection.
    Stray(Vec<u8>),
    /// What was sent on a connection was not taken, and why.
    Refused(usize, String),
    /// It has ended: its code, or the signal below zero.
    Exit(f64, i32),
    /// The time is up.
    Nothing,
}

/// Whoever is at the other end.
pub trait Peer {
    /// Opens another connection.
    fn open(&mut self) -> Result<(), String>;
    fn send(&mut self, on: usize, bytes: &[u8]);
    fn close_input(&mut self, on: usize);
    /// The next line, at `deadline` at the latest.
    fn next(&mut self, deadline: f64) -> Next;
    fn now(&self) -> f64;
    fn signal(&mut self, name: &str);
    fn set_reading(&mut self, reading: bool);
}
