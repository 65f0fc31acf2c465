//! Replays a log and a snapshot of Apache Kafka; and errors that replay must detect.

use std::sync::Arc;

use ottla_wire::metadata_records::{self as records, MetadataRecord, decode_frame};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::batches;

use super::delta::ImageDelta;
use super::error::ImageError;
use super::features::{GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION};
use super::record::RecordList;
use super::replay::Replay;
use super::snapshot::{PARTITION_CHANGE_RECORD_VERSION, PARTITION_RECORD_VERSION, records_of};
use super::topics::NO_LEADER;
use super::*;
use crate::random::Random;

const KAFKA_LOG: &[u8] = include_bytes!("../../tests/golden/metadata-4.3.0/00000000000000000000.log");
const KAFKA_SNAPSHOT: &[u8] =
    include_bytes!("../../tests/golden/metadata-4.3.0/00000000000000000283-0000000001.checkpoint");
const SNAPSHOT_END: i64 = 283;

fn empty() -> Arc<MetadataImage> {
    let static_config = StaticConfig {
        node_id: 1,
        ..StaticConfig::default()
    };
    Arc::new(MetadataImage::empty(Arc::new(static_config)))
}

fn replayed(bytes: &[u8]) -> Replay {
    let mut replay = Replay::new(empty());
    assert_eq!(replay.apply_batches(bytes).unwrap(), bytes.len());
    replay
}

fn apply(replay: &mut Replay, list: &RecordList) -> Result<(), ImageError> {
    let at = Provenance {
        last_offset: replay.image().provenance.last_offset + 1,
        ..Provenance::EMPTY
    };
    replay.apply(at, list.values.iter().map(Vec::as_slice))
}

fn list(records: Vec<(MetadataRecord<'_>, i16)>) -> RecordList {
    let mut list = RecordList::default();
    for (record, version) in records {
        list.push(record, version);
    }
    list
}

fn topic<'a>(name: &'a str, id: u8) -> (MetadataRecord<'a>, i16) {
    (
        MetadataRecord::Topic(records::topic::TopicRecord {
            name,
            topic_id: Uuid([id; 16]),
        }),
        0,
    )
}

fn partition<'a>(id: u8, partition_id: i32) -> (MetadataRecord<'a>, i16) {
    let record = records::partition::PartitionRecord {
        partition_id,
        topic_id: Uuid([id; 16]),
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![Uuid([9; 16])],
        ..Default::default()
    };
    (MetadataRecord::Partition(record), PARTITION_RECORD_VERSION)
}

fn change<'a>(id: u8, partition_id: i32, leader: i32) -> (MetadataRecord<'a>, i16) {
    let record = records::partition_change::PartitionChangeRecord {
        partition_id,
        topic_id: Uuid([id; 16]),
        leader,
        ..Default::default()
    };
    (
        MetadataRecord::PartitionChange(record),
        PARTITION_CHANGE_RECORD_VERSION,
    )
}

fn config<'a>(
    resource_type: i8,
    resource_name: &'a str,
    name: &'a str,
    value: Option<&'a str>,
) -> (MetadataRecord<'a>, i16) {
    (
        MetadataRecord::Config(records::config::ConfigRecord {
            resource_type,
            resource_name,
            name,
            value,
        }),
        0,
    )
}

#[test]
fn kafkas_log_is_replayed_into_the_image_that_kafka_had() {
    let replay = replayed(KAFKA_LOG);
    let image = replay.image();
    assert_eq!(image.provenance.last_offset, 293);
    assert_eq!(image.provenance.last_epoch, 1);
    assert!(!replay.in_transaction());
    assert_eq!(replay.quorum().kraft_version, 1);
    let directory: Uuid = "YD0u1wBiQQGajB49FHXRZA".parse().unwrap();
    assert_eq!(replay.quorum().voters, [(1, directory)]);

    let levels =
        [METADATA_VERSION, GROUP_VERSION, TRANSACTION_VERSION].map(|name| image.features.level(name));
    assert_eq!(levels, [30, 1, 2]);
    let names: Vec<&str> = image.topics.iter().map(|topic| &*topic.name).collect();
    assert_eq!(names, ["after-snapshot", "orders", "users"]);
    assert_eq!(image.topics.partition_count(), 6);

    let orders = image.topic("orders").unwrap();
    assert_eq!(orders.id, "LbJ_-fxPQfmb0UEI_GRZ7w".parse().unwrap());
    assert!(Arc::ptr_eq(image.topic_by_id(orders.id).unwrap(), orders));
    let last = orders.partition(2).unwrap();
    assert_eq!(
        (&*last.replicas, &*last.isr, &*last.directories),
        (&[1][..], &[1][..], &[directory][..])
    );
    // The clean stop resigned leadership, which changes the partition and its leader.
    assert_eq!(
        (last.leader, last.leader_epoch, last.partition_epoch),
        (NO_LEADER, 1, 1)
    );

    let broker = &image.brokers[&1];
    assert_eq!(
        (broker.broker_epoch, broker.fenced, broker.in_controlled_shutdown),
        (9, true, true)
    );
    assert_eq!(broker.endpoint("PLAINTEXT").unwrap().port, 29192);
    assert_eq!(broker.log_directories, [directory]);
    assert_eq!(broker.cordoned_log_directories, Some(vec![]));
    assert_eq!(image.controllers[&1].endpoints[0].port, 29193);
}

