//! Consumer groups of KIP-848: the broker assigns partitions, and members learn their share from
//! heartbeats.
//!
//! Three epochs: the group epoch grows with every change of members, subscriptions and subscribed
//! topics; the target epoch is the group epoch that the target assignment was computed for; a
//! member's epoch is the target epoch that the member has reached.
//!
//! Reading order: the modules below, top to bottom.

pub(crate) mod assignment;
pub(crate) mod request;
pub(crate) mod record;
pub(crate) mod member;
pub(crate) mod group;
pub(super) mod protocol;
mod range;
mod uniform;
pub(crate) mod assignor;
mod re2;
pub mod regex;
mod reconcile;
mod target;
mod admission;
mod heartbeat;
mod classic_member;
mod migration;
mod departure;
mod commit;
pub(crate) mod describe;
#[cfg(test)]
mod migration_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
