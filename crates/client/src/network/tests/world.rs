//! A cluster machine and scripted brokers around it.

use std::collections::{BTreeMap, BTreeSet};

pub use std::sync::Arc;

pub use bytes::Bytes;
pub use ottla_wire::api_key::ApiKey;
pub use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader, encode_response_header};
pub use ottla_wire::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
pub use ottla_wire::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
pub use ottla_wire::primitives::{Reader, Uuid};

pub use crate::config::ClientConfig;
pub use crate::error::Error;
pub use crate::events::told;
pub use crate::metadata::snapshot::NodeId;
pub use crate::metadata::{Interest, MetadataCell};
pub use crate::network::cluster::{Cluster, Readiness, Reply, Request};
pub use crate::network::io::{Action, Address, ConnectionId, Event};
pub use crate::network::testing::client_config;
pub use crate::time::{Moment, Timestamp};

pub const NODE: NodeId = NodeId(1);
pub const OTHER: NodeId = NodeId(2);

/// A request as a broker sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub connection: ConnectionId,
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: String,
    pub body: Vec<u8>,
}

/// A cluster machine and all the actions it requested.
pub struct World {
    pub cluster: Cluster<u32>,
    pub metadata: Arc<MetadataCell>,
    pub now: Moment,
    pub replies: Vec<Reply<u32>>,
    /// Open or opening connections.
    pub connections: BTreeMap<ConnectionId, Address>,
    /// Those of them that were not accepted.
    pub opening: BTreeSet<ConnectionId>,
    /// Every connection attempt, with its time.
    pub attempts: Vec<(Moment, Address)>,
    pub seen: Vec<Seen>,
}

pub fn address(port: u16) -> Address {
    Address {
        host: "broker".into(),
        port,
    }
}

impl World {
    pub fn new(interest: Interest) -> World {
        World::with(interest, client_config(address(9)))
    }

    pub fn with(interest: Interest, config: ClientConfig) -> World {
        let metadata = Arc::new(MetadataCell::new(interest));
        World {
            cluster: Cluster::new(Arc::new(config), Arc::clone(&metadata), Arc::default(), 7),
            metadata,
            now: Moment::from_nanos(1_000_000_000),
            replies: Vec::new(),
            connections: BTreeMap::new(),
            opening: BTreeSet::new(),
            attempts: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Runs turns until nothing is due now.
    pub fn turn(&mut self) {
        for _ in 0..100 {
            let mut actions = Vec::new();
            self.cluster
                .turn(self.now, Timestamp(0), &mut self.replies, &mut actions);
            self.perform(actions);
            if self.cluster.next_deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("the machine loops forever");
    }

    pub fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect { connection, address } => {
                    self.attempts.push((self.now, address.clone()));
                    self.connections.insert(connection, address);
                    self.opening.insert(connection);
                }
                Action::Close { connection } => {
                    self.connections.remove(&connection);
                    self.opening.remove(&connection);
                }
                Action::Send { connection, frame } => {
                    assert!(self.connections.contains_key(&connection));
                    let bytes = frame.parts.concat();
                    let mut reader = Reader::new(&bytes);
                    assert_eq!(reader.i32(), Ok((bytes.len() - LENGTH_BYTES) as i32));
                    let header = RequestHeader::decode(&mut reader).unwrap();
                    self.seen.push(Seen {
                        connection,
                        api_key: header.api_key,
                        api_version: header.api_version,
                        correlation_id: header.correlation_id,
                        client_id: header.client_id.unwrap().into(),
                        body: reader.rest().to_vec(),
                    });
                }
            }
        }
    }

    /// Advances to the machine's next deadline, which must come within `limit_ms`.
    pub fn sleep(&mut self, limit_ms: u64) {
        let deadline = self.cluster.next_deadline().unwrap();
        assert!(
            deadline <= self.now.after_ms(limit_ms),
            "{deadline:?} after {:?}",
            self.now
        );
        self.now = self.now.max(deadline);
        self.turn();
    }

    pub fn tell(&mut self, event: Event) {
        self.cluster.handle(self.now, event, &mut self.replies);
        self.turn();
    }

    /// The latest open connection to a port.
    pub fn to(&self, port: u16) -> ConnectionId {
        let mut open = self.connections.iter().rev();
        *open.find(|(_, address)| address.port == port).unwrap().0
    }

    pub fn accept(&mut self, port: u16) {
        let connection = self.to(port);
        self.opening.remove(&connection);
        self.tell(Event::Connected { connection });
        let request = self.take(ApiKey::ApiVersions);
        let known = [ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::Heartbeat];
        self.answer_versions(
            &request,
            &known.map(|api_key| (api_key, 0, api_key.known_versions().max)),
        );
    }

