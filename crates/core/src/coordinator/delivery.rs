//! An answer of a coordinator on its way out: it leaves when the high watermark has passed every
//! record that the machine had applied before it.

use std::sync::Arc;
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;

use crate::partition::{Partition, WaitToken};
use crate::services::Services;
use crate::time::Moment;

/// A reply and the offset it waits for.
#[derive(Debug)]
pub struct Delivery<R> {
    pub reply: R,
    pub partition: Arc<Partition>,
    /// The reply may leave when the high watermark has reached this offset.
    pub durable_at: i64,
}

/// The answer exists; its records are not durable yet.
pub struct Syncing<R> {
    pub delivery: Delivery<R>,
    pub deadline: Moment,
    token: Option<WaitToken>,
}

impl<R> Syncing<R> {
    pub fn new(services: &Services, delivery: Delivery<R>, timeout_ms: u64) -> Syncing<R> {
        Syncing {
            delivery,
            deadline: services.clock.moment().after_ms(timeout_ms),
            token: None,
        }
    }

    /// `None`: not yet durable.
    pub fn poll(&mut self, services: &Services, waker: &Waker) -> Option<Result<(), ErrorCode>> {
        let Delivery {
            partition,
            durable_at,
            ..
        } = &self.delivery;
        if partition.high_watermark() >= *durable_at {
            return Some(Ok(()));
        }
        self.token = Some(partition.wait_for_high_watermark(*durable_at, waker));
        if partition.high_watermark() >= *durable_at {
            Some(Ok(()))
        } else if partition.failure().is_some() || services.clock.moment() >= self.deadline {
            Some(Err(ErrorCode::CoordinatorNotAvailable))
        } else {
            None
        }
    }
}
