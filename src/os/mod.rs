//! The operating system, behind one small API. Floor 1: the engine and the transports call it; it calls nobody.
//!
//! `unix` holds every system call on processes and descriptors, `signals` those on the host itself.

mod group;
pub mod signals;
mod unix;

pub use group::has_live_members;
pub use unix::{
    Child, Leader, Plan, check_directory, find_program, is_hung_up, pending_bytes, spawn, wait_exit_noreap,
    wait_readable, wait_writable,
};