    pub fn refuse(&mut self, port: u16) {
        let connection = self.to(port);
        self.connections.remove(&connection);
        self.opening.remove(&connection);
        let reason = Error::Disconnected {
            address: format!("broker:{port}").into(),
            reason: "refused".into(),
        };
        self.tell(Event::Closed { connection, reason });
    }

    /// Accepts and sleeps until there is a metadata request.
    pub fn until_metadata(&mut self) {
        for _ in 0..20 {
            if self.seen.iter().any(|seen| seen.api_key == ApiKey::Metadata) {
                return;
            }
            match self.opening.first().and_then(|id| self.connections.get(id)) {
                Some(address) => self.accept(address.port),
                None => self.sleep(300_000),
            }
        }
        panic!("no metadata request");
    }

    pub fn take(&mut self, api_key: ApiKey) -> Seen {
        let at = self.seen.iter().position(|seen| seen.api_key == api_key);
        self.seen
            .remove(at.unwrap_or_else(|| panic!("no {api_key} in {:?}", self.seen)))
    }

    pub fn answer(&mut self, request: &Seen, encode: impl FnOnce(&mut Vec<u8>, i16)) {
        let mut frame = response_head(request);
        encode(&mut frame, request.api_version);
        self.tell(Event::Received {
            connection: request.connection,
            frame: frame.into(),
        });
    }

    pub fn answer_versions(&mut self, request: &Seen, ranges: &[(ApiKey, i16, i16)]) {
        let response = versions(ranges);
        self.answer(request, |body, version| response.encode(body, version));
    }

    /// Answers the metadata request that was seen: two brokers at ports 1 and 2, and these topics.
    pub fn answer_metadata(&mut self, topics: Vec<MetadataResponseTopic<'_>>) {
        let request = self.take(ApiKey::Metadata);
        let response = MetadataResponse {
            brokers: [1, 2].map(broker).into(),
            cluster_id: Some("cluster"),
            controller_id: 1,
            topics,
            ..Default::default()
        };
        self.answer(&request, |body, version| response.encode(body, version));
    }

    /// Bootstrapped, with metadata; connected only to the broker that replaced the bootstrap
    /// server.
    pub fn ready(interest: Interest) -> World {
        let mut world = World::new(interest);
        world.turn();
        world.accept(9);
        world.answer_metadata(Vec::new());
        world
    }

    pub fn connect(&mut self, node: NodeId) {
        assert_eq!(self.cluster.readiness(self.now, node), Readiness::Connecting);
        self.turn();
        self.accept(node.0 as u16);
        assert_eq!(self.cluster.readiness(self.now, node), Readiness::Ready);
    }

    pub fn send(&mut self, node: NodeId, ticket: u32, timeout_ms: u64, expects_answer: bool) {
        let request = Request {
            api_key: ApiKey::Heartbeat,
            api_version: 4,
            body: vec![Bytes::from_static(b"beat")],
            timeout_ms,
            expects_answer,
        };
        let mut actions = Vec::new();
        self.cluster.send(self.now, node, request, ticket, &mut actions);
        self.perform(actions);
    }

    pub fn outcomes(&mut self) -> Vec<(u32, Result<Bytes, Error>)> {
        self.replies
            .drain(..)
            .map(|reply| (reply.ticket, reply.result))
            .collect()
    }
}

pub fn broker(id: i32) -> MetadataResponseBroker<'static> {
    MetadataResponseBroker {
        node_id: id,
        host: "broker",
        port: id,
        rack: None,
    }
}

pub fn topic(name: &str, leader: i32, leader_epoch: i32) -> MetadataResponseTopic<'_> {
    MetadataResponseTopic {
        name: Some(name),
        topic_id: Uuid([5; 16]),
        partitions: vec![MetadataResponsePartition {
            leader_id: leader,
            leader_epoch,
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub fn broken_topic(name: &str, code: ErrorCode) -> MetadataResponseTopic<'_> {
    MetadataResponseTopic {
        error_code: code.code(),
        name: Some(name),
        ..Default::default()
    }
}

/// The names in a metadata request; `None` for all topics.
pub fn names(request: &Seen) -> Option<Vec<String>> {
    let request = MetadataRequest::decode(&mut Reader::new(&request.body), request.api_version).unwrap();
    request
        .topics
        .map(|topics| topics.iter().map(|topic| topic.name.unwrap().into()).collect())
}

pub fn versions(ranges: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse<'static> {
    ApiVersionsResponse {
        api_keys: ranges
            .iter()
            .map(|(api_key, min_version, max_version)| ApiVersion {
                api_key: api_key.code(),
                min_version: *min_version,
                max_version: *max_version,
            })
            .collect(),
        ..Default::default()
    }
}

/// The header of the answer to `request`.
pub fn response_head(request: &Seen) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_response_header(
        &mut frame,
        request.api_key,
        request.api_version,
        request.correlation_id,
    );
    frame
}
