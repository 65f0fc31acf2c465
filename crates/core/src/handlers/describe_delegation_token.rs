//! DescribeDelegationToken, versions 1 to 3 (KIP-48). 2: flexible. 3: KIP-373, who asked for a
//! token. There are no tokens (`token_calls.rs`).

use ottla_wire::messages::describe_delegation_token::{
    DescribeDelegationTokenRequest, DescribeDelegationTokenResponse,
};

use super::token_calls::refusal;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    _body: DescribeDelegationTokenRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    DescribeDelegationTokenResponse {
        error_code: refusal(node, request).0.code(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
