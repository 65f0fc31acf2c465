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
//! Nothing here needs an async runtime and every call works in any: `send`, `flush` and `close`
//! have an `_async` form that ends by itself, and a consumer's futures can be waited for. Dropping
//! a client never blocks; to know that records arrived, close or flush the producer before.
//!
//! The error of a record says by [`Error::delivery_status`] whether the log may hold it. Only what
//! is not written is retriable.
//!
//! Cargo features: `tls`, `zstd`, `telemetry` and `oauth`, all on by default. A build without one
//! refuses a configuration that needs it, and names the feature.
//!
//! What happens is told as `tracing` events with the target `ottla_client`: connections, unknown
//! topics, failed batches, rebalances, resets. Nothing is told per record.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

#![warn(missing_docs)]

pub mod producer;
pub mod consumer;
pub mod admin;
#[expect(missing_docs, reason = "reachable through `machine` only")]
mod driver;
pub mod metrics;
mod metadata;
#[expect(missing_docs, reason = "reachable through `machine` only")]
mod network;
pub mod config;
mod pending;
mod error;
mod events;
mod wait;
mod time;
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
