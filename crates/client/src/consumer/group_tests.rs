//! One behaviour of a member per test, against a coordinator that answers as the test says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_groups::{DescribeGroupsResponse, DescribedGroup, DescribedGroupMember};
use ottla_wire::messages::find_coordinator::{Coordinator, FindCoordinatorResponse};
use ottla_wire::messages::heartbeat::HeartbeatResponse;
use ottla_wire::messages::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};
use ottla_wire::messages::leave_group::LeaveGroupRequest;
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use ottla_wire::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use ottla_wire::primitives::{Reader, Uuid};

use super::assignor::subscription::{MemberSubscription, decode_assignment, encode_assignment};
use super::group::{
    CommitKind, GroupEvent, GroupMembership, GroupTicket, Offsets, RebalanceCall, RebalanceStep,
};
use super::group_network::GroupNetwork;
use super::poll_activity::PollActivity;
use super::subscription::{Subscription, TopicPattern};
use super::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::config::{Config, ConsumerConfig};
use crate::error::Error;
use crate::events::told;
use crate::metadata::snapshot::{NodeId, Partition, Snapshot, Topic};
use crate::metrics::ConsumerMetrics;
use crate::network::cluster::{Readiness, Reply, Request};
use crate::network::io::Address;
use crate::time::Moment;

const COORDINATOR: NodeId = NodeId(i32::MAX - 7);

/// Every node is ready; requests wait for the test's answer.
#[derive(Default)]
struct Network {
    snapshot: Arc<Snapshot>,
    sent: VecDeque<(NodeId, Request, GroupTicket)>,
    disconnected: Vec<NodeId>,
}

impl GroupNetwork for Network {
    fn readiness(&mut self, _now: Moment, _node: NodeId) -> Readiness {
        Readiness::Ready
    }

    fn version(&self, _node: NodeId, api_key: ApiKey, _needed_min: i16) -> Result<i16, Error> {
        Ok(api_key.known_versions().max)
    }

    fn version_within(
        &self,
        _node: NodeId,
        api_key: ApiKey,
        _needed_min: i16,
        wanted_max: i16,
    ) -> Result<i16, Error> {
        Ok(api_key.known_versions().max.min(wanted_max))
    }

    fn send(&mut self, _now: Moment, node: NodeId, request: Request, ticket: GroupTicket) {
        self.sent.push_back((node, request, ticket));
    }

    fn least_loaded(&mut self, _now: Moment) -> Option<NodeId> {
        Some(NodeId(7))
    }

    fn add_node(&mut self, _id: NodeId, _address: Address) {}

    fn disconnect(&mut self, _now: Moment, node: NodeId) {
        self.disconnected.push(node);
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }
}

/// The topic id of the tests' topics.
fn id_of(topic: &str) -> Uuid {
    Uuid([topic.as_bytes()[0]; 16])
}

struct Bench {
    now: Moment,
    machine: GroupMembership,
    activity: Arc<PollActivity>,
    network: Network,
    events: VecDeque<GroupEvent>,
}

fn bench(settings: &[(&str, &str)], subscription: Subscription) -> Bench {
    let base = [
        ("bootstrap.servers", "b:9092"),
        ("group.id", "g"),
        ("enable.auto.commit", "false"),
    ];
    let config = base
        .iter()
        .chain(settings)
        .fold(Config::new(), |config, (key, value)| config.set(*key, *value));
    let config = Arc::new(ConsumerConfig::from_config(&config).unwrap());
    let activity: Arc<PollActivity> = Arc::default();
    let machine = GroupMembership::new(config, activity.clone(), Arc::new(ConsumerMetrics::default()), 1);
    let mut bench = Bench {
        now: Moment::from_nanos(1_000_000_000),
        machine,
        activity,
        network: Network::default(),
        events: VecDeque::new(),
    };
    bench.set_topics(&[("a", 4), ("b", 2)]);
    bench.machine.subscribe(bench.now, subscription);
    bench
}

impl Bench {
    fn set_topics(&mut self, topics: &[(&str, usize)]) {
        let topics = topics.iter().map(|(name, count)| {
            let topic = Topic {
                name: (*name).into(),
                id: id_of(name),
                partitions: vec![Partition::default(); *count],
                is_internal: false,
                usage: Default::default(),
            };
            (Arc::from(*name), Arc::new(topic))
        });
        self.network.snapshot = Arc::new(Snapshot {
            version: self.network.snapshot.version + 1,
            topics: topics.collect(),
            ..Snapshot::default()
        });
    }

