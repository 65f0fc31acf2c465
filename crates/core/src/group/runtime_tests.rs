//! The coordinators in a node on a memory disk: loading, durability, failures and every version of
//! every API.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use ottla_log::disk::memory::MemoryDisk;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use ottla_wire::messages::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
use ottla_wire::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_wire::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use ottla_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_wire::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity};
use ottla_wire::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, OffsetDeleteResponse,
};
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse,
};
use ottla_wire::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use ottla_wire::primitives::{Reader, Uuid};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use crate::access::granted::OwnedGrant;
use crate::config::NodeConfig;
use crate::controller::topics::{NewTopic, TopicToDelete};
use crate::node::{Job, LongAnswer, Node, NodeExecutor};
use crate::pending::{Handled, PendingReply};
use crate::quota::mutation::MutationQuota;
use crate::reply::ReplyBuffer;
use crate::request::{ConnectionContext, Request};
use crate::services::{ColdRead, Executor, Syncable};
use crate::submit;
use crate::time::{Clock, Moment, Timestamp};

const DIRECTORY: &str = "/data";
const GROUP: &str = "g";
/// A group id with the same coordinator as `GROUP`.
const NEIGHBOUR: &str = "i";

#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn moment(&self) -> Moment {
        Moment::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(1_790_000_000_000 + (self.moment().micros() / 1_000) as i64)
    }
}

/// An executor that queues its jobs until a test runs them.
#[derive(Default)]
struct TestExecutor {
    syncs: Mutex<Vec<Arc<dyn Syncable>>>,
    control: Mutex<Vec<Job>>,
    cold_reads: Mutex<Vec<Job>>,
    deadline_changes: AtomicU64,
}

impl Executor for TestExecutor {
    fn sync(&self, sync: Arc<dyn Syncable>) {
        self.syncs.lock().unwrap().push(sync);
    }

    fn cold_read(&self, read: ColdRead) {
        let job = |node: &Node| {
            (read.job)(node.services());
        };
        self.cold_reads.lock().unwrap().push(Box::new(job));
    }

