//! The cluster machine against scripted brokers, without sockets and clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader, encode_response_header};
use ottla_wire::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use ottla_wire::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use ottla_wire::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_wire::messages::sasl_handshake::SaslHandshakeResponse;
use ottla_wire::primitives::{Reader, Uuid};

use super::cluster::{Cluster, Readiness, Reply, Request};
use super::io::{Action, Address, ConnectionId, Event};
use super::testing::client_config;
use crate::config::{ClientConfig, Password, SaslMechanism, SaslSettings};
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::metadata::{Interest, MetadataCell};
use crate::time::{Moment, Timestamp};

const NODE: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

/// A request as a broker sees it.
#[derive(Clone, Debug)]
struct Seen {
    connection: ConnectionId,
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    client_id: String,
    body: Vec<u8>,
}

/// A cluster machine and everything it asked of the world.
struct World {
    cluster: Cluster<u32>,
    metadata: Arc<MetadataCell>,
    now: Moment,
    replies: Vec<Reply<u32>>,
    /// Open or opening connections.
    connections: BTreeMap<ConnectionId, Address>,
    /// Those of them that were not accepted.
    opening: BTreeSet<ConnectionId>,
    /// Every attempt to connect, with its time.
    attempts: Vec<(Moment, Address)>,
    seen: Vec<Seen>,
}

fn address(port: u16) -> Address {
    Address {
        host: "broker".into(),
        port,
    }
}

impl World {
    fn new(interest: Interest) -> World {
        World::with(interest, client_config(address(9)))
    }

