//! The formulas of producers, consumers and queues: pure functions from numbers to numbers.
//!
//! The F-numbers are used in all of Ottla's texts. Sources: the Kontur talk on bottlenecks of
//! producers, the producer formula article (checked between two data centres), the p99 article, and
//! measurements on Apache Kafka 4.3 made while the formulas were written down. Units are in the
//! names; MB are 10^6 bytes.
//!
//! Formulas without a function:
//!
//! - F1: `X_b = R * S`, bytes on the wire; both sides agree within 5 %.
//! - F2: `X_p = X_b / c`, payload bytes; with several topics by the bytes of each (Kontur talk).
//! - F3: `X_r = R * n_req`, records.
//! - F4: a record's time is the time of `send()`, of the sender, and of the callback (Kontur talk).
//! - F10: the round trip is the floor of `L - D`, the broker's TCP_INFO of the connection, or F10c.
//! - F21: a sticky partitioner fills batches P times as fast (P partitions); threads share a batch.
//! - F23: `D = queue + local + remote + response queue + send`, broker time; throttle is separate.
//! - F27: end to end: produce + publish + commit + catch-up + fetch; acks sets what producers see.

pub mod latency;
pub mod ceiling;
pub mod wire;
pub mod batching;
pub mod buffer;
pub mod change;
pub mod queueing;
pub mod consumer;

#[cfg(test)]
pub(crate) mod tables;
