//! The doctor: from what clients and brokers report over a window of time to each client's one
//! bottleneck.
//!
//! Everything here is a pure function of values. What clients push becomes a [`Snapshot`]
//! (`adapters/`, `history/`), rules make a [`Diagnosis`] of it (`rules/`), and the binary
//! displays it.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod calculator;
pub mod statements;
pub mod replay;
pub mod observe;
pub mod history;
pub mod promises;
pub mod rules;
pub mod manual;
pub mod used;
pub mod arithmetic;
pub mod adapters;
pub mod otlp;
pub mod encoding;
pub mod glossary;
pub mod severity;
mod names;
pub mod diagnosis;
pub mod time;
pub mod snapshot;

#[cfg(test)]
mod sample_push;

pub use diagnosis::Diagnosis;
pub use names::in_librdkafkas_words;
pub use snapshot::Snapshot;
