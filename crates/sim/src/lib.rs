//! A simulated world for the real code: one seed decides the order of work, the clients' moves, and when the power goes.
//!
//! What it is not: a model. [`world::World`] drives `ottla_core::node::Node` over `ottla_log::disk::MemoryDisk`; only
//! the threads, the clock, the disk and the clients are simulated. Tests only.
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
pub mod served;
pub mod group_links;
pub mod group_oracle;
pub mod group_member;
pub mod groups;
