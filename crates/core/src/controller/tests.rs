//! Opening, writing, stopping and reopening directories; and every decision with its refusals.

use std::path::Path;

use ottla_log::directory::{read_clean_shutdown, write_clean_shutdown, write_partition_metadata};
use ottla_log::disk::os::{OsDisk, TemporaryDirectory};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::partition::PartitionRecord;

use super::topics::*;
use super::*;
use crate::access::granted::{GrantedConfig, OwnedGrant};
use crate::image::features::METADATA_VERSION;
use crate::image::snapshot::records_of;
use crate::image::topics::NO_LEADER;
use crate::start;

pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000);

pub(super) struct World {
    directory: TemporaryDirectory,
    pub(super) lines: Vec<(&'static str, String)>,
    starts: u64,
    segment_bytes: Option<i32>,
    recover_metadata: bool,
}

impl World {
    pub(super) fn new(name: &str) -> World {
        World {
            directory: TemporaryDirectory::new(name).unwrap(),
            lines: Vec::new(),
            starts: 0,
            segment_bytes: None,
            recover_metadata: false,
        }
    }

    pub(super) fn config(&self) -> Arc<NodeConfig> {
        let mut properties = std::collections::BTreeMap::from([(
            "log.dirs".to_owned(),
            self.directory.path().join("data").display().to_string(),
        )]);
        properties.extend(
            self.lines
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.clone())),
        );
        let mut config = NodeConfig::from_properties(&properties, [self.starts, 2, 3, 4]).unwrap();
        // Below the configurable minimum, so that a test sees segments come and go.
        config.storage.metadata_segment_bytes = self
            .segment_bytes
            .unwrap_or(config.storage.metadata_segment_bytes);
        config.recovery.recover_metadata = self.recover_metadata;
        Arc::new(config)
    }

    pub(super) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    pub(super) fn try_start(&mut self) -> Result<Controller, ControllerError> {
        self.starts += 1;
        let config = self.config();
        let disk: Arc<dyn Disk> = OsDisk::shared();
        let random = Arc::new(Random::new(config.seed));
        start::take_over(&disk, &config, &random, NOW).map(|taken| taken.controller)
    }

    pub(super) fn start(&mut self) -> Controller {
        self.try_start().unwrap()
    }
}

pub(super) fn new_topic(name: &str, partition_count: i32) -> NewTopic {
    NewTopic {
        name: OwnedGrant::of(name),
        partition_count,
        replication_factor: -1,
        assignments: Vec::new(),
        configs: Vec::new(),
    }
}

pub(super) fn create(controller: &mut Controller, topic: NewTopic) -> Result<CreatedTopic, Refusal> {
    controller
        .create_topics(&mut MutationQuota::unlimited(), &[topic], false, NOW)
        .unwrap()
        .remove(0)
}

