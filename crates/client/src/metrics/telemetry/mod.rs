//! Pushes the client's metrics to the broker on request (KIP-714): a part of the producer's and
//! consumer's machine.
//!
//! A push needs no free slot of `max.in.flight.requests.per.connection`: our sender counts only its
//! own produce requests against that limit, and telemetry is sent beside them on the same
//! connection. So a producer with a full pipe and one request in flight, which is invisible with
//! the Java client, is visible, too. Telemetry opens no connection of its own, except the first,
//! and one for the last push when every connection holds a long poll.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use ottla_wire::messages::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};
use ottla_wire::primitives::{Reader, Uuid};
use ottla_wire::random::Random;
use ottla_wire::records::compression::Codec;

use super::ClientMetrics;
use super::instance_id::{InstanceId, InstanceState};
use super::payload::{Payload, Pushed, Selector, Subscription};
use crate::config::ClientConfig;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::{Cluster, Readiness, Request};
use crate::network::io::Action;
use crate::time::{Moment, Timestamp};

/// How often telemetry looks for an available node, besides every connection event.
const HOLD_MS: u64 = 1000;

/// Used when the broker gave no interval or was not reached: Kafka's default interval.
const DEFAULT_INTERVAL_MS: u64 = 5 * 60 * 1000;

/// The shortest interval that Kafka lets an operator set; a shorter one from a broker is raised to
/// it.
const INTERVAL_MS_MIN: u64 = 100;

/// After a broken connection, when no interval is known yet.
const RECONNECT_WAIT_MS: u64 = 30_000;

/// `close` waits at most this long for the answer to the last push.
const CLOSE_WAIT_MS: u64 = 1000;

/// The node id of the connection for a last push that every other connection would hold up. The
/// coordinator's ids count down from 2^31−1, those of `bootstrap.servers` from −1.
const LAST_PUSH_NODE: NodeId = NodeId(i32::MIN);

#[derive(Debug)]
enum TelemetryState {
    /// No more requests: switched off, finally refused, or closed.
    Off,
    /// Asks for the subscription at this moment.
    AskAt(Moment),
    Asking,
    PushAt(Moment),
    Pushing(Payload),
    /// The last push is due now, or at the answer to the one in flight.
    LastPushDue,
    LastPushing,
}

/// The sub-machine. It has at most one request in flight.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Arc<ClientMetrics>,
    instance: Arc<InstanceId>,
    request_timeout_ms: u64,
    state: TelemetryState,
    subscription: Option<Subscription>,
    pushed: Pushed,
    /// Telemetry stays with one node while it can.
    node: Option<NodeId>,
    /// No node could be asked; until then only a connection event leads to another attempt.
    hold_until: Moment,
    /// Set by `close`.
    close_by: Option<Moment>,
    random: Random,
}

impl Telemetry {
    /// - `seed`: of the first push's jitter.
    pub fn new(config: &ClientConfig, metrics: Arc<ClientMetrics>, seed: u64) -> Telemetry {
        let enabled = config.metrics_push_enabled;
        Telemetry::with_limits(enabled, config.request_timeout_ms, metrics, seed)
    }

    fn with_limits(
        is_enabled: bool,
        request_timeout_ms: u64,
        metrics: Arc<ClientMetrics>,
        seed: u64,
    ) -> Telemetry {
        let instance = Arc::new(InstanceId::default());
        if !is_enabled {
            instance.set(InstanceState::Never);
        }
        Telemetry {
            metrics,
            instance,
            request_timeout_ms,
            state: match is_enabled {
                true => TelemetryState::AskAt(Moment::default()),
                false => TelemetryState::Off,
            },
            subscription: None,
            pushed: Pushed::default(),
            node: None,
            hold_until: Moment::default(),
            close_by: None,
            random: Random::new(seed),
        }
    }

    /// The id under which this client pushes.
    pub fn instance(&self) -> &Arc<InstanceId> {
        &self.instance
    }

    /// Sends what is due. Call it in every turn of the machine, after `Cluster::turn`; pass the
    /// replies of its tickets to `take_reply`.
    pub fn turn<T>(
        &mut self,
        now: Moment,
        wall: Timestamp,
        cluster: &mut Cluster<T>,
        ticket: impl FnOnce() -> T,
        actions: &mut Vec<Action>,
    ) {
        self.overtake_held_push(cluster);
        if !self.is_due(now) {
            return;
        }
        let Some(node) = self.choose_node(now, cluster) else {
            return;
        };
        if cluster.version(node, self.api_key(), 0).is_err() {
            // KIP-714: a broker that does not advertise the API is not asked; a later one may be.
            self.node = None;
            self.try_again_at(now.after_ms(DEFAULT_INTERVAL_MS));
            return;
        }
        if let Some(request) = self.request(now, wall) {
            cluster.send(now, node, request, ticket(), actions);
        }
    }

