//! The admin client against scripted brokers, without sockets and clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader, encode_response_header};
use ottla_wire::messages::alter_user_scram_credentials::*;
use ottla_wire::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use ottla_wire::messages::create_topics::{CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::describe_cluster::{DescribeClusterBroker, DescribeClusterResponse};
use ottla_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult,
};
use ottla_wire::messages::find_coordinator::{Coordinator, FindCoordinatorResponse};
use ottla_wire::messages::list_groups::{ListGroupsResponse, ListedGroup};
use ottla_wire::messages::list_offsets::*;
use ottla_wire::messages::metadata::*;
use ottla_wire::messages::offset_fetch::*;
use ottla_wire::primitives::{Reader, Uuid};

use super::machine::{AdminMachine, Inbox};
use super::*;
use crate::network::io::{Action, Address, ConnectionId, Event, Machine};
use crate::time::{Moment, SystemClock, Timestamp};

#[derive(Debug)]
struct NoWaker;

impl Wake for NoWaker {
    fn wake(&self) {}
}

/// A request as a broker sees it; a broker's port is also its id.
#[derive(Clone, Debug)]
struct Seen {
    broker: u16,
    api_key: ApiKey,
    version: i16,
    body: Vec<u8>,
}

enum Reaction {
    Answer(Vec<u8>),
    Silence,
    Close,
}

type Script = Box<dyn FnMut(&Seen) -> Option<Reaction>>;

/// Three brokers; broker 9 is the bootstrap server.
struct World {
    admin: Admin,
    machine: AdminMachine,
    now: Moment,
    connections: BTreeMap<ConnectionId, Address>,
    events: Vec<Event>,
    script: Script,
    controller: i32,
    /// Connections that get no more answers: a broker answers in order, so one missing answer
    /// blocks the rest.
    silent: BTreeSet<ConnectionId>,
    /// APIs that no broker supports.
    unknown: Vec<ApiKey>,
    /// All requests except ApiVersions and the machine's own metadata requests.
    log: Vec<(u16, ApiKey)>,
}

fn response(encode: impl FnOnce(&mut Vec<u8>)) -> Option<Reaction> {
    Some(Reaction::Answer(body(encode)))
}

