//! PushTelemetry, version 0 (KIP-714): a client's metrics.
//!
//! The event loop decides whether the push may come now; the telemetry thread decompresses and
//! reads it, and only then is it answered.
//!
//! - Deviations: a payload that decompresses to more than eight times `telemetry.max.bytes` is
//!   TELEMETRY_TOO_LARGE. When the queue of pushes is full, the answer is
//!   THROTTLING_QUOTA_EXCEEDED: the client retries.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};

use crate::node::Node;
use crate::pending::{Handled, PendingReply};
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::slot::Slot;
use crate::telemetry::instances::Push;
use crate::telemetry::queue::PushAnswer;
use crate::telemetry::receiver::Pushed;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: PushTelemetryRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    if !node.telemetry.has_receiver() {
        return Handled::Close("client metrics have no receiver here".to_owned());
    }
    match begin(node, request, &body) {
        Ok(slot) => Handled::Pending(Box::new(PendingPush {
            slot,
            version: request.api_version,
        })),
        Err(code) => {
            node.telemetry.counts.refused(code);
            answer(Err(code), request.api_version, reply);
            Handled::Replied
        }
    }
}

fn begin(
    node: &Node,
    request: &Request<'_>,
    body: &PushTelemetryRequest<'_>,
) -> Result<Arc<Slot<PushAnswer>>, ErrorCode> {
    let push = Push {
        id: body.client_instance_id,
        subscription_id: body.subscription_id,
        is_terminating: body.terminating,
        compression_type: body.compression_type,
        payload_bytes: body.metrics.len(),
    };
    let telemetry = &node.telemetry;
    let push_interval_ms = telemetry.admit(&node.image(), request, &push, request.received)?;
    let codec = push.codec().ok_or(ErrorCode::UnsupportedCompressionType)?;
    let (place, slot) = telemetry
        .queue
        .enter(body.metrics.len())
        .ok_or(ErrorCode::ThrottlingQuotaExceeded)?;
    request.connection.identity.set_instance_id(push.id);
    let pushed = pushed(node, request, &push, push_interval_ms);
    let payload = body.metrics.to_vec();
    node.executor().telemetry(Box::new(move |node| {
        let result = node.telemetry.receive(&pushed, codec, &payload);
        if let Err(code) = result {
            node.telemetry.counts.refused(code);
        }
        place.answer(result);
    }));
    Ok(slot)
}

fn pushed(node: &Node, request: &Request<'_>, push: &Push, push_interval_ms: u32) -> Pushed {
    let connection = request.connection;
    let software = connection.identity.software();
    Pushed {
        client_id: request.client_id.unwrap_or_default().into(),
        instance_id: push.id,
        principal: connection.principal.clone(),
        address: connection.peer_address,
        port: connection.peer_port,
        listener_name: connection.listener_name.clone(),
        software_name: software.map(|known| known.name.clone()),
        software_version: software.map(|known| known.version.clone()),
        node_id: node.config().node_id,
        push_interval_ms,
        is_terminating: push.is_terminating,
        at: node.clock().timestamp(),
    }
}

fn answer(result: PushAnswer, version: i16, reply: &mut ReplyBuffer) {
    PushTelemetryResponse {
        error_code: result.err().unwrap_or(ErrorCode::None).code(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

/// A push that waits to be read.
struct PendingPush {
    slot: Arc<Slot<PushAnswer>>,
    version: i16,
}

impl PendingReply for PendingPush {
    fn poll(&mut self, _node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        match self.slot.take_or_register(waker) {
            None => Poll::Pending,
            Some(result) => {
                answer(result, self.version, reply);
                Poll::Ready(())
            }
        }
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Reading
    }
}
