//! What a whole broker knows of a client from its requests alone: its settings, the sizes of what
//! it sends, the partitions it writes to.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use ottla_broker::Broker;
use ottla_broker::activity::{Activity, ActivityReading, FetchLimits, Largest, OpenTransaction};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::add_partitions_to_txn::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_wire::messages::end_txn::{EndTxnRequest, EndTxnResponse};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::find_coordinator::FindCoordinatorRequest;
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::{Client, frame, frame_of};

const TOPIC: &str = "t";

fn start() -> (Broker, Client) {
    let broker = Broker::start_temporary(&[("group.initial.rebalance.delay.ms", "0")]).unwrap();
    let mut client = Client::connect(broker.address());
    let topic = CreatableTopic {
        name: TOPIC,
        num_partitions: 3,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..Default::default()
    };
    client.send(&frame(ApiKey::CreateTopics, 5, 1, |bytes| {
        request.encode(bytes, 5)
    }));
    client.receive(ApiKey::CreateTopics, 5, 1);
    (broker, client)
}

/// The broker's counts of a client id once `requests` of its requests have been counted: an answer
/// is on its way before it is.
fn counted(broker: &Broker, client_id: &str, requests: u64) -> (ActivityReading, Activity) {
    let view = broker.activity();
    loop {
        let mut reading = view.read();
        let is_counted = |one: &Activity| {
            let api = one.produce.as_ref().or(one.fetch.as_ref());
            &*one.who.client_id == client_id && api.is_some_and(|api| api.requests == requests)
        };
        if let Some(place) = reading.connections.iter().position(is_counted) {
            let activity = reading.connections.remove(place);
            return (reading, activity);
        }
        std::thread::yield_now();
    }
}

fn batch(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for number in 0..records {
        builder.append(1_000 + number as i64, None, Some(&[7; 100]), &[]);
    }
    builder.finish()
}

/// A produce request with one batch for each of `partitions`: its index and its records.
fn produce(client_id: &str, correlation_id: i32, partitions: &[(i32, usize)]) -> Vec<u8> {
    let batches: Vec<Vec<u8>> = partitions.iter().map(|(_, records)| batch(*records)).collect();
    let partition_data = partitions.iter().zip(&batches);
    let topic = TopicProduceData {
        name: TOPIC,
        partition_data: partition_data
            .map(|((index, _), records)| PartitionProduceData {
                index: *index,
                records: Some(records),
            })
            .collect(),
        ..Default::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..Default::default()
    };
    frame_of(client_id, ApiKey::Produce, 9, correlation_id, |bytes| {
        request.encode(bytes, 9)
    })
}

fn produced(client: &mut Client, correlation_id: i32) {
    let body = client.receive(ApiKey::Produce, 9, correlation_id);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    for partition in &response.responses[0].partition_responses {
        assert_eq!(partition.error_code, ErrorCode::None.code());
    }
}

#[test]
fn a_producers_partitions_and_largest_request_are_known() {
    let (broker, _) = start();
    let mut client = Client::connect(broker.address());
    let small = produce("writer", 1, &[(0, 1), (2, 1)]);
    let large = produce("writer", 2, &[(2, 50)]);
    for (correlation_id, request) in [(1, &small), (2, &large)] {
        client.send(request);
        produced(&mut client, correlation_id);
    }
    client.send(&produce("writer", 3, &[(2, 1)]));
    produced(&mut client, 3);
    let (reading, activity) = counted(&broker, "writer", 3);
    let written = activity.written.unwrap();
    let partitions: Vec<_> = (written.entries().iter())
        .map(|entry| {
            let topic = reading.topic_name(entry.topic_id).unwrap().to_string();
            (topic, entry.index, entry.batches, entry.records, entry.bytes)
        })
        .collect();
    let (one, fifty) = (batch(1).len() as u64, batch(50).len() as u64);
    assert_eq!(
        partitions,
        [
            (TOPIC.to_owned(), 0, 1, 1, one),
            (TOPIC.to_owned(), 2, 3, 52, 2 * one + fifty)
        ]
    );
    let bits = written.bits(reading.moment);
    let bit_count: u32 = bits.iter().map(|word| word.count_ones()).sum();
    // Topic ids are random, and two partitions of one topic in 1,024 share a bit.
    assert!((1..=2).contains(&bit_count), "{bit_count}");
    let [now, before] = activity.produce.unwrap().largest.read(reading.moment);
    let expected = Largest {
        request_bytes: large.len() as u32 - 4,
        batch_bytes: fifty as u32,
        in_flight: 1,
    };
    assert_eq!(now.or(before), expected);
    assert!(activity.who.is_local, "it comes from the loopback");
}

