//! HTTP for people and their tools: pages that must neither cost the broker more than they are worth nor serve whoever is not meant.
//!
//! Reading order: the modules below, top to bottom.

pub mod server;
mod pulse;
pub mod guard;