    fn with(interest: Interest, config: ClientConfig) -> World {
        let metadata = Arc::new(MetadataCell::new(interest));
        World {
            cluster: Cluster::new(Arc::new(config), Arc::clone(&metadata), Arc::default(), 7),
            metadata,
            now: Moment(1_000_000_000),
            replies: Vec::new(),
            connections: BTreeMap::new(),
            opening: BTreeSet::new(),
            attempts: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Turns until nothing is due now.
    fn turn(&mut self) {
        for _ in 0..100 {
            let mut actions = Vec::new();
            self.cluster
                .turn(self.now, Timestamp(0), &mut self.replies, &mut actions);
            self.perform(actions);
            if self.cluster.next_deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("the machine spins");
    }

    fn perform(&mut self, actions: Vec<Action>) {
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

    /// To the machine's next deadline, which must come within `limit_ms`.
    fn sleep(&mut self, limit_ms: u64) {
        let deadline = self.cluster.next_deadline().unwrap();
        assert!(
            deadline <= self.now.after_ms(limit_ms),
            "{deadline:?} after {:?}",
            self.now
        );
        self.now = self.now.max(deadline);
        self.turn();
    }

    fn tell(&mut self, event: Event) {
        self.cluster.handle(self.now, event, &mut self.replies);
        self.turn();
    }

    /// The connection to a port that was made last and is not closed.
    fn to(&self, port: u16) -> ConnectionId {
        let mut open = self.connections.iter().rev();
        *open.find(|(_, address)| address.port == port).unwrap().0
    }

    fn accept(&mut self, port: u16) {
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

    fn refuse(&mut self, port: u16) {
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
    fn until_metadata(&mut self) {
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

    fn take(&mut self, api_key: ApiKey) -> Seen {
        let at = self.seen.iter().position(|seen| seen.api_key == api_key);
        self.seen
            .remove(at.unwrap_or_else(|| panic!("no {api_key} in {:?}", self.seen)))
    }

    fn answer(&mut self, request: &Seen, encode: impl FnOnce(&mut Vec<u8>, i16)) {
        let mut frame = Vec::new();
        encode_response_header(
            &mut frame,
            request.api_key,
            request.api_version,
            request.correlation_id,
        );
        encode(&mut frame, request.api_version);
        self.tell(Event::Received {
            connection: request.connection,
            frame: frame.into(),
        });
    }

    fn answer_versions(&mut self, request: &Seen, ranges: &[(ApiKey, i16, i16)]) {
        let response = ApiVersionsResponse {
            api_keys: ranges
                .iter()
                .map(|(api_key, min_version, max_version)| ApiVersion {
                    api_key: api_key.code(),
                    min_version: *min_version,
                    max_version: *max_version,
                })
                .collect(),
            ..Default::default()
        };
        self.answer(request, |body, version| response.encode(body, version));
    }

    /// Answers the metadata request that was seen: two brokers at ports 1 and 2, and these topics.
    fn answer_metadata(&mut self, topics: Vec<MetadataResponseTopic<'_>>) {
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

    /// Bootstrapped, metadata known, nothing connected but the bootstrap server's successor.
    fn ready(interest: Interest) -> World {
        let mut world = World::new(interest);
        world.turn();
        world.accept(9);
        world.answer_metadata(Vec::new());
        world
    }

    fn connect(&mut self, node: NodeId) {
        assert_eq!(self.cluster.readiness(self.now, node), Readiness::Connecting);
        self.turn();
        self.accept(node.0 as u16);
        assert_eq!(self.cluster.readiness(self.now, node), Readiness::Ready);
    }

    fn send(&mut self, node: NodeId, ticket: u32, timeout_ms: u64, expects_answer: bool) {
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

    fn outcomes(&mut self) -> Vec<(u32, Result<Bytes, Error>)> {
        self.replies
            .drain(..)
            .map(|reply| (reply.ticket, reply.result))
            .collect()
    }
}

fn broker(id: i32) -> MetadataResponseBroker<'static> {
    MetadataResponseBroker {
        node_id: id,
        host: "broker",
        port: id,
        rack: None,
    }
}

fn topic(name: &str, leader: i32, leader_epoch: i32) -> MetadataResponseTopic<'_> {
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

fn broken_topic(name: &str, code: ErrorCode) -> MetadataResponseTopic<'_> {
    MetadataResponseTopic {
        error_code: code.code(),
        name: Some(name),
        ..Default::default()
    }
}

/// The names in a metadata request; `None` for all topics.
fn names(request: &Seen) -> Option<Vec<String>> {
    let request = MetadataRequest::decode(&mut Reader::new(&request.body), request.api_version).unwrap();
    request
        .topics
        .map(|topics| topics.iter().map(|topic| topic.name.unwrap().into()).collect())
}

#[test]
fn the_first_turn_connects_negotiates_and_asks_for_metadata() {
    let mut world = World::new(Interest::Nodes);
    world.turn();
    assert_eq!(world.attempts, [(world.now, address(9))]);
    let connection = world.to(9);
    world.tell(Event::Connected { connection });
    let request = world.take(ApiKey::ApiVersions);
    assert_eq!((request.api_version, &*request.client_id), (4, "test"));
    let asked = ApiVersionsRequest::decode(&mut Reader::new(&request.body), 4).unwrap();
    assert_eq!(asked.client_software_name, "ottla-client");
    world.answer_versions(&request, &[(ApiKey::Metadata, 0, 8)]);
    let request = world.seen[0].clone();
    assert_eq!((request.api_key, request.api_version), (ApiKey::Metadata, 8));
    assert_eq!(names(&request), Some(Vec::new()));
    world.answer_metadata(Vec::new());
    let snapshot = world.cluster.snapshot();
    assert_eq!(snapshot.nodes[&OTHER].address, address(2));
    assert_eq!((snapshot.controller, snapshot.version), (Some(NODE), 1));
    // The bootstrap server was only the door.
    assert!(world.connections.is_empty());
}

#[test]
fn a_broker_of_kafka_2_1_is_spoken_to_in_its_versions() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["t"]);
    world.turn();
    let connection = world.to(9);
    world.tell(Event::Connected { connection });
    let request = world.take(ApiKey::ApiVersions);
    // Older than KIP-511: no word of what it does speak.
    let refusal = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..Default::default()
    };
    world.answer(&request, |body, _| refusal.encode(body, 0));
    let request = world.take(ApiKey::ApiVersions);
    assert_eq!(request.api_version, 0);
    world.answer_versions(&request, &[(ApiKey::Metadata, 0, 7), (ApiKey::Produce, 0, 7)]);
    assert_eq!(world.seen[0].api_version, 7);
    world.answer_metadata(vec![topic("t", 2, 3)]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(snapshot.leader("t", 0), Some(OTHER));
    // Epochs of brokers before 2.4 cannot be relied on.
    assert_eq!(snapshot.topics["t"].partitions[0].leader_epoch, -1);
}

#[test]
fn answers_find_their_requests() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, true);
    world.send(NODE, 11, 1000, true);
    assert_eq!(world.cluster.in_flight(NODE), 2);
    for body in ["first", "second"] {
        let request = world.take(ApiKey::Heartbeat);
        assert_eq!(request.body, b"beat");
        world.answer(&request, |frame, _| frame.extend_from_slice(body.as_bytes()));
    }
    assert_eq!(
        world.outcomes(),
        [(10, Ok(Bytes::from("first"))), (11, Ok(Bytes::from("second")))]
    );
    assert_eq!(world.cluster.in_flight(NODE), 0);
}

#[test]
fn a_request_without_an_answer_is_replied_to_at_once() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, false);
    assert_eq!(world.cluster.in_flight(NODE), 0);
    world.turn();
    assert_eq!(world.outcomes(), [(10, Ok(Bytes::new()))]);
}

#[test]
fn a_wrong_correlation_id_closes_the_connection() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, true);
    world.send(NODE, 11, 1000, true);
    let mut request = world.take(ApiKey::Heartbeat);
    request.correlation_id += 1;
    world.answer(&request, |_, _| ());
    let outcomes = world.outcomes();
    assert_eq!(outcomes.len(), 2);
    for (_, result) in outcomes {
        let Err(Error::Malformed { address, reason }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(&*address, "broker:1");
        assert!(
            reason.starts_with("correlation id 2 where 1 was expected"),
            "{reason}"
        );
    }
    assert!(!world.connections.contains_key(&request.connection));
    assert!(matches!(
        world.cluster.readiness(world.now, NODE),
        Readiness::BackingOff(_)
    ));
}

