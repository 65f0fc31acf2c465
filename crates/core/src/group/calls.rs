//! Requests to coordinators, as pending replies of a connection.

use std::sync::Arc;
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;

use crate::coordinator::delivery::Syncing;
use crate::services::Services;
use crate::time::Moment;

use super::coordinator::{Coordinator, DeliverySlot, Submitted};
use super::reply::GroupReply;
use super::request::GroupTicket;

/// A coordinator's answer, or the reason why there is none.
pub(crate) type GroupAnswer = Result<GroupReply, ErrorCode>;

/// One request to one coordinator.
pub(crate) struct Call {
    stage: CallStage,
    /// Timeout for an answer's records to become durable.
    timeout_ms: u64,
}

enum CallStage {
    Parked(Parked),
    Syncing(Syncing<GroupReply>),
    Answered(GroupAnswer),
    Taken,
}

/// An answer that waits for other members. Dropping it tells the coordinator that the client is
/// gone.
struct Parked {
    coordinator: Arc<Coordinator>,
    group_id: String,
    ticket: GroupTicket,
    slot: Arc<DeliverySlot>,
    is_answered: bool,
}

impl Drop for Parked {
    fn drop(&mut self) {
        if !self.is_answered {
            self.coordinator
                .abandon(std::mem::take(&mut self.group_id), self.ticket);
        }
    }
}

impl Call {
    pub fn answered(answer: GroupAnswer) -> Call {
        Call {
            stage: CallStage::Answered(answer),
            timeout_ms: 0,
        }
    }

    pub(super) fn new(
        services: &Services,
        coordinator: &Arc<Coordinator>,
        group_id: &str,
        submitted: Submitted,
        timeout_ms: u64,
    ) -> Call {
        let stage = match submitted {
            Submitted::Refused(error) => CallStage::Answered(Err(error)),
            Submitted::Delivered(delivery) => {
                CallStage::Syncing(Syncing::new(services, delivery, timeout_ms))
            }
            Submitted::Parked(ticket, slot) => CallStage::Parked(Parked {
                coordinator: coordinator.clone(),
                group_id: group_id.to_owned(),
                ticket,
                slot,
                is_answered: false,
            }),
        };
        Call { stage, timeout_ms }
    }

    /// True when the answer is there; registers `waker` if not.
    pub(crate) fn poll(&mut self, services: &Services, waker: &Waker) -> bool {
        if let CallStage::Parked(parked) = &mut self.stage {
            let Some(delivered) = parked.slot.take_or_register(waker) else {
                return false;
            };
            parked.is_answered = true;
            self.stage = match delivered {
                Ok(delivery) => CallStage::Syncing(Syncing::new(services, delivery, self.timeout_ms)),
                Err(error) => CallStage::Answered(Err(error)),
            };
        }
        if let CallStage::Syncing(syncing) = &mut self.stage {
            let Some(result) = syncing.poll(services, waker) else {
                return false;
            };
            let CallStage::Syncing(syncing) = std::mem::replace(&mut self.stage, CallStage::Taken) else {
                unreachable!("just matched")
            };
            self.stage = CallStage::Answered(result.map(|()| syncing.delivery.reply));
        }
        true
    }

    pub(crate) fn take(self) -> GroupAnswer {
        match self.stage {
            CallStage::Answered(answer) => answer,
            _ => unreachable!("taken only after poll said so"),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            CallStage::Syncing(syncing) => Some(syncing.deadline),
            _ => None,
        }
    }
}

impl Call {
    /// As `poll`, without a waker.
    pub(crate) fn is_answered(&mut self, services: &Services) -> bool {
        if let CallStage::Syncing(syncing) = &self.stage
            && syncing.delivery.partition.high_watermark() < syncing.delivery.durable_at
        {
            return false;
        }
        self.poll(services, Waker::noop())
    }

    /// Whether other members of the group have to act first.
    pub(crate) fn is_parked(&self) -> bool {
        matches!(self.stage, CallStage::Parked(_))
    }
}
