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
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod producer;
pub mod consumer;
pub mod admin;
pub mod driver;
pub mod metrics;
pub mod metadata;
pub mod network;
pub mod config;
pub mod pending;
pub mod error;
mod wait;
pub mod time;

pub use self::error::Error;
pub use ottla_wire::error_code::ErrorCode;