    fn turn(&mut self) {
        let mut events = Vec::new();
        self.machine.turn(self.now, &mut self.network, &mut events);
        self.events.extend(events);
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.turn();
    }

    fn poll(&mut self) {
        let _ = self.activity.enter(self.now);
        self.turn();
    }

    /// The next request, which must be of this API.
    fn sent(&mut self, api_key: ApiKey) -> (Request, GroupTicket, Vec<u8>) {
        let (node, request, ticket) = self
            .network
            .sent
            .pop_front()
            .unwrap_or_else(|| panic!("no {api_key:?} was sent"));
        assert_eq!(request.api_key, api_key);
        if api_key != ApiKey::FindCoordinator {
            assert_eq!(node, COORDINATOR);
        }
        let body = request.body.iter().flat_map(|part| part.to_vec()).collect();
        (request, ticket, body)
    }

    fn nothing_sent(&self) {
        let sent: Vec<_> = self
            .network
            .sent
            .iter()
            .map(|(_, request, _)| request.api_key)
            .collect();
        assert!(sent.is_empty(), "{sent:?}");
    }

    fn answer(&mut self, request: &Request, ticket: GroupTicket, result: Result<Vec<u8>, Error>) {
        let reply = Reply {
            node: COORDINATOR,
            ticket,
            api_key: request.api_key,
            api_version: request.api_version,
            result: result.map(Into::into),
            latency_nanos: 1,
        };
        self.machine.take_reply(self.now, reply);
        self.turn();
    }

    fn find_coordinator(&mut self) {
        let (request, ticket, _) = self.sent(ApiKey::FindCoordinator);
        let found = Coordinator {
            key: "g",
            node_id: 7,
            host: "b",
            port: 9092,
            ..Coordinator::default()
        };
        let response = FindCoordinatorResponse {
            coordinators: vec![found],
            ..Default::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, request.api_version);
        self.answer(&request, ticket, Ok(body));
    }

    /// Answers JoinGroup; the member leads if `members` are given.
    fn join(
        &mut self,
        code: ErrorCode,
        generation: i32,
        protocol: &str,
        members: &[MemberSubscription],
    ) -> Vec<u8> {
        self.join_as(code, generation, protocol, members, false)
    }

    /// `keeps_assignment`: as a static leader that comes back.
    fn join_as(
        &mut self,
        code: ErrorCode,
        generation: i32,
        protocol: &str,
        members: &[MemberSubscription],
        keeps_assignment: bool,
    ) -> Vec<u8> {
        let (request, ticket, sent) = self.sent(ApiKey::JoinGroup);
        let metadata: Vec<Vec<u8>> = members.iter().map(MemberSubscription::encode).collect();
        let response = JoinGroupResponse {
            error_code: code.code(),
            generation_id: generation,
            protocol_type: Some("consumer"),
            protocol_name: Some(protocol),
            leader: if members.is_empty() { "other" } else { "me" },
            member_id: "me",
            members: members
                .iter()
                .zip(&metadata)
                .map(|(member, metadata)| JoinGroupResponseMember {
                    member_id: &member.member_id,
                    group_instance_id: None,
                    metadata,
                })
                .collect(),
            skip_assignment: keeps_assignment,
            ..JoinGroupResponse::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, request.api_version);
        self.answer(&request, ticket, Ok(body));
        sent
    }

    /// Answers DescribeGroups with the assignment of each member.
    fn describe(&mut self, state: &str, assigned: &[&[(&str, i32)]]) {
        let (request, ticket, _) = self.sent(ApiKey::DescribeGroups);
        let assigned: Vec<Vec<u8>> = assigned
            .iter()
            .map(|assigned| encode_assignment(&partitions(assigned)))
            .collect();
        let members = assigned.iter().map(|assignment| DescribedGroupMember {
            member_assignment: assignment,
            ..DescribedGroupMember::default()
        });
        let group = DescribedGroup {
            group_id: "g",
            group_state: state,
            members: members.collect(),
            ..DescribedGroup::default()
        };
        let response = DescribeGroupsResponse {
            groups: vec![group],
            ..DescribeGroupsResponse::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, request.api_version);
        self.answer(&request, ticket, Ok(body));
    }

