//! Replies that wait for the answers of transaction coordinators.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;

use crate::access::granted::{OwnedGrant, TransactionalId};
use crate::node::Node;
use crate::pending::{Handled, PendingReply};
use crate::refusal::Refusal;
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::Request as ClientRequest;
use crate::slot::Slot;
use crate::submit::submit;
use crate::time::Moment;
use crate::transaction::coordinator::{Answer, Call};
use crate::transaction::request::{Reply, Request};
use crate::transaction::transactions::PATIENCE_MS;

/// From this version of each API on PRODUCER_FENCED is known; older clients get
/// INVALID_PRODUCER_EPOCH.
pub(super) fn code_for(error: ErrorCode, version: i16, first_with_fenced: i16) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced if version < first_with_fenced => ErrorCode::InvalidProducerEpoch,
        error => error,
    }
}

/// When a request that waits for an earlier transaction is answered without its end.
pub(super) fn patience(node: &Node) -> Moment {
    node.clock().moment().after_ms(PATIENCE_MS)
}

/// Whether the client is one of KIP-890, whose transactions have an epoch each.
pub(super) fn client_version(request: &ClientRequest<'_>, first_with_epochs: i16) -> i16 {
    if request.api_version >= first_with_epochs {
        2
    } else {
        0
    }
}

/// Combines the answers to all requests, in their order, into the reply's body.
type Finish = Box<dyn FnOnce(&Node, Vec<Answer>, &mut ReplyBuffer) + Send>;

/// Asks the coordinator of each transactional id, and replies when every answer is there.
pub(super) fn reply_when_answered(
    node: &Node,
    requests: Vec<(OwnedGrant<TransactionalId>, Request)>,
    reply: &mut ReplyBuffer,
    finish: impl FnOnce(&Node, Vec<Answer>, &mut ReplyBuffer) + Send + 'static,
) -> Handled {
    let asked = requests.into_iter().map(|(id, request)| Asked {
        call: node
            .transactions
            .call(&node.storage, id.borrow(), request.clone()),
        id: Some(id),
        request,
        answer: None,
    });
    reply_to_all(node, asked.collect(), reply, finish)
}

/// As `reply_when_answered`, of every coordinator.
pub(super) fn reply_when_all_answered(
    node: &Node,
    request: &Request,
    reply: &mut ReplyBuffer,
    finish: impl FnOnce(&Node, Vec<Answer>, &mut ReplyBuffer) + Send + 'static,
) -> Handled {
    let calls = node.transactions.call_all(&node.storage, request);
    let asked = calls.into_iter().map(|call| Asked {
        call,
        id: None,
        request: request.clone(),
        answer: None,
    });
    reply_to_all(node, asked.collect(), reply, finish)
}

fn reply_to_all(
    node: &Node,
    asked: Vec<Asked>,
    reply: &mut ReplyBuffer,
    finish: impl FnOnce(&Node, Vec<Answer>, &mut ReplyBuffer) + Send + 'static,
) -> Handled {
    let mut pending = PendingAnswers {
        asked,
        allocation: None,
        finish: Some(Box::new(finish)),
    };
    match pending.poll(node, Waker::noop(), reply) {
        Poll::Ready(()) => Handled::Replied,
        Poll::Pending => Handled::Pending(Box::new(pending)),
    }
}

struct Asked {
    /// `None`: every coordinator was asked.
    id: Option<OwnedGrant<TransactionalId>>,
    request: Request,
    call: Call,
    answer: Option<Answer>,
}

struct PendingAnswers {
    asked: Vec<Asked>,
    /// The controller's answer to the request for producer ids.
    allocation: Option<Arc<Slot<Result<(), Refusal>>>>,
    finish: Option<Finish>,
}

impl PendingAnswers {
    /// False: ids are being allocated. Afterwards those that need one are asked again.
    fn is_allocated(&mut self, node: &Node, waker: &Waker) -> bool {
        let Some(allocation) = &self.allocation else {
            return true;
        };
        let Some(allocated) = allocation.take_or_register(waker) else {
            return false;
        };
        self.allocation = None;
        for asked in &mut self.asked {
            if asked.answer != Some(Ok(Reply::NeedsProducerId)) {
                continue;
            }
            match (&allocated, &asked.id) {
                (Ok(()), Some(id)) => {
                    asked.answer = None;
                    asked.call = node
                        .transactions
                        .call(&node.storage, id.borrow(), asked.request.clone());
                }
                // The client retries; the disk may have space by then.
                _ => asked.answer = Some(Err(ErrorCode::CoordinatorLoadInProgress)),
            }
        }
        true
    }
}

impl PendingReply for PendingAnswers {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        loop {
            if !self.is_allocated(node, waker) {
                return Poll::Pending;
            }
            // Polls all of them, so that each has the waker.
            for asked in self.asked.iter_mut().filter(|asked| asked.answer.is_none()) {
                if asked.call.poll(node.services(), waker) {
                    asked.answer = Some(asked.call.take());
                }
            }
            if self.asked.iter().any(|asked| asked.answer.is_none()) {
                return Poll::Pending;
            }
            let needs_id = |asked: &Asked| asked.answer == Some(Ok(Reply::NeedsProducerId));
            if !self.asked.iter().any(needs_id) {
                break;
            }
            let allocation = submit(node, |node, controller| {
                node.producer_ids.ensure(controller, node.clock().timestamp())
            });
            self.allocation = Some(allocation);
        }
        if let Some(finish) = self.finish.take() {
            let answers = self.asked.drain(..).filter_map(|asked| asked.answer);
            finish(node, answers.collect(), reply);
        }
        Poll::Ready(())
    }

    fn deadline(&self) -> Option<Moment> {
        self.asked.iter().filter_map(|asked| asked.call.deadline()).min()
    }

    fn waits_for(&self) -> WaitKind {
        match &self.allocation {
            Some(_) => WaitKind::Controller,
            None if self.asked.iter().any(|asked| asked.call.is_parked()) => WaitKind::Transaction,
            None => WaitKind::Sync,
        }
    }
}
