//! The doctor: from what clients and brokers report over a window of time to each client's one
//! bottleneck.
//!
//! Everything here is a pure function of values. What clients push becomes a [`Snapshot`]
//! (`adapters/`, `history.rs`), rules make a [`Diagnosis`] of it (`rules/`), and the binary
//! displays it.
//!
//! Reading order: the modules below, top to bottom.

pub mod snapshot;
pub mod time;
pub mod diagnosis;
pub mod severity;
pub mod glossary;
pub mod manual;
pub mod arithmetic;
pub mod encoding;
pub mod otlp;
pub mod adapters;
pub mod history;
pub mod observe;
pub mod replay;
pub mod rules;
pub mod calculator;

#[cfg(test)]
mod sample_push;

pub use diagnosis::Diagnosis;
pub use snapshot::Snapshot;