    fn sync(&mut self, code: ErrorCode, assigned: &[(&str, i32)]) -> Vec<u8> {
        let (request, ticket, sent) = self.sent(ApiKey::SyncGroup);
        let assignment = encode_assignment(&partitions(assigned));
        let response = SyncGroupResponse {
            error_code: code.code(),
            assignment: &assignment,
            ..SyncGroupResponse::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, request.api_version);
        self.answer(&request, ticket, Ok(body));
        sent
    }

    fn heartbeat(&mut self, code: ErrorCode) {
        let (request, ticket, _) = self.sent(ApiKey::Heartbeat);
        let response = HeartbeatResponse {
            error_code: code.code(),
            ..Default::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, request.api_version);
        self.answer(&request, ticket, Ok(body));
    }

    /// Answers OffsetCommit and returns the offsets by partition of `a`.
    fn commit(&mut self, code: ErrorCode) -> Vec<i64> {
        let (request, ticket, sent) = self.sent(ApiKey::OffsetCommit);
        let asked = OffsetCommitRequest::decode(&mut Reader::new(&sent), request.api_version).unwrap();
        let partitions = asked.topics[0]
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: code.code(),
            });
        let topic = OffsetCommitResponseTopic {
            name: "a",
            partitions: partitions.collect(),
            ..Default::default()
        };
        let response = OffsetCommitResponse {
            topics: vec![topic],
            ..Default::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, request.api_version);
        let offsets = asked.topics[0]
            .partitions
            .iter()
            .map(|partition| partition.committed_offset)
            .collect();
        self.answer(&request, ticket, Ok(body));
        offsets
    }

    fn call(&mut self) -> RebalanceCall {
        let is_call = |event: &GroupEvent| matches!(event, GroupEvent::Call(_));
        let index = self
            .events
            .iter()
            .position(is_call)
            .unwrap_or_else(|| panic!("no call in {:?}", self.events));
        match self.events.remove(index) {
            Some(GroupEvent::Call(call)) => call,
            other => panic!("{other:?}"),
        }
    }

    /// Expects this call and acknowledges it.
    fn acknowledge(&mut self, expected: RebalanceStep) {
        let call = self.call();
        assert_eq!(call.step, expected);
        self.machine.acknowledge(self.now, call.id, Offsets::new());
        self.turn();
    }

    fn failure(&mut self) -> Option<Error> {
        let index = self
            .events
            .iter()
            .position(|event| matches!(event, GroupEvent::Failed(_)))?;
        match self.events.remove(index) {
            Some(GroupEvent::Failed(error)) => Some(error),
            _ => None,
        }
    }

    fn committed(&mut self) -> Vec<(u64, Result<(), Error>)> {
        let mut committed = Vec::new();
        self.events.retain(|event| match event {
            GroupEvent::Committed { ticket, result, .. } => {
                committed.push((*ticket, result.clone()));
                false
            }
            _ => true,
        });
        committed
    }

    /// Joins as a follower and owns these partitions.
    fn own(&mut self, protocol: &str, assigned: &[(&str, i32)]) {
        self.poll();
        self.find_coordinator();
        self.join(ErrorCode::None, 1, protocol, &[]);
        self.sync(ErrorCode::None, assigned);
        self.acknowledge(RebalanceStep::Assigned(partitions(assigned)));
        assert!(self.machine.is_stable());
        self.events.clear();
    }
}

fn partitions(names: &[(&str, i32)]) -> BTreeSet<TopicPartition> {
    names
        .iter()
        .map(|(topic, index)| TopicPartition::new(*topic, *index))
        .collect()
}

fn offsets(offset: i64) -> Offsets {
    BTreeMap::from([(TopicPartition::new("a", 0), OffsetAndMetadata::new(offset))])
}

fn on_a() -> Subscription {
    Subscription::topics(["a"])
}

const COOPERATIVE: (&str, &str) = ("partition.assignment.strategy", "cooperative-sticky");
const EAGER: (&str, &str) = ("partition.assignment.strategy", "range");

