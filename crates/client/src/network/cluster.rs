//! Sends requests to the nodes of a cluster, returns replies, keeps metadata fresh: the base of all
//! machines of this crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;

use crate::config::ClientConfig;
use crate::error::Error;
use crate::metadata::MetadataCell;
use crate::metadata::refresh::Refresh;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::metrics::NetworkMetrics;
use crate::network::backoff::{Backoff, Random};
use crate::network::connection::{Connection, ConnectionStage};
use crate::network::in_flight::Purpose;
use crate::network::io::{Action, Address, ConnectionId, Event};
use crate::time::{Moment, Timestamp};

/// Whether a request can be sent to a node now.
#[derive(Clone, Debug, PartialEq)]
pub enum Readiness {
    Ready,
    /// A connection is being made or authenticated; the outcome comes with `Cluster::turn`.
    Connecting,
    /// Not before this moment: the last attempt failed (reconnect.backoff.ms, growing, with jitter)
    /// or the broker asked for a pause (KIP-219).
    BackingOff(Moment),
    /// Authentication or TLS failed, or the node is unknown. Requests for this node should fail
    /// with the error; asking again later starts another attempt.
    Impossible(Error),
}

/// A request's body in parts (see `io::Frame`); `send` prepends length, header and correlation id.
#[derive(Debug)]
pub struct Request {
    pub api_key: ApiKey,
    pub api_version: i16,
    /// With capacity for one more part, `send` need not move them.
    pub body: Vec<Bytes>,
    /// Counted from the hand-over to the driver; then the connection is closed and every request on
    /// it fails, as in Kafka.
    pub timeout_ms: u64,
    /// False for produce with acks=0: its `Reply` comes with the next turn, with an empty body.
    pub expects_answer: bool,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Reply<T> {
    pub node: NodeId,
    pub ticket: T,
    pub api_key: ApiKey,
    pub api_version: i16,
    /// The body after the response header; `Err` when the connection broke, timed out or violated
    /// the protocol.
    pub result: Result<Bytes, Error>,
    /// From hand-over to answer.
    pub latency_nanos: u64,
}

/// Connections by node, requests in flight, metadata. `T` is the caller's context, kept with a
/// request and returned with its reply.
#[derive(Debug)]
pub struct Cluster<T> {
    pub(super) config: Arc<ClientConfig>,
    pub(super) metrics: Arc<NetworkMetrics>,
    pub(super) refresh: Refresh,
    pub(super) nodes: BTreeMap<NodeId, Connection<T>>,
    pub(super) by_connection: BTreeMap<ConnectionId, NodeId>,
    pub(super) next_connection: u64,
    pub(super) reconnect: Backoff,
    pub(super) setup: Backoff,
    pub(super) random: Random,
    /// The snapshot that `nodes` was last compared with.
    pub(super) adopted_version: u64,
    /// The hosts of `bootstrap.servers` are asked, too: at first, and when no known node can be
    /// reached (KIP-899).
    pub(super) is_bootstrapping: bool,
    /// A metadata request is due and no node can take it before `metadata_not_before` or a
    /// connection event.
    pub(super) is_waiting_for_node: bool,
    pub(super) metadata_not_before: Option<Moment>,
    /// The earliest moment that `readiness` returned since the last turn: the caller wants to ask
    /// again then.
    pub(super) asked_before: Option<Moment>,
    /// Actions of `handle`, `readiness` and `least_loaded`; `turn` passes them on.
    pub(super) queued_actions: Vec<Action>,
    pub(super) queued_replies: Vec<Reply<T>>,
}

impl<T> Cluster<T> {
    /// - `seed`: of the jitter in backoffs; a simulation replays byte for byte.
    pub fn new(
        config: Arc<ClientConfig>,
        metadata: Arc<MetadataCell>,
        metrics: Arc<NetworkMetrics>,
        seed: u64,
    ) -> Cluster<T> {
        let mut random = Random::new(seed);
        let mut cluster = Cluster {
            refresh: Refresh::new(&config, metadata, random.next_u64()),
            nodes: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            next_connection: 0,
            reconnect: Backoff::new(config.reconnect_backoff_ms, config.reconnect_backoff_ms_max),
            setup: Backoff::new(
                config.connection_setup_timeout_ms,
                config.connection_setup_timeout_ms_max,
            ),
            random,
            adopted_version: 0,
            is_bootstrapping: false,
            is_waiting_for_node: false,
            metadata_not_before: None,
            asked_before: None,
            queued_actions: Vec::new(),
            queued_replies: Vec::new(),
            config,
            metrics,
        };
        cluster.bootstrap();
        cluster
    }

