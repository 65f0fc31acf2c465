//! Denials that depend on more than one permission, on a topic's name or id, or on the moment at
//! which an answer leaves.

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::{delete_topics, fetch, offset_commit, produce};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::Codec;

use super::access_tests::{EXISTING, acl, allow, broker_with_topic, deny, set_acls, settled};
use super::metadata_tests::{Broker, poll, read, versions};
use crate::access::acl::{Operation, Permission, ResourceType};
use crate::access::denials::DenialCount;
use crate::image::access::AclImage;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::services::Syncable;
use Operation::{Delete, Describe, Read, Write};
use Permission::Allow;
use ResourceType::{Group, Topic};

const DENIED: i16 = ErrorCode::TopicAuthorizationFailed as i16;

fn denials(broker: &Broker, resource_type: &str) -> u64 {
    let counts = broker.node.access.denials().unwrap();
    let mut counts = counts.into_iter();
    counts.find(|(name, _)| *name == resource_type).unwrap().1
}

/// Returns error code, name and id of the answer about one topic.
fn delete(broker: &Broker, version: i16, name: Option<&str>, id: Uuid) -> (i16, Option<String>, Uuid) {
    let request = delete_topics::DeleteTopicsRequest {
        topic_names: name.filter(|_| version < 6).into_iter().collect(),
        topics: (version >= 6)
            .then_some(delete_topics::DeleteTopicState { name, topic_id: id })
            .into_iter()
            .collect(),
        timeout_ms: 1_000,
    };
    let bytes = settled(broker, ApiKey::DeleteTopics, version, |body| {
        request.encode(body, version);
    });
    let bytes = bytes.unwrap();
    let response = read(&bytes, |reader| {
        delete_topics::DeleteTopicsResponse::decode(reader, version)
    });
    let topic = &response.responses[0];
    (topic.error_code, topic.name.map(str::to_owned), topic.topic_id)
}

/// Apache Kafka asks for DESCRIBE, too, where a topic is named: with DELETE allowed and DESCRIBE
/// denied a deletion told whether the topic had existed, and deleted it.
#[test]
fn a_deletion_by_name_needs_description_and_deletion() {
    let (broker, names) = broker_with_topic();
    let denied = |name: &str| (DENIED, Some(name.to_owned()), Uuid::ZERO);
    for version in versions(ApiKey::DeleteTopics) {
        set_acls(&broker, [allow((Topic, Delete)), deny((Topic, Describe))]);
        for name in [EXISTING, "absent"] {
            assert_eq!(delete(&broker, version, Some(name), Uuid::ZERO), denied(name));
        }
        set_acls(&broker, [allow((Topic, Describe))]);
        assert_eq!(
            delete(&broker, version, Some(EXISTING), Uuid::ZERO),
            denied(EXISTING),
            "the id is not told"
        );
        let (code, ..) = delete(&broker, version, Some("absent"), Uuid::ZERO);
        assert_eq!(code, ErrorCode::UnknownTopicOrPartition.code());
        assert!(broker.node.image().topic(EXISTING).is_some(), "{version}");
    }
    set_acls(&broker, [allow((Topic, Delete))]);
    let deleted = (0, Some(EXISTING.to_owned()), names.topic_id);
    assert_eq!(delete(&broker, 6, Some(EXISTING), Uuid::ZERO), deleted);
}

#[test]
fn a_deletion_by_id_needs_deletion_alone() {
    let (broker, names) = broker_with_topic();
    set_acls(&broker, [allow((Topic, Describe))]);
    assert_eq!(
        delete(&broker, 6, None, names.topic_id),
        (DENIED, Some(EXISTING.to_owned()), names.topic_id)
    );
    set_acls(&broker, [allow((Topic, Delete)), deny((Topic, Describe))]);
    let (code, ..) = delete(&broker, 6, None, names.topic_id);
    assert_eq!(code, 0);
    assert!(broker.node.image().topic(EXISTING).is_none());
}

