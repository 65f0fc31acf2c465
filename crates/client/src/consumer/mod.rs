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
#[cfg(test)]
mod group_tests;
pub mod position;
mod decode;
pub mod records;
pub mod chunk;
pub mod assignment;
pub mod exchange;
pub mod session;
pub mod fetcher;
pub mod offsets_by_time;
pub mod truncation;
mod topic_listing;
pub mod machine;
pub mod reader;
pub mod listener;
pub mod consumer;
mod committing;
mod lookups;
mod receive;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]
mod scripted;

pub use self::consumer::{Consumer, WakeupHandle};
pub use self::listener::RebalanceListener;
pub use self::records::{ConsumerRecord, ConsumerRecords};
pub use self::topic_partition::{OffsetAndMetadata, OffsetAndTimestamp, TopicPartition};
