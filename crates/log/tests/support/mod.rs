//! What several tests of the log share.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod numbered;
