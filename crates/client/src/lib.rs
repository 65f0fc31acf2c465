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
//! Reading order: the modules below, top to bottom.

pub mod time;
mod wait;
mod events;
pub mod error;
pub mod pending;
pub mod config;
pub mod network;
pub mod metadata;
pub mod metrics;
pub mod producer;
pub mod consumer;
pub mod admin;
pub mod driver;

pub use self::error::Error;
pub use ottla_wire::error_code::ErrorCode;
pub use ottla_wire::primitives::Uuid;
pub use ottla_wire::records::batch::TimestampType;

/// The programs of README.md are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