    fn deadline_changed(&self) {
        self.deadline_changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl NodeExecutor for TestExecutor {
    fn long_answer(&self, answer: LongAnswer) {
        let job = |node: &Node| {
            (answer.job)(node);
        };
        self.cold_reads.lock().unwrap().push(Box::new(job));
    }

    fn control(&self, job: Job) {
        self.control.lock().unwrap().push(job);
    }

    fn telemetry(&self, job: Job) {
        self.control.lock().unwrap().push(job);
    }
}

struct Broker {
    node: Node,
    executor: Arc<TestExecutor>,
    clock: Arc<TestClock>,
    connection: ConnectionContext,
}

impl Broker {
    fn start(disk: &MemoryDisk) -> Broker {
        let properties: BTreeMap<String, String> = [
            ("log.dirs", DIRECTORY),
            ("node.id", "1"),
            ("offsets.topic.num.partitions", "2"),
            ("group.initial.rebalance.delay.ms", "0"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let config = NodeConfig::from_properties(&properties, [5; 4]).unwrap();
        let clock = Arc::new(TestClock::default());
        let node = Node::open(config, disk.shared(), clock.clone()).unwrap();
        let executor = Arc::new(TestExecutor::default());
        node.set_executor(executor.clone());
        let connection = ConnectionContext {
            connection_id: 1,
            peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peer_port: 4_000,
            listener_name: "PLAINTEXT".into(),
            principal: "User:ANONYMOUS".into(),
            identity: Arc::default(),
            permitted: Arc::default(),
            tenant: Default::default(),
            quota: None,
        };
        Broker {
            node,
            executor,
            clock,
            connection,
        }
    }

    /// A first start: the topic `t` and the offsets topic exist afterwards.
    fn first_start(disk: &MemoryDisk) -> Broker {
        let broker = Broker::start(disk);
        submit::submit(&broker.node, |node, controller| {
            controller.create_topics(
                &mut MutationQuota::unlimited(),
                &[new_topic()],
                false,
                node.clock().timestamp(),
            )
        });
        broker.settle();
        assert_eq!(broker.find_coordinator(), ErrorCode::None);
        broker
    }

    fn topic_id(&self) -> Uuid {
        self.node.image().topic("t").unwrap().id
    }

    fn find_coordinator(&self) -> ErrorCode {
        let mut body = Vec::new();
        FindCoordinatorRequest {
            coordinator_keys: vec![GROUP],
            ..Default::default()
        }
        .encode(&mut body, 4);
        decode(&self.ask(ApiKey::FindCoordinator, 4, &body), |reader| {
            error(FindCoordinatorResponse::decode(reader, 4).unwrap().coordinators[0].error_code)
        })
    }

    /// Runs all queued jobs, and those that they queue.
    fn settle(&self) {
        loop {
            // A cold read may take any time, so everything else runs first.
            let mut jobs = std::mem::take(&mut *self.executor.control.lock().unwrap());
            if jobs.is_empty() {
                jobs = std::mem::take(&mut *self.executor.cold_reads.lock().unwrap());
            }
            let syncs = std::mem::take(&mut *self.executor.syncs.lock().unwrap());
            if jobs.is_empty() && syncs.is_empty() {
                return;
            }
            jobs.into_iter().for_each(|job| job(&self.node));
            syncs
                .into_iter()
                .for_each(|partition| partition.run_sync(self.node.services()));
        }
    }

    fn pass(&self, ms: u64) {
        self.clock.0.fetch_add(ms * 1_000, Ordering::Relaxed);
        self.node.on_deadline(self.clock.moment());
    }

    fn send(&self, api_key: ApiKey, api_version: i16, body: &[u8]) -> Sent {
        let request = Request {
            connection: &self.connection,
            api_key,
            api_version,
            correlation_id: 0,
            client_id: Some("c"),
            body,
            received: self.clock.moment(),
        };
        let mut reply = ReplyBuffer::default();
        match self.node.handle(&request, &mut reply) {
            Handled::Replied => Sent { pending: None, reply },
            Handled::Pending(pending) => Sent {
                pending: Some(pending),
                reply,
            },
            Handled::NoReply => panic!("every group request has a reply"),
            Handled::Close(reason) => panic!("{api_key} {api_version}: {reason}"),
        }
    }

    /// Sends a request and settles until the answer is there.
    fn ask(&self, api_key: ApiKey, api_version: i16, body: &[u8]) -> Vec<u8> {
        let mut sent = self.send(api_key, api_version, body);
        self.settle();
        if !sent.is_answered(self) {
            // A rebalance with no initial delay still needs one check of the clock.
            self.pass(0);
            self.settle();
        }
        assert!(sent.is_answered(self), "{api_key} {api_version} is still pending");
        sent.reply.bytes
    }

    fn commit(&self, offset: i64) -> Sent {
        self.send(
            ApiKey::OffsetCommit,
            9,
            &commit_body(9, Uuid::ZERO, ("", -1), offset),
        )
    }

    fn fetch(&self) -> (i64, ErrorCode) {
        let bytes = self.ask(ApiKey::OffsetFetch, 9, &fetch_body(9, Uuid::ZERO));
        decode(&bytes, |reader| {
            let response = OffsetFetchResponse::decode(reader, 9).unwrap();
            let group = &response.groups[0];
            let offset = group
                .topics
                .first()
                .map_or(-1, |topic| topic.partitions[0].committed_offset);
            (offset, error(group.error_code))
        })
    }

    fn heartbeat(&self, member_id: &str) -> ErrorCode {
        let mut body = Vec::new();
        HeartbeatRequest {
            group_id: GROUP,
            generation_id: 1,
            member_id,
            group_instance_id: None,
        }
        .encode(&mut body, 4);
        decode(&self.ask(ApiKey::Heartbeat, 4, &body), |reader| {
            error(HeartbeatResponse::decode(reader, 4).unwrap().error_code)
        })
    }

    fn member_count(&self) -> usize {
        let mut body = Vec::new();
        DescribeGroupsRequest {
            groups: vec![GROUP],
            ..Default::default()
        }
        .encode(&mut body, 5);
        decode(&self.ask(ApiKey::DescribeGroups, 5, &body), |reader| {
            DescribeGroupsResponse::decode(reader, 5).unwrap().groups[0]
                .members
                .len()
        })
    }
}

struct Sent {
    pending: Option<Box<dyn PendingReply>>,
    reply: ReplyBuffer,
}

impl Sent {
    fn is_answered(&mut self, broker: &Broker) -> bool {
        if let Some(pending) = &mut self.pending
            && pending.poll(&broker.node, Waker::noop(), &mut self.reply) == Poll::Ready(())
        {
            self.pending = None;
        }
        self.pending.is_none()
    }

    fn commit_error(&mut self, broker: &Broker) -> ErrorCode {
        assert!(self.is_answered(broker));
        decode(&self.reply.bytes, |reader| {
            let response = OffsetCommitResponse::decode(reader, 9).unwrap();
            error(response.topics[0].partitions[0].error_code)
        })
    }
}

fn new_topic() -> NewTopic {
    NewTopic {
        name: OwnedGrant::own("t"),
        partition_count: 2,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: Vec::new(),
    }
}

fn error(code: i16) -> ErrorCode {
    ErrorCode::from_i16(code).unwrap()
}

fn decode<T>(bytes: &[u8], read: impl FnOnce(&mut Reader<'_>) -> T) -> T {
    let mut reader = Reader::new(bytes);
    let value = read(&mut reader);
    assert_eq!(reader.remaining(), 0);
    value
}

fn commit_body(version: i16, topic_id: Uuid, member: (&str, i32), offset: i64) -> Vec<u8> {
    let by_id = version >= 10;
    let (member_id, generation) = member;
    let partition = OffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: offset,
        committed_metadata: Some("m"),
        ..Default::default()
    };
    let mut body = Vec::new();
    let request = OffsetCommitRequest {
        group_id: GROUP,
        generation_id_or_member_epoch: generation,
        member_id,
        topics: vec![OffsetCommitRequestTopic {
            name: if by_id { "" } else { "t" },
            topic_id: if by_id { topic_id } else { Uuid::ZERO },
            partitions: vec![partition],
        }],
        ..Default::default()
    };
    request.encode(&mut body, version);
    body
}

fn fetch_body(version: i16, topic_id: Uuid) -> Vec<u8> {
    let by_id = version >= 10;
    let mut body = Vec::new();
    let group = OffsetFetchRequestGroup {
        group_id: GROUP,
        topics: Some(vec![OffsetFetchRequestTopics {
            name: if by_id { "" } else { "t" },
            topic_id: if by_id { topic_id } else { Uuid::ZERO },
            partition_indexes: vec![0],
        }]),
        ..Default::default()
    };
    let request = match version {
        8.. => OffsetFetchRequest {
            groups: vec![group],
            ..Default::default()
        },
        _ => OffsetFetchRequest {
            group_id: GROUP,
            topics: Some(vec![OffsetFetchRequestTopic {
                name: "t",
                partition_indexes: vec![0],
            }]),
            ..Default::default()
        },
    };
    request.encode(&mut body, version);
    body
}

fn join_body(version: i16, member_id: &str) -> Vec<u8> {
    join_body_of(GROUP, version, member_id)
}

fn join_body_of(group_id: &str, version: i16, member_id: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let request = JoinGroupRequest {
        group_id,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: if version == 0 { -1 } else { 60_000 },
        member_id,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol {
            name: "range",
            metadata: b"\0\0\0\0\0\0",
        }],
        ..Default::default()
    };
    request.encode(&mut body, version);
    body
}

#[test]
fn the_neighbour_group_has_the_same_coordinator() {
    assert_eq!(
        crate::coordinator::registry::partition_for(GROUP, 2),
        crate::coordinator::registry::partition_for(NEIGHBOUR, 2)
    );
}

#[test]
fn a_commit_is_answered_when_it_is_durable() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let mut sent = broker.commit(5);
    assert!(!sent.is_answered(&broker), "not synced yet");
    broker.settle();
    assert_eq!(sent.commit_error(&broker), ErrorCode::None);
    assert_eq!(broker.fetch(), (5, ErrorCode::None));
}

#[test]
fn an_answer_that_reports_unsynced_records_waits_for_them() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let _commit = broker.commit(5);
    let mut fetch = broker.send(ApiKey::OffsetFetch, 9, &fetch_body(9, Uuid::ZERO));
    assert!(
        !fetch.is_answered(&broker),
        "a power cut could still take the offset back"
    );
    broker.settle();
    assert!(fetch.is_answered(&broker));
}

#[test]
fn acknowledged_commits_survive_a_power_cut_and_others_may_not() {
    let disk = MemoryDisk::new(3);
    let broker = Broker::first_start(&disk);
    let mut sent = broker.commit(5);
    broker.settle();
    assert_eq!(sent.commit_error(&broker), ErrorCode::None);
    let _unsynced = broker.commit(6);
    drop(broker);
    disk.power_cut();
    let broker = Broker::start(&disk);
    broker.settle();
    let (offset, error) = broker.fetch();
    assert_eq!(error, ErrorCode::None);
    assert!((5..=6).contains(&offset), "{offset}");
}

#[test]
fn while_the_log_is_read_clients_are_told_to_retry_and_heartbeats_succeed() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    let mut sent = broker.commit(5);
    broker.settle();
    assert_eq!(sent.commit_error(&broker), ErrorCode::None);
    drop(broker);
    let broker = Broker::start(&disk);
    let mut early = broker.commit(6);
    assert_eq!(early.commit_error(&broker), ErrorCode::CoordinatorLoadInProgress);
    let mut body = Vec::new();
    HeartbeatRequest {
        group_id: GROUP,
        generation_id: 1,
        member_id: "m",
        group_instance_id: None,
    }
    .encode(&mut body, 4);
    let mut heartbeat = broker.send(ApiKey::Heartbeat, 4, &body);
    assert!(heartbeat.is_answered(&broker));
    let heartbeat = decode(&heartbeat.reply.bytes, |reader| {
        HeartbeatResponse::decode(reader, 4).unwrap()
    });
    assert_eq!(heartbeat.error_code, 0);
    broker.settle();
    assert_eq!(broker.fetch(), (5, ErrorCode::None));
}