#[test]
fn nothing_is_asked_before_the_first_poll() {
    let mut bench = bench(&[EAGER], on_a());
    bench.turn();
    // Metadata and fetching need no coordinator; a subscription does.
    bench.find_coordinator();
    bench.nothing_sent();
    assert!(bench.activity.enter(bench.now), "the machine waits for the poll");
    bench.turn();
    bench.sent(ApiKey::JoinGroup);
}

#[test]
fn a_member_rejoins_with_the_id_that_it_was_given() {
    let mut bench = bench(&[EAGER], on_a());
    bench.poll();
    bench.find_coordinator();
    bench.join(ErrorCode::MemberIdRequired, -1, "", &[]);
    let second = bench.join(ErrorCode::None, 1, "range", &[]);
    let version = ApiKey::JoinGroup.known_versions().max;
    let request = JoinGroupRequest::decode(&mut Reader::new(&second), version).unwrap();
    assert_eq!(request.member_id, "me");
    assert!(bench.failure().is_none());
}

#[test]
fn a_leader_distributes_over_all_members_with_metadata_of_their_topics() {
    let mut bench = bench(&[EAGER], on_a());
    bench.set_topics(&[("a", 4)]);
    bench.poll();
    bench.find_coordinator();
    let member = |id: &str, topics: &[&str]| MemberSubscription {
        member_id: id.into(),
        topics: topics.iter().map(|topic| Arc::from(*topic)).collect(),
        ..MemberSubscription::default()
    };
    bench.join(
        ErrorCode::None,
        1,
        "range",
        &[member("me", &["a"]), member("you", &["a", "b"])],
    );
    // Topic b is another member's subscription.
    bench.nothing_sent();
    let wanted = bench.machine.metadata_topics().unwrap();
    assert_eq!(wanted, BTreeSet::from(["a".into(), "b".into()]));
    bench.set_topics(&[("a", 4), ("b", 2)]);
    bench.turn();
    let version = ApiKey::SyncGroup.known_versions().max;
    let sent = bench.sync(ErrorCode::None, &[("a", 0), ("a", 1)]);
    let request = SyncGroupRequest::decode(&mut Reader::new(&sent), version).unwrap();
    let of = |id: &str| {
        let found = request
            .assignments
            .iter()
            .find(|assignment| assignment.member_id == id)
            .unwrap();
        decode_assignment(found.assignment).unwrap()
    };
    assert_eq!(of("me"), partitions(&[("a", 0), ("a", 1)]));
    assert_eq!(of("you"), partitions(&[("a", 2), ("a", 3), ("b", 0), ("b", 1)]));
    bench.acknowledge(RebalanceStep::Assigned(partitions(&[("a", 0), ("a", 1)])));
    // A new partition of another member's topic: rebalance.
    bench.set_topics(&[("a", 4), ("b", 3)]);
    bench.turn();
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0), ("a", 1)])));
    bench.sent(ApiKey::JoinGroup);
}

/// A topic grew while it was away, or its predecessor was about to give up a partition.
#[test]
fn a_static_leader_joins_again_where_the_assignment_that_it_keeps_is_not_whole() {
    let rejoins = |state: &str, others: &[(&str, i32)]| {
        let mut bench = bench(&[COOPERATIVE, ("group.instance.id", "i")], on_a());
        bench.poll();
        bench.find_coordinator();
        let member = |id: &str| MemberSubscription {
            member_id: id.into(),
            topics: vec!["a".into()],
            ..MemberSubscription::default()
        };
        let members = [member("me"), member("you")];
        bench.join_as(ErrorCode::None, 3, "cooperative-sticky", &members, true);
        let mine = [("a", 0), ("a", 1)];
        bench.sync(ErrorCode::None, &mine);
        bench.acknowledge(RebalanceStep::Assigned(partitions(&mine)));
        bench.describe(state, &[&mine, others]);
        let is_joining = !bench.network.sent.is_empty();
        if is_joining {
            bench.sent(ApiKey::JoinGroup);
        }
        bench.nothing_sent();
        is_joining
    };
    assert!(rejoins("Stable", &[("a", 2)]));
    assert!(!rejoins("Stable", &[("a", 2), ("a", 3)]));
    // Another rebalance tells more.
    assert!(!rejoins("PreparingRebalance", &[("a", 2)]));
}