impl World {
    fn new(script: impl FnMut(&Seen) -> Option<Reaction> + 'static) -> World {
        let config = Config::new()
            .set("bootstrap.servers", "broker:9")
            .set("client.id", "test");
        let config = Arc::new(AdminConfig::from_config(&config).unwrap());
        let metrics = ClientMetrics::new(
            ClientKind::Admin,
            &config.client,
            Arc::new(SystemClock::default()),
        );
        let inbox = Arc::new(Inbox::default());
        let metadata = Arc::new(MetadataCell::new(Interest::Nodes));
        World {
            machine: AdminMachine::new(config, inbox.clone(), metadata, &metrics, 7),
            admin: Admin {
                inbox,
                waker: Arc::new(NoWaker),
                metrics,
                driver: Mutex::new(None),
            },
            now: Moment::from_nanos(1_000_000_000),
            connections: BTreeMap::new(),
            events: Vec::new(),
            script: Box::new(script),
            controller: 1,
            silent: BTreeSet::new(),
            unknown: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Runs the machine and advances time until the call is done.
    fn finish<T>(&mut self, mut pending: Pending<T>) -> Result<T, Error> {
        for _ in 0..10_000 {
            let mut actions = Vec::new();
            self.machine.turn(self.now, Timestamp(0), &mut actions);
            for action in actions {
                self.perform(action);
            }
            if let Some(result) = pending.try_take() {
                return result;
            }
            let events = std::mem::take(&mut self.events);
            if !events.is_empty() {
                for event in events {
                    self.machine.handle(self.now, event);
                }
                continue;
            }
            let due = self
                .machine
                .next_deadline()
                .expect("a call always has a deadline");
            self.now = self.now.max(due);
        }
        panic!("the call does not end");
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Connect { connection, address } => {
                self.connections.insert(connection, address);
                self.events.push(Event::Connected { connection });
            }
            Action::Close { connection } => {
                self.connections.remove(&connection);
            }
            Action::Send { connection, frame } => {
                let bytes = frame.parts.concat();
                let mut reader = Reader::new(&bytes[LENGTH_BYTES..]);
                let header = RequestHeader::decode(&mut reader).unwrap();
                let seen = Seen {
                    broker: self.connections[&connection].port,
                    api_key: header.api_key,
                    version: header.api_version,
                    body: reader.rest().to_vec(),
                };
                self.react(connection, header.correlation_id, &seen);
            }
        }
    }

    fn react(&mut self, connection: ConnectionId, correlation_id: i32, seen: &Seen) {
        let reaction = (self.script)(seen);
        if reaction.is_some() {
            self.log.push((seen.broker, seen.api_key));
        }
        if self.silent.contains(&connection) {
            return;
        }
        match reaction.unwrap_or_else(|| Reaction::Answer(self.usual_answer(seen))) {
            Reaction::Silence => {
                self.silent.insert(connection);
            }
            Reaction::Close => {
                self.connections.remove(&connection);
                let reason = Error::Disconnected {
                    address: format!("broker:{}", seen.broker).into(),
                    reason: "closed".into(),
                };
                self.events.push(Event::Closed { connection, reason });
            }
            Reaction::Answer(body) => {
                let mut frame = Vec::new();
                encode_response_header(&mut frame, seen.api_key, seen.version, correlation_id);
                frame.extend(body);
                let frame = frame.into();
                self.events.push(Event::Received { connection, frame });
            }
        }
    }

    fn usual_answer(&self, seen: &Seen) -> Vec<u8> {
        match seen.api_key {
            ApiKey::ApiVersions => {
                let known = ApiKey::ALL
                    .iter()
                    .filter(|api_key| !self.unknown.contains(api_key));
                let api_keys = known.map(|api_key| ApiVersion {
                    api_key: api_key.code(),
                    min_version: api_key.known_versions().min,
                    max_version: api_key.known_versions().max,
                });
                let response = ApiVersionsResponse {
                    api_keys: api_keys.collect(),
                    ..Default::default()
                };
                body(|out| response.encode(out, seen.version))
            }
            ApiKey::Metadata => body(|out| metadata(self.controller, Vec::new()).encode(out, seen.version)),
            ApiKey::DescribeCluster => {
                let brokers = [1, 2, 3].map(|broker_id| DescribeClusterBroker {
                    broker_id,
                    host: "broker",
                    port: broker_id,
                    ..Default::default()
                });
                let response = DescribeClusterResponse {
                    brokers: brokers.into(),
                    ..Default::default()
                };
                body(|out| response.encode(out, seen.version))
            }
            other => panic!("no scripted answer for {other}"),
        }
    }
}

fn metadata(controller_id: i32, topics: Vec<MetadataResponseTopic<'static>>) -> MetadataResponse<'static> {
    let brokers = [1, 2, 3].map(|node_id| MetadataResponseBroker {
        node_id,
        host: "broker",
        port: node_id,
        rack: None,
    });
    MetadataResponse {
        brokers: brokers.into(),
        controller_id,
        topics,
        ..Default::default()
    }
}

/// Topic `t` with a partition per element of `leaders`.
fn topic(leaders: &[i32]) -> MetadataResponseTopic<'static> {
    let partitions = leaders
        .iter()
        .zip(0..)
        .map(|(leader_id, partition_index)| MetadataResponsePartition {
            partition_index,
            leader_id: *leader_id,
            ..Default::default()
        });
    MetadataResponseTopic {
        name: Some("t"),
        topic_id: Uuid([1; 16]),
        partitions: partitions.collect(),
        ..Default::default()
    }
}

/// Whether a metadata request names topics: the machine's own requests do not.
fn names_topics(seen: &Seen) -> bool {
    let request = MetadataRequest::decode(&mut Reader::new(&seen.body), seen.version).unwrap();
    request.topics.is_some_and(|topics| !topics.is_empty())
}

fn created(seen: &Seen, code: ErrorCode, message: Option<&str>) -> Option<Reaction> {
    let request = CreateTopicsRequest::decode(&mut Reader::new(&seen.body), seen.version).unwrap();
    let topics = request.topics.iter().map(|topic| CreatableTopicResult {
        name: topic.name,
        error_code: code.code(),
        error_message: message,
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        ..Default::default()
    });
    let answer = CreateTopicsResponse {
        topics: topics.collect(),
        ..Default::default()
    };
    response(|out| answer.encode(out, seen.version))
}

#[test]
fn a_topic_is_created_by_the_controller_even_when_that_moves() {
    let mut world = World::new(|seen| match (seen.api_key, seen.broker) {
        (ApiKey::CreateTopics, 2) => created(seen, ErrorCode::None, None),
        (ApiKey::CreateTopics, _) => created(seen, ErrorCode::NotController, None),
        // The first answer, on the bootstrap connection, is outdated.
        (ApiKey::Metadata, broker) => {
            response(|out| metadata(if broker == 9 { 1 } else { 2 }, Vec::new()).encode(out, seen.version))
        }
        _ => None,
    });
    let call = world
        .admin
        .create_topics(vec![NewTopic::new("t").partitions(3).replicas(1)]);
    let results = world.finish(call).unwrap();
    assert_eq!(results["t"].as_ref().unwrap().partitions, 3);
    let asked: Vec<u16> = world
        .log
        .iter()
        .filter(|(_, api_key)| *api_key == ApiKey::CreateTopics)
        .map(|(broker, _)| *broker)
        .collect();
    assert_eq!(asked.first(), Some(&1));
    assert_eq!(asked.last(), Some(&2));
}

#[test]
fn every_topic_has_its_own_result_with_the_brokers_text() {
    let mut world = World::new(|seen| match seen.api_key {
        ApiKey::CreateTopics => created(seen, ErrorCode::InvalidReplicationFactor, Some("only 1 broker")),
        _ => None,
    });
    let call = world
        .admin
        .create_topics(vec![NewTopic::new("t").partitions(1).replicas(3)]);
    let error = world.finish(call).unwrap()["t"].clone().unwrap_err();
    let Error::Broker { code, what } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (*code, what.as_ref()),
        (ErrorCode::InvalidReplicationFactor, "topic t (only 1 broker)")
    );
    assert_eq!(world.log.len(), 1, "a final error is not tried again");
}

