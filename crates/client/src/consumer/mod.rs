//! The consumer: group membership, fetching, poll, commits.
//!
//! The life of a record: the machine (machine.rs) looks at the assignment (assignment.rs) and the
//! position of each partition (position.rs). A partition without one gets it from the group
//! (committed.rs) or from ListOffsets (offsets_by_time.rs); after a change of leader it is checked
//! (truncation.rs). The fetcher (fetcher.rs) asks every leader for its partitions (session.rs) and
//! makes a chunk (chunk.rs) of each one in the response. Under the one lock that both threads share
//! (exchange.rs), `Consumer::poll` (front.rs) takes the oldest chunk (reader.rs), checks and
//! decompresses its batches on the application's thread, and returns records that borrow from the
//! frame (records.rs).

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
pub mod assignment;
pub mod exchange;
mod position_calls;
mod offsets_by_time;
mod truncation;
mod session;
mod fetcher;
mod chunk;
pub mod records;
pub mod reader;
mod topic_listing;
pub mod machine;
pub mod listener;
pub mod front;
mod committing;
mod lookups;
mod closing;
mod receive;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod scripted;

pub use self::committing::CommitCallback;
pub use self::exchange::TopicDescription;
pub use self::front::{Consumer, WakeupHandle};
pub use self::listener::RebalanceListener;
pub use self::receive::Receive;
pub use self::records::{ConsumerRecord, ConsumerRecords};
pub use self::topic_partition::{OffsetAndMetadata, OffsetAndTimestamp, TopicPartition};
