//! Producer ids at hand, so that InitProducerId does not wait for the disk each time.

use std::sync::{Mutex, PoisonError};

use super::{Controller, ControllerError, PRODUCER_ID_BLOCK};
use crate::time::Timestamp;

/// A block of producer ids, so that InitProducerId does not wait for the disk each time.
#[derive(Debug, Default)]
pub struct ProducerIds {
    block: Mutex<Block>,
}

#[derive(Debug, Default)]
struct Block {
    next: i64,
    end: i64,
}

impl ProducerIds {
    /// Returns an unused id, or `None` when a new block must be allocated first.
    pub fn take(&self) -> Option<i64> {
        let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        (block.next < block.end).then(|| {
            block.next += 1;
            block.next - 1
        })
    }

    /// Returns an id from a new block, unless another request allocated one meanwhile. Runs on the
    /// controller thread.
    pub fn take_or_allocate(
        &self,
        controller: &mut Controller,
        now: Timestamp,
    ) -> Result<i64, ControllerError> {
        loop {
            if let Some(id) = self.take() {
                return Ok(id);
            }
            self.ensure(controller, now)?;
        }
    }

    /// Allocates a new block if no id is at hand. Runs on the controller thread.
    pub fn ensure(&self, controller: &mut Controller, now: Timestamp) -> Result<(), ControllerError> {
        let is_empty = {
            let block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
            block.next >= block.end
        };
        if is_empty {
            let first = controller.allocate_producer_ids(now)?;
            let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
            *block = Block {
                next: first,
                end: first + PRODUCER_ID_BLOCK,
            };
        }
        Ok(())
    }
}
