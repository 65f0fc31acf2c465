//! The life of a connection: connected, negotiated, authenticated, used, broken, closed.

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;

use crate::error::Error;
use crate::events::{self, ConnectionEnd};
use crate::metadata::snapshot::NodeId;
use crate::network::api_versions::{self, Negotiated};
use crate::network::authentication::{Authentication, HANDSHAKE_VERSION, Next, renewal};
use crate::network::cluster::{Cluster, Reply, count_sent, disconnected, malformed};
use crate::network::connection::{ConnectionStage, own_request};
use crate::network::in_flight::{InFlight, Purpose};
use crate::network::io::{Action, ConnectionId};
use crate::time::Moment;

impl<T> Cluster<T> {
    pub(super) fn connect(&mut self, now: Moment, node: NodeId) {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let Some(connection) = self.nodes.get_mut(&node) else {
            return;
        };
        let limit = self.setup.nanos(connection.failures, &mut self.random);
        connection.renewing_since = None;
        connection.renew_at = Moment::NEVER;
        connection.stage = ConnectionStage::Connecting {
            deadline: Moment::from_nanos(now.nanos().saturating_add(limit)),
        };
        connection.id = Some(id);
        connection.last_attempt = now;
        connection.has_answered = false;
        self.by_connection.insert(id, node);
        self.queued_actions.push(Action::Connect {
            connection: id,
            address: connection.address.clone(),
        });
    }

    pub(super) fn negotiate(&mut self, now: Moment, node: NodeId, version: i16) {
        if let Some(connection) = self.nodes.get_mut(&node) {
            connection.stage = ConnectionStage::Negotiating;
        }
        let body = api_versions::encode_request(version);
        self.send_own(
            now,
            node,
            ApiKey::ApiVersions,
            version,
            body,
            Purpose::ApiVersions,
        );
    }

    pub(super) fn send_own(
        &mut self,
        now: Moment,
        node: NodeId,
        api_key: ApiKey,
        api_version: i16,
        body: Vec<u8>,
        purpose: Purpose<T>,
    ) {
        let request = own_request(api_key, api_version, body, self.config.request_timeout_ms);
        if let Some(connection) = self.nodes.get_mut(&node)
            && let Some(action) = connection.send(now, &self.config.client_id, request, Some(purpose))
        {
            count_sent(&self.metrics, node, &action);
            self.queued_actions.push(action);
        }
    }

    pub(super) fn received(&mut self, now: Moment, node: NodeId, frame: Bytes, replies: &mut Vec<Reply<T>>) {
        let Some(connection) = self.nodes.get_mut(&node) else {
            return;
        };
        let frame_bytes = frame.len();
        let (request, body) = match connection.in_flight.answer(frame) {
            Ok(found) => found,
            Err(reason) => {
                let error = malformed(&connection.address, reason);
                return self.broken(now, node, error, replies);
            }
        };
        let latency_nanos = now.nanos_since(request.sent_at);
        connection.last_used = now;
        self.metrics.response_received(node.0, frame_bytes, latency_nanos);
        connection.has_answered |= matches!(request.purpose, Purpose::Caller(_) | Purpose::Metadata);
        let own = match request.purpose {
            Purpose::Caller(ticket) => {
                replies.push(Reply {
                    node,
                    ticket,
                    api_key: request.api_key,
                    api_version: request.api_version,
                    result: Ok(body),
                    latency_nanos,
                });
                return;
            }
            Purpose::ApiVersions => self.negotiated(now, node, &body, request.api_version),
            Purpose::SaslHandshake | Purpose::SaslAuthenticate => {
                self.authentication_answered(now, node, &body, request.api_key, request.api_version)
            }
            Purpose::Metadata => self.metadata_answered(now, node, &body, request.api_version),
        };
        if let Err(error) = own {
            self.broken(now, node, error, replies);
        }
    }

