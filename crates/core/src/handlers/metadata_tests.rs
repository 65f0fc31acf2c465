//! The metadata and administration APIs on a node with a memory disk, in every version.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use ottla_log::disk::memory::MemoryDisk;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_configs::{self, AlterConfigsRequest, AlterConfigsResponse};
use ottla_wire::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_wire::messages::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};
use ottla_wire::messages::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
};
use ottla_wire::messages::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use ottla_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use ottla_wire::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
};
use ottla_wire::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequestCursor, DescribeTopicPartitionsResponse,
    TopicRequest,
};
use ottla_wire::messages::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, UserName,
};
use ottla_wire::messages::incremental_alter_configs::{
    self, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::list_config_resources::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use ottla_wire::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_wire::primitives::{Reader, Uuid};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use crate::config::NodeConfig;
use crate::node::{Job, LongAnswer, Node, NodeExecutor};
use crate::pending::{Handled, PendingReply};
use crate::placement::is_long;
use crate::quota::ClientQuota;
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::{ConnectionContext, Request};
use crate::services::{ColdRead, Executor, Syncable};
use crate::time::{Clock, Moment, Timestamp};

#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn moment(&self) -> Moment {
        Moment::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(1_790_000_000_000 + (self.0.load(Ordering::Relaxed) / 1_000) as i64)
    }
}

/// The controller thread, run one step at a time.
#[derive(Default)]
struct TestExecutor {
    jobs: Mutex<Vec<Job>>,
    syncs: Mutex<Vec<Arc<dyn Syncable>>>,
    /// Syncs that have run.
    synced: AtomicUsize,
    cold_reads: Arc<Mutex<Vec<DoneRead>>>,
}

/// A cold read that ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DoneRead {
    pub(crate) estimated_bytes: u64,
    pub(crate) bytes: u64,
}

impl Executor for TestExecutor {
    fn sync(&self, sync: Arc<dyn Syncable>) {
        self.syncs.lock().unwrap().push(sync);
    }

    fn cold_read(&self, read: ColdRead) {
        let done = self.cold_reads.clone();
        let job = move |node: &Node| {
            let (estimated_bytes, bytes) = (read.bytes, (read.job)(node.services()));
            done.lock().unwrap().push(DoneRead {
                estimated_bytes,
                bytes,
            });
        };
        self.jobs.lock().unwrap().push(Box::new(job));
    }

    fn deadline_changed(&self) {}
}

impl NodeExecutor for TestExecutor {
    fn long_answer(&self, answer: LongAnswer) {
        let job = |node: &Node| {
            (answer.job)(node);
        };
        self.jobs.lock().unwrap().push(Box::new(job));
    }

    fn control(&self, job: Job) {
        self.jobs.lock().unwrap().push(job);
    }

    fn telemetry(&self, job: Job) {
        self.jobs.lock().unwrap().push(job);
    }
}

pub(crate) struct Broker {
    pub(crate) node: Node,
    pub(crate) disk: MemoryDisk,
    executor: Arc<TestExecutor>,
    clock: Arc<TestClock>,
    connection: ConnectionContext,
}

impl Broker {
    pub(crate) fn new(lines: &[(&str, &str)]) -> Broker {
        let mut properties = BTreeMap::from([("log.dirs".to_owned(), "/data".to_owned())]);
        properties.extend(
            lines
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        );
        let config = NodeConfig::from_properties(&properties, [5; 4]).unwrap();
        let disk = MemoryDisk::new(5);
        Broker::on(disk, config)
    }

    /// A broker on a directory that Apache Kafka wrote.
    fn after_kafka() -> Broker {
        const GOLDEN: [(&str, &[u8]); 5] = [
            (
                "meta.properties",
                include_bytes!("../../tests/golden/metadata-4.3.0/meta.properties"),
            ),
            (
                "__cluster_metadata-0/00000000000000000000.log",
                include_bytes!("../../tests/golden/metadata-4.3.0/00000000000000000000.log"),
            ),
            (
                "__cluster_metadata-0/00000000000000000283-0000000001.checkpoint",
                include_bytes!(
                    "../../tests/golden/metadata-4.3.0/00000000000000000283-0000000001.checkpoint"
                ),
            ),
            (
                "__cluster_metadata-0/partition.metadata",
                include_bytes!("../../tests/golden/metadata-4.3.0/partition.metadata"),
            ),
            (
                "__cluster_metadata-0/quorum-state",
                include_bytes!("../../tests/golden/metadata-4.3.0/quorum-state"),
            ),
        ];
        let disk = MemoryDisk::new(6);
        for (name, bytes) in GOLDEN {
            let path = std::path::Path::new("/data").join(name);
            disk.shared().create_directories(path.parent().unwrap()).unwrap();
            disk.write_file(&path, bytes);
        }
        let properties = BTreeMap::from([("log.dirs".to_owned(), "/data".to_owned())]);
        Broker::on(disk, NodeConfig::from_properties(&properties, [7; 4]).unwrap())
    }