#[test]
fn an_eager_member_gives_everything_up_before_it_joins_again() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0), ("a", 1)]);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::RebalanceInProgress);
    bench.nothing_sent();
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0), ("a", 1)])));
    assert!(bench.machine.assignment().is_empty());
    let sent = bench.join(ErrorCode::None, 2, "range", &[]);
    let version = ApiKey::JoinGroup.known_versions().max;
    let request = JoinGroupRequest::decode(&mut Reader::new(&sent), version).unwrap();
    let said = MemberSubscription::decode("me", None, request.protocols[0].metadata).unwrap();
    assert!(said.owned.is_empty());
    assert_eq!(said.generation, Some(1));
    assert_eq!(request.reason, Some("group is already rebalancing"));
}

#[test]
fn a_cooperative_member_gives_up_only_what_the_assignment_takes_and_joins_again() {
    let mut bench = bench(&[COOPERATIVE], on_a());
    bench.own("cooperative-sticky", &[("a", 0), ("a", 1)]);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::RebalanceInProgress);
    // No callback: nothing changes before the assignment is known.
    let sent = bench.join(ErrorCode::None, 2, "cooperative-sticky", &[]);
    let version = ApiKey::JoinGroup.known_versions().max;
    let request = JoinGroupRequest::decode(&mut Reader::new(&sent), version).unwrap();
    let said = MemberSubscription::decode("me", None, request.protocols[0].metadata).unwrap();
    assert_eq!(said.owned.len(), 2);
    bench.sync(ErrorCode::None, &[("a", 1)]);
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0)])));
    assert_eq!(*bench.machine.assignment(), partitions(&[("a", 1)]));
    bench.acknowledge(RebalanceStep::Assigned(BTreeSet::new()));
    bench.join(ErrorCode::None, 3, "cooperative-sticky", &[]);
    bench.sync(ErrorCode::None, &[("a", 1), ("a", 2)]);
    bench.acknowledge(RebalanceStep::Assigned(partitions(&[("a", 2)])));
    assert!(bench.machine.is_stable());
}

#[test]
fn consumed_offsets_are_committed_before_partitions_are_given_up() {
    let mut bench = bench(&[EAGER, ("enable.auto.commit", "true")], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.request_rejoin("test");
    bench.turn();
    let call = bench.call();
    assert_eq!(
        call.step,
        RebalanceStep::Prepare {
            pause: partitions(&[("a", 0)])
        }
    );
    bench.machine.acknowledge(bench.now, call.id, offsets(42));
    bench.turn();
    assert!(
        bench.events.is_empty(),
        "the listener waits for the commit: {:?}",
        bench.events
    );
    assert_eq!(bench.commit(ErrorCode::CoordinatorLoadInProgress), [42]);
    bench.pass_ms(500);
    assert_eq!(bench.commit(ErrorCode::None), [42]);
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0)])));
    bench.sent(ApiKey::JoinGroup);
}

#[test]
fn heartbeats_continue_while_a_listener_runs() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.request_rejoin("test");
    bench.turn();
    for _ in 0..5 {
        bench.pass_ms(3_000);
        bench.heartbeat(ErrorCode::RebalanceInProgress);
    }
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0)])));
    bench.sent(ApiKey::JoinGroup);
}

#[test]
fn a_member_that_was_removed_loses_its_partitions() {
    let mut bench = bench(&[COOPERATIVE], on_a());
    bench.own("cooperative-sticky", &[("a", 0)]);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::UnknownMemberId);
    bench.acknowledge(RebalanceStep::Lost(partitions(&[("a", 0)])));
    let (request, _, sent) = bench.sent(ApiKey::JoinGroup);
    let request = JoinGroupRequest::decode(&mut Reader::new(&sent), request.api_version).unwrap();
    assert_eq!(request.member_id, "");
}

#[test]
fn an_old_generation_keeps_the_member_id() {
    let mut bench = bench(&[COOPERATIVE], on_a());
    bench.own("cooperative-sticky", &[("a", 0)]);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::IllegalGeneration);
    bench.acknowledge(RebalanceStep::Lost(partitions(&[("a", 0)])));
    let (request, _, sent) = bench.sent(ApiKey::JoinGroup);
    let request = JoinGroupRequest::decode(&mut Reader::new(&sent), request.api_version).unwrap();
    assert_eq!(request.member_id, "me");
}