    /// Takes an event. Replies are appended in the order of the broker's answers.
    pub fn handle(&mut self, now: Moment, event: Event, replies: &mut Vec<Reply<T>>) {
        // Late events of an abandoned connection are ignored.
        match event {
            Event::Connected { connection } => {
                if let Some(node) = self.by_connection.get(&connection).copied() {
                    self.metrics.connection_created();
                    self.negotiate(now, node, ApiKey::ApiVersions.known_versions().max);
                }
            }
            Event::Received { connection, frame } => {
                if let Some(node) = self.by_connection.get(&connection).copied() {
                    self.received(now, node, frame, replies);
                }
            }
            Event::Closed { connection, reason } => {
                if let Some(node) = self.by_connection.get(&connection).copied() {
                    self.closed(now, node, reason, replies);
                }
            }
            Event::RoundTrip { connection, nanos } => {
                if let Some(node) = self.by_connection.get(&connection) {
                    self.metrics.round_trip(node.0, nanos);
                }
            }
        }
    }

    /// Handles request timeouts, reconnects and due metadata requests.
    pub fn turn(
        &mut self,
        now: Moment,
        _wall: Timestamp,
        replies: &mut Vec<Reply<T>>,
        actions: &mut Vec<Action>,
    ) {
        self.asked_before = None;
        self.check_limits(now, replies);
        self.refresh.look();
        self.ask_for_metadata(now);
        replies.append(&mut self.queued_replies);
        actions.append(&mut self.queued_actions);
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.queued_actions.is_empty() || !self.queued_replies.is_empty() {
            return Some(Moment::from_nanos(0));
        }
        let connections = self
            .nodes
            .values()
            .filter_map(|node| node.deadline(self.config.connections_idle_ms_max));
        let metadata = if self.is_waiting_for_node {
            self.metadata_not_before
        } else {
            self.refresh.due()
        };
        connections.chain(metadata).chain(self.asked_before).min()
    }

    /// Whether the node can take a request now. Connects on demand: the call is what starts a
    /// connection. A returned moment is among the next deadlines.
    pub fn readiness(&mut self, now: Moment, node: NodeId) -> Readiness {
        let readiness = self.stage(now, node);
        if let Readiness::BackingOff(at) = readiness {
            self.asked_before = Some(self.asked_before.map_or(at, |before| before.min(at)));
        }
        readiness
    }

    fn stage(&mut self, now: Moment, node: NodeId) -> Readiness {
        let Some(connection) = self.nodes.get(&node) else {
            return Readiness::Impossible(unknown_node(node));
        };
        match connection.stage {
            ConnectionStage::Ready if now < connection.throttled_until => {
                Readiness::BackingOff(connection.throttled_until)
            }
            ConnectionStage::Ready if now >= connection.renew_at => {
                if let Some(connection) = self.nodes.get_mut(&node) {
                    connection.renewing_since = Some(now);
                }
                self.authenticate(now, node);
                Readiness::Connecting
            }
            ConnectionStage::Ready => Readiness::Ready,
            ConnectionStage::Connecting { .. }
            | ConnectionStage::Negotiating
            | ConnectionStage::Authenticating(_) => Readiness::Connecting,
            ConnectionStage::Idle if now < connection.not_before => match &connection.trouble {
                Some(error) if connection.is_refused() => Readiness::Impossible(error.clone()),
                _ => Readiness::BackingOff(connection.not_before),
            },
            ConnectionStage::Idle => {
                self.connect(now, node);
                Readiness::Connecting
            }
        }
    }

