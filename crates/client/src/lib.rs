//! A Kafka producer, consumer and admin client in Rust, with Kafka's settings, metric names and
//! semantics. Every stage that a record passes can be observed.
//!
//! Not part of this crate: stream processing, a schema registry client, a wrapper around a C
//! library.
//!
//! Everything except `driver` is a state machine: it takes events and the current time and returns
//! the actions to perform. The driver owns the thread, the sockets and TLS, so a simulation runs
//! the same code without a thread or a socket.
//!
//! Cargo features: `tls`, `zstd` and `telemetry`, all on by default. A build without one refuses a
//! configuration that needs it, and names the feature.
//!
//! What happens is told as `tracing` events with the target `ottla_client`: connections, unknown
//! topics, failed batches, rebalances, resets. Nothing is told per record.
//!
//! Reading order: the modules below, top to bottom.

#![warn(missing_docs)]

#[expect(missing_docs, reason = "reachable through `machine` only")]
mod time;
mod wait;
mod events;
mod error;
mod pending;
pub mod config;
#[expect(missing_docs, reason = "reachable through `machine` only")]
mod network;
mod metadata;
pub mod metrics;
pub mod producer;
pub mod consumer;
pub mod admin;
#[expect(missing_docs, reason = "reachable through `machine` only")]
mod driver;
#[doc(hidden)]
pub mod machine;

pub use self::error::{Error, Feature};
pub use self::pending::Pending;
pub use ottla_wire::error_code::ErrorCode;
pub use ottla_wire::primitives::Uuid;
pub use ottla_wire::records::batch::TimestampType;

/// The programs of README.md are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
