//! The broker as a state machine: a request comes in, a reply goes out, at once or later.
//!
//! It has no sockets, no threads, no clock of its own ([`time::Clock`] is handed in), and reads and
//! writes files only through `ottla_log::disk`. Work that must run elsewhere goes through
//! [`executor::Executor`].
//!
//! Reading order: the modules below, top to bottom.

pub mod time;
pub mod rate_limit;
pub mod random;
pub mod slot;
pub mod tenant;
pub mod refusal;
mod shortage;
pub mod config;
pub mod image;
mod effective_config;
pub mod quota;
pub mod request;
pub mod seen;
pub mod reply;
pub mod batch_times;
pub mod services;
pub mod telemetry;
pub mod partition;
pub mod partitions;
pub mod log_directory;
pub mod controller;
mod start;
pub mod growth;
pub mod storage;
pub mod fetch;
pub mod group;
pub mod node;
pub mod pending;
mod submit;
pub mod placement;
mod long_answer;
mod handlers;
mod dispatch;