pub(super) fn files(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_fresh_directory_is_formatted_as_kafka_formats_it() {
    let mut world = World::new("format");
    let controller = world.start();
    let image = controller.image();
    assert_eq!(image.features.level(METADATA_VERSION), 27);
    let broker = &image.brokers[&1];
    // The epoch is the offset at which the controller accepted the registration: after the leader
    // change at 0.
    assert_eq!(
        (broker.broker_epoch, broker.fenced, controller.broker_epoch()),
        (1, false, 1)
    );
    assert_eq!(broker.log_directories, [controller.directories().metadata.id]);
    assert_eq!(broker.endpoints[0].port, 9092);
    assert_eq!(
        controller.replay.quorum().voters,
        [(1, controller.directories().metadata.id)]
    );
    assert_eq!(controller.leader_epoch(), 1);
    let metadata = world.path().join("__cluster_metadata-0");
    let names = files(&metadata);
    for name in [
        "00000000000000000000-0000000000.checkpoint",
        "00000000000000000000.log",
        "partition.metadata",
        "quorum-state",
    ] {
        assert!(
            names.iter().any(|found| found == name),
            "{name} is not in {names:?}"
        );
    }
}

#[test]
fn acknowledged_changes_survive_a_crash_and_a_stop() {
    let mut world = World::new("restart");
    let mut controller = world.start();
    let created = create(&mut controller, new_topic("orders", 3)).unwrap();
    let broker_epoch = controller.broker_epoch();
    drop(controller);

    let mut controller = world.start();
    let topic = controller.image().topic("orders").unwrap().clone();
    assert_eq!((topic.id, topic.partitions.len()), (created.id, 3));
    // Leadership was not resigned, so taking it again is one change.
    assert_eq!(
        (topic.partitions[2].leader, topic.partitions[2].leader_epoch),
        (1, 1)
    );
    assert_eq!(controller.leader_epoch(), 2);
    assert!(controller.broker_epoch() > broker_epoch);
    controller.close(NOW).unwrap();
    assert_eq!(
        controller.image().topic("orders").unwrap().partitions[0].leader,
        NO_LEADER
    );
    assert!(controller.image().brokers[&1].fenced);
    drop(controller);

    let controller = world.start();
    let topic = controller.image().topic("orders").unwrap();
    assert_eq!(
        (topic.partitions[2].leader, topic.partitions[2].leader_epoch),
        (1, 3)
    );
    assert!(!controller.image().brokers[&1].fenced);
    assert_eq!(controller.leader_epoch(), 3);
}

#[test]
fn a_directory_of_kafka_is_opened_where_kafka_left_it() {
    let mut world = World::new("from-kafka");
    install_golden(&world.path());
    let mut controller = world.start();
    assert_eq!(controller.directories().cluster_id, "AQIDBAUGBwgJCgsMDQ4PEA");
    let image = controller.image().clone();
    assert_eq!(image.features.level(METADATA_VERSION), 30);
    let orders = image.topic("orders").unwrap();
    assert_eq!(
        (orders.partitions[0].leader, orders.partitions[0].leader_epoch),
        (1, 2)
    );
    assert_eq!(controller.leader_epoch(), 2);
    assert_eq!(controller.allocate_producer_ids(NOW).unwrap(), 1000);
    assert_eq!(
        create(&mut controller, new_topic("ours", 1))
            .unwrap()
            .partition_count,
        1
    );
    drop(controller);
    let controller = world.start();
    assert!(controller.image().topic("ours").is_some());
    assert_eq!(controller.image().next_producer_id, 2000);
    assert_eq!(controller.image().acls.len(), 1);
}

fn install_golden(path: &Path) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/metadata-4.3.0");
    let metadata = path.join("__cluster_metadata-0");
    std::fs::create_dir_all(&metadata).unwrap();
    for name in files(&golden) {
        let target = if name == "meta.properties" {
            path.join(&name)
        } else {
            metadata.join(&name)
        };
        std::fs::copy(golden.join(&name), target).unwrap();
    }
}

#[test]
fn directories_of_other_owners_are_refused_before_anything_is_written() {
    let mut world = World::new("refused");
    install_golden(&world.path());
    let log = world.path().join("__cluster_metadata-0/00000000000000000000.log");
    let before = std::fs::read(&log).unwrap();
    world.lines.push(("node.id", "2".to_owned()));
    let error = world.try_start().unwrap_err().to_string();
    let file = world.path().join("meta.properties");
    let place = format!(
        "{} does not fit at position 0: it belongs to node 1",
        file.display()
    );
    assert!(error.starts_with(&place), "{error}");
    assert_eq!(std::fs::read(&log).unwrap(), before);

    let mut world = World::new("nobodys");
    std::fs::create_dir_all(world.path().join("__cluster_metadata-0")).unwrap();
    let error = world.try_start().unwrap_err().to_string();
    assert!(error.contains("meta.properties is missing"), "{error}");
}