#[test]
fn everything_that_kafka_stored_beside_topics_is_in_the_image() {
    let replay = replayed(KAFKA_LOG);
    let image = replay.image();
    let value = |resource: &ConfigResource, key: &str| {
        image.config(resource).and_then(|values| values.get(key).cloned())
    };
    assert_eq!(
        value(&ConfigResource::broker(1), "log.cleaner.threads").as_deref(),
        Some("2")
    );
    assert_eq!(
        value(&ConfigResource::cluster_default(), "log.retention.ms").as_deref(),
        Some("7200000")
    );
    assert_eq!(
        value(&ConfigResource::topic("orders"), "segment.bytes").as_deref(),
        Some("1048576")
    );
    assert_eq!(value(&ConfigResource::topic("orders"), "retention.ms"), None);
    assert_eq!(
        image.group_config("g1").unwrap()["consumer.session.timeout.ms"],
        "50000".into()
    );
    assert_eq!(image.next_producer_id, 1000);
    assert_eq!(image.client_quotas.len(), 2);
    let pair: ClientQuotaEntity = vec![
        ("client-id".into(), Some("app".into())),
        ("user".into(), Some("alice".into())),
    ];
    assert_eq!(image.client_quotas[&pair]["producer_byte_rate"], 1024.0);
    let scram = &image.scram_credentials[&ScramKey {
        mechanism: 1,
        user: "alice".into(),
    }];
    assert_eq!((&*scram.salt, scram.iterations), (&b"0123456789abcdef"[..], 4096));
    assert_eq!(image.acls.values().next().unwrap().principal, "User:alice".into());

    // The topic's own setting, and the cluster's for all others.
    let orders = &image.topic("orders").unwrap().config;
    assert_eq!(
        (orders.log.segment_bytes, orders.log.retention_ms),
        (1_048_576, 7_200_000)
    );
    let users = &image.topic("users").unwrap().config;
    assert!(users.log.compact && !users.log.delete);
}

#[test]
fn kafkas_snapshot_and_the_rest_of_the_log_give_the_same_image() {
    let from_log = replayed(KAFKA_LOG);
    let mut from_snapshot = replayed(KAFKA_SNAPSHOT);
    assert_eq!(from_snapshot.quorum(), from_log.quorum());
    for batch in batches(KAFKA_LOG).map(Result::unwrap) {
        if batch.header.base_offset >= SNAPSHOT_END {
            from_snapshot.apply_batch(&batch).unwrap();
        }
    }
    assert_eq!(records_of(from_snapshot.image()), records_of(from_log.image()));
}

#[test]
fn ottlas_snapshot_of_kafkas_image_gives_the_same_image() {
    let replay = replayed(KAFKA_LOG);
    let written = records_of(replay.image());
    let mut again = Replay::new(empty());
    apply(&mut again, &written).unwrap();
    assert_eq!(records_of(again.image()), written);
    assert_eq!(again.image().brokers, replay.image().brokers);
    assert_eq!(again.image().scram_credentials, replay.image().scram_credentials);
}

#[test]
fn every_change_of_a_partition_raises_its_epoch_and_every_named_leader_the_leader_epoch() {
    let mut replay = Replay::new(empty());
    apply(&mut replay, &list(vec![topic("t", 1), partition(1, 0)])).unwrap();
    let epochs = |replay: &Replay| {
        let partition = &replay.image().topic("t").unwrap().partitions[0];
        (
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
        )
    };
    assert_eq!(epochs(&replay), (1, 0, 0));
    apply(&mut replay, &list(vec![change(1, 0, -2)])).unwrap();
    assert_eq!(epochs(&replay), (1, 0, 1));
    apply(&mut replay, &list(vec![change(1, 0, 1)])).unwrap();
    assert_eq!(epochs(&replay), (1, 1, 2));
    apply(&mut replay, &list(vec![change(1, 0, -1)])).unwrap();
    assert_eq!(epochs(&replay), (-1, 2, 3));
}