#[test]
fn an_application_that_does_not_poll_leaves_and_rejoins_with_the_next_poll() {
    let mut bench = bench(&[EAGER, ("max.poll.interval.ms", "10000")], on_a());
    bench.own("range", &[("a", 0)]);
    bench.activity.leave(bench.now);
    for _ in 0..3 {
        bench.pass_ms(3_000);
        bench.heartbeat(ErrorCode::None);
    }
    bench.pass_ms(1_000);
    let (request, _, sent) = bench.sent(ApiKey::LeaveGroup);
    let request = LeaveGroupRequest::decode(&mut Reader::new(&sent), request.api_version).unwrap();
    assert_eq!(request.members[0].member_id, "me");
    bench.pass_ms(20_000);
    bench.nothing_sent();
    assert!(bench.activity.enter(bench.now), "the machine waits for the poll");
    bench.turn();
    bench.acknowledge(RebalanceStep::Lost(partitions(&[("a", 0)])));
    bench.sent(ApiKey::JoinGroup);
}

#[test]
fn an_application_inside_poll_stays_a_member() {
    let mut bench = bench(&[EAGER, ("max.poll.interval.ms", "10000")], on_a());
    bench.own("range", &[("a", 0)]);
    for _ in 0..20 {
        bench.pass_ms(3_000);
        bench.heartbeat(ErrorCode::None);
    }
    assert!(bench.machine.is_stable());
}

#[test]
fn unsubscribing_revokes_and_leaves() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.subscribe(bench.now, Subscription::None);
    bench.turn();
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0)])));
    bench.sent(ApiKey::LeaveGroup);
    assert!(bench.events.contains(&GroupEvent::Left));
    bench.pass_ms(60_000);
    bench.nothing_sent();
}

#[test]
fn a_static_member_keeps_its_place_when_it_closes() {
    let mut bench = bench(&[EAGER, ("group.instance.id", "i")], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.close(bench.now, bench.now.after_ms(30_000));
    bench.turn();
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0)])));
    bench.nothing_sent();
    assert!(bench.machine.is_closed());
}

#[test]
fn closing_commits_revokes_leaves_and_waits_for_the_answers() {
    let mut bench = bench(&[EAGER, ("enable.auto.commit", "true")], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.close(bench.now, bench.now.after_ms(30_000));
    bench.turn();
    let call = bench.call();
    bench.machine.acknowledge(bench.now, call.id, offsets(9));
    bench.turn();
    assert_eq!(bench.commit(ErrorCode::None), [9]);
    bench.acknowledge(RebalanceStep::Revoked(partitions(&[("a", 0)])));
    let (request, ticket, _) = bench.sent(ApiKey::LeaveGroup);
    assert!(!bench.machine.is_closed());
    bench.answer(&request, ticket, Err(Error::Closed));
    assert!(bench.machine.is_closed());
}

#[test]
fn closing_ends_at_its_deadline_even_if_no_call_is_acknowledged() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.close(bench.now, bench.now.after_ms(1_000));
    bench.turn();
    bench.pass_ms(1_000);
    assert!(bench.machine.is_closed());
    assert!(bench.events.contains(&GroupEvent::Left));
}

#[test]
fn a_fenced_instance_is_final() {
    let mut bench = bench(&[EAGER, ("group.instance.id", "i")], on_a());
    bench.own("range", &[("a", 0)]);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::FencedInstanceId);
    assert!(bench.failure().unwrap().is_fatal());
    bench.poll();
    bench.pass_ms(60_000);
    bench.nothing_sent();
}

#[test]
fn a_member_that_failed_for_good_can_be_closed() {
    let settings = [EAGER, ("group.instance.id", "i"), ("enable.auto.commit", "true")];
    let mut bench = bench(&settings, on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.commit(bench.now, 1, offsets(10), CommitKind::Async);
    bench.turn();
    bench.sent(ApiKey::OffsetCommit);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::FencedInstanceId);
    assert!(bench.committed()[0].1.as_ref().is_err_and(Error::is_fatal));
    bench.machine.close(bench.now, bench.now.after_ms(30_000));
    bench.turn();
    bench.acknowledge(RebalanceStep::Lost(partitions(&[("a", 0)])));
    assert!(bench.machine.is_closed());
    bench.nothing_sent();
}

