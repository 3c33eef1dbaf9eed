//! The MCP face on the wire: raw lines over a pair of connections, a toolbox of a few strange tools behind it, and each line that
//! comes back checked against the schemas of the revisions that it may be read by.
#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used)]

mod cancel;
mod client;
mod end;
mod eras;
mod lines;
mod pump;
mod schema;
mod toolbox;