#[test]
fn a_published_image_never_changes() {
    let mut replay = Replay::new(empty());
    apply(
        &mut replay,
        &list(vec![
            topic("t", 1),
            partition(1, 0),
            topic("u", 2),
            partition(2, 0),
        ]),
    )
    .unwrap();
    let before = replay.image().clone();
    apply(&mut replay, &list(vec![change(1, 0, -1)])).unwrap();
    assert_eq!(before.topic("t").unwrap().partitions[0].leader, 1);
    assert_eq!(replay.image().topic("t").unwrap().partitions[0].leader, -1);
    // Unchanged parts are shared, not copied.
    assert!(Arc::ptr_eq(
        before.topic("u").unwrap(),
        replay.image().topic("u").unwrap()
    ));
}

#[test]
fn partitions_may_come_in_any_order_but_leave_no_gap() {
    let mut replay = Replay::new(empty());
    let records = vec![
        topic("t", 1),
        partition(1, 2),
        partition(1, 1),
        change(1, 2, -1),
        partition(1, 0),
    ];
    apply(&mut replay, &list(records)).unwrap();
    let leaders: Vec<i32> = replay
        .image()
        .topic("t")
        .unwrap()
        .partitions
        .iter()
        .map(|partition| partition.leader)
        .collect();
    assert_eq!(leaders, [1, 1, -1]);
    assert_eq!(
        apply(&mut replay, &list(vec![partition(1, 4)])),
        Err(ImageError::PartitionGap {
            id: Uuid([1; 16]),
            partition: 4,
            partition_count: 3
        })
    );
}

#[test]
fn removing_a_topic_removes_its_settings_and_frees_its_name() {
    let mut replay = Replay::new(empty());
    apply(
        &mut replay,
        &list(vec![
            topic("t", 1),
            partition(1, 0),
            config(2, "t", "retention.ms", Some("5")),
        ]),
    )
    .unwrap();
    replay.take_changes();
    let remove = MetadataRecord::RemoveTopic(records::remove_topic::RemoveTopicRecord {
        topic_id: Uuid([1; 16]),
    });
    apply(
        &mut replay,
        &list(vec![(remove, 0), topic("t", 2), partition(2, 0)]),
    )
    .unwrap();
    let image = replay.image().clone();
    assert_eq!(image.topic("t").unwrap().id, Uuid([2; 16]));
    assert!(image.topic_by_id(Uuid([1; 16])).is_none());
    assert_eq!(
        image.topic("t").unwrap().config.log.retention_ms,
        image.topic_defaults.log.retention_ms
    );
    assert_eq!(image.topics.partition_count(), 1);
    let changes = replay.take_changes();
    assert_eq!(
        changes
            .topics_removed
            .iter()
            .map(|topic| topic.id)
            .collect::<Vec<_>>(),
        [Uuid([1; 16])]
    );
    assert_eq!(
        changes.topics_changed.into_iter().collect::<Vec<_>>(),
        [Uuid([2; 16])]
    );
}

#[test]
fn the_most_specific_setting_wins() {
    let mut replay = Replay::new(Arc::new(MetadataImage::empty(Arc::new(StaticConfig {
        node_id: 1,
        values: [("log.retention.hours".into(), "2".into())].into(),
    }))));
    apply(&mut replay, &list(vec![topic("t", 1), partition(1, 0)])).unwrap();
    let retention = |replay: &Replay| replay.image().topic("t").unwrap().config.log.retention_ms;
    assert_eq!(retention(&replay), 7_200_000);
    let mut set = |resource_type, resource, key, value, expected| {
        apply(
            &mut replay,
            &list(vec![config(resource_type, resource, key, value)]),
        )
        .unwrap();
        assert_eq!(retention(&replay), expected);
    };
    set(4, "", "log.retention.ms", Some("30"), 30);
    set(4, "1", "log.retention.ms", Some("20"), 20);
    set(4, "2", "log.retention.ms", Some("25"), 20);
    set(2, "t", "retention.ms", Some("10"), 10);
    set(2, "t", "retention.ms", Some("not a number"), 20);
    set(2, "t", "retention.ms", None, 20);
    set(4, "1", "log.retention.ms", None, 30);
    set(4, "", "log.retention.ms", None, 7_200_000);
}

