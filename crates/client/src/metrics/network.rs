//! Metrics of connections, requests and the driver's thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::sensor::{ClientKind, Family, Group, Metric, Tags, sensors};
use super::window::WindowSettings;
use crate::time::{Clock, SystemClock};

/// At most this many nodes have metrics of their own; further ones count only into the client's.
const NODES_MAX: usize = 1000;

sensors! {
    CLIENT: Group::Client, enum ClientSensor {
        ConnectionCount {
            "connection-count" Now "Connections that stand now.",
        }
        ConnectionCreated {
            "connection-creation-rate" Rate "Connections made per second.",
            "connection-creation-total" Total "Connections made.",
        }
        ConnectionClosed {
            "connection-close-rate" Rate "Connections closed per second.",
            "connection-close-total" Total "Connections closed.",
        }
        Authenticated {
            "successful-authentication-rate" Rate "Connections per second that were authenticated.",
            "successful-authentication-total" Total "Connections that were authenticated.",
        }
        AuthenticationFailed {
            "failed-authentication-rate" Rate "Connections per second whose authentication failed.",
            "failed-authentication-total" Total "Connections whose authentication failed.",
        }
        Reauthenticated {
            "successful-reauthentication-rate" Rate "Connections per second that were authenticated again (KIP-368).",
            "successful-reauthentication-total" Total "Connections that were authenticated again.",
        }
        ReauthenticationFailed {
            "failed-reauthentication-rate" Rate "Connections per second whose renewed authentication failed.",
            "failed-reauthentication-total" Total "Connections whose renewed authentication failed.",
        }
        ReauthenticationLatency {
            "reauthentication-latency-avg" Avg "Mean time of a renewed authentication in milliseconds.",
            "reauthentication-latency-max" Max "Longest time of a renewed authentication in milliseconds.",
        }
        NetworkIo {
            "network-io-rate" CountRate "Requests sent and answers received per second.",
            "network-io-total" CountTotal "Requests sent and answers received.",
        }
        Sent {
            "outgoing-byte-rate" Rate "Bytes of requests per second.",
            "outgoing-byte-total" Total "Bytes of requests.",
            "request-rate" CountRate "Requests per second, of every kind.",
            "request-total" CountTotal "Requests, of every kind.",
            "request-size-avg" Avg "Mean size of a request in bytes.",
            "request-size-max" Max "Size of the largest request in bytes.",
        }
        Received {
            "incoming-byte-rate" Rate "Bytes of answers per second.",
            "incoming-byte-total" Total "Bytes of answers.",
            "response-rate" CountRate "Answers per second.",
            "response-total" CountTotal "Answers.",
        }
        Waited {
            "select-rate" CountRate "Times per second that the driver looked for work on its sockets.",
            "select-total" CountTotal "Times that the driver looked for work on its sockets.",
            "io-wait-time-ns-avg" Avg "Mean time the driver slept until a socket or its waker had work, in nanoseconds.",
            "io-wait-time-ns-total" Total "Time the driver slept, in nanoseconds.",
            "io-wait-ratio" Ratio "Share of the time that the driver slept.",
        }
        Io {
            "io-time-ns-avg" Avg "Mean time the driver worked on its sockets after a sleep, in nanoseconds.",
            "io-time-ns-total" Total "Time the driver worked on its sockets, in nanoseconds.",
            "io-ratio" Ratio "Share of the time that the driver worked on its sockets.",
        }
    }
}

sensors! {
    NODE: Group::Node, enum NodeSensor {
        Sent {
            "outgoing-byte-rate" Rate "Bytes of requests to this node per second.",
            "outgoing-byte-total" Total "Bytes of requests to this node.",
            "request-rate" CountRate "Requests to this node per second.",
            "request-total" CountTotal "Requests to this node.",
            "request-size-avg" Avg "Mean size of a request to this node in bytes.",
            "request-size-max" Max "Size of the largest request to this node in bytes.",
        }
        Received {
            "incoming-byte-rate" Rate "Bytes of this node's answers per second.",
            "incoming-byte-total" Total "Bytes of this node's answers.",
            "response-rate" CountRate "This node's answers per second.",
            "response-total" CountTotal "This node's answers.",
        }
        Latency {
            "request-latency-avg" Avg "Mean time from a request to its answer in milliseconds: produce requests of a producer, fetches of a consumer, all of an admin client.",
            "request-latency-max" Max "Longest time from a request to its answer in milliseconds.",
        }
    }
}