#[test]
fn find_coordinator_waits_until_the_coordinator_is_loaded() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    broker.commit(5);
    broker.settle();
    drop(broker);
    let broker = Broker::start(&disk);
    let mut body = Vec::new();
    FindCoordinatorRequest {
        coordinator_keys: vec![GROUP],
        ..Default::default()
    }
    .encode(&mut body, 4);
    let mut sent = broker.send(ApiKey::FindCoordinator, 4, &body);
    assert!(!sent.is_answered(&broker));
    broker.settle();
    assert!(sent.is_answered(&broker));
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_space() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    let mut parked = broker.send(ApiKey::JoinGroup, 3, &join_body_of(NEIGHBOUR, 3, ""));
    disk.set_capacity(Some(disk.used_bytes()));
    // Some space is reserved beyond the log end, so the first few commits still fit.
    let mut offset = 0;
    let mut refused = loop {
        let mut sent = broker.commit(offset + 1);
        broker.settle();
        if !sent.is_answered(&broker) {
            // It is in memory, and finds no room on the disk.
            broker.pass(5_000);
        }
        if sent.commit_error(&broker) != ErrorCode::None {
            break sent;
        }
        offset += 1;
    };
    assert_eq!(refused.commit_error(&broker), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(
        broker.commit(offset + 2).commit_error(&broker),
        ErrorCode::CoordinatorNotAvailable
    );
    disk.set_capacity(None);
    broker.pass(1_000);
    broker.node.maintain();
    broker.settle();
    let mut sent = broker.commit(offset + 3);
    broker.settle();
    assert_eq!(sent.commit_error(&broker), ErrorCode::None);
    assert_eq!(broker.fetch(), (offset + 3, ErrorCode::None));
    broker.pass(60_000);
    broker.settle();
    assert!(parked.is_answered(&broker), "waiters are answered, too");
}

