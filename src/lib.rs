//! The reference host for A2E's process capability: long-lived processes for agents, as a library.
//!
//! Three ways in:
//!
//! - [`engine::Host`] and [`engine::Session`]: spawn, write, kill and ask, with typed events on a channel. No JSON.
//! - [`face::a2e::serve`]: the same, spoken as A2E over any `Read` and `Write`, over this program's standard streams, or
//!   over a pair of connections within one program ([`transport::Connection`]).
//! - the binary `a2e-proc`, which is a thin layer over the second.
//!
//! Everything is synchronous: a process has its own threads, and there is no async runtime. `examples/embed.rs` is a whole
//! program. Rulings cited as R1 to R26 are in `conformance/ERRATA.md`.
//!
//! # Safety of process ids
//! A signal is only ever sent to a process group whose leader this library has spawned and not yet reaped, so no id can have
//! passed to another process. Programs that embed it must not reap its children (`waitpid(-1)`) or ignore `SIGCHLD`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::type_complexity))]

pub mod audit;
mod count;
#[cfg(feature = "mcp")]
pub mod desk;
pub mod engine;
pub mod face;
mod ids;
pub mod log;
pub mod model;
mod os;
pub mod transport;
pub mod wire;

/// The channels that events and answers come on; a program that embeds this needs no other copy of the crate.
pub use crossbeam_channel;
pub use os::signals;
