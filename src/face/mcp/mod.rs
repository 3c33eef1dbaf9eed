//! MCP: the desk served to clients of every revision in use.