#[test]
fn only_topics_that_the_quota_refused_are_retried() {
    let mut asked: Vec<Vec<String>> = Vec::new();
    let (tell, told) = std::sync::mpsc::channel();
    let mut world = World::new(move |seen| match seen.api_key {
        ApiKey::CreateTopics => {
            let request = CreateTopicsRequest::decode(&mut Reader::new(&seen.body), seen.version).unwrap();
            asked.push(request.topics.iter().map(|topic| topic.name.to_owned()).collect());
            tell.send(asked.clone()).unwrap();
            let is_first = asked.len() == 1;
            let topics = request.topics.iter().map(|topic| CreatableTopicResult {
                name: topic.name,
                error_code: match topic.name {
                    "b" if is_first => ErrorCode::ThrottlingQuotaExceeded.code(),
                    _ => 0,
                },
                ..Default::default()
            });
            let answer = CreateTopicsResponse {
                topics: topics.collect(),
                ..Default::default()
            };
            response(|out| answer.encode(out, seen.version))
        }
        _ => None,
    });
    let call = world
        .admin
        .create_topics(vec![NewTopic::new("a"), NewTopic::new("b")]);
    let results = world.finish(call).unwrap();
    assert!(results["a"].is_ok() && results["b"].is_ok(), "{results:?}");
    assert_eq!(told.try_iter().last().unwrap(), [vec!["a", "b"], vec!["b"]]);
}

#[test]
fn a_call_is_retried_after_a_broken_connection() {
    let mut closed = 0;
    let mut world = World::new(move |seen| match seen.api_key {
        ApiKey::CreateTopics if closed < 3 => {
            closed += 1;
            Some(Reaction::Close)
        }
        ApiKey::CreateTopics => created(seen, ErrorCode::None, None),
        _ => None,
    });
    let call = world
        .admin
        .create_topics(vec![NewTopic::new("t").partitions(1).replicas(1)]);
    assert!(world.finish(call).unwrap()["t"].is_ok());
    assert_eq!(world.log.len(), 4);
}