    /// The node to ask now; `None`: not now, or never again.
    fn choose_node<T>(&mut self, now: Moment, cluster: &mut Cluster<T>) -> Option<NodeId> {
        if self.close_by.is_some() {
            return self.choose_last_node(now, cluster);
        }
        let node = self.choose_usual_node(now, cluster);
        if node.is_none() {
            self.hold_until = now.after_ms(HOLD_MS);
        }
        node
    }

    /// A node whose answer does not wait behind a long poll of this client, which can take
    /// fetch.max.wait.ms. `close` would wait as long.
    fn choose_last_node<T>(&mut self, now: Moment, cluster: &mut Cluster<T>) -> Option<NodeId> {
        if let Some(node) = cluster.free_node(now, self.node) {
            self.node = Some(node);
            return Some(node);
        }
        let Some(address) = cluster.connected_address(self.node) else {
            self.end();
            return None;
        };
        cluster.add_node(LAST_PUSH_NODE, address);
        match cluster.readiness(now, LAST_PUSH_NODE) {
            // When it is ready, it is free.
            Readiness::Ready | Readiness::Connecting => self.hold_until = now.after_ms(HOLD_MS),
            Readiness::BackingOff(_) | Readiness::Impossible(_) => self.end(),
        }
        None
    }

    /// While closing: the answer to a push in flight comes behind a long poll; do not wait for it.
    fn overtake_held_push<T>(&mut self, cluster: &Cluster<T>) {
        let is_held_up = || self.node.is_some_and(|node| cluster.is_held_up(node));
        if !matches!(self.state, TelemetryState::Pushing(_)) || self.close_by.is_none() || !is_held_up() {
            return;
        }
        if let TelemetryState::Pushing(payload) =
            std::mem::replace(&mut self.state, TelemetryState::LastPushDue)
        {
            // It may have arrived: see `take_reply`.
            self.pushed.remember(payload);
        }
    }

    fn choose_usual_node<T>(&mut self, now: Moment, cluster: &mut Cluster<T>) -> Option<NodeId> {
        if let Some(node) = self.node {
            // A known node is not reconnected for telemetry alone.
            if cluster.snapshot().nodes.contains_key(&node)
                && cluster.readiness(now, node) == Readiness::Ready
            {
                return Some(node);
            }
        }
        self.node = cluster.least_loaded(now);
        self.node
    }

    /// Whether a request should be sent now.
    fn is_due(&self, now: Moment) -> bool {
        match self.state {
            TelemetryState::AskAt(at) | TelemetryState::PushAt(at) => at <= now,
            TelemetryState::LastPushDue => true,
            TelemetryState::Off
            | TelemetryState::Asking
            | TelemetryState::Pushing(_)
            | TelemetryState::LastPushing => false,
        }
    }

    fn api_key(&self) -> ApiKey {
        match self.state {
            TelemetryState::PushAt(_) | TelemetryState::LastPushDue => ApiKey::PushTelemetry,
            _ => ApiKey::GetTelemetrySubscriptions,
        }
    }

    /// When `turn` has something to do; `None`: nothing, or an answer is awaited.
    pub fn next_deadline(&self) -> Option<Moment> {
        let due = match self.state {
            TelemetryState::AskAt(at) | TelemetryState::PushAt(at) => Some(at.max(self.hold_until)),
            TelemetryState::LastPushDue => Some(self.hold_until),
            TelemetryState::Off
            | TelemetryState::Asking
            | TelemetryState::Pushing(_)
            | TelemetryState::LastPushing => None,
        };
        due.into_iter().chain(self.close_by).min()
    }