#[test]
fn a_silent_broker_loses_the_connection_and_every_request_on_it() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, true);
    world.send(NODE, 11, 5000, true);
    world.sleep(1000);
    let outcomes = world.outcomes();
    assert_eq!(
        outcomes[0].1.as_ref().unwrap_err().to_string(),
        "Heartbeat request to broker:1 not done after 1000 ms (request.timeout.ms)"
    );
    assert!(matches!(outcomes[1].1, Err(Error::Disconnected { .. })));
    assert!(
        outcomes
            .iter()
            .all(|(_, result)| result.as_ref().unwrap_err().is_retriable())
    );
    assert!(!world.connections.values().any(|address| address.port == 1));
}

#[test]
fn a_lost_connection_fails_its_requests_and_what_comes_late_is_ignored() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.connect(OTHER);
    world.send(NODE, 10, 1000, true);
    world.send(OTHER, 20, 1000, true);
    let request = world.take(ApiKey::Heartbeat);
    world.refuse(1);
    assert_eq!(
        world
            .outcomes()
            .iter()
            .map(|(ticket, _)| *ticket)
            .collect::<Vec<_>>(),
        [10]
    );
    world.answer(&request, |_, _| ());
    assert!(world.outcomes().is_empty());
    assert_eq!(world.cluster.in_flight(OTHER), 1);
}

#[test]
fn a_closed_request_is_sent_nowhere() {
    let mut world = World::ready(Interest::Nodes);
    world.send(NODE, 10, 1000, true);
    world.turn();
    assert!(matches!(
        world.outcomes()[..],
        [(10, Err(Error::Disconnected { .. }))]
    ));
    let unknown = world.cluster.readiness(world.now, NodeId(77));
    assert!(matches!(
        unknown,
        Readiness::Impossible(Error::Disconnected { .. })
    ));
}

#[test]
fn refused_connections_are_tried_again_slower_and_slower() {
    let mut world = World::new(Interest::Nodes);
    world.turn();
    for _ in 0..12 {
        world.refuse(9);
        // A machine that asks all the time must not hurry the next attempt.
        assert!(world.cluster.least_loaded(world.now).is_none());
        world.sleep(1200);
    }
    let waits: Vec<u64> = world
        .attempts
        .windows(2)
        .map(|pair| pair[1].0.ms_since(pair[0].0))
        .collect();
    assert!((40..=60).contains(&waits[0]), "{waits:?}");
    assert!(waits[1..5].is_sorted(), "{waits:?}");
    assert!(
        waits[6..].iter().all(|wait| (800..=1200).contains(wait)),
        "{waits:?}"
    );
    assert!(
        waits[6..].windows(2).any(|pair| pair[0] != pair[1]),
        "no jitter: {waits:?}"
    );
}

