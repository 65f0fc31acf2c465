//! The broker as a state machine: a request comes in, a reply goes out, at once or later.
//!
//! It has no sockets, no threads, no clock of its own ([`time::Clock`] is handed in), and reads and
//! writes files only through `ottla_log::disk`. Work that must run elsewhere goes through
//! [`executor::Executor`].
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