    pub(crate) fn on(disk: MemoryDisk, config: NodeConfig) -> Broker {
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
            disk,
            executor,
            clock,
            connection,
        }
    }

    pub(crate) fn advance_ms(&self, ms: u64) {
        self.clock.0.fetch_add(ms * 1_000, Ordering::Relaxed);
    }

    /// From now on requests are those of a connection with this quota.
    pub(crate) fn connect_with(&mut self, quota: Option<Arc<ClientQuota>>) {
        self.connection.quota = quota;
    }

    /// From now on requests are those of another user.
    pub(crate) fn connect_as(&mut self, principal: &str) {
        self.connection.principal = principal.into();
    }

    /// From now on requests come by another listener.
    pub(crate) fn connect_by(&mut self, listener: &str) {
        self.connection.listener_name = listener.into();
    }

    pub(crate) fn send(
        &self,
        api_key: ApiKey,
        api_version: i16,
        body: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Handled {
        let request = Request {
            connection: &self.connection,
            api_key,
            api_version,
            correlation_id: 0,
            client_id: Some("c"),
            body,
            received: self.clock.moment(),
        };
        self.node.handle(&request, reply)
    }

    /// Runs what the other threads have to do, and returns how many jobs that were.
    pub(crate) fn settle(&self) -> usize {
        let jobs = std::mem::take(&mut *self.executor.jobs.lock().unwrap());
        let count = jobs.len();
        jobs.into_iter().for_each(|job| job(&self.node));
        count
    }

    /// Runs the syncs that were asked for, and returns how many those were.
    pub(crate) fn sync(&self) -> usize {
        let syncs = std::mem::take(&mut *self.executor.syncs.lock().unwrap());
        let count = syncs.len();
        syncs
            .into_iter()
            .for_each(|sync| sync.run_sync(self.node.services()));
        self.executor.synced.fetch_add(count, Ordering::Relaxed);
        count
    }

    /// Returns how many syncs have run.
    pub(crate) fn synced(&self) -> usize {
        self.executor.synced.load(Ordering::Relaxed)
    }

    /// Returns the cold reads that ran since the last call.
    pub(crate) fn cold_reads(&self) -> Vec<DoneRead> {
        std::mem::take(&mut *self.executor.cold_reads.lock().unwrap())
    }

    /// Returns the answer, after the controller has done its work.
    pub(crate) fn ask(
        &self,
        api_key: ApiKey,
        api_version: i16,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let mut body = Vec::new();
        encode(&mut body);
        let mut reply = ReplyBuffer::default();
        match self.send(api_key, api_version, &body, &mut reply) {
            Handled::Replied => {}
            Handled::Pending(mut pending) => {
                assert_eq!(poll(self, &mut pending, &mut reply), Poll::Pending);
                assert_eq!(pending.waits_for(), waits_for(api_key));
                while poll(self, &mut pending, &mut reply).is_pending() {
                    assert!(self.settle() > 0, "{api_key} {api_version}: nothing to wait for");
                }
            }
            Handled::NoReply => panic!("{api_key} {api_version}: no reply"),
            Handled::Close(reason) => panic!("{api_key} {api_version}: {reason}"),
        }
        reply.bytes
    }

    pub(crate) fn create(&self, name: &str, num_partitions: i32, version: i16) -> (ErrorCode, Uuid) {
        let topic = CreatableTopic {
            name,
            num_partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 1_000,
            ..Default::default()
        };
        let bytes = self.ask(ApiKey::CreateTopics, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| CreateTopicsResponse::decode(reader, version));
        (error(response.topics[0].error_code), response.topics[0].topic_id)
    }
}

/// What a small request of this kind waits for first, if it is not answered on the event loop. One
/// of Metadata creates topics then.
fn waits_for(api_key: ApiKey) -> WaitKind {
    if is_long(api_key, 0) || api_key == ApiKey::Metadata {
        WaitKind::Reading
    } else {
        WaitKind::Controller
    }
}

pub(crate) fn poll(
    broker: &Broker,
    pending: &mut Box<dyn PendingReply>,
    reply: &mut ReplyBuffer,
) -> Poll<()> {
    pending.poll(&broker.node, Waker::noop(), reply)
}

pub(crate) fn error(code: i16) -> ErrorCode {
    ErrorCode::from_i16(code).unwrap()
}

pub(crate) fn read<'a, T, E: std::fmt::Debug>(
    bytes: &'a [u8],
    decode: impl FnOnce(&mut Reader<'a>) -> Result<T, E>,
) -> T {
    let mut reader = Reader::new(bytes);
    let message = decode(&mut reader).unwrap();
    assert_eq!(reader.remaining(), 0);
    message
}

pub(crate) fn versions(api_key: ApiKey) -> std::ops::RangeInclusive<i16> {
    let served = api_key.served_versions().unwrap();
    served.min..=served.max
}

fn metadata<'a>(names: Option<&[&'a str]>, allow: bool) -> MetadataRequest<'a> {
    let topics = names.map(|names| {
        names
            .iter()
            .map(|name| MetadataRequestTopic {
                name: Some(name),
                ..Default::default()
            })
            .collect()
    });
    MetadataRequest {
        topics,
        allow_auto_topic_creation: allow,
        ..Default::default()
    }
}

