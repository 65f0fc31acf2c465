//! Requests to coordinators, as pending replies of a connection.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;

use crate::node::Node;
use crate::partition::WaitToken;
use crate::reply::{Handled, PendingReply, ReplyBuffer, WaitKind};
use crate::time::Moment;

use super::coordinator::{Coordinator, Delivery, DeliverySlot, Submitted};
use super::reply::GroupReply;
use super::request::Ticket;

/// A coordinator's answer, or the reason why there is none.
pub(crate) type Answer = Result<GroupReply, ErrorCode>;

/// One request to one coordinator.
pub(crate) struct Call {
    stage: Stage,
    /// Timeout for an answer's records to become durable.
    timeout_ms: u64,
}

enum Stage {
    Parked(Parked),
    Syncing(Syncing),
    Answered(Answer),
    Taken,
}

/// An answer that waits for other members. Dropping it tells the coordinator that the client is
/// gone.
struct Parked {
    coordinator: Arc<Coordinator>,
    group_id: String,
    ticket: Ticket,
    slot: Arc<DeliverySlot>,
    is_answered: bool,
}

/// The answer exists; its records are not durable yet.
struct Syncing {
    delivery: Delivery,
    deadline: Moment,
    token: Option<WaitToken>,
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
    pub fn answered(answer: Answer) -> Call {
        Call {
            stage: Stage::Answered(answer),
            timeout_ms: 0,
        }
    }

    pub(super) fn new(
        node: &Node,
        coordinator: &Arc<Coordinator>,
        group_id: &str,
        submitted: Submitted,
        timeout_ms: u64,
    ) -> Call {
        let stage = match submitted {
            Submitted::Refused(error) => Stage::Answered(Err(error)),
            Submitted::Delivered(delivery) => Stage::Syncing(Syncing::new(node, delivery, timeout_ms)),
            Submitted::Parked(ticket, slot) => Stage::Parked(Parked {
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
    fn poll(&mut self, node: &Node, waker: &Waker) -> bool {
        if let Stage::Parked(parked) = &mut self.stage {
            let Some(delivered) = parked.slot.take_or_register(waker) else {
                return false;
            };
            parked.is_answered = true;
            self.stage = match delivered {
                Ok(delivery) => Stage::Syncing(Syncing::new(node, delivery, self.timeout_ms)),
                Err(error) => Stage::Answered(Err(error)),
            };
        }
        if let Stage::Syncing(syncing) = &mut self.stage {
            let Some(result) = syncing.poll(node, waker) else {
                return false;
            };
            let Stage::Syncing(syncing) = std::mem::replace(&mut self.stage, Stage::Taken) else {
                unreachable!("just matched")
            };
            self.stage = Stage::Answered(result.map(|()| syncing.delivery.reply));
        }
        true
    }

    fn take(self) -> Answer {
        match self.stage {
            Stage::Answered(answer) => answer,
            _ => unreachable!("taken only after poll said so"),
        }
    }

    fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Syncing(syncing) => Some(syncing.deadline),
            _ => None,
        }
    }
}

impl Syncing {
    fn new(node: &Node, delivery: Delivery, timeout_ms: u64) -> Syncing {
        Syncing {
            delivery,
            deadline: node.clock.moment().after_ms(timeout_ms),
            token: None,
        }
    }

    /// `None`: not yet durable.
    fn poll(&mut self, node: &Node, waker: &Waker) -> Option<Result<(), ErrorCode>> {
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
        } else if partition.failure().is_some() || node.clock.moment() >= self.deadline {
            Some(Err(ErrorCode::CoordinatorNotAvailable))
        } else {
            None
        }
    }
}

/// Combines the answers of all calls, in their order, into the reply's body.
type Finish = Box<dyn FnOnce(&Node, Vec<Answer>, &mut ReplyBuffer) + Send>;

/// Replies at once if every answer is there, otherwise when the last of them arrives.
pub(crate) fn reply_when_answered(
    node: &Node,
    mut calls: Vec<Call>,
    reply: &mut ReplyBuffer,
    finish: impl FnOnce(&Node, Vec<Answer>, &mut ReplyBuffer) + Send + 'static,
) -> Handled {
    let are_answered = calls.iter_mut().all(|call| call.is_answered(node));
    if are_answered {
        finish(node, calls.into_iter().map(Call::take).collect(), reply);
        return Handled::Replied;
    }
    Handled::Pending(Box::new(PendingCalls {
        calls,
        finish: Some(Box::new(finish)),
    }))
}

impl Call {
    /// As `poll`, without a waker.
    fn is_answered(&mut self, node: &Node) -> bool {
        if let Stage::Syncing(syncing) = &self.stage
            && syncing.delivery.partition.high_watermark() < syncing.delivery.durable_at
        {
            return false;
        }
        self.poll(node, Waker::noop())
    }
}

struct PendingCalls {
    calls: Vec<Call>,
    finish: Option<Finish>,
}

impl PendingReply for PendingCalls {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        // Polls all of them, so that each has the waker.
        let waiting = self
            .calls
            .iter_mut()
            .filter_map(|call| (!call.poll(node, waker)).then_some(()))
            .count();
        if waiting > 0 {
            return Poll::Pending;
        }
        if let Some(finish) = self.finish.take() {
            finish(node, self.calls.drain(..).map(Call::take).collect(), reply);
        }
        Poll::Ready(())
    }

    fn deadline(&self) -> Option<Moment> {
        self.calls.iter().filter_map(Call::deadline).min()
    }

    fn waits_for(&self) -> WaitKind {
        let is_parked = self
            .calls
            .iter()
            .any(|call| matches!(call.stage, Stage::Parked(_)));
        if is_parked {
            WaitKind::Group
        } else {
            WaitKind::Sync
        }
    }
}