    /// - Errors: why the connection must be closed; the same for the functions below.
    pub(super) fn negotiated(
        &mut self,
        now: Moment,
        node: NodeId,
        body: &[u8],
        version: i16,
    ) -> Result<(), Error> {
        let Some(connection) = self.nodes.get_mut(&node) else {
            return Ok(());
        };
        let reason = match api_versions::decode_response(body, version) {
            Ok(Ok(Negotiated::Known(versions))) => {
                connection.versions = Some(versions);
                self.authenticate(now, node);
                return Ok(());
            }
            Ok(Ok(Negotiated::AskAgain(version))) => {
                self.negotiate(now, node, version);
                return Ok(());
            }
            Ok(Err(code)) => code.to_string(),
            Err(error) => error.to_string(),
        };
        Err(malformed(&connection.address, format!("ApiVersions: {reason}")))
    }

    /// Starts the SASL exchange where it is enabled; else the connection is ready.
    pub(super) fn authenticate(&mut self, now: Moment, node: NodeId) {
        let Some(settings) = &self.config.security.sasl else {
            return self.ready(now, node, None);
        };
        let Some(connection) = self.nodes.get_mut(&node) else {
            return;
        };
        let authentication = Authentication::new(settings, &connection.address);
        let body = authentication.handshake();
        connection.stage = ConnectionStage::Authenticating(Box::new(authentication));
        let (api_key, version) = (ApiKey::SaslHandshake, HANDSHAKE_VERSION);
        self.send_own(now, node, api_key, version, body, Purpose::SaslHandshake);
    }

    pub(super) fn authentication_answered(
        &mut self,
        now: Moment,
        node: NodeId,
        body: &[u8],
        api_key: ApiKey,
        api_version: i16,
    ) -> Result<(), Error> {
        let version = self.version(node, ApiKey::SaslAuthenticate, 0)?;
        let Some(ConnectionStage::Authenticating(authentication)) =
            self.nodes.get_mut(&node).map(|node| &mut node.stage)
        else {
            return Ok(());
        };
        let next = match api_key {
            ApiKey::SaslHandshake => authentication.handshake_answered(body, version),
            _ => authentication.authenticate_answered(body, api_version),
        };
        match next {
            Ok(Next::Authenticate(body)) => {
                let (api_key, purpose) = (ApiKey::SaslAuthenticate, Purpose::SaslAuthenticate);
                self.send_own(now, node, api_key, version, body, purpose);
                Ok(())
            }
            Ok(Next::Done { session_ms }) => {
                self.count_authentication(now, node, true);
                self.ready(now, node, session_ms);
                Ok(())
            }
            Err(error) => {
                self.count_authentication(now, node, false);
                Err(error)
            }
        }
    }

    fn count_authentication(&mut self, now: Moment, node: NodeId, is_success: bool) {
        let since = self
            .nodes
            .get_mut(&node)
            .and_then(|node| node.renewing_since.take());
        match since {
            Some(since) => self.metrics.reauthenticated(is_success, now.nanos_since(since)),
            None => self.metrics.authenticated(is_success),
        }
    }

    pub(super) fn ready(&mut self, now: Moment, node: NodeId, session_ms: Option<u64>) {
        let renew_at = session_ms.map(|session_ms| renewal(now, session_ms, &mut self.random));
        if let Some(connection) = self.nodes.get_mut(&node) {
            connection.stage = ConnectionStage::Ready;
            connection.failures = 0;
            connection.trouble = None;
            if connection.renew_at == Moment::NEVER {
                events::connection_up(&self.config.client_id, node, &connection.address);
            }
            connection.renew_at = renew_at.unwrap_or(Moment::NEVER);
        }
    }

    /// A port that requires SASL answers ApiVersions, and closes at the first other request that is
    /// not SASL.
    pub(super) fn closed(&mut self, now: Moment, node: NodeId, error: Error, replies: &mut Vec<Reply<T>>) {
        let is_unanswered = self.nodes.get(&node).is_some_and(|connection| {
            connection.is_ready() && !connection.has_answered && connection.in_flight.len() > 0
        });
        let error = match error {
            Error::Disconnected { address, reason }
                if is_unanswered && self.config.security.sasl.is_none() =>
            {
                let reason =
                    format!("{reason} at the first request: the port may want SASL (security.protocol)");
                Error::Disconnected {
                    address,
                    reason: reason.into(),
                }
            }
            error => error,
        };
        self.broken(now, node, error, replies);
    }

