//! Helpers shared by several tests of the log.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod batches;
pub mod numbered;
pub mod opening;