sensors! {
    OWN_NODE: Group::OwnNode, enum OwnNodeSensor {
        RoundTrip {
            "round-trip-time-avg" Avg "Mean of the kernel's smoothed TCP round trip of the connection in milliseconds.",
            "round-trip-time-min" Min "Its smallest value.",
            "round-trip-time-max" Max "Its largest value.",
        }
    }
}

/// Metrics of connections, requests and the driver's thread. Nanoseconds and bytes throughout. One
/// per client.
///
/// One lock, taken by the driver's thread for every request and by every thread that takes a
/// snapshot.
#[derive(Debug)]
pub struct NetworkMetrics {
    kind: ClientKind,
    settings: WindowSettings,
    clock: Arc<dyn Clock>,
    state: Mutex<NetworkSensors>,
}

#[derive(Debug)]
struct NetworkSensors {
    client: Family,
    nodes: BTreeMap<i32, Node>,
    connections: u64,
    metadata_updated_at_ms: Option<u64>,
    started_at_ms: u64,
}

#[derive(Debug)]
struct Node {
    tags: Tags,
    family: Family,
    own: Family,
}

impl Default for NetworkMetrics {
    fn default() -> NetworkMetrics {
        NetworkMetrics::new(
            ClientKind::Producer,
            WindowSettings::default(),
            Arc::new(SystemClock::default()),
        )
    }
}

impl NetworkMetrics {
    pub fn new(kind: ClientKind, settings: WindowSettings, clock: Arc<dyn Clock>) -> NetworkMetrics {
        let started_at_ms = clock.moment().nanos() / 1_000_000;
        NetworkMetrics {
            kind,
            settings,
            clock,
            state: Mutex::new(NetworkSensors {
                client: Family::new(&CLIENT),
                nodes: BTreeMap::new(),
                connections: 0,
                metadata_updated_at_ms: None,
                started_at_ms,
            }),
        }
    }

    fn lock(&self) -> (u64, MutexGuard<'_, NetworkSensors>) {
        let now_ms = self.clock.moment().nanos() / 1_000_000;
        (now_ms, self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn connection_created(&self) {
        let (now_ms, mut state) = self.lock();
        state.connections += 1;
        state
            .client
            .record(self.settings, now_ms, ClientSensor::ConnectionCreated, 1.0);
    }

    pub fn connection_closed(&self) {
        let (now_ms, mut state) = self.lock();
        state.connections = state.connections.saturating_sub(1);
        state
            .client
            .record(self.settings, now_ms, ClientSensor::ConnectionClosed, 1.0);
    }

    /// Counts authentications of connections with SASL or TLS; plaintext ones are not counted, as
    /// in Kafka.
    pub fn authenticated(&self, is_success: bool) {
        let (now_ms, mut state) = self.lock();
        let sensor = if is_success {
            ClientSensor::Authenticated
        } else {
            ClientSensor::AuthenticationFailed
        };
        state.client.record(self.settings, now_ms, sensor, 1.0);
    }

    /// Counts a session renewed on its connection (KIP-368), or a failed renewal.
    pub fn reauthenticated(&self, is_success: bool, latency_nanos: u64) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        if is_success {
            let client = &mut state.client;
            client.record(settings, now_ms, ClientSensor::Reauthenticated, 1.0);
            client.record(
                settings,
                now_ms,
                ClientSensor::ReauthenticationLatency,
                millis(latency_nanos),
            );
        } else {
            state
                .client
                .record(settings, now_ms, ClientSensor::ReauthenticationFailed, 1.0);
        }
    }

    /// `node`: negative for bootstrap connections.
    pub fn request_sent(&self, node: i32, bytes: usize) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        state
            .client
            .record(settings, now_ms, ClientSensor::Sent, bytes as f64);
        state
            .client
            .record(settings, now_ms, ClientSensor::NetworkIo, 1.0);
        if let Some(node) = state.node(node) {
            node.family
                .record(settings, now_ms, NodeSensor::Sent, bytes as f64);
        }
    }

