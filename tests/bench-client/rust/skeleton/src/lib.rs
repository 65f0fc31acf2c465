//! Shared code of the Rust contenders of `cargo xtask bench-client`: arguments, payloads, the
//! handshake, the record loop.
//!
//! A contender is a process. It warms up, prints `ready`, waits for a line, does the measured part,
//! prints `done`, waits for a line, prints one line of JSON and ends. CPU time and memory are read
//! from outside between those lines.

pub mod arguments;
pub mod handshake;
pub mod produce;
pub mod consume;
