//! Bytes to values and back. Knows no state: every function here depends on its arguments alone.
//!
//! What it is not: no sockets, no files, no clock, no decision about what an answer should say.
//!
//! Reading order: the modules below, top to bottom.

pub mod records;
