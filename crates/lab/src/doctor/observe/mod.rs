//! What a broker counts of its clients: a value that it is read from, and the windows made of it.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod cluster;
pub mod windows;
mod instances;
mod committed;
pub mod seldom;
pub mod writers;
mod quotas;
pub mod paths;
mod membership;
mod written;
mod host;
pub mod counts;