#[test]
fn metadata_names_topics_partitions_and_brokers_in_every_version() {
    let broker = Broker::new(&[]);
    let id = broker.create("t", 3, 7).1;
    for version in versions(ApiKey::Metadata) {
        let bytes = broker.ask(ApiKey::Metadata, version, |body| {
            metadata(Some(&["t", "none", "../x"]), version < 4).encode(body, version);
        });
        // Before version 4 every request allows creation; the name stays free for the next round.
        let response = read(&bytes, |reader| MetadataResponse::decode(reader, version));
        let topic = |name: &str| {
            response
                .topics
                .iter()
                .find(|topic| topic.name == Some(name))
                .unwrap()
        };
        assert_eq!(topic("t").partitions.len(), 3, "{version}");
        let partition = &topic("t").partitions[2];
        assert_eq!(
            (
                partition.leader_id,
                &partition.replica_nodes,
                &partition.isr_nodes
            ),
            (1, &vec![1], &vec![1])
        );
        assert_eq!(
            error(topic("../x").error_code),
            ErrorCode::InvalidTopicException,
            "{version}"
        );
        let none = error(topic("none").error_code);
        assert_eq!(
            none,
            if version < 4 {
                ErrorCode::None
            } else {
                ErrorCode::UnknownTopicOrPartition
            },
            "{version}"
        );
        assert_eq!(
            (response.brokers[0].host, response.brokers[0].port),
            ("127.0.0.1", 9092)
        );
        if version >= 2 {
            assert_eq!(response.cluster_id, Some(broker.node.cluster_id()));
        }
        if version >= 10 {
            assert_eq!(topic("t").topic_id, id);
        }
        if version < 4 {
            let delete = DeleteTopicsRequest {
                topic_names: vec!["none"],
                ..Default::default()
            };
            broker.ask(ApiKey::DeleteTopics, 5, |body| delete.encode(body, 5));
        }
    }
}

#[test]
fn all_topics_are_an_empty_list_in_version_0_and_null_later() {
    let broker = Broker::new(&[]);
    broker.create("a", 1, 7);
    broker.create("b", 1, 7);
    let count = |names: Option<&[&str]>, version: i16| {
        let bytes = broker.ask(ApiKey::Metadata, version, |body| {
            metadata(names, true).encode(body, version)
        });
        read(&bytes, |reader| MetadataResponse::decode(reader, version))
            .topics
            .len()
    };
    assert_eq!(count(Some(&[]), 0), 2);
    assert_eq!(count(None, 1), 2);
    assert_eq!(count(Some(&[]), 1), 0);
    assert_eq!(count(None, 13), 2);
}

#[test]
fn topics_are_found_by_id() {
    let broker = Broker::new(&[]);
    let id = broker.create("t", 1, 7).1;
    let topics = [id, Uuid([7; 16])].map(|topic_id| MetadataRequestTopic { topic_id, name: None });
    let request = MetadataRequest {
        topics: Some(topics.into()),
        ..Default::default()
    };
    let bytes = broker.ask(ApiKey::Metadata, 13, |body| request.encode(body, 13));
    let response = read(&bytes, |reader| MetadataResponse::decode(reader, 13));
    let found = response.topics.iter().find(|topic| topic.topic_id == id).unwrap();
    assert_eq!(found.name, Some("t"));
    let missing = response.topics.iter().find(|topic| topic.topic_id != id).unwrap();
    assert_eq!(
        (error(missing.error_code), missing.name),
        (ErrorCode::UnknownTopicId, None)
    );
}

#[test]
fn metadata_creates_a_topic_only_where_that_is_allowed() {
    let check = |lines: &[(&str, &str)], allow: bool, name: &str, expected: ErrorCode| {
        let broker = Broker::new(lines);
        let bytes = broker.ask(ApiKey::Metadata, 12, |body| {
            metadata(Some(&[name]), allow).encode(body, 12)
        });
        let response = read(&bytes, |reader| MetadataResponse::decode(reader, 12));
        assert_eq!(error(response.topics[0].error_code), expected, "{name}");
        broker
            .node
            .image()
            .topic(name)
            .map(|topic| topic.partitions.len())
    };
    let partitions = ("num.partitions", "4");
    assert_eq!(check(&[partitions], true, "new", ErrorCode::None), Some(4));
    assert_eq!(
        check(&[partitions], false, "new", ErrorCode::UnknownTopicOrPartition),
        None
    );
    let off = ("auto.create.topics.enable", "false");
    assert_eq!(
        check(&[off], true, "new", ErrorCode::UnknownTopicOrPartition),
        None
    );
    assert_eq!(check(&[], true, "../x", ErrorCode::InvalidTopicException), None);
    assert_eq!(check(&[], true, "__consumer_offsets", ErrorCode::None), Some(50));
    assert_eq!(
        check(
            &[],
            true,
            "__transaction_state",
            ErrorCode::UnknownTopicOrPartition
        ),
        None
    );
}

#[test]
fn a_connection_remembers_the_missing_topics_that_it_asked_for() {
    let broker = Broker::new(&[("auto.create.topics.enable", "false")]);
    broker.create("there", 1, 7);
    for _ in 0..3 {
        broker.ask(ApiKey::Metadata, 12, |body| {
            metadata(Some(&["orders", "there", "../x"]), true).encode(body, 12)
        });
    }
    let unknown = broker.connection.identity.unknown_topics();
    assert_eq!(unknown.last(), [("orders".into(), 3)]);
    assert_eq!(unknown.total(), 3);
}

