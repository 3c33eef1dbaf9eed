//! The operating system, behind one small API. Floor 1: the engine and the transports call it; it calls nobody.
//!
//! `unix` holds the system calls on processes and descriptors, `socket` those on what listens, `group` asks who is left in a
//! group, `latch` wakes who polls, `probe` tries a program out, `signals` catches those to the host itself, and `watchdog` survives it.

mod group;
mod latch;
mod probe;
pub mod signals;
mod socket;
mod unix;
mod watchdog;

pub use group::has_live_members;
pub use latch::Latch;
pub use probe::try_out;
pub use socket::{SocketFile, keep_alive, listen_unix};
pub use unix::{
    Child, Leader, Plan, address_space_is_limited, check_directory, find_program, is_hung_up, is_stream, is_writable,
    name_thread, pending_bytes, spawn, wait_exit_noreap, wait_readable, wait_writable,
};
pub use watchdog::Watchdog;
