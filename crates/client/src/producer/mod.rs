//! The producer, in the order of a record's path: `send` (front/mod.rs), partitioner, accumulator,
//! sender, completion.

pub(crate) mod record;
pub(crate) mod completion;
mod incomplete;
pub(crate) mod batch;
mod split;
pub(crate) mod buffer_pool;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod callbacks;
pub(crate) mod partitioner;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod accumulator;
pub(crate) mod commands;
mod sequence;
mod request;
mod response;
mod lane;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod sender;
mod answers;
mod producer_id;
mod transaction;
mod wall_clock;
mod front;
mod serializer;

#[cfg(test)]
mod test_batches;

pub use self::completion::SendFuture;
pub use self::front::{CommitError, Producer, Transaction, TransactionalProducer, check_topic_name};
pub use self::partitioner::{Partitioner, murmur2, partition_of_key};
pub use self::record::{DeliveryStatus, Record, RecordMetadata};
pub use self::serializer::{BigEndian, Bytes, Serializer, TopicSender};
pub use crate::metadata::snapshot::{NodeId, Partition, Topic};
