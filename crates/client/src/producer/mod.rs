//! The path of a record: `send` (producer.rs), partitioner, accumulator, sender, completion.

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

#[cfg(test)]
mod test_batches;
