//! The shell around the core: sockets, threads, clocks and the admin address.
//!
//! What it is not: nothing here decides what a request is answered. What could be decided without a socket or a thread
//! belongs in `ottla_core`.
//!
//! Reading order: the modules below, top to bottom.

pub mod broker;
pub mod settings;
pub mod net;
pub mod executor;
pub mod clock;
pub mod metrics;
pub mod admin;
mod rate_limit;

pub use broker::{Broker, StartError};
pub use ottla_wire::properties;