    pub fn response_received(&self, node: i32, bytes: usize, latency_nanos: u64) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        state
            .client
            .record(settings, now_ms, ClientSensor::Received, bytes as f64);
        state
            .client
            .record(settings, now_ms, ClientSensor::NetworkIo, 1.0);
        let is_latency_of_all = self.kind == ClientKind::Admin;
        if let Some(node) = state.node(node) {
            node.family
                .record(settings, now_ms, NodeSensor::Received, bytes as f64);
            if is_latency_of_all {
                node.family
                    .record(settings, now_ms, NodeSensor::Latency, millis(latency_nanos));
            }
        }
    }

    /// Counts the latency of the client's main requests, produce or fetch. A heartbeat's latency
    /// says nothing about them.
    pub(super) fn request_answered(&self, node: i32, latency_nanos: u64) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        if let Some(node) = state.node(node) {
            node.family
                .record(settings, now_ms, NodeSensor::Latency, millis(latency_nanos));
        }
    }

    /// Records the kernel's smoothed round trip time.
    pub fn round_trip(&self, node: i32, nanos: u64) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        if let Some(node) = state.node(node) {
            node.own
                .record(settings, now_ms, OwnNodeSensor::RoundTrip, millis(nanos));
        }
    }

    /// Records one sleep of the driver, and the socket work after it.
    pub fn driver_turned(&self, waited_nanos: u64, io_nanos: u64) {
        let (now_ms, mut state) = self.lock();
        state
            .client
            .record(self.settings, now_ms, ClientSensor::Waited, waited_nanos as f64);
        state
            .client
            .record(self.settings, now_ms, ClientSensor::Io, io_nanos as f64);
    }

    pub fn metadata_updated(&self) {
        let (now_ms, mut state) = self.lock();
        state.metadata_updated_at_ms = Some(now_ms);
    }

    /// Since the last answer to a metadata request, or since the start.
    pub(super) fn metadata_age_seconds(&self) -> f64 {
        let (now_ms, state) = self.lock();
        let since_ms = state.metadata_updated_at_ms.unwrap_or(state.started_at_ms);
        now_ms.saturating_sub(since_ms) as f64 / 1e3
    }

    pub(super) fn collect(&self, client_tags: &Tags, into: &mut Vec<Metric>) {
        let (now_ms, mut state) = self.lock();
        let connections = state.connections as f64;
        state.client.set(ClientSensor::ConnectionCount, connections);
        state
            .client
            .collect(self.settings, now_ms, self.kind, client_tags, into);
        for node in state.nodes.values_mut() {
            let tags = super::with_tags(client_tags, &node.tags);
            node.family.collect(self.settings, now_ms, self.kind, &tags, into);
            node.own.collect(self.settings, now_ms, self.kind, &tags, into);
        }
    }
}

impl NetworkSensors {
    fn node(&mut self, id: i32) -> Option<&mut Node> {
        let is_full = self.nodes.len() >= NODES_MAX;
        match self.nodes.entry(id) {
            std::collections::btree_map::Entry::Occupied(node) => Some(node.into_mut()),
            std::collections::btree_map::Entry::Vacant(_) if is_full => None,
            std::collections::btree_map::Entry::Vacant(place) => Some(place.insert(Node {
                tags: [("node-id", format!("node-{id}").into())].into(),
                family: Family::new(&NODE),
                own: Family::new(&OWN_NODE),
            })),
        }
    }
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
