//! GetTelemetrySubscriptions, version 0 (KIP-714): the metrics this client should push, and how
//! often.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};

use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::telemetry::ACCEPTED_COMPRESSION_TYPES;
use crate::telemetry::subscription::ALL_METRICS;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: GetTelemetrySubscriptionsRequest,
    reply: &mut ReplyBuffer,
) -> Handled {
    if !node.telemetry.has_receiver() {
        return Handled::Close("client metrics have no receiver here".to_owned());
    }
    // KIP-714: a client that sends an id keeps it; Java's treats a zero id in the answer as a
    // broker fault.
    let id = match body.client_instance_id {
        id if id.is_zero() => node.services().random.uuid(),
        id => id,
    };
    request.connection.identity.set_instance_id(id);
    let granted = node.telemetry.ask(&node.image(), request, id, request.received);
    if let Ok(granted) = &granted {
        let identity = &request.connection.identity;
        identity.set_subscription(granted.wanted.interval_ms, granted.wanted.metrics.is_empty());
    }
    let response = match &granted {
        Err(code) => GetTelemetrySubscriptionsResponse {
            error_code: code.code(),
            client_instance_id: id,
            ..Default::default()
        },
        Ok(granted) => GetTelemetrySubscriptionsResponse {
            error_code: ErrorCode::None.code(),
            client_instance_id: id,
            subscription_id: granted.subscription_id,
            accepted_compression_types: ACCEPTED_COMPRESSION_TYPES.to_vec(),
            push_interval_ms: i32::try_from(granted.wanted.interval_ms).unwrap_or(i32::MAX),
            telemetry_max_bytes: node.telemetry.bytes_max(),
            delta_temporality: true,
            // "All metrics" is an empty prefix; franz-go takes `*` for a literal prefix and then
            // pushes nothing.
            requested_metrics: granted
                .wanted
                .metrics
                .iter()
                .map(|metric| if &**metric == ALL_METRICS { "" } else { metric })
                .collect(),
            ..Default::default()
        },
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
