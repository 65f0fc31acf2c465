//! A request to a transaction coordinator, and its answer.

use std::sync::Arc;
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;

use super::coordinator::{Coordinator, DeliverySlot, Submitted};
use super::request::{Reply, Ticket};
use crate::coordinator::delivery::Syncing;
use crate::services::Services;
use crate::time::Moment;

/// Timeout for an answer's records to become durable.
const TIMEOUT_MS: u64 = 5_000;

/// A coordinator's answer, or the reason why there is none.
pub(crate) type Answer = Result<Reply, ErrorCode>;

pub(crate) struct Call {
    stage: Stage,
}

enum Stage {
    Parked(Parked),
    Syncing(Syncing<Reply>),
    Answered(Answer),
    Taken,
}

/// An answer that waits for an earlier transaction. Dropping it tells the coordinator that the
/// client is gone.
struct Parked {
    coordinator: Arc<Coordinator>,
    ticket: Ticket,
    slot: Arc<DeliverySlot>,
    is_answered: bool,
}

impl Drop for Parked {
    fn drop(&mut self) {
        if !self.is_answered {
            self.coordinator.abandon(self.ticket);
        }
    }
}

impl Call {
    pub fn answered(answer: Answer) -> Call {
        Call {
            stage: Stage::Answered(answer),
        }
    }

    pub(super) fn new(services: &Services, coordinator: &Arc<Coordinator>, submitted: Submitted) -> Call {
        let stage = match submitted {
            Submitted::Refused(error) => Stage::Answered(Err(error)),
            Submitted::Delivered(delivery) => Stage::Syncing(Syncing::new(services, delivery, TIMEOUT_MS)),
            Submitted::Parked(ticket, slot) => Stage::Parked(Parked {
                coordinator: coordinator.clone(),
                ticket,
                slot,
                is_answered: false,
            }),
        };
        Call { stage }
    }

    /// True when the answer is there; registers `waker` if not.
    pub(crate) fn poll(&mut self, services: &Services, waker: &Waker) -> bool {
        if let Stage::Parked(parked) = &mut self.stage {
            let Some(delivered) = parked.slot.take_or_register(waker) else {
                return false;
            };
            parked.is_answered = true;
            self.stage = match delivered {
                Ok(delivery) => Stage::Syncing(Syncing::new(services, delivery, TIMEOUT_MS)),
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

    pub(crate) fn take(&mut self) -> Answer {
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Answered(answer) => answer,
            _ => unreachable!("taken once, after poll said so"),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Syncing(syncing) => Some(syncing.deadline),
            _ => None,
        }
    }

    /// Whether an earlier transaction has to end first.
    pub(crate) fn is_parked(&self) -> bool {
        matches!(self.stage, Stage::Parked(_))
    }
}