#[test]
fn a_failed_write_fails_its_request_and_keeps_earlier_offsets() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    broker.commit(5);
    broker.settle();
    disk.fail_next_write();
    let mut refused = broker.commit(6);
    broker.settle();
    assert_eq!(refused.commit_error(&broker), ErrorCode::CoordinatorNotAvailable);
    drop(broker);
    disk.kill();
    let broker = Broker::start(&disk);
    broker.settle();
    let (offset, error) = broker.fetch();
    assert_eq!(error, ErrorCode::None);
    assert!(
        [5, 6].contains(&offset),
        "the write that failed may have reached the disk: {offset}"
    );
}

#[test]
fn a_failed_sync_is_reported_to_all_its_waiters() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    let mut sent = broker.commit(5);
    disk.fail_next_sync();
    broker.settle();
    assert_eq!(sent.commit_error(&broker), ErrorCode::CoordinatorNotAvailable);
}

#[test]
fn waiting_for_the_disk_times_out() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let mut sent = broker.commit(5);
    assert!(!sent.is_answered(&broker));
    let deadline = sent.pending.as_ref().unwrap().deadline().unwrap();
    broker.pass(deadline.micros() / 1_000);
    assert_eq!(sent.commit_error(&broker), ErrorCode::CoordinatorNotAvailable);
}

