//! Transactions (KIP-98, KIP-890).
//!
//! Reading order: the modules below, from what the produce path asks to what is in the log.

pub mod admission;
pub mod transactions;
pub(crate) mod coordinator;
mod finish;
mod orders;
mod backoff;
pub mod stage_times;
mod loading;
mod lost_markers;
pub mod hanging;
pub mod machine;
pub mod request;
pub mod state;
pub mod record;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod simulation;
