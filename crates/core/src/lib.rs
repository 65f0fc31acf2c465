//! The broker as a state machine: a request comes in, a reply goes out, at once or later.
//!
//! It has no sockets, no threads, no clock of its own ([`time::Clock`] is handed in), and reads and
//! writes files only through `ottla_log::disk`. Work that must run elsewhere goes through
//! [`executor::Executor`].
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod node;
mod authentication;
mod dispatch;
mod handlers;
mod long_answer;
pub mod placement;
mod submit;
pub mod pending;
pub mod group;
pub mod transaction;
pub(crate) mod coordinator;
pub mod fetch;
pub mod storage;
pub mod growth;
mod start;
pub mod controller;
pub mod log_directory;
pub mod partitions;
pub mod partition;
pub mod telemetry;
pub mod services;
pub mod key_stores;
pub mod batch_times;
pub mod reply;
pub mod seen;
pub mod request;
mod security;
pub mod access;
pub mod sasl;
pub mod quota;
pub mod effective_config;
pub mod image;
pub mod config;
pub mod connection_limits;
pub mod denied;
pub mod permitted;
pub mod last;
mod shortage;
pub mod refusal;
pub mod tenant;
pub mod slot;
pub mod random;
pub mod rate_limit;
pub mod time;
