//! SaslAuthenticate, versions 0 to 2 (KIP-152), of a connection that does not authenticate, as in
//! `sasl_handshake.rs`.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};

use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    _node: &Node,
    request: &Request<'_>,
    _body: SaslAuthenticateRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let response = SaslAuthenticateResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        error_message: Some("the connection is authenticated already, or its listener has no SASL"),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