#[test]
fn a_full_group_is_retried_at_the_next_poll_only() {
    let mut bench = bench(&[EAGER], on_a());
    bench.poll();
    bench.find_coordinator();
    bench.join(ErrorCode::GroupMaxSizeReached, -1, "", &[]);
    assert!(matches!(
        bench.failure(),
        Some(Error::Broker {
            code: ErrorCode::GroupMaxSizeReached,
            ..
        })
    ));
    bench.pass_ms(10_000);
    bench.nothing_sent();
    bench.activity.leave(bench.now);
    bench.poll();
    bench.sent(ApiKey::JoinGroup);
}

#[test]
fn a_coordinator_that_moved_is_looked_for_again() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::NotCoordinator);
    bench.pass_ms(200);
    assert_eq!(bench.network.disconnected, [COORDINATOR]);
    bench.find_coordinator();
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::None);
    assert!(bench.machine.is_stable(), "the place in the group was kept");
}

#[test]
fn a_silent_coordinator_is_given_up_after_the_session_timeout() {
    let mut bench = bench(&[EAGER, ("session.timeout.ms", "10000")], on_a());
    bench.own("range", &[("a", 0)]);
    bench.pass_ms(3_000);
    bench.sent(ApiKey::Heartbeat);
    bench.pass_ms(7_000);
    bench.pass_ms(200);
    assert_eq!(bench.network.disconnected, [COORDINATOR]);
    bench.sent(ApiKey::FindCoordinator);
}

#[test]
fn a_pattern_follows_new_topics() {
    let pattern = Subscription::Pattern(TopicPattern::parse("a|new.*").unwrap());
    let mut bench = bench(&[COOPERATIVE], pattern);
    bench.poll();
    assert_eq!(bench.machine.metadata_topics(), None);
    bench.set_topics(&[("a", 4), ("b", 2)]);
    bench.own("cooperative-sticky", &[("a", 0)]);
    bench.set_topics(&[("a", 4), ("b", 2), ("new-1", 1)]);
    bench.turn();
    let (request, _, sent) = bench.sent(ApiKey::JoinGroup);
    let request = JoinGroupRequest::decode(&mut Reader::new(&sent), request.api_version).unwrap();
    let said = MemberSubscription::decode("me", None, request.protocols[0].metadata).unwrap();
    assert_eq!(said.topics, ["a".into(), "new-1".into()] as [Arc<str>; 2]);
}

#[test]
fn a_retried_commit_is_not_overtaken() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    let deadline = bench.now.after_ms(60_000);
    bench
        .machine
        .commit(bench.now, 1, offsets(10), CommitKind::Sync { deadline });
    bench.machine.commit(bench.now, 2, offsets(20), CommitKind::Async);
    bench.turn();
    assert_eq!(bench.commit(ErrorCode::CoordinatorLoadInProgress), [10]);
    bench.nothing_sent();
    bench.pass_ms(200);
    assert_eq!(bench.commit(ErrorCode::None), [10]);
    assert_eq!(bench.commit(ErrorCode::None), [20]);
    assert_eq!(bench.committed(), [(1, Ok(())), (2, Ok(()))]);
}

#[test]
fn an_asynchronous_commit_is_tried_once() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.commit(bench.now, 1, offsets(10), CommitKind::Async);
    bench.machine.commit(bench.now, 2, offsets(20), CommitKind::Async);
    bench.turn();
    assert_eq!(bench.commit(ErrorCode::CoordinatorLoadInProgress), [10]);
    assert_eq!(bench.commit(ErrorCode::None), [20]);
    let committed = bench.committed();
    assert_eq!(committed.len(), 2);
    assert!(committed[0].1.as_ref().unwrap_err().is_retriable());
    assert_eq!(committed[1], (2, Ok(())));
    bench.pass_ms(1_000);
    bench.nothing_sent();
}

#[test]
fn results_are_reported_in_the_order_of_the_calls() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.commit(bench.now, 1, offsets(10), CommitKind::Async);
    bench.machine.commit(bench.now, 2, offsets(20), CommitKind::Async);
    bench.turn();
    let first = bench.network.sent.pop_front().unwrap();
    bench.commit(ErrorCode::None);
    assert!(bench.committed().is_empty());
    bench.network.sent.push_front(first);
    bench.commit(ErrorCode::None);
    assert_eq!(bench.committed(), [(1, Ok(())), (2, Ok(()))]);
}