fn flip_byte_in_the_middle(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_snapshot_is_replaced_where_the_log_still_has_all_of_its_records() {
    let mut world = World::new("damaged");
    install_golden(&world.path());
    let expected = world.start().image().topics.len();
    let mut world = World::new("damaged");
    install_golden(&world.path());
    let metadata = world.path().join("__cluster_metadata-0");
    let snapshot = metadata.join("00000000000000000283-0000000001.checkpoint");
    flip_byte_in_the_middle(&snapshot);
    assert_eq!(world.start().image().topics.len(), expected);
    assert!(!snapshot.exists());
    assert_eq!(world.start().image().topics.len(), expected);
}

#[test]
fn a_damaged_snapshot_that_nothing_can_replace_refuses_the_start_and_changes_nothing() {
    let mut world = World::new("damaged");
    world.lines.push((
        "metadata.log.max.record.bytes.between.snapshots",
        "4000".to_owned(),
    ));
    world.segment_bytes = Some(2_000);
    let mut controller = world.start();
    for round in 0..30 {
        create(&mut controller, new_topic(&format!("t{round}"), 5)).unwrap();
    }
    drop(controller);
    let metadata = world.path().join("__cluster_metadata-0");
    let is_snapshot = |name: &String| name.ends_with(".checkpoint");
    let name = files(&metadata).into_iter().find(is_snapshot).unwrap();
    flip_byte_in_the_middle(&metadata.join(&name));
    let contents = |directory: &Path| -> Vec<(String, Vec<u8>)> {
        let names = files(directory).into_iter();
        names
            .map(|name| (name.clone(), std::fs::read(directory.join(name)).unwrap()))
            .collect()
    };
    let before = contents(&metadata);
    let error = world.try_start().unwrap_err().to_string();
    for expected in [&*name, "is corrupt at position", "checksum", "--recover-metadata"] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert_eq!(contents(&metadata), before);
}

/// Only the directory and the offset were named.
#[test]
fn a_record_that_is_not_understood_refuses_the_start_with_file_and_position() {
    let mut world = World::new("foreign");
    let mut controller = world.start();
    let log = world.path().join("__cluster_metadata-0/00000000000000000000.log");
    let (position, offset) = (
        std::fs::metadata(&log).unwrap().len(),
        controller.log.end_offset(),
    );
    let mut records = RecordList::default();
    let of_no_topic = PartitionRecord {
        topic_id: Uuid([9; 16]),
        ..PartitionRecord::default()
    };
    records.push(MetadataRecord::Partition(of_no_topic), 0);
    let batches = controller.log.batches(&records, NOW);
    controller.log.append(&batches, NOW).unwrap();
    controller.log.sync().unwrap();
    drop(controller);
    let error = world.try_start().unwrap_err().to_string();
    let place = format!(
        "{} is not understood at position {position}, offset {offset}: ",
        log.display()
    );
    assert!(error.starts_with(&place), "{error}");
}

/// KIP-866: what was rebuilt came after the begin of a transaction without an end, and had no
/// effect.
#[test]
fn a_change_that_was_never_finished_does_not_take_what_is_rebuilt_with_it() {
    let mut world = World::new("rebuilt");
    let mut controller = world.start();
    let mut records = RecordList::default();
    let begin = BeginTransactionRecord { name: Some("cut") };
    records.push(MetadataRecord::BeginTransaction(begin), 0);
    let batches = controller.log.batches(&records, NOW);
    controller.log.append(&batches, NOW).unwrap();
    controller.log.close().unwrap();
    drop(controller);
    let directory = world.path().join("found-0");
    std::fs::create_dir(&directory).unwrap();
    write_partition_metadata(&OsDisk::default(), &directory, Uuid([5; 16])).unwrap();
    world.recover_metadata = true;
    let image = world.start().image().clone();
    assert_eq!(image.topic("found").map(|topic| topic.id), Some(Uuid([5; 16])));
    assert_eq!(image.next_producer_id, 1_000_000);
}

#[test]
fn snapshots_keep_the_metadata_log_short() {
    let mut world = World::new("snapshots");
    world.lines.push((
        "metadata.log.max.record.bytes.between.snapshots",
        "4000".to_owned(),
    ));
    world.segment_bytes = Some(2_000);
    let mut controller = world.start();
    for round in 0..30 {
        create(&mut controller, new_topic(&format!("t{round}"), 5)).unwrap();
    }
    let expected = records_of(controller.image());
    drop(controller);
    let metadata = world.path().join("__cluster_metadata-0");
    let names = files(&metadata);
    let count = |suffix: &str| names.iter().filter(|name| name.ends_with(suffix)).count();
    assert_eq!(count(".checkpoint"), 1, "{names:?}");
    assert!(count(".log") < 6, "{names:?}");
    assert!(
        !names.iter().any(|name| name.starts_with("00000000000000000000.")),
        "{names:?}"
    );

    let controller = world.start();
    assert_eq!(controller.image().topics.len(), 30);
    assert_eq!(controller.image().topics.partition_count(), 150);
    // A start changes only registrations and leader epochs.
    assert_eq!(records_of(controller.image()).len(), expected.len());
    assert_eq!(controller.replay.quorum().kraft_version, 1);
}

#[test]
fn a_change_of_many_batches_is_all_or_nothing() {
    let mut world = World::new("transaction");
    let mut controller = world.start();
    let value = "x".repeat(30_000);
    let changes: Vec<ConfigChange> = (0..200)
        .map(|index| ConfigChange {
            resource: GrantedConfig::of(crate::config::ConfigResource {
                resource_type: crate::config::ConfigResourceType::ClientMetrics,
                name: format!("m{index}").into(),
            }),
            operations: vec![("metrics".to_owned(), configs::ConfigOperation::Set(value.clone()))],
        })
        .collect();
    let results = controller
        .alter_configs_incrementally(&changes, false, NOW)
        .unwrap();
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(controller.image().configs.len(), 200);
    drop(controller);
    let controller = world.start();
    assert_eq!(controller.image().configs.len(), 200);
}

#[test]
fn producer_ids_never_repeat() {
    let mut world = World::new("producer-ids");
    let mut controller = world.start();
    assert_eq!(controller.allocate_producer_ids(NOW).unwrap(), 0);
    assert_eq!(controller.allocate_producer_ids(NOW).unwrap(), 1000);
    drop(controller);
    assert_eq!(world.start().allocate_producer_ids(NOW).unwrap(), 2000);
}

fn check_create(topic: NewTopic, code: ErrorCode, part: &str) {
    let mut world = World::new("create");
    let mut controller = world.start();
    create(&mut controller, new_topic("exists", 1)).unwrap();
    create(&mut controller, new_topic("a.b", 1)).unwrap();
    let offset = controller.provenance().last_offset;
    let refusal = create(&mut controller, topic).unwrap_err();
    assert_eq!(refusal.code, code, "{}", refusal.message);
    assert!(refusal.message.contains(part), "{}", refusal.message);
    assert_eq!(controller.provenance().last_offset, offset);
}

#[test]
fn invalid_topics_are_refused_with_kafkas_codes() {
    use ErrorCode::{
        InvalidConfig, InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor, InvalidRequest,
        InvalidTopicException, TopicAlreadyExists,
    };
    let assigned = |assignments: Vec<(i32, Vec<i32>)>| NewTopic {
        assignments,
        ..new_topic("t", -1)
    };
    let configured = |key: &str, value: Option<&str>| NewTopic {
        configs: vec![(key.to_owned(), value.map(str::to_owned))],
        ..new_topic("t", 1)
    };
    check_create(new_topic("../x", 1), InvalidTopicException, "'../x'");
    check_create(new_topic("..", 1), InvalidTopicException, "..");
    check_create(new_topic("", 1), InvalidTopicException, "empty");
    check_create(new_topic(&"x".repeat(250), 1), InvalidTopicException, "249");
    check_create(new_topic("exists", 1), TopicAlreadyExists, "already exists");
    check_create(
        new_topic("a_b", 1),
        InvalidTopicException,
        "collides with existing topic: a.b",
    );
    check_create(new_topic("__cluster_metadata", 1), InvalidRequest, "prohibited");
    check_create(new_topic("t", 0), InvalidPartitions, "non-positive");
    check_create(new_topic("t", -2), InvalidPartitions, "non-positive");
    check_create(
        NewTopic {
            replication_factor: 0,
            ..new_topic("t", 1)
        },
        InvalidReplicationFactor,
        "larger than 0",
    );
    check_create(
        NewTopic {
            replication_factor: 3,
            ..new_topic("t", 1)
        },
        InvalidReplicationFactor,
        "only 1 broker",
    );
    check_create(assigned(vec![(0, vec![2])]), InvalidReplicaAssignment, "broker 2");
    check_create(
        assigned(vec![(0, vec![1, 1])]),
        InvalidReplicaAssignment,
        "more than once",
    );
    check_create(assigned(vec![(0, vec![])]), InvalidReplicaAssignment, "empty");
    check_create(
        assigned(vec![(0, vec![1]), (0, vec![1])]),
        InvalidReplicaAssignment,
        "multiple",
    );
    check_create(
        assigned(vec![(1, vec![1])]),
        InvalidReplicaAssignment,
        "consecutive",
    );
    let both = NewTopic {
        partition_count: 1,
        ..assigned(vec![(0, vec![1])])
    };
    check_create(both, InvalidRequest, "numPartitions");
    let both = NewTopic {
        replication_factor: 1,
        ..assigned(vec![(0, vec![1])])
    };
    check_create(both, InvalidRequest, "replication factor");
    check_create(
        configured("retention.ms", Some("soon")),
        InvalidConfig,
        "retention.ms",
    );
    check_create(configured("no.such.key", Some("1")), InvalidConfig, "no.such.key");
    check_create(configured("retention.ms", None), InvalidConfig, "Null value");
}

#[test]
fn a_refused_topic_does_not_hold_up_the_others_of_its_request() {
    let mut world = World::new("mixed");
    let mut controller = world.start();
    let topics = [
        new_topic("twice", 1),
        new_topic("good", 2),
        new_topic("twice", 1),
        new_topic("bad/", 1),
    ];
    let results = controller
        .create_topics(&mut MutationQuota::unlimited(), &topics, false, NOW)
        .unwrap();
    let codes: Vec<Option<ErrorCode>> = results
        .iter()
        .map(|result| result.as_ref().err().map(|refusal| refusal.code))
        .collect();
    use ErrorCode::{InvalidRequest, InvalidTopicException};
    assert_eq!(
        codes,
        [
            Some(InvalidRequest),
            None,
            Some(InvalidRequest),
            Some(InvalidTopicException)
        ]
    );
    assert_eq!(controller.image().topics.len(), 1);

    let validated = controller
        .create_topics(
            &mut MutationQuota::unlimited(),
            &[new_topic("other", 2)],
            true,
            NOW,
        )
        .unwrap();
    assert!(validated[0].is_ok() && controller.image().topic("other").is_none());
    let too_many = [new_topic("x", 6_000), new_topic("y", 6_000)];
    let refused = controller
        .create_topics(&mut MutationQuota::unlimited(), &too_many, false, NOW)
        .unwrap();
    assert_eq!(refused.len(), 2);
    for result in refused {
        assert_eq!(result.unwrap_err().code, ErrorCode::PolicyViolation);
    }
}

#[test]
fn topics_are_deleted_by_name_or_by_id_once() {
    let mut world = World::new("delete");
    let mut controller = world.start();
    let a = create(&mut controller, new_topic("a", 1)).unwrap().id;
    let b = create(&mut controller, new_topic("b", 1)).unwrap().id;
    create(&mut controller, new_topic("c", 1)).unwrap();
    let d = create(&mut controller, new_topic("d", 1)).unwrap().id;
    let name = |name: &str| TopicToDelete {
        name: Some(name.to_owned()),
        id: Uuid::ZERO,
        granted: Some(OwnedGrant::of(name)),
    };
    let id = |id, granted: Option<&str>| TopicToDelete {
        name: None,
        id,
        granted: granted.map(OwnedGrant::of),
    };
    let both = TopicToDelete { id: a, ..name("c") };
    let requests = [
        name("a"),
        id(b, Some("b")),
        name("none"),
        id(Uuid([5; 16]), None),
        id(Uuid::ZERO, None),
        both,
        name("c"),
        name("c"),
        id(a, Some("a")),
        // Made between the check of the client and this moment.
        id(d, None),
    ];
    let results = controller
        .delete_topics(&mut MutationQuota::unlimited(), &requests, NOW)
        .unwrap();
    let codes: Vec<Option<ErrorCode>> = results
        .iter()
        .map(|result| result.refusal.as_ref().map(|refusal| refusal.code))
        .collect();
    use ErrorCode::{InvalidRequest, UnknownTopicId, UnknownTopicOrPartition};
    assert_eq!(
        codes,
        [
            None,
            None,
            Some(UnknownTopicOrPartition),
            Some(UnknownTopicId),
            Some(InvalidRequest),
            Some(InvalidRequest),
            Some(InvalidRequest),
            Some(InvalidRequest),
            Some(UnknownTopicId)
        ]
    );
    let left: Vec<String> = controller
        .image()
        .topics
        .iter()
        .map(|topic| topic.name.to_string())
        .collect();
    assert_eq!(left, ["c", "d"]);
}

#[test]
fn a_topic_grows_and_never_shrinks() {
    let mut world = World::new("grow");
    let mut controller = world.start();
    create(&mut controller, new_topic("t", 2)).unwrap();
    let mut grow = |topic: &str, count, assignments: Option<Vec<Vec<i32>>>| {
        let request = NewPartitions {
            topic: OwnedGrant::of(topic),
            count,
            assignments,
        };
        let result = controller
            .create_partitions(&mut MutationQuota::unlimited(), &[request], false, NOW)
            .unwrap()
            .remove(0);
        (
            result.err().map(|refusal| refusal.code),
            controller.image().topic("t").unwrap().partitions.len(),
        )
    };
    use ErrorCode::{InvalidPartitions, InvalidReplicaAssignment, PolicyViolation, UnknownTopicOrPartition};
    assert_eq!(grow("t", 4, None), (None, 4));
    assert_eq!(grow("t", 4, None), (Some(InvalidPartitions), 4));
    assert_eq!(grow("t", 3, None), (Some(InvalidPartitions), 4));
    assert_eq!(grow("none", 3, None), (Some(UnknownTopicOrPartition), 4));
    assert_eq!(
        grow("t", 6, Some(vec![vec![1]])),
        (Some(InvalidReplicaAssignment), 4)
    );
    assert_eq!(
        grow("t", 6, Some(vec![vec![1], vec![2]])),
        (Some(InvalidReplicaAssignment), 4)
    );
    assert_eq!(grow("t", 6, Some(vec![vec![1], vec![1]])), (None, 6));
    assert_eq!(grow("t", i32::MAX, None), (Some(PolicyViolation), 6));
}

#[test]
fn configurations_are_set_appended_and_refused_as_in_kafka() {
    use crate::config::{ConfigResource, ConfigResourceType};
    use configs::ConfigOperation::{self, *};
    let mut world = World::new("configs");
    let mut controller = world.start();
    create(&mut controller, new_topic("t", 1)).unwrap();
    let mut alter = |resource: ConfigResource, key: &str, operation: ConfigOperation| {
        let change = ConfigChange {
            resource: GrantedConfig::of(resource),
            operations: vec![(key.to_owned(), operation)],
        };
        let result = controller
            .alter_configs_incrementally(&[change], false, NOW)
            .unwrap()
            .remove(0);
        (
            result.err().map(|refusal| refusal.code),
            controller.image().clone(),
        )
    };
    let group = |name: &str| ConfigResource {
        resource_type: ConfigResourceType::Group,
        name: name.into(),
    };
    let topic = || ConfigResource::topic("t");
    let set = |value: &str| Set(value.to_owned());

    let (code, image) = alter(topic(), "retention.ms", set("5"));
    assert_eq!(
        (code, image.topic("t").unwrap().config.log.retention_ms),
        (None, 5)
    );
    let (code, image) = alter(topic(), "cleanup.policy", Append("compact".to_owned()));
    let log = &image.topic("t").unwrap().config.log;
    assert_eq!((code, log.compact, log.delete), (None, true, true));
    let (code, image) = alter(topic(), "cleanup.policy", Subtract("delete".to_owned()));
    let log = &image.topic("t").unwrap().config.log;
    assert_eq!((code, log.compact, log.delete), (None, true, false));
    let (code, image) = alter(topic(), "retention.ms", Delete);
    assert_eq!(
        (code, image.topic("t").unwrap().config.log.retention_ms),
        (None, 604_800_000)
    );
    let (code, image) = alter(ConfigResource::cluster_default(), "log.retention.ms", set("9"));
    assert_eq!(
        (code, image.topic("t").unwrap().config.log.retention_ms),
        (None, 9)
    );
    assert_eq!(
        alter(ConfigResource::broker(1), "log.retention.ms", set("8")).0,
        None
    );
    assert_eq!(
        alter(group("g"), "consumer.session.timeout.ms", set("50000")).0,
        None
    );

    use ErrorCode::{InvalidConfig, InvalidRequest, InvalidTopicException, UnknownTopicOrPartition};
    assert_eq!(
        alter(topic(), "retention.ms", Append("1".to_owned())).0,
        Some(InvalidConfig)
    );
    assert_eq!(alter(topic(), "retention.ms", set("x")).0, Some(InvalidConfig));
    assert_eq!(
        alter(ConfigResource::topic("none"), "retention.ms", set("1")).0,
        Some(UnknownTopicOrPartition)
    );
    assert_eq!(
        alter(ConfigResource::topic("../x"), "retention.ms", set("1")).0,
        Some(InvalidTopicException)
    );
    assert_eq!(
        alter(ConfigResource::broker(2), "log.retention.ms", set("1")).0,
        Some(InvalidRequest)
    );
    assert_eq!(
        alter(ConfigResource::broker(1), "log.dirs", set("/x")).0,
        Some(InvalidRequest)
    );
    assert_eq!(
        alter(ConfigResource::broker(1), "log.retention.ms", set("x")).0,
        Some(InvalidRequest)
    );
    assert_eq!(
        alter(group("g"), "consumer.session.timeout.ms", set("0")).0,
        Some(InvalidConfig)
    );
    assert_eq!(
        alter(group(""), "consumer.session.timeout.ms", set("1")).0,
        Some(InvalidRequest)
    );
    assert_eq!(
        alter(
            topic(),
            "leader.replication.throttled.replicas",
            set(&"x".repeat(40_000))
        )
        .0,
        Some(InvalidConfig)
    );

    let values = vec![("segment.bytes".to_owned(), Some("2000000".to_owned()))];
    let replacement = ConfigReplacement {
        resource: GrantedConfig::of(topic()),
        values,
    };
    assert_eq!(
        controller.replace_configs(&[replacement], false, NOW).unwrap(),
        [Ok(())]
    );
    let values = controller
        .image()
        .config(&ConfigResource::topic("t"))
        .unwrap()
        .clone();
    assert_eq!(
        values.keys().map(|key| &**key).collect::<Vec<_>>(),
        ["segment.bytes"]
    );
}

#[test]
fn the_mark_of_a_clean_stop_names_the_registration() {
    let mut world = World::new("mark");
    let controller = world.start();
    write_clean_shutdown(&OsDisk::default(), &world.path(), controller.broker_epoch()).unwrap();
    assert_eq!(
        read_clean_shutdown(&OsDisk::default(), &world.path()).unwrap(),
        Some(1)
    );
}
