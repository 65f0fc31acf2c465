//! How the sender tells the waiting futures of a batch: one allocation per batch, none per record.

use std::sync::Arc;

use crate::error::Error;

/// Where the broker put a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// −1 with acks=0.
    pub base_offset: i64,
    /// The broker's append time where it stamps records.
    pub log_append_time: Option<i64>,
}

/// Shared by a batch and the futures of its records.
#[derive(Debug)]
pub struct BatchCompletion {
    _private: (),
}

impl BatchCompletion {
    pub fn new(_partition: i32) -> Arc<BatchCompletion> {
        todo!()
    }

    /// Decides the fate of records `first..first + count` of the batch and wakes who waits. Deciding twice is a bug: it panics.
    pub fn complete(&self, _first: u32, _count: u32, _result: Result<Placed, Error>) {
        todo!()
    }
}
