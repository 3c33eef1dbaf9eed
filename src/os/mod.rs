//! The operating system, behind one small API. Floor 1: the engine and the transports call it; it calls nobody.
//!
//! `spawn` starts children, `leader` sees them to their end, `poll` waits on descriptors, `pty` opens terminals, `socket` and `ports` know who listens,
//! `group` and `session` ask who is left, `latch` wakes who polls, `probe` tries a program out, `signals` catches those to the
//! host itself, and `watchdog` survives it.

mod group;
mod latch;
mod leader;
mod poll;
#[cfg(feature = "mcp")]
mod ports;
mod probe;
#[cfg(feature = "mcp")]
mod pty;
#[cfg(feature = "mcp")]
mod session;
pub mod signals;
mod socket;
mod spawn;
mod watchdog;

pub use latch::Latch;
pub use leader::{Leader, wait_exit_noreap};
pub use poll::{is_hung_up, is_stream, is_writable, pending_bytes, wait_readable, wait_writable};
#[cfg(feature = "mcp")]
pub use ports::{Port, lineage, listening};
pub use probe::try_out;
#[cfg(feature = "mcp")]
pub use pty::Pty;
pub use socket::{SocketFile, keep_alive, listen_unix, peer_pid};
pub use spawn::{Child, Plan, address_space_is_limited, check_directory, find_program, name_thread, spawn};
#[cfg(feature = "mcp")]
pub use spawn::{spawn_on_terminal, user_id};
pub use watchdog::Watchdog;
