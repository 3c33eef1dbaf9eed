//! The protocols that the engine is offered through. Floor 4: a face joins a wire and the engine on a transport.

pub mod a2e;
#[cfg(feature = "mcp")]
pub mod mcp;