#[test]
fn a_member_whose_connection_closes_while_it_waits_is_gone_after_its_session() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let first = broker.send(ApiKey::JoinGroup, 3, &join_body(3, ""));
    drop(first);
    broker.node.maintain();
    assert_eq!(broker.member_count(), 1);
    broker.pass(10_000);
    broker.settle();
    broker.pass(10_000);
    broker.settle();
    assert_eq!(broker.member_count(), 0);
}

#[test]
fn each_request_that_waits_for_others_gets_its_own_answer() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let mut joins =
        [GROUP, NEIGHBOUR].map(|group| broker.send(ApiKey::JoinGroup, 3, &join_body_of(group, 3, "")));
    assert_eq!(joins.each_mut().map(|join| join.is_answered(&broker)), [false; 2]);
    broker.pass(0);
    broker.settle();
    assert_eq!(joins.each_mut().map(|join| join.is_answered(&broker)), [true; 2]);
}

#[test]
fn a_member_whose_connection_closes_does_not_hold_up_a_rebalance() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let leader = check_join(&broker, 3);
    check_sync(&broker, 3, &leader);
    let second = broker.send(ApiKey::JoinGroup, 3, &join_body(3, ""));
    broker.settle();
    assert_eq!(broker.member_count(), 2);
    drop(second);
    broker.node.maintain();
    for expected in [2, 1] {
        broker.pass(5_000);
        assert_eq!(broker.heartbeat(&leader), ErrorCode::RebalanceInProgress);
        assert_eq!(broker.member_count(), expected);
    }
}

#[test]
fn a_coordinator_that_could_not_write_answers_all_and_is_loaded_again_a_second_later() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    let _first = broker.commit(5);
    broker.settle();
    let mut parked = broker.send(ApiKey::JoinGroup, 3, &join_body_of(NEIGHBOUR, 3, ""));
    disk.fail_next_sync();
    let _failed = broker.commit(6);
    broker.settle();
    assert!(!parked.is_answered(&broker));
    let unavailable = ErrorCode::CoordinatorNotAvailable;
    assert_eq!(broker.commit(7).commit_error(&broker), unavailable);
    assert!(parked.is_answered(&broker));
    let joined = decode(&parked.reply.bytes, |reader| {
        error(JoinGroupResponse::decode(reader, 3).unwrap().error_code)
    });
    assert_eq!(joined, unavailable);
    for (ms, expected) in [(999, unavailable), (1, ErrorCode::CoordinatorLoadInProgress)] {
        broker.pass(ms);
        assert_eq!(broker.commit(8).commit_error(&broker), expected);
    }
}

#[test]
fn the_shell_is_told_when_something_is_due_earlier() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let told = || broker.executor.deadline_changes.swap(0, Ordering::Relaxed);
    assert!(told() > 0, "the expiry of offsets");
    let retention = broker.node.groups.next_deadline().unwrap();
    let _commit = broker.commit(5);
    broker.settle();
    assert_eq!(told(), 0);
    let leader = check_join(&broker, 3);
    assert!(told() > 0);
    assert!(broker.node.groups.next_deadline().unwrap() < retention);
    check_sync(&broker, 3, &leader);
    told();
    assert_eq!(broker.heartbeat(&leader), ErrorCode::None);
    assert_eq!(told(), 0);
}

