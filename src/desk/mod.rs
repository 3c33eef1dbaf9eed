//! The desk: a project's stored entries (commands, terminals, agents), what runs of them, and who may start what. Floor 3: the
//! MCP face and the command line speak to it; it speaks to the engine.
