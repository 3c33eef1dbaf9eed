//! The binary: arguments in, exit code out. All else is in `cli`, and what it serves is in the library.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::type_complexity))]

mod cli;
#[cfg(feature = "conform")]
mod conform;

fn main() -> std::process::ExitCode {
    cli::main()
}