#[test]
fn a_snapshot_tells_of_all_groups_and_of_the_ends_of_what_they_read() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let node = &broker.node;
    let leader = check_join(&broker, 3);
    check_sync(&broker, 3, &leader);
    assert_eq!(node.groups.readings(&node.storage).len(), 1, "without offsets");
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(0, None, Some(b"v"), &[]);
    let partition = node.storage.partition(broker.topic_id(), 0).unwrap();
    partition
        .append_internal(node.services(), &batch.finish())
        .unwrap();
    let commit = commit_body(9, Uuid::ZERO, (&leader, 1), 5);
    broker.ask(ApiKey::OffsetCommit, 9, &commit);

    let overviews = node.groups.overview(&node.storage);
    let readings = node.groups.readings(&node.storage);
    assert_eq!((overviews.len(), readings.len()), (1, 1));
    for overview in [&overviews[0], &readings[0].overview] {
        assert_eq!((&*overview.group_id, overview.members.len()), (GROUP, 1));
        let committed = &overview.committed[0];
        assert_eq!((&*committed.topic, committed.offset, committed.end), ("t", 5, 1));
    }
    let progress = node.groups.progress(10);
    let group = &progress.groups[0];
    assert_eq!((&*group.group_id, group.member_count), (GROUP, 1));
    assert_eq!((&*group.committed[0].topic, group.committed[0].offset), ("t", 5));
}

#[test]
fn offsets_of_a_topic_are_removed_with_it() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    broker.commit(5);
    broker.settle();
    broker
        .node
        .groups
        .on_topics_deleted(broker.node.services(), &[("t", broker.topic_id())]);
    broker.settle();
    assert_eq!(broker.fetch(), (-1, ErrorCode::None));
    drop(broker);
    let broker = Broker::start(&disk);
    broker.settle();
    assert_eq!(broker.fetch(), (-1, ErrorCode::None));
}

#[test]
fn a_topic_that_was_created_again_has_no_offsets() {
    let disk = MemoryDisk::new(1);
    let broker = Broker::first_start(&disk);
    broker.commit(5);
    broker.settle();
    drop(broker);
    let broker = Broker::start(&disk);
    // The coordinator is not loaded yet, so it is not told of the deletion.
    let old = broker.topic_id();
    submit::submit(&broker.node, move |node, controller| {
        controller.delete_topics(
            &mut MutationQuota::unlimited(),
            &[TopicToDelete {
                name: None,
                id: old,
                granted: Some(OwnedGrant::own("t")),
            }],
            node.clock().timestamp(),
        )?;
        controller.create_topics(
            &mut MutationQuota::unlimited(),
            &[new_topic()],
            false,
            node.clock().timestamp(),
        )
    });
    broker.settle();
    assert_ne!(broker.topic_id(), old);
    assert_eq!(broker.fetch(), (-1, ErrorCode::None));
}

#[test]
fn an_unknown_topic_or_partition_is_refused_alone() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let partition = |partition_index| OffsetCommitRequestPartition {
        partition_index,
        ..Default::default()
    };
    let topic = |name| OffsetCommitRequestTopic {
        name,
        partitions: vec![partition(0), partition(7)],
        ..Default::default()
    };
    let mut body = Vec::new();
    let request = OffsetCommitRequest {
        group_id: GROUP,
        generation_id_or_member_epoch: -1,
        topics: vec![topic("t"), topic("u")],
        ..Default::default()
    };
    request.encode(&mut body, 9);
    let errors = decode(&broker.ask(ApiKey::OffsetCommit, 9, &body), |reader| {
        let response = OffsetCommitResponse::decode(reader, 9).unwrap();
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        partitions
            .map(|partition| error(partition.error_code))
            .collect::<Vec<_>>()
    });
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(errors, [ErrorCode::None, unknown, unknown, unknown]);
}