/// A fetch that read the device was answered by the permissions of the moment at which it began.
#[test]
fn a_fetch_from_the_device_gets_nothing_after_its_permission_was_withdrawn() {
    let (mut broker, names) = broker_with_topic();
    broker.connect_as("User:admin");
    let (_, other_id) = broker.create("other", 1, 7);
    broker.connect_as("User:alice");
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000, None, Some(&[7; 10_000]), &[]);
    let records = builder.finish();
    for topic in [EXISTING, "other"] {
        let partition = broker.node.storage.partition_by_name(topic, 0).unwrap();
        partition
            .append_internal(broker.node.services(), &records)
            .unwrap();
        // Only what is on the device can be evicted.
        partition.with_log(|log| log.request_checkpoint());
        partition.clone().run_sync(broker.node.services());
    }
    let by_id = |topic_id| fetch::FetchTopic {
        topic_id,
        partitions: vec![fetch::FetchPartition {
            partition_max_bytes: 100_000,
            ..Default::default()
        }],
        ..Default::default()
    };
    let request = fetch::FetchRequest {
        replica_id: -1,
        min_bytes: 1,
        max_bytes: 100_000,
        session_epoch: -1,
        topics: vec![by_id(names.topic_id), by_id(other_id)],
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 13);
    let end = |acls_while_it_reads: Vec<AclImage>| {
        broker.disk.evict();
        set_acls(&broker, [allow((Topic, Read))]);
        let mut reply = ReplyBuffer::default();
        let Handled::Pending(mut pending) = broker.send(ApiKey::Fetch, 13, &body, &mut reply) else {
            panic!("nothing is in memory");
        };
        assert!(poll(&broker, &mut pending, &mut reply).is_pending());
        assert!(broker.settle() > 0);
        set_acls(&broker, acls_while_it_reads);
        assert!(poll(&broker, &mut pending, &mut reply).is_ready());
        let bytes: u64 = reply.regions.iter().map(|region| region.region.bytes).sum();
        let mut answer = std::mem::take(&mut reply.bytes);
        for inserted in reply.regions.iter().rev() {
            let records = std::iter::repeat_n(0, inserted.region.bytes as usize);
            answer.splice(inserted.at..inserted.at, records);
        }
        let response = read(&answer, |reader| fetch::FetchResponse::decode(reader, 13));
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let codes: Vec<i16> = partitions.map(|partition| partition.error_code).collect();
        (codes, bytes)
    };
    let whole = records.len() as u64;
    assert_eq!(end(vec![allow((Topic, Read))]), (vec![0, 0], 2 * whole));
    assert_eq!(
        end(vec![acl(Allow, Topic, Read, "other")]),
        (vec![DENIED, 0], whole)
    );
    assert_eq!(end(Vec::new()), (vec![DENIED, DENIED], 0));
}

#[test]
fn a_commit_for_an_unknown_id_asks_about_no_topic() {
    let (broker, names) = broker_with_topic();
    set_acls(&broker, [allow((Group, Read))]);
    let commit = |topic_id| {
        let request = offset_commit::OffsetCommitRequest {
            group_id: "group",
            topics: vec![offset_commit::OffsetCommitRequestTopic {
                topic_id,
                partitions: vec![offset_commit::OffsetCommitRequestPartition::default()],
                ..Default::default()
            }],
            ..Default::default()
        };
        let before = denials(&broker, "Topic");
        let mut body = Vec::new();
        request.encode(&mut body, 10);
        let mut reply = ReplyBuffer::default();
        let handled = broker.send(ApiKey::OffsetCommit, 10, &body, &mut reply);
        assert!(!matches!(handled, Handled::Close(_)));
        denials(&broker, "Topic") - before
    };
    assert_eq!(commit(Uuid([9; 16])), 0);
    assert_eq!(commit(names.topic_id), 1);
}

#[test]
fn a_topic_is_denied_once_in_a_produce_that_continues_on_another_thread() {
    let (mut broker, _) = broker_with_topic();
    broker.connect_as("User:admin");
    broker.create("large", 1, 7);
    broker.connect_as("User:alice");
    set_acls(&broker, [acl(Allow, Topic, Write, "large")]);
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: Codec::Zstd.into(),
        ..BatchOptions::default()
    });
    // More than an event loop decompresses.
    builder.append(1_000, None, Some(&vec![7; 900_000]), &[]);
    let records = builder.finish();
    let topic = |name, count| produce::TopicProduceData {
        name,
        partition_data: (0..count)
            .map(|index| produce::PartitionProduceData {
                index,
                records: Some(&records),
            })
            .collect(),
        ..Default::default()
    };
    let request = produce::ProduceRequest {
        acks: 1,
        timeout_ms: 1_000,
        topic_data: vec![topic("before", 2), topic("large", 1), topic("after", 2)],
        ..Default::default()
    };
    let before = denials(&broker, "Topic");
    let mut body = Vec::new();
    request.encode(&mut body, 9);
    let mut reply = ReplyBuffer::default();
    let Handled::Pending(mut pending) = broker.send(ApiKey::Produce, 9, &body, &mut reply) else {
        panic!("too much for an event loop");
    };
    assert!(poll(&broker, &mut pending, &mut reply).is_pending());
    assert!(broker.settle() > 0);
    assert!(poll(&broker, &mut pending, &mut reply).is_ready());
    let response = read(&reply.bytes, |reader| produce::ProduceResponse::decode(reader, 9));
    let codes: Vec<i16> = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .map(|partition| partition.error_code)
        .collect();
    assert_eq!(codes, [DENIED, DENIED, 0, DENIED, DENIED]);
    assert_eq!(denials(&broker, "Topic") - before, 2);
    let rows = broker.node.access.denials_by_principal();
    let of = |name: &str| {
        let is_it = |row: &&DenialCount| {
            row.denied
                .as_ref()
                .is_some_and(|denied| &*denied.resource == name)
        };
        rows.iter()
            .find(is_it)
            .map(|row| (row.principal.clone(), row.count))
    };
    assert_eq!(of("before"), Some((Some("User:alice".into()), 1)));
    assert_eq!(of("after"), Some((Some("User:alice".into()), 1)));
}
