//! What a connection needs from the broker behind it.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_core::config::ListenerSecurity;
use ottla_core::node::Node;
use ottla_core::pending::{Handled, PendingReply};
use ottla_core::reply::ReplyBuffer;
use ottla_core::request::{ConnectionContext, Request};
use ottla_core::sasl::{SaslServer, SaslStep};
use ottla_core::time::Moment;

/// Answers requests. The broker's implementation is [`Node`]; tests use scripted ones, whose
/// listeners have no SASL.
pub trait Service: Send + Sync {
    fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled;

    fn poll(&self, pending: &mut dyn PendingReply, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()>;

    /// The security of a listener at this moment; `None`: it has none.
    fn listener_security(&self, _listener_name: &str) -> Option<Arc<ListenerSecurity>> {
        None
    }

    /// Takes a request of a connection that is not authenticated, or authenticates again.
    fn authenticate(
        &self,
        _server: &mut SaslServer,
        request: &Request<'_>,
        _reply: &mut ReplyBuffer,
    ) -> SaslStep {
        SaslStep::Close(format!("{} without SASL", request.api_key))
    }

    /// Takes a token without a request around it.
    fn take_sasl_token(
        &self,
        _server: &mut SaslServer,
        _listener_name: &str,
        _token: &[u8],
        _received: Moment,
        _reply: &mut ReplyBuffer,
    ) -> SaslStep {
        SaslStep::Close("a token without SASL".to_owned())
    }

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

    fn listener_security(&self, listener_name: &str) -> Option<Arc<ListenerSecurity>> {
        Node::listener_security(self, listener_name)
    }

    fn authenticate(
        &self,
        server: &mut SaslServer,
        request: &Request<'_>,
        reply: &mut ReplyBuffer,
    ) -> SaslStep {
        Node::authenticate(self, server, request, reply)
    }

    fn take_sasl_token(
        &self,
        server: &mut SaslServer,
        listener_name: &str,
        token: &[u8],
        received: Moment,
        reply: &mut ReplyBuffer,
    ) -> SaslStep {
        Node::take_sasl_token(self, server, listener_name, token, received, reply)
    }

    fn disconnected(&self, connection: &ConnectionContext) {
        Node::disconnected(self, connection);
    }
}
