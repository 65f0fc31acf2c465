//! A request to a coordinator, and its answer, as a pending reply of a connection.

use std::sync::Arc;
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;

use super::delivery::Syncing;
use super::runtime::{Coordinator, DeliverySlot, Kind, Submitted, Ticket};
use crate::services::Services;
use crate::time::Moment;

/// A coordinator's answer, or the reason why there is none.
pub type Answer<R> = Result<R, ErrorCode>;

/// One request to one coordinator.
pub struct Call<K: Kind> {
    stage: Stage<K>,
    /// Timeout for an answer's records to become durable.
    timeout_ms: u64,
}

enum Stage<K: Kind> {
    Parked(Parked<K>),
    Syncing(Syncing<K::Reply>),
    Answered(Answer<K::Reply>),
    Taken,
}

/// An answer that waits for something else. Dropping it tells the coordinator that the client is
/// gone.
struct Parked<K: Kind> {
    coordinator: Arc<Coordinator<K>>,
    key: K::Key,
    ticket: Ticket,
    slot: Arc<DeliverySlot<K::Reply>>,
    is_answered: bool,
}

impl<K: Kind> Drop for Parked<K> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.coordinator
                .abandon(std::mem::take(&mut self.key), self.ticket);
        }
    }
}

impl<K: Kind> Call<K> {
    pub fn answered(answer: Answer<K::Reply>) -> Call<K> {
        Call {
            stage: Stage::Answered(answer),
            timeout_ms: 0,
        }
    }

    /// - `key`: what the machine finds the answer by if it has to wait.
    pub fn new(
        services: &Services,
        coordinator: &Arc<Coordinator<K>>,
        key: impl FnOnce() -> K::Key,
        submitted: Submitted<K::Reply>,
        timeout_ms: u64,
    ) -> Call<K> {
        let stage = match submitted {
            Submitted::Refused(error) => Stage::Answered(Err(error)),
            Submitted::Delivered(delivery) => Stage::Syncing(Syncing::new(services, delivery, timeout_ms)),
            Submitted::Parked(ticket, slot) => Stage::Parked(Parked {
                coordinator: coordinator.clone(),
                key: key(),
                ticket,
                slot,
                is_answered: false,
            }),
        };
        Call { stage, timeout_ms }
    }

    /// True when the answer is there; registers `waker` if not.
    pub fn poll(&mut self, services: &Services, waker: &Waker) -> bool {
        if let Stage::Parked(parked) = &mut self.stage {
            let Some(delivered) = parked.slot.take_or_register(waker) else {
                return false;
            };
            parked.is_answered = true;
            self.stage = match delivered {
                Ok(delivery) => Stage::Syncing(Syncing::new(services, delivery, self.timeout_ms)),
                Err(error) => Stage::Answered(Err(error)),
            };
        }
        if let Stage::Syncing(syncing) = &mut self.stage {
            let Some(result) = syncing.poll(services, waker) else {
                return false;
            };
            let Stage::Syncing(syncing) = std::mem::replace(&mut self.stage, Stage::Taken) else {
                unreachable!("just matched")
            };
            self.stage = Stage::Answered(result.map(|()| syncing.delivery.reply));
        }
        true
    }

    /// As `poll`, without a waker.
    pub fn is_answered(&mut self, services: &Services) -> bool {
        if let Stage::Syncing(syncing) = &self.stage
            && syncing.delivery.partition.high_watermark() < syncing.delivery.durable_at
        {
            return false;
        }
        self.poll(services, Waker::noop())
    }

    pub fn take(&mut self) -> Answer<K::Reply> {
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Answered(answer) => answer,
            _ => unreachable!("taken once, after poll said so"),
        }
    }

    pub fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Syncing(syncing) => Some(syncing.deadline),
            _ => None,
        }
    }

    /// Whether something else has to happen first: other members act, an earlier transaction ends.
    pub fn is_parked(&self) -> bool {
        matches!(self.stage, Stage::Parked(_))
    }
}
