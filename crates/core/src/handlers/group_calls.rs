//! Replies that wait for the answers of group coordinators.

use std::task::{Poll, Waker};

use crate::group::coordinator::{Call, GroupAnswer};
use crate::node::Node;
use crate::pending::{Handled, PendingReply};
use crate::reply::{ReplyBuffer, WaitKind};
use crate::time::Moment;

/// Combines the answers of all calls, in their order, into the reply's body.
type Finish = Box<dyn FnOnce(&Node, Vec<GroupAnswer>, &mut ReplyBuffer) + Send>;

/// Replies at once if every answer is there, otherwise when the last of them arrives.
pub(crate) fn reply_when_answered(
    node: &Node,
    mut calls: Vec<Call>,
    reply: &mut ReplyBuffer,
    finish: impl FnOnce(&Node, Vec<GroupAnswer>, &mut ReplyBuffer) + Send + 'static,
) -> Handled {
    let are_answered = calls.iter_mut().all(|call| call.is_answered(node.services()));
    if are_answered {
        finish(
            node,
            calls.into_iter().map(|mut call| call.take()).collect(),
            reply,
        );
        return Handled::Replied;
    }
    Handled::Pending(Box::new(PendingCalls {
        calls,
        finish: Some(Box::new(finish)),
    }))
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
            .filter_map(|call| (!call.poll(node.services(), waker)).then_some(()))
            .count();
        if waiting > 0 {
            return Poll::Pending;
        }
        if let Some(finish) = self.finish.take() {
            finish(
                node,
                self.calls.drain(..).map(|mut call| call.take()).collect(),
                reply,
            );
        }
        Poll::Ready(())
    }

    fn deadline(&self) -> Option<Moment> {
        self.calls.iter().filter_map(Call::deadline).min()
    }

    fn waits_for(&self) -> WaitKind {
        if self.calls.iter().any(Call::is_parked) {
            WaitKind::Group
        } else {
            WaitKind::Sync
        }
    }
}
