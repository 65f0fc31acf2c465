//! HTTP for people and their tools: pages with bounded cost, served only to permitted callers.
//!
//! Reading order: the modules below, top to bottom.

pub mod server;
mod pulse;
pub mod guard;