#[test]
fn a_silent_broker_delays_a_call_at_most_until_its_timeout() {
    let mut world = World::new(|seen| match seen.api_key {
        ApiKey::CreateTopics => Some(Reaction::Silence),
        _ => None,
    });
    let start = world.now;
    let call = world.admin.create_topics(vec![NewTopic::new("t")]);
    let error = world.finish(call).unwrap_err();
    let Error::Timeout {
        limit_ms,
        setting,
        what,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!((*limit_ms, *setting), (60_000, "default.api.timeout.ms"));
    assert!(what.starts_with("create topics"), "{what}");
    assert_eq!(world.now.ms_since(start), 60_000);
}

#[test]
fn an_api_that_the_broker_does_not_support_fails_at_once() {
    let mut world = World::new(|_| None);
    world.unknown = vec![ApiKey::ListConfigResources];
    let call = world.admin.list_client_metrics_subscriptions();
    let error = world.finish(call).unwrap_err();
    assert!(matches!(error, Error::UnsupportedVersion { .. }), "{error:?}");
}

#[test]
fn calls_after_and_during_close_end_with_closed() {
    let mut world = World::new(|seen| match seen.api_key {
        ApiKey::CreateTopics => Some(Reaction::Silence),
        _ => None,
    });
    let mut under_way = world.admin.create_topics(vec![NewTopic::new("t")]);
    let mut actions = Vec::new();
    world.machine.turn(world.now, Timestamp(0), &mut actions);
    assert!(under_way.try_take().is_none());
    world.admin.close(Duration::ZERO);
    world.machine.turn(world.now, Timestamp(0), &mut actions);
    assert!(world.machine.is_finished());
    assert_eq!(under_way.wait(), Err(Error::Closed));
    assert_eq!(world.admin.list_topics().wait(), Err(Error::Closed));
}

fn offsets(seen: &Seen, moved: bool) -> Option<Reaction> {
    let request = ListOffsetsRequest::decode(&mut Reader::new(&seen.body), seen.version).unwrap();
    let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
        name: topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                error_code: if moved {
                    ErrorCode::NotLeaderOrFollower.code()
                } else {
                    0
                },
                offset: i64::from(seen.broker) * 100 + i64::from(partition.partition_index),
                timestamp: partition.timestamp,
                ..Default::default()
            })
            .collect(),
    });
    let answer = ListOffsetsResponse {
        topics: topics.collect(),
        ..Default::default()
    };
    response(|out| answer.encode(out, seen.version))
}

#[test]
fn partitions_are_asked_of_their_leaders_even_when_those_move() {
    let mut has_moved = false;
    let mut world = World::new(move |seen| match seen.api_key {
        ApiKey::Metadata if names_topics(seen) => {
            let leaders: &[i32] = if has_moved { &[1, 3] } else { &[1, 2] };
            response(|out| metadata(1, vec![topic(leaders)]).encode(out, seen.version))
        }
        ApiKey::ListOffsets if seen.broker == 2 => {
            has_moved = true;
            offsets(seen, true)
        }
        ApiKey::ListOffsets => offsets(seen, false),
        _ => None,
    });
    let wanted = [
        (0, OffsetSpec::Latest),
        (1, OffsetSpec::Earliest),
        (7, OffsetSpec::Latest),
    ];
    let wanted = wanted.map(|(index, spec)| (TopicPartition::new("t", index), spec));
    let call = world.admin.list_offsets(BTreeMap::from(wanted));
    let results = world.finish(call).unwrap();
    let offset = |index| results[&TopicPartition::new("t", index)].as_ref().unwrap().offset;
    assert_eq!((offset(0), offset(1)), (100, 301));
    let missing = results[&TopicPartition::new("t", 7)].clone().unwrap_err();
    let is_unknown = matches!(
        missing,
        Error::Broker {
            code: ErrorCode::UnknownTopicOrPartition,
            ..
        }
    );
    assert!(is_unknown, "{missing:?}");
    let asked: Vec<u16> = world
        .log
        .iter()
        .filter(|(_, api_key)| *api_key == ApiKey::ListOffsets)
        .map(|(broker, _)| *broker)
        .collect();
    assert_eq!(
        asked.iter().filter(|broker| **broker == 1).count(),
        1,
        "what succeeded is not asked again"
    );
}

#[test]
fn a_groups_offsets_are_asked_of_its_coordinator_even_when_that_moves() {
    let mut coordinator = 2;
    let mut world = World::new(move |seen| match (seen.api_key, seen.broker) {
        (ApiKey::FindCoordinator, _) => {
            let answer = FindCoordinatorResponse {
                coordinators: vec![Coordinator {
                    key: "g",
                    node_id: coordinator,
                    host: "broker",
                    port: coordinator,
                    ..Default::default()
                }],
                ..Default::default()
            };
            response(|out| answer.encode(out, seen.version))
        }
        (ApiKey::OffsetFetch, 2) => {
            coordinator = 3;
            committed(seen, ErrorCode::NotCoordinator)
        }
        (ApiKey::OffsetFetch, _) => committed(seen, ErrorCode::None),
        _ => None,
    });
    let call = world.admin.list_group_offsets("g");
    let offsets = world.finish(call).unwrap();
    let expected = OffsetAndMetadata {
        offset: 5,
        leader_epoch: Some(2),
        metadata: "note".into(),
    };
    assert_eq!(offsets, BTreeMap::from([(TopicPartition::new("t", 0), expected)]));
    let asked: Vec<_> = world
        .log
        .iter()
        .map(|(broker, api_key)| (*broker, *api_key))
        .collect();
    assert_eq!(asked.last(), Some(&(3, ApiKey::OffsetFetch)));
}