#[test]
fn a_ready_connection_forgets_its_failures() {
    let mut world = World::ready(Interest::Nodes);
    for _ in 0..6 {
        if let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) {
            world.now = at;
        }
        assert_eq!(world.cluster.readiness(world.now, NODE), Readiness::Connecting);
        world.turn();
        world.refuse(1);
    }
    let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) else {
        panic!("not backing off");
    };
    assert!(at.ms_since(world.now) > 700);
    world.now = at;
    world.connect(NODE);
    world.refuse(1);
    let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) else {
        panic!("not backing off");
    };
    assert!(at.ms_since(world.now) <= 60);
}

#[test]
fn a_machine_that_has_to_wait_is_called_when_the_wait_is_over() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.refuse(1);
    let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) else {
        panic!("not backing off");
    };
    assert!(world.cluster.next_deadline().unwrap() <= at);
}

#[test]
fn a_connection_that_hangs_is_given_up() {
    let mut world = World::new(Interest::Nodes);
    world.turn();
    world.sleep(12_000);
    assert!(world.connections.is_empty());
    assert!(world.now.ms_since(Moment(1_000_000_000)) >= 8000);
    // The next attempt gets more time (socket.connection.setup.timeout.max.ms).
    world.sleep(60);
    let started = world.now;
    world.sleep(24_000);
    assert!(world.now.ms_since(started) >= 16_000);
}

#[test]
fn an_unused_connection_is_closed_without_a_back_off() {
    let mut config = client_config(address(9));
    config.connections_idle_ms_max = 5000;
    let mut world = World::with(Interest::Nodes, config);
    world.turn();
    world.accept(9);
    world.answer_metadata(Vec::new());
    world.connect(NODE);
    world.send(NODE, 1, 30_000, true);
    // In use as long as an answer is awaited.
    world.now = world.now.after_ms(20_000);
    world.turn();
    let request = world.take(ApiKey::Heartbeat);
    world.answer(&request, |_, _| ());
    assert!(!world.connections.is_empty());
    world.sleep(5000);
    assert!(world.connections.is_empty());
    assert_eq!(world.cluster.readiness(world.now, NODE), Readiness::Connecting);
}

#[test]
fn a_waiting_topic_is_asked_for_at_once_and_alone() {
    let mut world = World::ready(Interest::Named);
    assert!(world.metadata.want(["a"]));
    assert!(!world.metadata.want(["a"]));
    world.turn();
    world.until_metadata();
    assert_eq!(world.now, Moment(1_000_000_000));
    assert_eq!(names(&world.seen[0]), Some(vec!["a".into()]));
    world.answer_metadata(vec![topic("a", 1, 0)]);
    world.metadata.want(["b"]);
    world.turn();
    assert_eq!(names(&world.seen[0]), Some(vec!["b".into()]));
    world.answer_metadata(vec![topic("b", 2, 0)]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        (snapshot.leader("a", 0), snapshot.leader("b", 0)),
        (Some(NODE), Some(OTHER))
    );
    // What is outdated is asked for whole, after retry.backoff.ms.
    world.cluster.request_metadata();
    world.turn();
    assert!(world.seen.is_empty());
    world.sleep(120);
    assert_eq!(names(&world.seen[0]), Some(vec!["a".into(), "b".into()]));
}

#[test]
fn leaders_change_and_never_go_back() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["t"]);
    world.turn();
    world.accept(9);
    world.answer_metadata(vec![topic("t", 1, 5)]);
    let mut answer = |topics: Vec<MetadataResponseTopic<'static>>| {
        world.cluster.request_metadata();
        world.until_metadata();
        world.answer_metadata(topics);
        world.cluster.snapshot()
    };
    assert_eq!(answer(vec![topic("t", 2, 6)]).leader("t", 0), Some(OTHER));
    // A broker that lags behind still believes in the former leader.
    let stale = answer(vec![topic("t", 1, 5)]);
    assert_eq!(
        (stale.leader("t", 0), stale.topics["t"].partitions[0].leader_epoch),
        (Some(OTHER), 6)
    );
    // A topic made anew under the same name begins anew.
    let mut anew = topic("t", 1, 0);
    anew.topic_id = Uuid([6; 16]);
    let snapshot = answer(vec![anew]);
    assert_eq!(
        (
            snapshot.leader("t", 0),
            snapshot.topics["t"].partitions[0].leader_epoch
        ),
        (Some(NODE), 0)
    );
}

