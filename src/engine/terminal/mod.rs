//! Processes on a pseudo-terminal, and the screen that each has written.