#[test]
fn a_synchronous_commit_ends_at_its_deadline() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    let deadline = bench.now.after_ms(1_000);
    bench
        .machine
        .commit(bench.now, 1, offsets(10), CommitKind::Sync { deadline });
    bench.turn();
    bench.sent(ApiKey::OffsetCommit);
    bench.pass_ms(1_000);
    let committed = bench.committed();
    assert!(
        matches!(
            committed[0].1,
            Err(Error::Timeout {
                setting: "default.api.timeout.ms",
                ..
            })
        ),
        "{committed:?}"
    );
}

#[test]
fn a_commit_outside_the_group_fails_without_a_request() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.pass_ms(3_000);
    bench.heartbeat(ErrorCode::UnknownMemberId);
    bench.machine.commit(bench.now, 1, offsets(10), CommitKind::Async);
    bench.turn();
    let committed = bench.committed();
    assert!(
        matches!(committed[0].1, Err(Error::CommitFailed { .. })),
        "{committed:?}"
    );
}

#[test]
fn a_refused_commit_makes_the_member_rejoin() {
    let mut bench = bench(&[EAGER], on_a());
    bench.own("range", &[("a", 0)]);
    bench.machine.commit(bench.now, 1, offsets(10), CommitKind::Async);
    bench.turn();
    bench.commit(ErrorCode::UnknownMemberId);
    assert!(matches!(bench.committed()[0].1, Err(Error::CommitFailed { .. })));
    bench.acknowledge(RebalanceStep::Lost(partitions(&[("a", 0)])));
    bench.sent(ApiKey::JoinGroup);
}

#[test]
fn an_assignment_beyond_the_subscription_is_refused() {
    let mut bench = bench(&[EAGER], on_a());
    bench.poll();
    bench.find_coordinator();
    bench.join(ErrorCode::None, 1, "range", &[]);
    bench.sync(ErrorCode::None, &[("b", 0)]);
    bench.acknowledge(RebalanceStep::Revoked(BTreeSet::new()));
    bench.sent(ApiKey::JoinGroup);
    assert!(bench.machine.assignment().is_empty());
}

#[test]
fn hostile_answers_are_errors() {
    for garbage in [vec![], vec![0xff; 3], vec![0x7f; 64]] {
        let mut bench = bench(&[EAGER], on_a());
        bench.poll();
        let (request, ticket, _) = bench.sent(ApiKey::FindCoordinator);
        bench.answer(&request, ticket, Ok(garbage.clone()));
        assert!(matches!(bench.failure(), Some(Error::Malformed { .. })));
        bench.activity.leave(bench.now);
        bench.pass_ms(2_000);
        bench.poll();
        bench.find_coordinator();
        let (request, ticket, _) = bench.sent(ApiKey::JoinGroup);
        bench.answer(&request, ticket, Ok(garbage));
        assert!(bench.failure().is_some());
    }
}

#[test]
fn a_rebalance_is_told_with_its_reason_and_its_result() {
    let events = told(|| {
        let mut bench = bench(&[EAGER, ("client.id", "c")], on_a());
        bench.own("range", &[("a", 0), ("a", 1)]);
        bench.pass_ms(3_000);
        bench.heartbeat(ErrorCode::RebalanceInProgress);
        // Answers that change nothing are not told.
        bench.poll();
        bench.turn();
    });
    let group: Vec<&str> = events
        .iter()
        .filter(|line| line.contains("group="))
        .map(String::as_str)
        .collect();
    let [joins, joined, again] = group[..] else {
        panic!("{group:#?}");
    };
    assert!(
        joins.starts_with(r#"INFO ottla_client: rebalance started client_id="c" group="g" reason="#),
        "{joins}"
    );
    assert_eq!(
        joined,
        r#"INFO ottla_client: rebalance completed client_id="c" group="g" generation=1 member_id="me" partitions=2"#
    );
    assert_eq!(
        again,
        r#"INFO ottla_client: rebalance started client_id="c" group="g" reason="group is already rebalancing""#
    );
}

#[path = "membership_tests.rs"]
mod membership;