/// Every version from joining to deleting the group.
#[test]
fn every_version_of_every_group_api_is_answered_in_its_own_format() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    for version in 0..=9 {
        let leader = check_join(&broker, version);
        check_sync(&broker, version.min(5), &leader);
        let heartbeat = version.min(4);
        let mut body = Vec::new();
        HeartbeatRequest {
            group_id: GROUP,
            generation_id: 1,
            member_id: &leader,
            group_instance_id: None,
        }
        .encode(&mut body, heartbeat);
        decode(&broker.ask(ApiKey::Heartbeat, heartbeat, &body), |reader| {
            assert_eq!(
                HeartbeatResponse::decode(reader, heartbeat).unwrap().error_code,
                0
            );
        });
        check_offsets(&broker, version + 1, &leader);
        check_administration(&broker, version);
        check_leave(&broker, version.min(5), &leader);
        check_deletion(&broker, version.min(2));
    }
}

fn check_join(broker: &Broker, version: i16) -> String {
    let mut member_id = String::new();
    if version >= 4 {
        let bytes = broker.ask(ApiKey::JoinGroup, version, &join_body(version, ""));
        member_id = decode(&bytes, |reader| {
            let response = JoinGroupResponse::decode(reader, version).unwrap();
            assert_eq!(error(response.error_code), ErrorCode::MemberIdRequired);
            response.member_id.to_owned()
        });
    }
    decode(
        &broker.ask(ApiKey::JoinGroup, version, &join_body(version, &member_id)),
        |reader| {
            let response = JoinGroupResponse::decode(reader, version).unwrap();
            assert_eq!((response.error_code, response.generation_id), (0, 1), "{version}");
            assert_eq!((response.leader, response.members.len()), (response.member_id, 1));
            assert_eq!(response.protocol_name, Some("range"));
            response.member_id.to_owned()
        },
    )
}

fn check_sync(broker: &Broker, version: i16, leader: &str) {
    let mut body = Vec::new();
    let request = SyncGroupRequest {
        group_id: GROUP,
        generation_id: 1,
        member_id: leader,
        group_instance_id: None,
        protocol_type: (version >= 5).then_some("consumer"),
        protocol_name: (version >= 5).then_some("range"),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: leader,
            assignment: b"yours",
        }],
    };
    request.encode(&mut body, version);
    decode(&broker.ask(ApiKey::SyncGroup, version, &body), |reader| {
        let response = SyncGroupResponse::decode(reader, version).unwrap();
        assert_eq!(
            (response.error_code, response.assignment),
            (0, &b"yours"[..]),
            "{version}"
        );
    });
}

fn check_offsets(broker: &Broker, version: i16, leader: &str) {
    let offset = 100 + i64::from(version);
    let commit = version.max(2);
    let bytes = broker.ask(
        ApiKey::OffsetCommit,
        commit,
        &commit_body(commit, broker.topic_id(), (leader, 1), offset),
    );
    decode(&bytes, |reader| {
        let response = OffsetCommitResponse::decode(reader, commit).unwrap();
        assert_eq!(response.topics[0].partitions[0].error_code, 0, "{version}");
    });
    decode(
        &broker.ask(
            ApiKey::OffsetFetch,
            version,
            &fetch_body(version, broker.topic_id()),
        ),
        |reader| {
            let response = OffsetFetchResponse::decode(reader, version).unwrap();
            let found = match version {
                8.. => response.groups[0].topics[0].partitions[0].committed_offset,
                _ => response.topics[0].partitions[0].committed_offset,
            };
            assert_eq!(found, offset, "{version}");
        },
    );
    if version >= 2 {
        let mut body = Vec::new();
        let group = OffsetFetchRequestGroup {
            group_id: GROUP,
            topics: None,
            ..Default::default()
        };
        let request = match version {
            8.. => OffsetFetchRequest {
                groups: vec![group],
                ..Default::default()
            },
            _ => OffsetFetchRequest {
                group_id: GROUP,
                topics: None,
                ..Default::default()
            },
        };
        request.encode(&mut body, version);
        decode(&broker.ask(ApiKey::OffsetFetch, version, &body), |reader| {
            let response = OffsetFetchResponse::decode(reader, version).unwrap();
            let topic_id = response
                .groups
                .first()
                .map_or(Uuid::ZERO, |group| group.topics[0].topic_id);
            assert_eq!(
                topic_id,
                if version >= 10 {
                    broker.topic_id()
                } else {
                    Uuid::ZERO
                },
                "{version}"
            );
        });
    }
}