#[test]
fn waiting_for_the_creation_of_a_topic_times_out() {
    let broker = Broker::new(&[]);
    let mut body = Vec::new();
    metadata(Some(&["slow"]), true).encode(&mut body, 12);
    let mut reply = ReplyBuffer::default();
    let Handled::Pending(mut pending) = broker.send(ApiKey::Metadata, 12, &body, &mut reply) else {
        panic!("the topic must be created first");
    };
    let run_last_job = || {
        let job = broker.executor.jobs.lock().unwrap().pop().unwrap();
        job(&broker.node);
    };
    assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Pending);
    run_last_job();
    assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Pending);
    broker
        .clock
        .0
        .store(pending.deadline().unwrap().micros(), Ordering::Relaxed);
    // The thread for long answers goes on; the controller does not.
    assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Pending);
    run_last_job();
    assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Ready(()));
    let response = read(&reply.bytes, |reader| MetadataResponse::decode(reader, 12));
    assert_eq!(
        error(response.topics[0].error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn topics_are_created_grown_and_deleted_in_every_version() {
    let broker = Broker::new(&[]);
    for version in versions(ApiKey::CreateTopics) {
        assert_eq!(
            broker.create(&format!("t{version}"), 2, version).0,
            ErrorCode::None
        );
        assert_eq!(
            broker.create(&format!("t{version}"), 2, version).0,
            ErrorCode::TopicAlreadyExists
        );
    }
    for version in versions(ApiKey::CreatePartitions) {
        let topic = CreatePartitionsTopic {
            name: "t7",
            count: 3 + i32::from(version),
            assignments: None,
        };
        let request = CreatePartitionsRequest {
            topics: vec![topic],
            timeout_ms: 1_000,
            validate_only: false,
        };
        let bytes = broker.ask(ApiKey::CreatePartitions, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| CreatePartitionsResponse::decode(reader, version));
        assert_eq!(
            error(response.results[0].error_code),
            ErrorCode::None,
            "{version}"
        );
    }
    let id = broker.node.image().topic("t7").unwrap().id;
    assert!(broker.node.storage.partition(id, 5).is_ok() && broker.node.storage.partition(id, 6).is_err());
    for version in versions(ApiKey::DeleteTopics) {
        let name = format!("t{}", version + 1);
        let mut request = DeleteTopicsRequest {
            timeout_ms: 1_000,
            ..Default::default()
        };
        if version < 6 {
            request.topic_names = vec![&name];
        } else {
            request.topics = vec![DeleteTopicState {
                name: None,
                topic_id: id,
            }];
        }
        let bytes = broker.ask(ApiKey::DeleteTopics, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| DeleteTopicsResponse::decode(reader, version));
        let expected = if version >= 6 || broker_had(version) {
            ErrorCode::None
        } else {
            ErrorCode::UnknownTopicOrPartition
        };
        assert_eq!(error(response.responses[0].error_code), expected, "{version}");
    }
    assert!(broker.node.image().topic("t7").is_none());
    assert!(broker.node.storage.partition(id, 0).is_err());
}

/// CreateTopics begins with version 2, DeleteTopics with 1; version `n` of DeleteTopics deletes the
/// topic that version `n + 1` created.
fn broker_had(version: i16) -> bool {
    versions(ApiKey::CreateTopics).contains(&(version + 1))
}

#[test]
fn deletion_can_be_switched_off() {
    let broker = Broker::new(&[("delete.topic.enable", "false")]);
    broker.create("t", 1, 7);
    for (version, expected) in [
        (2, ErrorCode::InvalidRequest),
        (5, ErrorCode::TopicDeletionDisabled),
    ] {
        let request = DeleteTopicsRequest {
            topic_names: vec!["t"],
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::DeleteTopics, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| DeleteTopicsResponse::decode(reader, version));
        assert_eq!(error(response.responses[0].error_code), expected);
    }
    assert!(broker.node.image().topic("t").is_some());
}

#[test]
fn a_full_disk_is_reported_and_the_same_request_succeeds_later() {
    let broker = Broker::new(&[]);
    broker.disk.set_capacity(Some(broker.disk.used_bytes()));
    let mut refused = None;
    for round in 0..3_000 {
        let (code, _) = broker.create(&format!("t{round}"), 1, 7);
        if code != ErrorCode::None {
            refused = Some((round, code));
            break;
        }
    }
    let (round, code) = refused.expect("the disk is full at some point");
    assert_eq!(code, ErrorCode::KafkaStorageError);
    broker.disk.set_capacity(None);
    assert_eq!(broker.create(&format!("t{round}"), 1, 7).0, ErrorCode::None);
    // Accepted topics whose logs did not fit get them without a restart.
    broker.node.maintain();
    broker.settle();
    for topic in broker.node.image().topics.iter() {
        assert!(
            broker.node.storage.partition(topic.id, 0).is_ok(),
            "{}",
            topic.name
        );
    }
    let strays = broker
        .disk
        .shared()
        .list(std::path::Path::new("/data"))
        .unwrap()
        .into_iter()
        .filter(|entry| entry.path.to_string_lossy().ends_with("-stray"));
    assert_eq!(strays.count(), 0);
}

#[test]
fn the_files_of_a_deleted_topic_are_removed_after_the_delay() {
    let broker = Broker::new(&[("log.segment.delete.delay.ms", "60000")]);
    assert_eq!(broker.create("t", 3, 7).0, ErrorCode::None);
    let request = DeleteTopicsRequest {
        topic_names: vec!["t"],
        ..Default::default()
    };
    broker.ask(ApiKey::DeleteTopics, 4, |body| request.encode(body, 4));
    let left = || {
        let entries = broker.disk.shared().list(std::path::Path::new("/data")).unwrap();
        let is_deleted = |name: &str| name.starts_with("t-") || name.ends_with("-delete");
        let names = entries
            .iter()
            .filter_map(|entry| entry.path.file_name()?.to_str());
        names.filter(|name| is_deleted(name)).count()
    };
    broker.clock.0.fetch_add(59_999_000, Ordering::Relaxed);
    broker.node.maintain();
    assert_eq!(left(), 3);
    broker.clock.0.fetch_add(1_000, Ordering::Relaxed);
    broker.node.maintain();
    assert_eq!(left(), 0);
}

#[test]
fn the_cluster_is_described_in_every_version() {
    let broker = Broker::new(&[("broker.rack", "r1")]);
    for version in versions(ApiKey::DescribeCluster) {
        let request = DescribeClusterRequest {
            include_cluster_authorized_operations: true,
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::DescribeCluster, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| DescribeClusterResponse::decode(reader, version));
        assert_eq!(
            (response.cluster_id, response.controller_id),
            (broker.node.cluster_id(), 1)
        );
        assert_eq!(
            (response.brokers[0].port, response.brokers[0].rack),
            (9092, Some("r1"))
        );
        assert!(response.cluster_authorized_operations > 0);
    }
    let request = DescribeClusterRequest {
        endpoint_type: 2,
        ..Default::default()
    };
    let bytes = broker.ask(ApiKey::DescribeCluster, 1, |body| request.encode(body, 1));
    let response = read(&bytes, |reader| DescribeClusterResponse::decode(reader, 1));
    assert_eq!(error(response.error_code), ErrorCode::MismatchedEndpointType);
}

#[test]
fn pages_cover_every_partition() {
    let broker = Broker::new(&[]);
    for (name, count) in [("a", 3), ("b", 1), ("c", 4)] {
        broker.create(name, count, 7);
    }
    let pages = |names: &[&str], limit: i32| {
        let mut seen = Vec::new();
        let mut cursor: Option<(String, i32)> = None;
        for _ in 0..20 {
            let request = DescribeTopicPartitionsRequest {
                topics: names.iter().map(|name| TopicRequest { name }).collect(),
                response_partition_limit: limit,
                cursor: cursor.as_ref().map(|(topic_name, partition_index)| {
                    DescribeTopicPartitionsRequestCursor {
                        topic_name,
                        partition_index: *partition_index,
                    }
                }),
            };
            let bytes = broker.ask(ApiKey::DescribeTopicPartitions, 0, |body| request.encode(body, 0));
            let response = read(&bytes, |reader| {
                DescribeTopicPartitionsResponse::decode(reader, 0)
            });
            for topic in &response.topics {
                let name = topic.name.unwrap().to_owned();
                seen.extend(
                    topic
                        .partitions
                        .iter()
                        .map(|partition| (name.clone(), partition.partition_index)),
                );
                if topic.error_code != 0 {
                    seen.push((name, -i32::from(topic.error_code)));
                }
            }
            cursor = response
                .next_cursor
                .map(|next| (next.topic_name.to_owned(), next.partition_index));
            if cursor.is_none() {
                return seen;
            }
        }
        panic!("the pages do not end");
    };
    let all: Vec<(String, i32)> = [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
        ("c", 0),
        ("c", 1),
        ("c", 2),
        ("c", 3),
    ]
    .map(|(name, index)| (name.to_owned(), index))
    .into();
    for limit in [1, 2, 3, 4, 100] {
        assert_eq!(pages(&[], limit), all, "{limit}");
        assert_eq!(pages(&["c", "a", "b"], limit), all, "{limit}");
    }
    assert_eq!(pages(&["none"], 5), [("none".to_owned(), -3)]);
}

#[test]
fn settings_are_described_with_their_sources_in_every_version() {
    let broker = Broker::new(&[("log.retention.hours", "1"), ("ssl.keystore.password", "secret")]);
    broker.create("t", 1, 7);
    for version in versions(ApiKey::DescribeConfigs) {
        let resources = [
            (2, "t"),
            (4, "1"),
            (4, ""),
            (32, "g"),
            (2, "none"),
            (4, "9"),
            (4, "x"),
            (8, "1"),
        ];
        let request = DescribeConfigsRequest {
            resources: resources
                .iter()
                .map(|(resource_type, resource_name)| DescribeConfigsResource {
                    resource_type: *resource_type,
                    resource_name,
                    configuration_keys: None,
                })
                .collect(),
            include_synonyms: true,
            include_documentation: version >= 3,
        };
        let bytes = broker.ask(ApiKey::DescribeConfigs, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| DescribeConfigsResponse::decode(reader, version));
        let codes: Vec<ErrorCode> = response
            .results
            .iter()
            .map(|result| error(result.error_code))
            .collect();
        use ErrorCode::{InvalidRequest, UnknownTopicOrPartition};
        let ok = ErrorCode::None;
        assert_eq!(
            codes,
            [
                ok,
                ok,
                ok,
                ok,
                UnknownTopicOrPartition,
                InvalidRequest,
                InvalidRequest,
                InvalidRequest
            ],
            "{version}"
        );
        let config = |index: usize, name: &str| {
            response.results[index]
                .configs
                .iter()
                .find(|config| config.name == name)
                .unwrap()
        };
        // The hours in the file are the topic's milliseconds.
        let retention = config(0, "retention.ms");
        assert_eq!((retention.value, retention.read_only), (Some("3600000"), false));
        assert_eq!(config(1, "log.retention.hours").value, Some("1"));
        assert_eq!(config(1, "log.retention.hours").config_source, 4);
        assert!(config(1, "log.dirs").read_only && !config(1, "log.retention.ms").read_only);
        let password = config(1, "ssl.keystore.password");
        assert_eq!((password.value, password.is_sensitive), (None, true));
        assert!(response.results[2].configs.is_empty());
        if version >= 3 {
            assert_eq!(retention.config_type, 5);
            assert!(retention.documentation.is_some_and(|text| !text.is_empty()));
        }
    }
}

#[test]
fn settings_are_altered_in_every_version() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let retention = || broker.node.image().topic("t").unwrap().config.log.retention_ms;
    for version in versions(ApiKey::IncrementalAlterConfigs) {
        use incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
        let value = (10 + version).to_string();
        let config = |name, config_operation, value| AlterableConfig {
            name,
            config_operation,
            value,
        };
        let resource = |resource_name, configs| AlterConfigsResource {
            resource_type: 2,
            resource_name,
            configs,
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![
                resource(
                    "t",
                    vec![
                        config("retention.ms", 0, Some(&*value)),
                        config("cleanup.policy", 2, Some("compact")),
                    ],
                ),
                resource("none", vec![config("retention.ms", 0, Some("1"))]),
                resource("u", vec![config("retention.ms", 0, None)]),
            ],
            validate_only: false,
        };
        let bytes = broker.ask(ApiKey::IncrementalAlterConfigs, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| {
            IncrementalAlterConfigsResponse::decode(reader, version)
        });
        let codes: Vec<ErrorCode> = response
            .responses
            .iter()
            .map(|result| error(result.error_code))
            .collect();
        assert_eq!(
            codes,
            [
                ErrorCode::None,
                ErrorCode::UnknownTopicOrPartition,
                ErrorCode::InvalidRequest
            ]
        );
        assert_eq!(retention(), i64::from(10 + version));
        assert!(broker.node.image().topic("t").unwrap().config.log.compact);
    }
    for version in versions(ApiKey::AlterConfigs) {
        use alter_configs::{AlterConfigsResource, AlterableConfig};
        let value = (20 + version).to_string();
        let configs = vec![AlterableConfig {
            name: "retention.ms",
            value: Some(&value),
        }];
        let resources = vec![AlterConfigsResource {
            resource_type: 2,
            resource_name: "t",
            configs,
        }];
        let request = AlterConfigsRequest {
            resources,
            validate_only: false,
        };
        let bytes = broker.ask(ApiKey::AlterConfigs, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| AlterConfigsResponse::decode(reader, version));
        assert_eq!(error(response.responses[0].error_code), ErrorCode::None);
        assert_eq!(retention(), i64::from(20 + version));
        assert!(!broker.node.image().topic("t").unwrap().config.log.compact);
    }
    for version in versions(ApiKey::ListConfigResources) {
        let request = ListConfigResourcesRequest::default();
        let bytes = broker.ask(ApiKey::ListConfigResources, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| {
            ListConfigResourcesResponse::decode(reader, version)
        });
        let has_topic = response
            .config_resources
            .iter()
            .any(|resource| resource.resource_name == "t");
        assert_eq!(has_topic, version >= 1);
    }
}

#[test]
fn producer_ids_are_distinct_across_blocks_and_starts() {
    let broker = Broker::new(&[]);
    let mut ids = std::collections::BTreeSet::new();
    for version in versions(ApiKey::InitProducerId) {
        for _ in 0..400 {
            let request = InitProducerIdRequest {
                transaction_timeout_ms: 1,
                ..Default::default()
            };
            let request = InitProducerIdRequest {
                transactional_id: None,
                ..request
            };
            let bytes = broker.ask(ApiKey::InitProducerId, version, |body| {
                request.encode(body, version)
            });
            let response = read(&bytes, |reader| InitProducerIdResponse::decode(reader, version));
            assert_eq!((response.error_code, response.producer_epoch), (0, 0));
            assert!(ids.insert(response.producer_id), "{}", response.producer_id);
        }
        let request = InitProducerIdRequest {
            transactional_id: Some("t"),
            transaction_timeout_ms: 1_000,
            producer_id: -1,
            producer_epoch: -1,
        };
        let bytes = broker.ask(ApiKey::InitProducerId, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| InitProducerIdResponse::decode(reader, version));
        // FindCoordinator makes the topic; it was not asked.
        assert_eq!(error(response.error_code), ErrorCode::CoordinatorNotAvailable);
    }
    broker.disk.kill();
    let config = broker.node.config().clone();
    let again = Node::open(config, broker.disk.shared(), broker.clock.clone()).unwrap();
    assert!(again.image().next_producer_id > *ids.last().unwrap());
}

#[test]
fn the_quorum_is_this_node_and_acls_are_off() {
    let broker = Broker::new(&[]);
    for version in versions(ApiKey::DescribeQuorum) {
        let partitions = [0, 1].map(|partition_index| DescribeQuorumRequestPartitionData { partition_index });
        let topic = DescribeQuorumRequestTopicData {
            topic_name: "__cluster_metadata",
            partitions: partitions.into(),
        };
        let request = DescribeQuorumRequest { topics: vec![topic] };
        let bytes = broker.ask(ApiKey::DescribeQuorum, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| DescribeQuorumResponse::decode(reader, version));
        let partitions = &response.topics[0].partitions;
        assert_eq!((partitions[0].leader_id, partitions[0].leader_epoch), (1, 1));
        assert_eq!(
            partitions[0].current_voters[0].log_end_offset,
            partitions[0].high_watermark
        );
        assert_eq!(
            error(partitions[1].error_code),
            ErrorCode::UnknownTopicOrPartition
        );
    }
    for version in versions(ApiKey::DescribeAcls) {
        let request = DescribeAclsRequest {
            pattern_type_filter: 3,
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::DescribeAcls, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| DescribeAclsResponse::decode(reader, version));
        assert_eq!(error(response.error_code), ErrorCode::SecurityDisabled);
    }
}

#[test]
fn a_second_broker_on_the_directory_is_refused_and_a_clean_stop_leaves_its_mark() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let config = broker.node.config().clone();
    let refused = Node::open(config.clone(), broker.disk.shared(), broker.clock.clone())
        .err()
        .unwrap();
    assert!(refused.to_string().contains("another process"), "{refused}");
    broker.node.close().unwrap();
    let mark = broker
        .disk
        .read_file(std::path::Path::new("/data/.kafka_cleanshutdown"))
        .unwrap();
    assert_eq!(mark, br#"{"version":0,"brokerEpoch":1}"#);
    let disk = broker.disk.clone();
    drop(broker);
    let again = Node::open(config, disk.shared(), Arc::new(TestClock::default())).unwrap();
    assert!(
        disk.read_file(std::path::Path::new("/data/.kafka_cleanshutdown"))
            .is_none()
    );
    assert_eq!(again.image().topic("t").unwrap().partitions[0].leader, 1);
}

#[test]
fn quotas_stored_by_apache_kafka_are_found_by_their_entities() {
    let broker = Broker::after_kafka();
    let ask = |components: &[(&'static str, i8, Option<&'static str>)], strict: bool, version: i16| {
        let components = components
            .iter()
            .map(|&(entity_type, match_type, r#match)| ComponentData {
                entity_type,
                match_type,
                r#match,
            });
        let request = DescribeClientQuotasRequest {
            components: components.collect(),
            strict,
        };
        let bytes = broker.ask(ApiKey::DescribeClientQuotas, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| {
            DescribeClientQuotasResponse::decode(reader, version)
        });
        let values = response
            .entries
            .unwrap_or_default()
            .into_iter()
            .flat_map(|entry| entry.values);
        (
            error(response.error_code),
            values.map(|value| value.value).collect::<Vec<f64>>(),
        )
    };
    for version in versions(ApiKey::DescribeClientQuotas) {
        let ok = ErrorCode::None;
        assert_eq!(ask(&[], false, version), (ok, vec![2048.0, 1024.0]));
        assert_eq!(ask(&[("client-id", 1, None)], false, version), (ok, vec![2048.0]));
        assert_eq!(
            ask(&[("client-id", 2, None)], false, version),
            (ok, vec![2048.0, 1024.0])
        );
        assert_eq!(ask(&[("client-id", 2, None)], true, version), (ok, vec![2048.0]));
        assert_eq!(
            ask(&[("user", 0, Some("alice"))], false, version),
            (ok, vec![1024.0])
        );
        assert_eq!(ask(&[("user", 0, Some("bob"))], false, version), (ok, vec![]));
        assert_eq!(
            ask(&[("user", 0, None)], false, version).0,
            ErrorCode::InvalidRequest
        );
        assert_eq!(
            ask(&[("user", 2, None), ("user", 2, None)], false, version).0,
            ErrorCode::InvalidRequest
        );
        assert_eq!(
            ask(&[("ip", 2, None), ("user", 2, None)], false, version).0,
            ErrorCode::InvalidRequest
        );
        assert_eq!(
            ask(&[("planet", 2, None)], false, version).0,
            ErrorCode::UnsupportedVersion
        );
    }
}

#[test]
fn credentials_stored_by_apache_kafka_are_described_without_their_keys() {
    let broker = Broker::after_kafka();
    let ask = |users: &[&'static str]| {
        let users = (!users.is_empty()).then(|| users.iter().map(|name| UserName { name }).collect());
        let request = DescribeUserScramCredentialsRequest { users };
        let bytes = broker.ask(ApiKey::DescribeUserScramCredentials, 0, |body| {
            request.encode(body, 0)
        });
        let response = read(&bytes, |reader| {
            DescribeUserScramCredentialsResponse::decode(reader, 0)
        });
        let results = response.results.into_iter();
        results
            .map(|result| {
                (
                    error(result.error_code),
                    result.credential_infos.first().map(|info| info.iterations),
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(ask(&[]), [(ErrorCode::None, Some(4096))]);
    assert_eq!(ask(&["alice"]), [(ErrorCode::None, Some(4096))]);
    assert_eq!(ask(&["bob"]), [(ErrorCode::ResourceNotFound, None)]);
    assert_eq!(ask(&["alice", "alice"]), [(ErrorCode::DuplicateResource, None)]);
}

/// Sends Metadata for `names`. Another thread handles it, has missing topics created, and writes
/// the answer.
fn ask_at_length(broker: &Broker, names: Option<&[&str]>, creates: bool) -> Vec<u8> {
    let mut body = Vec::new();
    metadata(names, creates).encode(&mut body, 9);
    let mut reply = ReplyBuffer::default();
    let Handled::Pending(mut pending) = broker.send(ApiKey::Metadata, 9, &body, &mut reply) else {
        panic!("written on an event loop")
    };
    assert!(poll(broker, &mut pending, &mut reply).is_pending());
    assert_eq!(pending.waits_for(), WaitKind::Reading);
    assert!(pending.is_alone(), "it may yet have an effect");
    broker.settle();
    if creates {
        assert!(poll(broker, &mut pending, &mut reply).is_pending());
        assert_eq!(
            (pending.waits_for(), pending.is_alone()),
            (WaitKind::Controller, false)
        );
        broker.settle();
        assert!(poll(broker, &mut pending, &mut reply).is_pending());
        broker.settle();
    }
    assert_eq!(poll(broker, &mut pending, &mut reply), Poll::Ready(()));
    reply.bytes
}

#[test]
fn an_answer_with_thousands_of_partitions_is_written_on_another_thread_and_is_the_same() {
    let broker = Broker::new(&[]);
    broker.create("narrow", 400, 5);
    broker.create("wide", 1_100, 5);
    let indexes = |bytes: &[u8], name: &str| -> Vec<i32> {
        let response = read(bytes, |reader| MetadataResponse::decode(reader, 9));
        let topic = response
            .topics
            .iter()
            .find(|topic| topic.name == Some(name))
            .unwrap();
        topic
            .partitions
            .iter()
            .map(|partition| partition.partition_index)
            .collect()
    };
    let everything = ask_at_length(&broker, None, false);
    assert!(indexes(&everything, "wide").into_iter().eq(0..1_100));
    assert!(indexes(&everything, "narrow").into_iter().eq(0..400));
    let named = ask_at_length(&broker, Some(&["wide"]), false);
    assert!(indexes(&named, "wide").into_iter().eq(0..1_100));
    let created = ask_at_length(&broker, Some(&["new", "wide"]), true);
    assert_eq!(
        (indexes(&created, "new").len(), indexes(&created, "wide").len()),
        (1, 1_100)
    );
    // Small answers are written at once, whatever else exists.
    let small = broker.ask(ApiKey::Metadata, 9, |body| {
        metadata(Some(&["narrow"]), false).encode(body, 9)
    });
    assert_eq!(indexes(&small, "narrow").len(), 400);
}

#[test]
fn the_page_in_which_the_next_append_begins_is_kept_resident() {
    let broker = Broker::new(&[("ottla.durability", "page-cache")]);
    broker.create("t", 1, 5);
    let partition = broker.node.storage.partition_by_name("t", 0).unwrap();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000, None, Some(&[7; 10_000]), &[]);
    partition
        .append_internal(broker.node.services(), &builder.finish())
        .unwrap();
    partition.with_log(|log| log.request_checkpoint());
    partition.clone().run_sync(broker.node.services());
    let page = partition.with_log(|log| log.unfilled_page()).unwrap();
    broker.disk.evict();
    assert!(!page.file.is_resident(page.position, page.bytes));
    broker.clock.0.fetch_add(10_000_000, Ordering::Relaxed);
    broker.node.maintain();
    assert!(
        page.file.is_resident(page.position, page.bytes),
        "the page was read back off the hot path"
    );
    assert!(!page.file.is_resident(0, 4_096), "no other page was read");
}

/// A bug: each step registered its own waker, while partitions that were waited for since the first
/// step kept the old one, so wake-ups of the last partitions were lost.
#[test]
fn a_produce_to_a_thousand_partitions_is_woken_for_each_in_any_step() {
    const MANY: i32 = 1_001;
    let broker = Broker::new(&[]);
    broker.create("many", MANY, 7);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000, None, Some(b"value"), &[]);
    let records = builder.finish();
    let partition = |index| PartitionProduceData {
        index,
        records: Some(&records),
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: "many",
            partition_data: (0..MANY).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 9);
    let mut reply = ReplyBuffer::default();
    let Handled::Pending(mut pending) = broker.send(ApiKey::Produce, 9, &body, &mut reply) else {
        panic!("must not run on an event loop")
    };
    let sync = |indexes: std::ops::Range<i32>| {
        for index in indexes {
            let partition = broker.node.storage.partition_by_name("many", index).unwrap();
            partition.clone().run_sync(broker.node.services());
        }
    };
    for synced in [0..0, 0..1, 1..MANY] {
        sync(synced);
        assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Pending);
        broker.settle();
    }
    assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Ready(()));
}