#[test]
fn requests_under_way_at_the_same_time_are_counted() {
    let (broker, _) = start();
    let mut client = Client::connect(broker.address());
    let requests: Vec<u8> = (1..=4)
        .flat_map(|correlation_id| produce("pipelined", correlation_id, &[(0, 1)]))
        .collect();
    client.send(&requests);
    for correlation_id in 1..=4 {
        produced(&mut client, correlation_id);
    }
    let (reading, activity) = counted(&broker, "pipelined", 4);
    let [now, before] = activity.produce.unwrap().largest.read(reading.moment);
    assert_eq!(now.or(before).in_flight, 4);
}

/// A fetch of session `session`, with the partition limits that are given.
fn fetch(
    client: &mut Client,
    correlation_id: i32,
    session: (i32, i32),
    min_bytes: i32,
    partitions: &[(i32, i32)],
) -> i32 {
    let asked = partitions.iter().map(|(partition, bytes_max)| FetchPartition {
        partition: *partition,
        partition_max_bytes: *bytes_max,
        ..Default::default()
    });
    let topic = FetchTopic {
        topic: TOPIC,
        partitions: asked.collect(),
        ..Default::default()
    };
    let request = FetchRequest {
        max_wait_ms: 10,
        min_bytes,
        max_bytes: 3_000_000,
        session_id: session.0,
        session_epoch: session.1,
        topics: if partitions.is_empty() {
            Vec::new()
        } else {
            vec![topic]
        },
        ..Default::default()
    };
    client.send(&frame_of("reader", ApiKey::Fetch, 11, correlation_id, |bytes| {
        request.encode(bytes, 11)
    }));
    let body = client.receive(ApiKey::Fetch, 11, correlation_id);
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    assert_eq!(response.error_code, ErrorCode::None.code());
    response.session_id
}

#[test]
fn a_sessions_later_fetches_keep_the_limits_of_its_partitions() {
    let (broker, _) = start();
    let mut client = Client::connect(broker.address());
    let session_id = fetch(&mut client, 1, (0, 0), 1, &[(0, 16_384), (1, 16_384)]);
    // Names no partition, and another number of bytes to wait for.
    fetch(&mut client, 2, (session_id, 1), 100_000, &[]);
    fetch(&mut client, 3, (session_id, 2), 100_000, &[]);
    let (_, activity) = counted(&broker, "reader", 3);
    let limits = activity.fetch.unwrap().fetch_limits;
    let expected = FetchLimits {
        min_bytes: 100_000,
        max_wait_ms: 10,
        max_bytes: 3_000_000,
        partition_bytes_max: Some(16_384),
    };
    assert_eq!(limits, Some(expected));
}

#[test]
fn a_members_timeouts_are_known_from_its_join() {
    let (broker, mut client) = start();
    client.find_coordinator("g");
    let request = JoinGroupRequest {
        group_id: "g",
        session_timeout_ms: 7_000,
        rebalance_timeout_ms: 8_000,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol {
            name: "range",
            metadata: b"",
        }],
        ..Default::default()
    };
    client.send(&frame(ApiKey::JoinGroup, 3, 3, |bytes| request.encode(bytes, 3)));
    let body = client.receive(ApiKey::JoinGroup, 3, 3);
    let response = JoinGroupResponse::decode(&mut Reader::new(&body), 3).unwrap();
    assert_eq!(response.error_code, 0);
    let groups = broker.activity().read().groups;
    let member = &groups[0].members[0];
    assert_eq!(
        (member.rebalance_timeout_ms, member.session_timeout_ms),
        (8_000, 7_000)
    );
}

#[test]
fn a_consumers_commits_are_counted_with_their_time() {
    let (broker, mut client) = start();
    let view = broker.activity();
    let counted = || {
        let connections = view.read().connections;
        let sums = connections.iter().map(|one| (one.commits, one.commit_micros));
        sums.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    };
    assert_eq!(counted(), (0, 0));
    client.find_coordinator("g");
    for offset in [7, 8] {
        client.commit("g", TOPIC, offset);
    }
    // An answer is on its way before it is counted.
    while counted().0 < 2 {
        std::thread::yield_now();
    }
    let (commits, micros) = counted();
    assert!(commits == 2 && micros > 0, "{commits} in {micros} us");
}

