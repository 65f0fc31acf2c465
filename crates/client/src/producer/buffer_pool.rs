//! `buffer.memory`: who may have how much, in order of arrival.

use crate::error::Error;

/// Counts bytes; hands out memory that was given back before it asks the system for more.
#[derive(Debug)]
pub struct BufferPool {
    _private: (),
}

impl BufferPool {
    pub fn new(_buffer_memory_bytes: usize, _batch_bytes: usize) -> BufferPool {
        todo!()
    }

    pub fn total_bytes(&self) -> usize {
        todo!()
    }

    pub fn available_bytes(&self) -> usize {
        todo!()
    }

    /// Threads that wait for memory: the sender treats every open batch as ready while there is one, as Kafka does.
    pub fn waiting_threads(&self) -> usize {
        todo!()
    }

    /// - Errors: `BufferExhausted`.
    pub fn check(&self) -> Result<(), Error> {
        todo!()
    }
}