#[test]
fn what_is_not_there_yet_is_asked_for_again_and_what_is_refused_is_not() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["late", "bad name", "secret"]);
    world.turn();
    world.accept(9);
    world.answer_metadata(vec![
        broken_topic("late", ErrorCode::UnknownTopicOrPartition),
        broken_topic("bad name", ErrorCode::InvalidTopicException),
        broken_topic("secret", ErrorCode::TopicAuthorizationFailed),
    ]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        snapshot.refused.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["bad name", "secret"]
    );
    assert!(world.metadata.wait_for_topic("bad name", 60_000).is_err());
    world.until_metadata();
    assert_eq!(names(&world.seen[0]).unwrap().len(), 3);
    world.answer_metadata(vec![topic("late", -1, 0)]);
    // Without a leader: known, but the question stays open.
    assert_eq!(world.cluster.snapshot().leader("late", 0), None);
    world.sleep(300);
    world.answer_metadata(vec![
        topic("late", 1, 0),
        topic("secret", 1, 0),
        topic("bad name", 1, 0),
    ]);
    assert!(world.cluster.snapshot().refused.is_empty());
    assert_eq!(world.cluster.snapshot().leader("late", 0), Some(NODE));
    assert!(world.cluster.next_deadline().unwrap() > world.now.after_ms(100_000));
}

#[test]
fn a_topic_that_nobody_uses_is_forgotten() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["used", "idle"]);
    world.turn();
    world.accept(9);
    world.answer_metadata(vec![topic("used", 1, 0), topic("idle", 1, 0)]);
    for _ in 0..3 {
        world.metadata.topic("used").unwrap();
        world.until_metadata();
        let asked = names(&world.seen[0]).unwrap();
        let topics = asked.iter().map(|name| topic(name, 1, 0)).collect();
        world.answer_metadata(topics);
    }
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        snapshot.topics.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["used"]
    );
}

#[test]
fn when_no_known_broker_can_be_reached_the_bootstrap_servers_are_asked_again() {
    let mut world = World::ready(Interest::Nodes);
    world.cluster.request_metadata();
    for _ in 0..50 {
        let bootstrap = world
            .attempts
            .iter()
            .filter(|(_, address)| address.port == 9)
            .count();
        if bootstrap > 1 {
            break;
        }
        match world.connections.values().next().map(|address| address.port) {
            Some(port) => world.refuse(port),
            None => world.sleep(1200),
        }
    }
    assert!(world.attempts.iter().any(|(_, address)| address.port == 2));
    assert_eq!(world.attempts.last().unwrap().1, address(9));
    // What was known stays known until there is better.
    assert_eq!(world.cluster.snapshot().nodes.len(), 2);
    world.accept(9);
    world.answer_metadata(Vec::new());
    assert_eq!(world.cluster.snapshot().version, 2);
}

#[test]
fn a_broker_that_sends_us_away_is_not_asked_again() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.cluster.request_metadata();
    world.until_metadata();
    let request = world.take(ApiKey::Metadata);
    let response = MetadataResponse {
        brokers: vec![broker(1)],
        error_code: ErrorCode::RebootstrapRequired.code(),
        ..Default::default()
    };
    world.answer(&request, |body, version| response.encode(body, version));
    assert!(world.cluster.snapshot().nodes.is_empty());
    world.until_metadata();
    assert_eq!(world.attempts.last().unwrap().1, address(9));
    world.answer_metadata(Vec::new());
    assert_eq!(world.cluster.snapshot().nodes.len(), 2);
}