/// Begins a transaction with one record in partition 1; returns the producer id.
fn begin_transaction(client: &mut Client, transactional_id: &str) -> i64 {
    let find = FindCoordinatorRequest {
        key_type: 1,
        coordinator_keys: vec![transactional_id],
        ..Default::default()
    };
    client.send(&frame(ApiKey::FindCoordinator, 4, 4, |bytes| {
        find.encode(bytes, 4)
    }));
    client.receive(ApiKey::FindCoordinator, 4, 4);
    let init = InitProducerIdRequest {
        transactional_id: Some(transactional_id),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let (producer_id, producer_epoch) = loop {
        client.send(&frame(ApiKey::InitProducerId, 2, 1, |bytes| {
            init.encode(bytes, 2)
        }));
        let body = client.receive(ApiKey::InitProducerId, 2, 1);
        let answer = InitProducerIdResponse::decode(&mut Reader::new(&body), 2).unwrap();
        if answer.error_code == ErrorCode::None.code() {
            break (answer.producer_id, answer.producer_epoch);
        }
        // Its coordinator may still be loading.
        let loading = [
            ErrorCode::CoordinatorLoadInProgress,
            ErrorCode::CoordinatorNotAvailable,
        ];
        assert!(
            loading.map(ErrorCode::code).contains(&answer.error_code),
            "{}",
            answer.error_code
        );
    };
    let add = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: transactional_id,
        v3_and_below_producer_id: producer_id,
        v3_and_below_producer_epoch: producer_epoch,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: TOPIC,
            partitions: vec![1],
        }],
        ..Default::default()
    };
    client.send(&frame(ApiKey::AddPartitionsToTxn, 3, 2, |bytes| {
        add.encode(bytes, 3)
    }));
    client.receive(ApiKey::AddPartitionsToTxn, 3, 2);
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    });
    builder.append(1_000, None, Some(&[7; 100]), &[]);
    let records = builder.finish();
    let request = ProduceRequest {
        transactional_id: Some(transactional_id),
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC,
            partition_data: vec![PartitionProduceData {
                index: 1,
                records: Some(&records),
            }],
            ..Default::default()
        }],
    };
    client.send(&frame(ApiKey::Produce, 9, 3, |bytes| request.encode(bytes, 9)));
    produced(client, 3);
    producer_id
}

#[test]
fn the_open_transaction_before_which_a_reader_stands_is_known_with_its_owner() {
    let (broker, mut client) = start();
    client.send(&produce("writer", 1, &[(1, 5)]));
    produced(&mut client, 1);
    let producer_id = begin_transaction(&mut client, "billing");
    assert_eq!(
        broker.activity().read().open_transactions,
        [],
        "nobody reads there"
    );
    let mut reader = Client::connect(broker.address());
    fetch(&mut reader, 1, (0, 0), 1, &[(1, 16_384)]);
    let (reading, _) = counted(&broker, "reader", 1);
    let [open] = &reading.open_transactions[..] else {
        panic!("one partition: {:?}", reading.open_transactions)
    };
    let expected = OpenTransaction {
        topic: TOPIC.into(),
        partition: 1,
        first_offset: 5,
        producer_id,
        transactional_id: Some("billing".into()),
        written: open.written,
    };
    assert_eq!(*open, expected);
}

/// A client of before KIP-890 says by its id and epoch alone which transaction it ends; on a
/// connection of its own, as librdkafka has one to the coordinator.
#[test]
fn an_end_that_does_not_say_of_which_transaction_is_counted() {
    let (broker, mut client) = start();
    let producer_id = begin_transaction(&mut client, "billing");
    let end = EndTxnRequest {
        transactional_id: "billing",
        producer_id,
        producer_epoch: 0,
        committed: true,
    };
    let mut other = Client::connect(broker.address());
    other.send(&frame(ApiKey::EndTxn, 3, 1, |bytes| end.encode(bytes, 3)));
    let body = other.receive(ApiKey::EndTxn, 3, 1);
    assert_eq!(
        EndTxnResponse::decode(&mut Reader::new(&body), 3)
            .unwrap()
            .error_code,
        ErrorCode::None.code()
    );
    // An answer is on its way before it is counted.
    let ended = |reading: &ActivityReading| reading.connections.iter().any(|one| one.nameless_ends == 1);
    let view = broker.activity();
    let mut reading = view.read();
    while !ended(&reading) {
        std::thread::yield_now();
        reading = view.read();
    }
    assert_eq!(reading.transaction_version(), Some(2));
}
