//! SaslHandshake, versions 0 and 1 (KIP-43), of a connection that does not authenticate: its
//! listener has no SASL, or it is authenticated already. Before that the request goes to the
//! connection's own machine (`sasl`).

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};

use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    _node: &Node,
    request: &Request<'_>,
    _body: SaslHandshakeRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let response = SaslHandshakeResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        mechanisms: Vec::new(),
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
