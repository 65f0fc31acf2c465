//! A Kafka producer, consumer and admin client in Rust, with Kafka's settings, metric names and semantics, made so that
//! every stage a record passes can be seen.
//!
//! What it is not: a stream processor, a schema registry client, a wrapper around a C library.
//!
//! Everything but `driver` is machines: they take events and the time, and say what should be done. The driver owns
//! the thread, the sockets and TLS. A simulation can therefore run the real code without either.
//!
//! Reading order: the modules below, top to bottom.

pub mod time;
mod wait;
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