#[test]
fn a_pattern_needs_all_topics_and_sees_new_ones() {
    let mut world = World::new(Interest::All);
    world.until_metadata();
    assert_eq!(names(&world.seen[0]), None);
    world.answer_metadata(vec![topic("a", 1, 0)]);
    world.until_metadata();
    assert_eq!(names(&world.seen[0]), None);
    world.answer_metadata(vec![topic("b", 1, 0)]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        snapshot.topics.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["b"]
    );
    world.metadata.set_interest(Interest::Nodes);
    world.until_metadata();
    assert_eq!(names(&world.seen[0]), Some(Vec::new()));
}

#[test]
fn hostile_metadata_is_malformed_and_changes_nothing() {
    let huge = |index| {
        let mut topic = topic("t", 1, 0);
        topic.partitions[0].partition_index = index;
        topic
    };
    for bad in [huge(i32::MAX), huge(-1)] {
        let mut world = World::new(Interest::Named);
        world.metadata.want(["t"]);
        world.turn();
        world.accept(9);
        world.answer_metadata(vec![bad]);
        assert_eq!(world.cluster.snapshot().version, 0);
        assert!(world.connections.is_empty());
    }
}

#[test]
fn an_unreachable_cluster_says_why_when_the_wait_for_a_topic_ends() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["t"]);
    world.turn();
    let connection = world.to(9);
    let reason = Error::Resolve {
        host: "broker".into(),
        reason: "no such host".into(),
    };
    world.tell(Event::Closed { connection, reason });
    let error = world.metadata.wait_for_topic("t", 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "topic t not present in metadata after 1 ms (host broker cannot be resolved: no such host)"
    );
    assert!(error.is_retriable());
}

#[test]
fn a_failed_authentication_is_told_to_everyone_who_waits() {
    let mut world = World::new(Interest::Named);
    world.turn();
    let connection = world.to(9);
    let reason = Error::Tls {
        address: "broker:9".into(),
        reason: "certificate expired".into(),
    };
    world.tell(Event::Closed {
        connection,
        reason: reason.clone(),
    });
    assert_eq!(world.metadata.wait_for_topic("t", 60_000).unwrap_err(), reason);
    assert!(matches!(
        world.cluster.readiness(world.now, NodeId(-1)),
        Readiness::Impossible(Error::Tls { .. })
    ));
}

#[test]
fn a_throttled_node_gets_no_request_before_its_time() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.cluster.throttle(world.now, NODE, 300);
    let until = world.now.after_ms(300);
    assert_eq!(
        world.cluster.readiness(world.now, NODE),
        Readiness::BackingOff(until)
    );
    world.now = until;
    assert_eq!(world.cluster.readiness(world.now, NODE), Readiness::Ready);
}

#[test]
fn the_least_loaded_ready_node_is_chosen() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.connect(OTHER);
    world.send(NODE, 1, 1000, true);
    assert_eq!(world.cluster.least_loaded(world.now), Some(OTHER));
    world.send(OTHER, 2, 1000, true);
    world.send(OTHER, 3, 1000, true);
    assert_eq!(world.cluster.least_loaded(world.now), Some(NODE));
}

#[test]
fn an_extra_node_lives_until_it_is_removed() {
    let mut world = World::ready(Interest::Nodes);
    let coordinator = NodeId(i32::MAX - 1);
    world.cluster.add_node(coordinator, address(1));
    assert_eq!(
        world.cluster.readiness(world.now, coordinator),
        Readiness::Connecting
    );
    world.turn();
    world.accept(1);
    assert_eq!(world.cluster.readiness(world.now, coordinator), Readiness::Ready);
    // It belongs to its owner: metadata does not go there.
    assert_eq!(world.cluster.least_loaded(world.now), None);
    world.cluster.remove_node(coordinator);
    world.turn();
    assert!(matches!(
        world.cluster.readiness(world.now, coordinator),
        Readiness::Impossible(_)
    ));
}

