//! RenewDelegationToken, versions 1 and 2 (KIP-48). 2: flexible. There are no tokens
//! (`token_calls.rs`).

use ottla_wire::messages::renew_delegation_token::{
    RenewDelegationTokenRequest, RenewDelegationTokenResponse,
};

use super::token_calls::refusal;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    _body: RenewDelegationTokenRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let (code, expiry_timestamp_ms) = refusal(node, request);
    RenewDelegationTokenResponse {
        error_code: code.code(),
        expiry_timestamp_ms,
        ..Default::default()
    }
    .encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
