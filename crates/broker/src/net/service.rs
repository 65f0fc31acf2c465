//! What a connection needs from the broker behind it.

use std::task::{Poll, Waker};

use ottla_core::node::Node;
use ottla_core::pending::{Handled, PendingReply};
use ottla_core::reply::ReplyBuffer;
use ottla_core::request::{ConnectionContext, Request};

/// Answers requests. The broker's implementation is [`Node`]; tests use scripted ones.
pub trait Service: Send + Sync {
    fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled;

    fn poll(&self, pending: &mut dyn PendingReply, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()>;

    /// Called when the connection is closed.
    fn disconnected(&self, _connection: &ConnectionContext) {}
}

impl Service for Node {
    fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        Node::handle(self, request, reply)
    }

    fn poll(&self, pending: &mut dyn PendingReply, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        pending.poll(self, waker, reply)
    }

    fn disconnected(&self, connection: &ConnectionContext) {
        Node::disconnected(self, connection);
    }
}
