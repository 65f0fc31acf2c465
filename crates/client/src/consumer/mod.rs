//! The path back: membership of a group, what to fetch, poll, commits.

pub mod topic_partition;
pub mod subscription;
pub mod poll_activity;
pub mod assignor;
pub mod group;
pub mod group_network;
mod coordinator;
mod rebalance;
mod join;
mod heartbeat;
mod commit;
mod committed;
