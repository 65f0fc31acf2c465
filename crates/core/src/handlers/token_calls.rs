//! What the four APIs of delegation tokens have in common (KIP-48): who may use them, and that
//! there are no tokens.

use ottla_wire::error_code::ErrorCode;

use crate::config::SecurityProtocol;
use crate::node::Node;
use crate::request::Request;

/// The principal of a client that has not authenticated.
const ANONYMOUS: &str = "User:ANONYMOUS";

/// Answers a request that is allowed: `delegation.token.secret.key` is not served.
pub(super) const NO_TOKENS: ErrorCode = ErrorCode::DelegationTokenAuthDisabled;

/// KIP-48: a token stands for an authentication, so it is for clients that have authenticated.
///
/// - Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a listener without security, and on one with
///   TLS for a client without a certificate. Apache Kafka refuses this before anything else.
pub(super) fn check_connection(node: &Node, request: &Request<'_>) -> Result<(), ErrorCode> {
    let security = node.listener_security(&request.connection.listener_name);
    let is_authenticated = match security.map(|security| security.protocol) {
        None | Some(SecurityProtocol::Plaintext) => false,
        Some(SecurityProtocol::Ssl) => &*request.connection.principal != ANONYMOUS,
        Some(SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl) => true,
    };
    match is_authenticated {
        true => Ok(()),
        false => Err(ErrorCode::DelegationTokenRequestNotAllowed),
    }
}

/// Returns the error of a request about existing tokens, and the time that Apache Kafka's answer
/// has beside it.
pub(super) fn refusal(node: &Node, request: &Request<'_>) -> (ErrorCode, i64) {
    match check_connection(node, request) {
        Err(code) => (code, -1),
        Ok(()) => (NO_TOKENS, 0),
    }
}
