//! The formulas of producers, consumers and queues: pure functions from numbers to numbers.
//!
//! F-numbers run through all of Ottla's texts. Sources: the Kontur talk on bottlenecks of producers, the producer formula
//! article (checked between two data centres), the p99 article, and what was measured on Apache Kafka 4.3 while the formulas
//! were written down. Units are in the names; MB are 10^6 bytes.
//!
//! Those that are no functions:
//!
//! - F1: `X_b = R * S`, bytes on the wire; both sides agree within 5 %.
//! - F2: `X_p = X_b / c`, payload bytes; with several topics by the bytes of each (Kontur talk).
//! - F3: `X_r = R * n_req`, records.
//! - F4: a record's time is that of `send()`, of the sender, and of the callback (Kontur talk).
//! - F10: the round trip is the floor of `L - D`, what the broker measures of the connection, or F10c.
//! - F21: a sticky partitioner fills batches as many times faster as there are partitions, and all threads meet at one batch.
//! - F23: `D = queue + local + remote + response queue + send`, the broker's time; a throttle is counted apart.
//! - F27: end to end is produce + publish + commit + catch-up + fetch; acks changes what the producer sees of it (p99 article).

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