    /// The highest version of the API that both sides support on the node's connection.
    ///
    /// - Errors: `UnsupportedVersion` when there is none at or above `needed_min`; `Disconnected`
    ///   before the node was first ready.
    pub fn version(&self, node: NodeId, api_key: ApiKey, needed_min: i16) -> Result<i16, Error> {
        self.version_within(node, api_key, needed_min, i16::MAX)
    }

    /// Like `version`, for a caller that does not use the features of versions above `wanted_max`.
    pub fn version_within(
        &self,
        node: NodeId,
        api_key: ApiKey,
        needed_min: i16,
        wanted_max: i16,
    ) -> Result<i16, Error> {
        let versions = self.nodes.get(&node).and_then(|node| node.versions.as_ref());
        versions
            .ok_or_else(|| unknown_node(node))?
            .highest(api_key, needed_min, wanted_max)
    }

    /// `transaction.version` as the cluster has finalized it: the level with the newest epoch that
    /// a broker has named; 0 without one.
    pub fn transaction_version(&self) -> i16 {
        let named = self.nodes.values().filter_map(|node| node.versions.as_ref());
        let newest = named.max_by_key(|versions| versions.features_epoch);
        newest.map_or(0, |versions| versions.transaction_version)
    }

    /// Sends a request. Call it only when `readiness` was `Ready` in this turn.
    pub fn send(
        &mut self,
        now: Moment,
        node: NodeId,
        request: Request,
        ticket: T,
        actions: &mut Vec<Action>,
    ) {
        actions.append(&mut self.queued_actions);
        let (api_key, api_version) = (request.api_key, request.api_version);
        let reply = |ticket, result| Reply {
            node,
            ticket,
            api_key,
            api_version,
            result,
            latency_nanos: 0,
        };
        let Some(connection) = self.nodes.get_mut(&node).filter(|found| found.is_ready()) else {
            self.queued_replies.push(reply(ticket, Err(unknown_node(node))));
            return;
        };
        let purpose = if request.expects_answer {
            Some(Purpose::Caller(ticket))
        } else {
            self.queued_replies.push(reply(ticket, Ok(Bytes::new())));
            None
        };
        if let Some(action) = connection.send(now, &self.config.client_id, request, purpose) {
            count_sent(&self.metrics, node, &action);
            actions.push(action);
        }
    }

    /// Number of unanswered requests on the node's connection.
    pub fn in_flight(&self, node: NodeId) -> usize {
        self.nodes.get(&node).map_or(0, |node| node.in_flight.len())
    }

    /// A ready node with the fewest requests in flight; else starts a connection to one and returns
    /// `None` (for KIP-714 and metadata, as Kafka's `leastLoadedNode`).
    pub fn least_loaded(&mut self, now: Moment) -> Option<NodeId> {
        let ready = self
            .candidates()
            .filter(|(_, node)| node.is_ready() && node.throttled_until <= now)
            .min_by_key(|(_, node)| node.in_flight.len());
        if let Some((id, _)) = ready {
            return Some(id);
        }
        let mut is_connecting = false;
        let mut candidates: Vec<(Moment, NodeId)> = Vec::new();
        for (id, node) in self.candidates() {
            is_connecting |= node.is_becoming_ready();
            if node.is_idle() && node.not_before <= now {
                candidates.push((node.last_attempt, id));
            }
        }
        if !is_connecting && let Some(oldest) = candidates.iter().map(|(at, _)| *at).min() {
            candidates.retain(|(at, _)| *at == oldest);
            let chosen = candidates[self.random.below(candidates.len() as u64) as usize].1;
            self.connect(now, chosen);
        }
        None
    }

