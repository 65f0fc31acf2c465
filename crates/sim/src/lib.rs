//! Deterministic simulation of the real code: one seed decides the order of work, the clients'
//! actions and the moments of power cuts.
//!
//! It is not a model: [`world::World`] drives the real `ottla_core::node::Node` over
//! `ottla_log::disk::MemoryDisk`; only threads, clock, disk and clients are simulated. For tests
//! only.
//!
//! Reading order: the modules below, top to bottom.

pub mod clock;
pub mod tasks;
pub mod world;
pub mod client;
pub mod oracle;
pub mod inhabited;
pub mod trial;
pub mod network;
pub mod brokers;
pub mod producing;
pub mod transacting;
pub mod served;
pub mod group_links;
pub mod group_oracle;
pub mod group_member;
pub mod groups;