/// A world that authenticates, connected and with its SaslHandshake seen.
fn at_the_handshake() -> (World, Seen) {
    let mut config = client_config(address(9));
    config.security.sasl = Some(SaslSettings {
        mechanism: SaslMechanism::Plain,
        username: "me".into(),
        password: Password::new("secret"),
    });
    let mut world = World::with(Interest::Nodes, config);
    world.turn();
    let connection = world.to(9);
    world.opening.remove(&connection);
    world.tell(Event::Connected { connection });
    let request = world.take(ApiKey::ApiVersions);
    let ranges = [
        (ApiKey::Metadata, 0, 13),
        (ApiKey::SaslHandshake, 0, 1),
        (ApiKey::SaslAuthenticate, 0, 2),
    ];
    world.answer_versions(&request, &ranges);
    let handshake = world.take(ApiKey::SaslHandshake);
    assert_eq!(
        (handshake.api_version, &handshake.body[..]),
        (1, &b"\0\x05PLAIN"[..])
    );
    assert_eq!(
        world.cluster.readiness(world.now, NodeId(-1)),
        Readiness::Connecting
    );
    (world, handshake)
}

fn answer_handshake(world: &mut World, handshake: &Seen, error_code: i16) {
    let response = SaslHandshakeResponse {
        error_code,
        mechanisms: vec!["SCRAM-SHA-256", "GSSAPI"],
    };
    world.answer(handshake, |body, version| response.encode(body, version));
}

fn answer_authenticate(world: &mut World, session_lifetime_ms: i64) {
    let request = world.take(ApiKey::SaslAuthenticate);
    assert_eq!(request.api_version, 2);
    let asked = SaslAuthenticateRequest::decode(&mut Reader::new(&request.body), 2).unwrap();
    assert_eq!(asked.auth_bytes, b"\0me\0secret");
    let response = SaslAuthenticateResponse {
        session_lifetime_ms,
        ..Default::default()
    };
    world.answer(&request, |body, version| response.encode(body, version));
}

#[test]
fn nothing_else_is_sent_before_the_client_is_authenticated() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, 0);
    assert_eq!(world.seen.len(), 1);
    answer_authenticate(&mut world, 0);
    world.answer_metadata(Vec::new());
    assert_eq!(world.cluster.snapshot().version, 1);
}

#[test]
fn a_session_is_renewed_on_its_connection_before_it_ends() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, 0);
    answer_authenticate(&mut world, 10_000);
    let metadata = world.take(ApiKey::Metadata);
    let bootstrap = NodeId(-1);
    assert_eq!(world.cluster.readiness(world.now, bootstrap), Readiness::Ready);
    world.now = world.now.after_ms(9_600);
    assert_eq!(
        world.cluster.readiness(world.now, bootstrap),
        Readiness::Connecting
    );
    world.turn();
    // The answer that was awaited comes first, as the broker takes requests in order.
    let renewed = world.take(ApiKey::SaslHandshake);
    assert_eq!(renewed.connection, handshake.connection);
    let empty = MetadataResponse::default();
    world.answer(&metadata, |body, version| empty.encode(body, version));
    answer_handshake(&mut world, &renewed, 0);
    answer_authenticate(&mut world, 10_000);
    assert_eq!(world.cluster.readiness(world.now, bootstrap), Readiness::Ready);
    assert_eq!(world.attempts.len(), 1);
}

#[test]
fn a_refused_mechanism_names_those_that_the_broker_accepts() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, ErrorCode::UnsupportedSaslMechanism.code());
    let error = world.metadata.wait_for_topic("t", 60_000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "authentication with broker:9: the broker does not accept PLAIN; it accepts SCRAM-SHA-256, GSSAPI"
    );
    assert!(error.is_fatal());
}

#[test]
fn a_wrong_password_is_told_in_the_brokers_words_and_not_tried_in_a_storm() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, 0);
    let request = world.take(ApiKey::SaslAuthenticate);
    let response = SaslAuthenticateResponse {
        error_code: ErrorCode::SaslAuthenticationFailed.code(),
        error_message: Some("Authentication failed: Invalid username or password"),
        ..Default::default()
    };
    world.answer(&request, |body, version| response.encode(body, version));
    let Readiness::Impossible(error) = world.cluster.readiness(world.now, NodeId(-1)) else {
        panic!("possible");
    };
    assert_eq!(
        error.to_string(),
        "authentication with broker:9: Authentication failed: Invalid username or password"
    );
    assert!(world.connections.is_empty());
    assert!(world.cluster.next_deadline().unwrap() >= world.now.after_ms(40));
}
