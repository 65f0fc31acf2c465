//! Consumer groups: their members, assignments and committed offsets.
//!
//! One state machine per partition of `__consumer_offsets` implements the classic group protocol
//! and that of KIP-848 as Apache Kafka 4.3 does. The machine owns no thread, no clock and no file:
//! requests and deadlines come in, records and replies go out.
//!
//! Reading order: the modules below, top to bottom.

pub mod config;
pub(crate) mod request;
pub(crate) mod reply;
pub mod record;
pub mod offsets;
pub mod pending;
pub mod foreign;
pub mod timer;
mod turn;
mod member;
pub mod rebalances;
pub mod held;
pub mod overview;
pub mod progress;
pub(crate) mod consumer;
mod classic;
mod join;
mod membership;
mod rebalance;
pub(crate) mod commits;
pub mod machine;
mod loading;
pub(crate) mod coordinator;
pub(crate) mod groups;
#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod runtime_tests;

pub use crate::time::Now;
pub use consumer::assignment::Partitions;
pub use consumer::assignor::{Assignor, AssignorInput, AssignorMember};
pub use consumer::regex;
pub use groups::{Groups, OFFSETS_TOPIC};