fn check_administration(broker: &Broker, version: i16) {
    let describe = version.min(6);
    let mut body = Vec::new();
    DescribeGroupsRequest {
        groups: vec![GROUP, "nobody"],
        include_authorized_operations: describe >= 3,
    }
    .encode(&mut body, describe);
    decode(&broker.ask(ApiKey::DescribeGroups, describe, &body), |reader| {
        let response = DescribeGroupsResponse::decode(reader, describe).unwrap();
        let [group, nobody] = &response.groups[..] else {
            panic!()
        };
        assert_eq!(
            (group.error_code, group.group_state, group.protocol_data),
            (0, "Stable", "range")
        );
        let unknown = if describe >= 6 {
            ErrorCode::GroupIdNotFound
        } else {
            ErrorCode::None
        };
        assert_eq!((error(nobody.error_code), nobody.group_state), (unknown, "Dead"));
    });
    let list = version.min(5);
    let mut body = Vec::new();
    ListGroupsRequest::default().encode(&mut body, list);
    decode(&broker.ask(ApiKey::ListGroups, list, &body), |reader| {
        let response = ListGroupsResponse::decode(reader, list).unwrap();
        assert_eq!((response.groups.len(), response.groups[0].group_id), (1, GROUP));
    });
    let find = version.min(6);
    let mut body = Vec::new();
    let request = match find {
        4.. => FindCoordinatorRequest {
            coordinator_keys: vec![GROUP],
            ..Default::default()
        },
        _ => FindCoordinatorRequest {
            key: GROUP,
            ..Default::default()
        },
    };
    request.encode(&mut body, find);
    decode(&broker.ask(ApiKey::FindCoordinator, find, &body), |reader| {
        let response = FindCoordinatorResponse::decode(reader, find).unwrap();
        assert_eq!(response.coordinators.len(), usize::from(find >= 4));
    });
}

fn check_leave(broker: &Broker, version: i16, leader: &str) {
    let mut body = Vec::new();
    let request = match version {
        3.. => LeaveGroupRequest {
            group_id: GROUP,
            members: vec![MemberIdentity {
                member_id: leader,
                ..Default::default()
            }],
            ..Default::default()
        },
        _ => LeaveGroupRequest {
            group_id: GROUP,
            member_id: leader,
            ..Default::default()
        },
    };
    request.encode(&mut body, version);
    decode(&broker.ask(ApiKey::LeaveGroup, version, &body), |reader| {
        let response = LeaveGroupResponse::decode(reader, version).unwrap();
        assert_eq!(response.error_code, 0);
        assert!(response.members.iter().all(|member| member.error_code == 0));
    });
}

fn check_deletion(broker: &Broker, version: i16) {
    let mut body = Vec::new();
    let request = OffsetDeleteRequest {
        group_id: GROUP,
        topics: vec![OffsetDeleteRequestTopic {
            name: "t",
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    request.encode(&mut body, 0);
    decode(&broker.ask(ApiKey::OffsetDelete, 0, &body), |reader| {
        let response = OffsetDeleteResponse::decode(reader, 0).unwrap();
        assert_eq!(
            (response.error_code, response.topics[0].partitions[0].error_code),
            (0, 0)
        );
    });
    assert_eq!(broker.fetch(), (-1, ErrorCode::None));
    let mut body = Vec::new();
    DeleteGroupsRequest {
        groups_names: vec![GROUP],
    }
    .encode(&mut body, version);
    decode(&broker.ask(ApiKey::DeleteGroups, version, &body), |reader| {
        assert_eq!(
            DeleteGroupsResponse::decode(reader, version).unwrap().results[0].error_code,
            0
        );
    });
}

#[test]
fn heartbeats_succeed_over_the_wire_until_the_member_has_left() {
    let broker = Broker::first_start(&MemoryDisk::new(1));
    let leader = check_join(&broker, 9);
    check_sync(&broker, 5, &leader);
    assert_eq!(broker.heartbeat(&leader), ErrorCode::None);
    check_leave(&broker, 5, &leader);
    assert_eq!(broker.heartbeat(&leader), ErrorCode::UnknownMemberId);
}
