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

pub(crate) mod topic_partition;
pub(crate) mod subscription;
pub(crate) mod poll_activity;
pub(crate) mod assignor;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod group;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod group_network;
pub(crate) mod coordinator;
mod rebalance;
mod join;
mod kept_assignment;
mod heartbeat;
mod membership;
mod commit;
mod committed;
#[cfg(test)]
mod group_tests;
pub(crate) mod position;
pub(crate) mod assignment;
pub(crate) mod exchange;
mod position_calls;
mod offsets_by_time;
mod truncation;
mod session;
mod fetcher;
mod chunk;
pub(crate) mod records;
pub(crate) mod reader;
mod topic_listing;
pub(crate) mod machine;
pub(crate) mod listener;
pub(crate) mod front;
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
pub use self::group::{GroupMetadata, Offsets};
pub use self::listener::RebalanceListener;
pub use self::receive::Receive;
pub use self::records::{
    ConsumerRecord, ConsumerRecords, Header, HeaderIter, Headers, Iter, PartitionIter, PartitionRecords,
};
pub use self::subscription::{Subscription, TopicPattern};
pub use self::topic_partition::{OffsetAndMetadata, OffsetAndTimestamp, TopicPartition};
