//! The broker as a machine: a request comes in, a reply goes out, now or later.
//!
//! What it is not: no sockets, no threads, no clock of its own ([`time::Clock`] is handed in), no files but through
//! `ottla_log::disk`. What must happen elsewhere goes through [`executor::Executor`].
//!
//! Reading order: the modules below, top to bottom.

pub mod config;
pub mod controller;
pub mod executor;
pub mod image;
pub mod group;
pub mod node;
pub mod partition;
pub mod random;
pub mod reply;
pub mod request;
pub mod slot;
pub mod time;