    /// Whether a request sent to the node now would wait behind a long poll: answers on a
    /// connection come in the order of its requests.
    pub fn is_held_up(&self, node: NodeId) -> bool {
        self.nodes
            .get(&node)
            .is_some_and(|node| node.in_flight.has_long_poll())
    }

    /// A ready node that is not held up, nodes of `add_node` included; `preferred` if it is one.
    pub fn free_node(&self, now: Moment, preferred: Option<NodeId>) -> Option<NodeId> {
        let is_free = |node: &Connection<T>| {
            node.is_ready() && node.throttled_until <= now && !node.in_flight.has_long_poll()
        };
        let is_preferred = |id: &NodeId| self.nodes.get(id).is_some_and(is_free);
        preferred.filter(is_preferred).or_else(|| {
            let free = self.nodes.iter().find(|(_, node)| is_free(node));
            free.map(|(id, _)| *id)
        })
    }

    /// The address of a connected node; of `preferred` if it is one.
    pub fn connected_address(&self, preferred: Option<NodeId>) -> Option<Address> {
        let preferred = preferred.and_then(|id| self.nodes.get(&id));
        let all = preferred.into_iter().chain(self.nodes.values());
        let connected = all.into_iter().find(|node| node.is_ready());
        connected.map(|node| node.address.clone())
    }

    /// Adds a node that is not a broker of the metadata, e.g. a group coordinator with a connection
    /// of its own (Kafka uses id 2^31−1−node id so that a blocking JoinGroup does not delay
    /// fetches).
    pub fn add_node(&mut self, id: NodeId, address: Address) {
        let node = self
            .nodes
            .entry(id)
            .or_insert_with(|| Connection::new(address.clone()));
        node.address = address;
        node.is_extra = true;
        node.is_retired = false;
    }

    /// Removes a node of `add_node`, once nothing is in flight to it.
    pub fn remove_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_extra) {
            node.is_retired = true;
        }
    }

    /// Closes the node's connection; its requests come back as `Disconnected`.
    pub fn disconnect(
        &mut self,
        now: Moment,
        node: NodeId,
        replies: &mut Vec<Reply<T>>,
        actions: &mut Vec<Action>,
    ) {
        if let Some(connection) = self.nodes.get(&node).filter(|found| !found.is_idle()) {
            let error = disconnected(&connection.address, "closed by this client");
            self.broken(now, node, error, replies);
            actions.append(&mut self.queued_actions);
        }
    }

    /// The broker asks for a pause of this many milliseconds (a response's throttle_time_ms;
    /// KIP-219).
    pub fn throttle(&mut self, now: Moment, node: NodeId, throttle_ms: u64) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.throttled_until = node.throttled_until.max(now.after_ms(throttle_ms));
        }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.refresh.cell().load_full()
    }

    pub fn metadata(&self) -> &Arc<MetadataCell> {
        self.refresh.cell()
    }

    /// The metadata is outdated (NOT_LEADER_OR_FOLLOWER and the like): request it as soon as
    /// `retry.backoff.ms` allows.
    pub fn request_metadata(&mut self) {
        self.refresh.request_update();
    }
}

pub(super) fn count_sent(metrics: &NetworkMetrics, node: NodeId, action: &Action) {
    if let Action::Send { frame, .. } = action {
        metrics.request_sent(node.0, frame.byte_count());
    }
}

pub(super) fn unknown_node(node: NodeId) -> Error {
    Error::Disconnected {
        address: format!("node {}", node.0).into(),
        reason: "it is not in the metadata (any more), or was never connected".into(),
    }
}

pub(super) fn disconnected(address: &Address, reason: &str) -> Error {
    Error::Disconnected {
        address: address.to_string().into(),
        reason: reason.into(),
    }
}

pub(super) fn malformed(address: &Address, reason: String) -> Error {
    Error::Malformed {
        address: address.to_string().into(),
        reason: reason.into(),
    }
}
