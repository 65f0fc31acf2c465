//! The broker as a machine: a request comes in, a reply goes out, now or later.
//!
//! What it is not: no sockets, no threads, no clock of its own ([`time::Clock`] is handed in), no files but through
//! `ottla_log::disk`. What must happen elsewhere goes through [`executor::Executor`].
//!
//! Reading order: the modules below, top to bottom.

pub mod time;
pub mod rate_limit;
pub mod tenant;
pub mod request;
pub mod seen;
pub mod reply;
pub mod slot;
pub mod executor;
pub mod config;
pub mod random;
pub mod image;
pub mod controller;
pub mod quota;
pub mod partition;
pub mod batch_times;
mod start;
pub mod log_directory;
pub mod partitions;
mod stopping;
pub mod telemetry;
mod open_transactions;
pub mod node;
mod dispatch;
pub mod long_answer;
mod handlers;
pub mod fetch;
pub mod group;
mod maintenance;
