//! Requests to nodes of a cluster, answers back, metadata kept fresh: what every machine of this crate is built on.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;

use crate::config::ClientConfig;
use crate::error::Error;
use crate::metadata::MetadataCell;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::metrics::NetworkMetrics;
use crate::network::io::{Action, Event};
use crate::time::{Moment, Timestamp};

/// Whether a request could be sent to a node now.
#[derive(Clone, Debug, PartialEq)]
pub enum Readiness {
    Ready,
    /// A connection is being made or authenticated; `Cluster::turn` will have news.
    Connecting,
    /// The last attempt failed; not before this moment (reconnect.backoff.ms, growing, with jitter).
    BackingOff(Moment),
    /// Authentication or TLS failed for good, or the node is unknown.
    Impossible(Error),
}

/// A request's body in parts (see `io::Frame`); length, header and correlation id are put in front by `send`.
#[derive(Debug)]
pub struct Request {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub body: Vec<Bytes>,
    /// Counted from the hand-over to the driver; then the connection is closed and every request on it fails, as in Kafka.
    pub timeout_ms: u64,
    /// False for produce with acks=0: its `Reply` comes at once, with an empty body.
    pub expects_answer: bool,
}

/// What became of a request.
#[derive(Debug)]
pub struct Reply<T> {
    pub node: NodeId,
    pub ticket: T,
    pub api_key: ApiKey,
    pub api_version: i16,
    /// The body after the response header; `Err` when the connection broke, timed out or answered nonsense.
    pub result: Result<Bytes, Error>,
    /// From hand-over to answer.
    pub latency_nanos: u64,
}

/// `T` travels with a request and comes back with its reply: the caller's context.
pub struct Cluster<T> {
    pub(crate) _ticket: std::marker::PhantomData<T>,
}

impl<T> Cluster<T> {
    /// - `seed`: of the jitter in back-offs; a simulation replays byte for byte.
    pub fn new(
        _config: Arc<ClientConfig>,
        _metadata: Arc<MetadataCell>,
        _metrics: Arc<NetworkMetrics>,
        _seed: u64,
    ) -> Cluster<T> {
        todo!()
    }

    /// Takes an event. Replies are appended in the order in which the broker answered.
    pub fn handle(&mut self, _now: Moment, _event: Event, _replies: &mut Vec<Reply<T>>) {
        todo!()
    }

    /// Request timeouts, reconnects, metadata requests that are due.
    pub fn turn(
        &mut self,
        _now: Moment,
        _wall: Timestamp,
        _replies: &mut Vec<Reply<T>>,
        _actions: &mut Vec<Action>,
    ) {
        todo!()
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        todo!()
    }

    /// Connects on demand: asking is what starts a connection.
    pub fn readiness(&mut self, _now: Moment, _node: NodeId) -> Readiness {
        todo!()
    }

    /// The highest version of the API that both sides speak on the node's connection, `None` before it is ready.
    /// - Errors: `UnsupportedVersion` when there is none at or above `needed_min`.
    pub fn version(&self, _node: NodeId, _api_key: ApiKey, _needed_min: i16) -> Result<i16, Error> {
        todo!()
    }

    /// Only when `readiness` was `Ready` in this turn.
    pub fn send(
        &mut self,
        _now: Moment,
        _node: NodeId,
        _request: Request,
        _ticket: T,
        _actions: &mut Vec<Action>,
    ) {
        todo!()
    }

    /// Requests on the node's connection that are not answered.
    pub fn in_flight(&self, _node: NodeId) -> usize {
        todo!()
    }

    /// A ready node with the fewest requests in flight; else starts a connection to one and says `None` (KIP-714 and
    /// metadata go here, as in Kafka's `leastLoadedNode`).
    pub fn least_loaded(&mut self, _now: Moment) -> Option<NodeId> {
        todo!()
    }

    /// A node that is no broker of the metadata, e.g. a group coordinator under its own connection (Kafka gives it id
    /// 2^31−1−node id so that a blocking JoinGroup does not delay fetches).
    pub fn add_node(&mut self, _id: NodeId, _address: crate::network::io::Address) {
        todo!()
    }

    /// Closes the node's connection; its requests come back as `Disconnected`.
    pub fn disconnect(
        &mut self,
        _now: Moment,
        _node: NodeId,
        _replies: &mut Vec<Reply<T>>,
        _actions: &mut Vec<Action>,
    ) {
        todo!()
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        todo!()
    }

    /// What is known is outdated (NOT_LEADER_OR_FOLLOWER and the like): ask as soon as `retry.backoff.ms` allows.
    pub fn request_metadata(&mut self) {
        todo!()
    }
}