    /// The request that is due; moves the state on to waiting for its answer.
    fn request(&mut self, now: Moment, wall: Timestamp) -> Option<Request> {
        let instance = self.instance.get().unwrap_or(Uuid::ZERO);
        let mut body = Vec::new();
        let api_key = self.api_key();
        if api_key == ApiKey::GetTelemetrySubscriptions {
            GetTelemetrySubscriptionsRequest {
                client_instance_id: instance,
            }
            .encode(&mut body, 0);
            self.state = TelemetryState::Asking;
        } else {
            let is_last = matches!(self.state, TelemetryState::LastPushDue);
            let subscription = self.subscription.as_ref().expect("a push follows a subscription");
            let payload = self.pushed.payload(
                &self.metrics.snapshot(),
                &self.metrics.labels(),
                subscription,
                wall,
                Timestamp(self.metrics.started_at_ms()),
            );
            self.metrics.telemetry_built(payload.left_out);
            if payload.metric_count == 0 && !is_last {
                self.state = TelemetryState::PushAt(now.after_ms(subscription.interval_ms));
                return None;
            }
            PushTelemetryRequest {
                client_instance_id: instance,
                subscription_id: subscription.id,
                terminating: is_last,
                compression_type: subscription.codec.id() as i8,
                metrics: &payload.bytes,
            }
            .encode(&mut body, 0);
            self.state = match is_last {
                true => TelemetryState::LastPushing,
                false => TelemetryState::Pushing(payload),
            };
        }
        Some(Request {
            api_key,
            api_version: 0,
            body: vec![body.into()],
            timeout_ms: self.request_timeout_ms,
            expects_answer: true,
        })
    }

    /// Handles the answer of `node` to a request that `turn` sent.
    pub fn take_reply(&mut self, now: Moment, node: NodeId, result: Result<Bytes, Error>) {
        match std::mem::replace(&mut self.state, TelemetryState::Off) {
            TelemetryState::Asking => match result {
                Ok(body) => self.subscribed(now, &body),
                Err(error) => self.lost(now, &error),
            },
            TelemetryState::Pushing(payload) => match result {
                Ok(body) => self.pushed(now, payload, &body),
                Err(error) => {
                    // It may have arrived. A gap that the timestamps show is better than records
                    // counted twice.
                    self.pushed.remember(payload);
                    self.metrics.telemetry_answered(false);
                    self.lost(now, &error);
                }
            },
            // The answer to a push that the last one has overtaken.
            TelemetryState::LastPushing if self.node.is_some_and(|asked| asked != node) => {
                self.state = TelemetryState::LastPushing;
            }
            TelemetryState::LastPushing => {
                let is_taken = result.is_ok_and(|body| push_error(&body) == Ok(0));
                self.metrics.telemetry_answered(is_taken);
                self.end();
            }
            // `close` gave up waiting.
            before => self.state = before,
        }
        if self.close_by.is_some() {
            self.begin_last_push();
        }
    }

    fn subscribed(&mut self, now: Moment, body: &[u8]) {
        let Ok(response) = GetTelemetrySubscriptionsResponse::decode(&mut Reader::new(body), 0) else {
            return self.end();
        };
        let throttle_ms = u64::try_from(response.throttle_time_ms).unwrap_or(0);
        if response.error_code != 0 {
            return self.refused(now, response.error_code, throttle_ms, false);
        }
        if response.client_instance_id.is_zero() {
            // Pushing under the zero id is an invalid request.
            return self.end();
        }
        self.instance
            .set(InstanceState::Known(response.client_instance_id));
        let subscription = Subscription {
            id: response.subscription_id,
            codec: preferred_codec(&response.accepted_compression_types),
            interval_ms: u64::try_from(response.push_interval_ms)
                .ok()
                .filter(|ms| *ms > 0)
                .map_or(DEFAULT_INTERVAL_MS, |ms| ms.max(INTERVAL_MS_MIN)),
            bytes_max: usize::try_from(response.telemetry_max_bytes).unwrap_or(0),
            is_delta: response.delta_temporality,
            selector: Selector::new(&response.requested_metrics),
        };
        let interval_ms = subscription.interval_ms;
        let is_new = self
            .subscription
            .as_ref()
            .is_none_or(|known| known.id != subscription.id);
        if is_new && subscription.selector != Selector::None {
            events::metrics_subscribed(self.metrics.client_id(), subscription.id, interval_ms);
        }
        self.state = if subscription.selector == Selector::None {
            // No metrics are wanted now; that may change.
            TelemetryState::AskAt(now.after_ms(interval_ms.max(throttle_ms)))
        } else {
            // Half to one and a half intervals, so that clients that were started together do not
            // push together.
            let jitter_ms = (interval_ms as f64 * (0.5 + self.random_unit())) as u64;
            TelemetryState::PushAt(now.after_ms(jitter_ms.max(throttle_ms)))
        };
        self.subscription = Some(subscription);
    }