#[test]
fn a_transaction_takes_effect_at_its_end_or_never() {
    let begin = || (MetadataRecord::BeginTransaction(Default::default()), 0);
    let end = || (MetadataRecord::EndTransaction(Default::default()), 0);
    let abort = || (MetadataRecord::AbortTransaction(Default::default()), 0);
    let mut replay = Replay::new(empty());
    apply(
        &mut replay,
        &list(vec![topic("before", 1), begin(), topic("inside", 2)]),
    )
    .unwrap();
    assert!(replay.image().topic("before").is_some() && replay.image().topic("inside").is_none());
    assert!(replay.in_transaction());
    apply(&mut replay, &list(vec![partition(2, 0)])).unwrap();
    assert!(replay.image().topic("inside").is_none());
    apply(&mut replay, &list(vec![end(), topic("after", 3)])).unwrap();
    assert_eq!(replay.image().topic("inside").unwrap().partitions.len(), 1);
    assert!(replay.image().topic("after").is_some() && !replay.in_transaction());

    apply(&mut replay, &list(vec![begin(), topic("undone", 4)])).unwrap();
    apply(&mut replay, &list(vec![abort(), topic("done", 5)])).unwrap();
    assert!(replay.image().topic("undone").is_none() && replay.image().topic("done").is_some());
    assert!(apply(&mut replay, &list(vec![end()])).is_err());
}

#[test]
fn a_batch_with_a_record_that_is_not_understood_has_no_effect() {
    let check = |value: Vec<u8>| {
        let mut replay = Replay::new(empty());
        let mut records = list(vec![topic("t", 1)]);
        records.values.push(value);
        let error = apply(&mut replay, &records).unwrap_err();
        assert!(replay.image().topics.is_empty());
        error
    };
    let mut records = list(vec![topic("u", 2)]);
    let good = records.values.remove(0);
    // Frame version 2, type 6 (never assigned), type 29 (not assigned yet), record version 9, a
    // byte too many.
    assert!(matches!(
        check([&[2], &good[1..]].concat()),
        ImageError::Decode(_)
    ));
    assert!(matches!(check(vec![1, 6, 0, 0]), ImageError::Decode(_)));
    assert!(matches!(check(vec![1, 29, 0, 0]), ImageError::Decode(_)));
    assert!(matches!(
        check([&good[..2], &[9], &good[3..]].concat()),
        ImageError::Decode(_)
    ));
    assert!(matches!(check([&good[..], &[0]].concat()), ImageError::Decode(_)));
}

#[test]
fn records_about_unknown_objects_are_errors() {
    let check = |records| apply(&mut Replay::new(empty()), &list(records)).unwrap_err();
    assert_eq!(
        check(vec![partition(7, 0)]),
        ImageError::UnknownTopic { id: Uuid([7; 16]) }
    );
    assert_eq!(
        check(vec![topic("t", 1), change(1, 0, 1)]),
        ImageError::UnknownPartition {
            id: Uuid([1; 16]),
            partition: 0
        }
    );
    assert_eq!(
        check(vec![topic("t", 1), topic("t", 2)]),
        ImageError::TopicExists {
            name: "t".to_owned(),
            id: Uuid([1; 16])
        }
    );
    let fence = records::fence_broker::FenceBrokerRecord { id: 3, epoch: 5 };
    assert_eq!(
        check(vec![(MetadataRecord::FenceBroker(fence), 0)]),
        ImageError::UnknownBroker {
            broker_id: 3,
            broker_epoch: 5
        }
    );
    assert_eq!(
        check(vec![config(3, "x", "a", None)]),
        ImageError::UnknownResourceType { code: 3 }
    );
}

#[test]
fn damaged_records_never_panic() {
    let golden: Vec<Vec<u8>> = batches(KAFKA_LOG)
        .map(Result::unwrap)
        .filter(|batch| !batch.header.is_control())
        .flat_map(|batch| {
            batch
                .records()
                .map(|record| record.unwrap().value.unwrap().to_vec())
                .collect::<Vec<_>>()
        })
        .collect();
    let random = Random::new([3, 1, 4, 1]);
    let mut understood = 0;
    for _ in 0..2_000 {
        let mut replay = Replay::new(empty());
        for _ in 0..30 {
            let mut value = golden[random.next() as usize % golden.len()].clone();
            if random.next().is_multiple_of(3) {
                let at = random.next() as usize % value.len();
                value[at] = random.next() as u8;
            }
            if random.next().is_multiple_of(20) {
                value.truncate(random.next() as usize % value.len());
            }
            let at = Provenance {
                last_offset: replay.image().provenance.last_offset + 1,
                ..Provenance::EMPTY
            };
            if replay.apply(at, [value.as_slice()]).is_ok() {
                understood += 1;
            }
        }
        let written = records_of(replay.image());
        let mut again = ImageDelta::new(&empty());
        for value in &written.values {
            again.apply(&decode_frame(value).unwrap().0).unwrap();
        }
    }
    assert!(understood > 2_000, "{understood}");
}
