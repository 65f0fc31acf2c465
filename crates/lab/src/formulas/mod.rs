//! The formulas of producers, consumers and queues: pure functions from numbers to numbers.
//!
//! F-numbers run through all of Ottla's texts. Sources: the Kontur talk on bottlenecks of producers, the producer formula
//! article (checked between two data centres), the p99 article, and what was measured on Apache Kafka 4.3 while the formulas
//! were written down. Units are in the names; MB are 10^6 bytes.

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