    fn pushed(&mut self, now: Moment, payload: Payload, body: &[u8]) {
        let interval_ms = self.interval_ms();
        match push_error(body) {
            Ok(0) => {
                self.metrics.telemetry_answered(true);
                self.pushed.remember(payload);
                self.state = TelemetryState::PushAt(now.after_ms(interval_ms));
            }
            Ok(code) => {
                self.metrics.telemetry_answered(false);
                self.refused(now, code, 0, true);
            }
            Err(()) => self.end(),
        }
    }

    /// KIP-714's table of errors.
    fn refused(&mut self, now: Moment, code: i16, throttle_ms: u64, is_push: bool) {
        match ErrorCode::from_i16(code) {
            Some(ErrorCode::UnknownSubscriptionId | ErrorCode::UnsupportedCompressionType) if is_push => {
                self.state = TelemetryState::AskAt(now.after_ms(throttle_ms));
            }
            // As an answer to GetTelemetrySubscriptions they make no sense, and asking again at
            // once would spin.
            Some(ErrorCode::UnknownSubscriptionId | ErrorCode::UnsupportedCompressionType) => {
                self.state = TelemetryState::AskAt(now.after_ms(self.interval_ms().max(throttle_ms)));
            }
            Some(ErrorCode::TelemetryTooLarge | ErrorCode::ThrottlingQuotaExceeded) => {
                self.try_again_at(now.after_ms(self.interval_ms().max(throttle_ms)));
            }
            // INVALID_REQUEST, INVALID_RECORD, UNSUPPORTED_VERSION and any code that the KIP does
            // not name.
            _ => {
                events::metrics_refused(self.metrics.client_id(), code);
                self.end();
            }
        }
    }

    /// The connection broke or did not answer in time.
    fn lost(&mut self, now: Moment, error: &Error) {
        self.node = None;
        match error {
            Error::UnsupportedVersion { .. } => self.try_again_at(now.after_ms(DEFAULT_INTERVAL_MS)),
            _ => {
                let wait_ms = self
                    .subscription
                    .as_ref()
                    .map_or(RECONNECT_WAIT_MS, |known| known.interval_ms);
                self.try_again_at(now.after_ms(wait_ms));
            }
        }
    }

    /// Pushes again where a subscription is known, else asks for one.
    fn try_again_at(&mut self, at: Moment) {
        let wants_push = self
            .subscription
            .as_ref()
            .is_some_and(|known| known.selector != Selector::None);
        self.state = match wants_push {
            true => TelemetryState::PushAt(at),
            false => TelemetryState::AskAt(at),
        };
    }

    fn interval_ms(&self) -> u64 {
        self.subscription
            .as_ref()
            .map_or(DEFAULT_INTERVAL_MS, |known| known.interval_ms)
    }

    /// Closes: pushes a last time, marked as terminating, if there is a subscription. Waits at most
    /// a second for it.
    pub fn close(&mut self, now: Moment) {
        if self.close_by.is_none() {
            self.close_by = Some(now.after_ms(CLOSE_WAIT_MS));
            self.begin_last_push();
        }
    }

    fn begin_last_push(&mut self) {
        let wants_push = self
            .subscription
            .as_ref()
            .is_some_and(|known| known.selector != Selector::None);
        match self.state {
            TelemetryState::Off
            | TelemetryState::LastPushDue
            | TelemetryState::LastPushing
            | TelemetryState::Pushing(_) => {}
            TelemetryState::AskAt(_) | TelemetryState::PushAt(_) if wants_push => {
                self.state = TelemetryState::LastPushDue
            }
            TelemetryState::AskAt(_) | TelemetryState::Asking | TelemetryState::PushAt(_) => self.end(),
        }
    }

    /// Returns true when `close` has nothing left to wait for.
    pub fn is_closed(&mut self, now: Moment) -> bool {
        if self.close_by.is_some_and(|by| by <= now) {
            self.end();
        }
        self.close_by.is_some() && matches!(self.state, TelemetryState::Off)
    }

    fn end(&mut self) {
        self.state = TelemetryState::Off;
        self.instance.set(InstanceState::Never);
    }

    /// 0 to 1.
    fn random_unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The first codec of the broker's list, which is in its order of preference, that this client
/// supports.
fn preferred_codec(accepted: &[i8]) -> Codec {
    accepted
        .iter()
        .find_map(|id| Codec::from_id(i16::from(*id)).filter(|codec| codec.is_built()))
        .unwrap_or(Codec::None)
}

fn push_error(body: &[u8]) -> Result<i16, ()> {
    PushTelemetryResponse::decode(&mut Reader::new(body), 0)
        .map(|response| response.error_code)
        .map_err(|_| ())
}

#[cfg(test)]
mod tests;
