//! A request that waits for the transaction coordinator's decision, and then for whatever it waits
//! for itself.

use std::task::{Poll, Waker};

use crate::node::Node;
use crate::pending::{Handled, PendingReply};
use crate::refusal::Refusal;
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::OwnedRequest;
use crate::time::Moment;
use crate::transaction::admission::Admission;

/// The coordinator's decision about each partition.
pub(super) type Decisions = Vec<Result<(), Refusal>>;

/// Serves the request once the decision is known.
pub(super) type Serve = Box<dyn FnOnce(&Node, &OwnedRequest, Decisions, &mut ReplyBuffer) -> Handled + Send>;

pub(super) struct Admitting {
    stage: Stage,
}

enum Stage {
    Asking {
        request: OwnedRequest,
        admission: Box<dyn Admission>,
        serve: Serve,
    },
    Served(Box<dyn PendingReply>),
    Over,
}

impl Admitting {
    pub(super) fn handled(request: OwnedRequest, admission: Box<dyn Admission>, serve: Serve) -> Handled {
        Handled::Pending(Box::new(Admitting {
            stage: Stage::Asking {
                request,
                admission,
                serve,
            },
        }))
    }
}

impl PendingReply for Admitting {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        if let Stage::Asking { admission, .. } = &mut self.stage {
            let Poll::Ready(decisions) = admission.poll(node.services(), waker) else {
                return Poll::Pending;
            };
            let Stage::Asking { request, serve, .. } = std::mem::replace(&mut self.stage, Stage::Over) else {
                unreachable!("just matched")
            };
            match serve(node, &request, decisions, reply).settle(reply) {
                Some(pending) => self.stage = Stage::Served(pending),
                None => return Poll::Ready(()),
            }
        }
        match &mut self.stage {
            Stage::Served(pending) => pending.poll(node, waker, reply),
            Stage::Asking { .. } | Stage::Over => Poll::Ready(()),
        }
    }

    fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Asking { admission, .. } => admission.deadline(),
            Stage::Served(pending) => pending.deadline(),
            Stage::Over => None,
        }
    }

    fn waits_for(&self) -> WaitKind {
        match &self.stage {
            Stage::Served(pending) => pending.waits_for(),
            Stage::Asking { .. } | Stage::Over => WaitKind::Transaction,
        }
    }

    // The order of a producer's requests is theirs: later ones of its connection wait.
    fn is_alone(&self) -> bool {
        match &self.stage {
            Stage::Asking { .. } => true,
            Stage::Served(pending) => pending.is_alone(),
            Stage::Over => false,
        }
    }

    fn kept_bytes(&self) -> usize {
        match &self.stage {
            Stage::Asking { request, .. } => request.body_bytes(),
            Stage::Served(pending) => pending.kept_bytes(),
            Stage::Over => 0,
        }
    }
}