fn committed(seen: &Seen, code: ErrorCode) -> Option<Reaction> {
    let partition = |partition_index, committed_offset| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset,
        committed_leader_epoch: 2,
        metadata: Some("note"),
        ..Default::default()
    };
    let topics = vec![OffsetFetchResponseTopics {
        name: "t",
        partitions: vec![partition(0, 5), partition(1, -1)],
        ..Default::default()
    }];
    let answer = OffsetFetchResponse {
        groups: vec![OffsetFetchResponseGroup {
            group_id: "g",
            topics,
            error_code: code.code(),
        }],
        ..Default::default()
    };
    response(|out| answer.encode(out, seen.version))
}

#[test]
fn every_broker_is_asked_for_its_groups() {
    let mut world = World::new(|seen| match seen.api_key {
        ApiKey::ListGroups => {
            let id = format!("g{}", seen.broker);
            let groups = vec![ListedGroup {
                group_id: &id,
                protocol_type: "consumer",
                group_state: "Stable",
                group_type: "classic",
            }];
            let answer = ListGroupsResponse {
                groups,
                ..Default::default()
            };
            response(|out| answer.encode(out, seen.version))
        }
        _ => None,
    });
    let call = world.admin.list_groups();
    let groups = world.finish(call).unwrap();
    assert_eq!(groups.keys().collect::<Vec<_>>(), ["g1", "g2", "g3"]);
}

#[test]
fn a_brokers_settings_are_asked_of_that_broker_and_topics_of_any() {
    let mut world = World::new(|seen| match seen.api_key {
        ApiKey::DescribeConfigs => {
            let request = DescribeConfigsRequest::decode(&mut Reader::new(&seen.body), seen.version).unwrap();
            let results = request.resources.iter().map(|resource| DescribeConfigsResult {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name,
                ..Default::default()
            });
            let answer = DescribeConfigsResponse {
                results: results.collect(),
                ..Default::default()
            };
            response(|out| answer.encode(out, seen.version))
        }
        _ => None,
    });
    let broker = |id: &str| ConfigResource::new(ConfigResourceKind::Broker, id);
    let resources = vec![broker("3"), ConfigResource::topic("t"), broker("")];
    let call = world.admin.describe_configs(resources.clone());
    let results = world.finish(call).unwrap();
    assert_eq!(results.len(), 3);
    assert!(resources.iter().all(|resource| results[resource].is_ok()));
    assert_eq!(
        world.log.len(),
        2,
        "one request for broker 3, one for what any broker knows"
    );
    assert!(world.log.contains(&(3, ApiKey::DescribeConfigs)));
}

#[test]
fn a_password_is_salted_and_never_sent() {
    let mut world = World::new(|seen| match seen.api_key {
        ApiKey::AlterUserScramCredentials => {
            assert!(!seen.body.windows(6).any(|window| window == b"secret"));
            let request = AlterUserScramCredentialsRequest::decode(&mut Reader::new(&seen.body), 0).unwrap();
            let set = &request.upsertions[0];
            assert_eq!((set.name, set.mechanism, set.iterations), ("alice", 2, 4096));
            assert_eq!(set.salted_password.len(), 64);
            assert!(set.salt.len() >= 16);
            let answer = AlterUserScramCredentialsResponse {
                results: vec![AlterUserScramCredentialsResult {
                    user: "alice",
                    ..Default::default()
                }],
                ..Default::default()
            };
            response(|out| answer.encode(out, seen.version))
        }
        _ => None,
    });
    let set = ScramCredential::Set {
        mechanism: ScramMechanism::Sha512,
        password: crate::config::Password::new("secret"),
        rounds: Some(4096),
    };
    let call = world
        .admin
        .alter_scram_credentials(vec![("alice".to_owned(), set)]);
    assert_eq!(
        world.finish(call).unwrap(),
        BTreeMap::from([("alice".to_owned(), Ok(()))])
    );
}

#[test]
fn a_subscription_of_client_metrics_is_read_as_it_was_set() {
    let entry = |value: &str| ConfigEntry {
        value: Some(value.to_owned()),
        source: ConfigSource::ClientMetrics,
        is_read_only: false,
        is_sensitive: false,
    };
    let entries = [("metrics", "a., b"), ("interval.ms", "5000"), ("match", "")];
    let entries = entries.map(|(key, value)| (key.to_owned(), entry(value)));
    let read = ClientMetricsSubscription::from_entries(&BTreeMap::from(entries)).unwrap();
    let expected = ClientMetricsSubscription {
        metrics: vec!["a.".to_owned(), "b".to_owned()],
        interval_ms: Some(5000),
        matches: Vec::new(),
    };
    assert_eq!(read, expected);
}
