//! What a handler did with a request: replied, or promised a later answer.

use std::task::{Poll, Waker};

use crate::node::Node;
use crate::reply::{Ending, ReplyBuffer, WaitKind};
use crate::time::Moment;

/// What a handler did with a request.
pub enum Handled {
    /// The reply is complete in the buffer.
    Replied,
    /// The client expects no answer (produce with acks=0).
    NoReply,
    /// The reply comes later.
    Pending(Box<dyn PendingReply>),
    /// The request broke the protocol; the connection logs the reason and closes.
    Close(String),
}

impl Handled {
    /// Ends the poll of a reply in which a handler has run: `None` if that was all, otherwise what
    /// to poll from now on.
    pub(crate) fn settle(self, reply: &mut ReplyBuffer) -> Option<Box<dyn PendingReply>> {
        match self {
            Handled::Replied => {}
            Handled::NoReply => reply.ending = Ending::NoReply,
            Handled::Close(reason) => reply.ending = Ending::Close(reason),
            Handled::Pending(pending) => {
                reply.bytes.clear();
                reply.regions.clear();
                return Some(pending);
            }
        }
        None
    }
}

/// A reply that waits for something: a sync, new data, other group members, the controller.
///
/// Dropping it undoes all its registrations, so a closed connection frees what its request held.
pub trait PendingReply: Send {
    /// Writes the reply and returns `Ready`, or registers `waker` with what it waits for.
    /// Registration must come before the last check, so that no wake-up is lost.
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()>;

    /// When to poll again even without a wake-up.
    fn deadline(&self) -> Option<Moment> {
        None
    }

    fn waits_for(&self) -> WaitKind;

    /// Whether the connection must not serve its next request before this one is answered or asked
    /// again: another thread has yet to handle the request itself, or what it appended fills the
    /// memory. Asked again after each poll.
    fn is_alone(&self) -> bool {
        false
    }

    /// Estimate of the memory it keeps while it waits, if that is more than a small request
    /// explains.
    fn kept_bytes(&self) -> usize {
        0
    }
}