    /// The connection is unusable: everything in flight on it fails, and the next attempt waits for
    /// the backoff.
    pub(super) fn broken(&mut self, now: Moment, node: NodeId, error: Error, replies: &mut Vec<Reply<T>>) {
        let Some(connection) = self.nodes.get_mut(&node) else {
            return;
        };
        if let Some(id) = connection.id.take() {
            self.by_connection.remove(&id);
            self.queued_actions.push(Action::Close { connection: id });
            if !matches!(connection.stage, ConnectionStage::Connecting { .. }) {
                self.metrics.connection_closed();
            }
        }
        let end = match (&connection.stage, connection.failures) {
            (ConnectionStage::Ready, _) => ConnectionEnd::Down,
            // The end of a connection that was up counts as a failure, too.
            (_, failures) if failures == u32::from(connection.versions.is_some()) => {
                ConnectionEnd::FirstFailure
            }
            _ => ConnectionEnd::Failure,
        };
        events::connection_ended(&self.config.client_id, node, &connection.address, end, &error);
        connection.stage = ConnectionStage::Idle;
        let wait = self.reconnect.nanos(connection.failures, &mut self.random);
        connection.not_before = Moment::from_nanos(now.nanos().saturating_add(wait));
        connection.failures = connection.failures.saturating_add(1);
        connection.trouble = Some(error.clone());
        let address = connection.address.clone();
        let lost: Vec<InFlight<T>> = connection.in_flight.drain().collect();
        if connection.is_refused() {
            self.refresh.cell().fail(error.clone());
        } else {
            self.refresh.cell().note_trouble(error.clone());
        }
        // A leader may have moved when its broker went away: Kafka's client requests metadata after
        // every disconnect, too.
        self.refresh.request_update();
        for request in lost {
            match request.purpose {
                Purpose::Caller(ticket) => replies.push(Reply {
                    node,
                    ticket,
                    api_key: request.api_key,
                    api_version: request.api_version,
                    result: Err(match &error {
                        // Only overdue requests have timed out.
                        Error::Timeout { .. } if request.deadline > now => {
                            disconnected(&address, "closed because another request timed out")
                        }
                        error => error.clone(),
                    }),
                    latency_nanos: now.nanos_since(request.sent_at),
                }),
                Purpose::Metadata => self.refresh.failed(),
                Purpose::ApiVersions | Purpose::SaslHandshake | Purpose::SaslAuthenticate => {}
            }
        }
    }

    pub(super) fn check_limits(&mut self, now: Moment, replies: &mut Vec<Reply<T>>) {
        let idle_ms_max = self.config.connections_idle_ms_max;
        let due: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.deadline(idle_ms_max).is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let node = &self.nodes[&id];
            if let Some(overdue) = node.in_flight.overdue(now) {
                let error = Error::Timeout {
                    what: format!("{} request to {}", overdue.api_key, node.address).into(),
                    limit_ms: overdue.deadline.ms_since(overdue.sent_at),
                    setting: "request.timeout.ms",
                };
                self.broken(now, id, error, replies);
            } else if matches!(node.stage, ConnectionStage::Connecting { .. }) {
                let error = Error::Timeout {
                    what: format!("connection to {}", node.address).into(),
                    limit_ms: now.ms_since(node.last_attempt),
                    setting: "socket.connection.setup.timeout.ms",
                };
                self.broken(now, id, error, replies);
            } else {
                self.close_idle(id);
            }
        }
        self.nodes.retain(|_, node| !(node.is_retired && node.is_idle()));
    }

    /// Closes an unused connection: not a failure, so no backoff.
    pub(super) fn close_idle(&mut self, node: NodeId) {
        if let Some(connection) = self.nodes.get_mut(&node)
            && let Some(id) = connection.id.take()
        {
            connection.stage = ConnectionStage::Idle;
            self.by_connection.remove(&id);
            self.queued_actions.push(Action::Close { connection: id });
            self.metrics.connection_closed();
        }
    }
}
