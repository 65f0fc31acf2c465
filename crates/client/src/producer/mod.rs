//! The producer, in the order of a record's path: `send` (front/mod.rs), partitioner, accumulator,
//! sender, completion.

pub mod record;
pub mod completion;
mod incomplete;
pub mod batch;
mod split;
pub mod buffer_pool;
pub mod callbacks;
pub mod partitioner;
pub mod accumulator;
pub mod commands;
mod sequence;
mod request;
mod response;
mod lane;
pub mod sender;
mod answers;
mod producer_id;
mod wall_clock;
mod front;
pub mod serializer;

#[cfg(test)]
mod test_batches;

pub use self::completion::SendFuture;
pub use self::front::{Producer, check_topic_name};
pub use self::partitioner::Partitioner;
pub use self::record::{DeliveryStatus, Record, RecordMetadata};
