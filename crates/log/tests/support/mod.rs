//! What several tests of the log share.

pub mod numbered;
