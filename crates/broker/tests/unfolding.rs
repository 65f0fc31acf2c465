//! Compressed batches that decompress to large sizes: never on an event loop, and never without a
//! bound.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::sync::mpsc;

use ottla_broker::broker::Broker;
use ottla_core::services::{ColdRead, Payer};
use ottla_core::tenant::TenantId;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use ottla_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::Codec;
use support::gate::*;
use support::large::{PROPERTIES, TOPIC, create_topic, start};
use support::{Client, frame};

const MIB: usize = 1 << 20;

/// One record whose value is `value_bytes` of zeros: few bytes when compressed.
fn batch(codec: Codec, value_bytes: usize) -> Vec<u8> {
    numbered(codec, value_bytes, -1)
}

/// From an idempotent producer, unless the sequence is -1.
fn numbered(codec: Codec, value_bytes: usize, base_sequence: i32) -> Vec<u8> {
    let has_producer = base_sequence >= 0;
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        producer_id: if has_producer { 7 } else { -1 },
        producer_epoch: if has_producer { 0 } else { -1 },
        base_sequence,
        ..BatchOptions::default()
    });
    builder.append(1_000, None, Some(&vec![0; value_bytes]), &[]);
    builder.finish()
}

type Parts<'a> = Vec<(i32, &'a [u8])>;

fn send(client: &mut Client, version: i16, correlation_id: i32, acks: i16, topics: &[(&str, Parts<'_>)]) {
    let topic_data = topics.iter().map(|(name, parts)| TopicProduceData {
        name,
        partition_data: parts
            .iter()
            .map(|(index, records)| PartitionProduceData {
                index: *index,
                records: Some(records),
            })
            .collect(),
        ..Default::default()
    });
    let request = ProduceRequest {
        acks,
        // Longer than the test's timeout, so the deadline cannot hide a lost wake-up.
        timeout_ms: 600_000,
        topic_data: topic_data.collect(),
        ..Default::default()
    };
    client.send(&frame(ApiKey::Produce, version, correlation_id, |bytes| {
        request.encode(bytes, version);
    }));
}

/// Topic, partition, error and base offset of every answered partition, in order.
fn receive(client: &mut Client, version: i16, correlation_id: i32) -> Vec<(String, i32, ErrorCode, i64)> {
    let body = client.receive(ApiKey::Produce, version, correlation_id);
    let mut reader = Reader::new(&body);
    let response = ProduceResponse::decode(&mut reader, version).unwrap();
    reader.finish().unwrap();
    let topics = response.responses.iter();
    topics
        .flat_map(|topic| {
            topic
                .partition_responses
                .iter()
                .map(|part| answer(topic.name, part))
        })
        .collect()
}

fn answer(topic: &str, part: &PartitionProduceResponse<'_>) -> (String, i32, ErrorCode, i64) {
    let code = ErrorCode::from_i16(part.error_code).unwrap();
    (topic.to_owned(), part.index, code, part.base_offset)
}

#[test]
fn a_neighbour_is_served_while_a_bomb_is_unfolded_within_one_bound_for_the_request() {
    let broker = start();
    let gate = Gate::close(&broker);
    let (mut client, mut neighbour) = (
        Client::connect(broker.address()),
        Client::connect(broker.address()),
    );
    // Some 3 kB, which decompress to 60 MiB for each of three partitions.
    let bomb = batch(Codec::Zstd, 60 * MIB);
    assert!(bomb.len() < 10_000);
    let parts = vec![(0, &*bomb), (1, &*bomb), (2, &*bomb)];
    send(&mut client, 9, 1, -1, &[(TOPIC, parts)]);
    wait_for_queued(&broker, 1);
    for number in 0..10 {
        assert_eq!(exchange(&mut neighbour, number), i64::from(number));
    }
    assert!(!has_answer(&client));
    drop(gate);
    let body = client.receive(ApiKey::Produce, 9, 1);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    let parts = &response.responses[0].partition_responses;
    assert_eq!((parts[0].error_code, parts[0].base_offset), (0, 10));
    for part in &parts[1..] {
        assert_eq!(part.error_code, ErrorCode::MessageTooLarge.code());
        let message = part.error_message.unwrap();
        assert!(message.contains("104857600"), "{message}");
    }
}

#[test]
fn an_event_loop_unfolds_what_is_small() {
    let broker = start();
    let _gate = Gate::close(&broker);
    let mut client = Client::connect(broker.address());
    for (number, codec) in (1..).zip([Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]) {
        let small = batch(codec, 100_000);
        send(&mut client, 9, number, 1, &[(TOPIC, vec![(0, &small)])]);
        let none = ErrorCode::None;
        assert_eq!(
            receive(&mut client, 9, number),
            [(TOPIC.into(), 0, none, i64::from(number - 1))]
        );
    }
}

#[test]
fn all_codecs_are_taken_elsewhere_when_they_unfold_to_much() {
    let broker = start();
    let codecs = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let gate = Gate::close(&broker);
    let mut clients: Vec<Client> = codecs.iter().map(|_| Client::connect(broker.address())).collect();
    for (number, (codec, client)) in codecs.into_iter().zip(&mut clients).enumerate() {
        let large = batch(codec, MIB);
        send(client, 9, 1, -1, &[(TOPIC, vec![(0, &large)])]);
        wait_for_queued(&broker, number + 1);
    }
    drop(gate);
    let mut offsets: Vec<i64> = clients
        .iter_mut()
        .map(|client| receive(client, 9, 1)[0].3)
        .collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 1, 2, 3]);
}

#[test]
fn recompressing_counts_for_more_than_decompressing() {
    let broker =
        Broker::start_temporary(&[&PROPERTIES[..], &[("compression.type", "gzip")]].concat()).unwrap();
    create_topic(&broker, TOPIC, 1);
    let gate = Gate::close(&broker);
    let mut client = Client::connect(broker.address());
    let (small, large) = (batch(Codec::None, 50_000), batch(Codec::None, 100_000));
    send(&mut client, 9, 1, 1, &[(TOPIC, vec![(0, &small)])]);
    receive(&mut client, 9, 1);
    send(&mut client, 9, 2, 1, &[(TOPIC, vec![(0, &large)])]);
    wait_for_queued(&broker, 1);
    drop(gate);
    assert_eq!(
        receive(&mut client, 9, 2),
        [(TOPIC.into(), 0, ErrorCode::None, 1)]
    );
}

#[test]
fn the_answer_is_complete_wherever_the_request_was_cut() {
    let broker = start();
    create_topic(&broker, "other", 2);
    let mut client = Client::connect(broker.address());
    let places = [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2), ("other", 0), ("other", 1)];
    let (small, large) = (batch(Codec::Zstd, 10), batch(Codec::Zstd, MIB));
    let mut correlation_id = 0;
    for version in [8, 9] {
        for cut_at in 0..=places.len() {
            let records = |place: usize| if place == cut_at { &*large } else { &*small };
            let part = |place: usize| (places[place].1, records(place));
            let topics = [
                (TOPIC, (0..3).map(part).collect()),
                ("nowhere", vec![(5, &*small)]),
                ("other", (3..5).map(part).collect()),
            ];
            let offset = i64::from(correlation_id);
            correlation_id += 1;
            send(&mut client, version, correlation_id, -1, &topics);
            let mut expected: Vec<_> = places
                .iter()
                .map(|(topic, index)| ((*topic).to_owned(), *index, ErrorCode::None, offset))
                .collect();
            let unknown = ErrorCode::UnknownTopicOrPartition;
            expected.insert(3, ("nowhere".into(), 5, unknown, -1));
            let answered = receive(&mut client, version, correlation_id);
            assert_eq!(answered, expected, "version {version}, cut at {cut_at}");
        }
    }
}

#[test]
fn earlier_partitions_are_appended_at_once_and_later_ones_are_not() {
    let broker = start();
    let gate = Gate::close(&broker);
    let (mut client, mut neighbour) = (
        Client::connect(broker.address()),
        Client::connect(broker.address()),
    );
    // One producer's batches 0 and 1 for partition 2; batch 0 is behind the one uncompressed on
    // another thread.
    let (small, large) = (batch(Codec::Zstd, 10), batch(Codec::Zstd, MIB));
    let (first, second) = (numbered(Codec::Lz4, 10, 0), numbered(Codec::Lz4, 10, 1));
    let parts = vec![(0, &*small), (1, &*large), (2, &*first)];
    send(&mut client, 9, 1, -1, &[(TOPIC, parts)]);
    send(&mut client, 9, 2, -1, &[(TOPIC, vec![(2, &*second)])]);
    wait_for_queued(&broker, 1);
    assert_eq!(exchange(&mut neighbour, 1), 1, "partition 0 has the first record");
    assert!(!has_answer(&client));
    drop(gate);
    let none = ErrorCode::None;
    let name = || TOPIC.to_owned();
    assert_eq!(
        receive(&mut client, 9, 1),
        [(name(), 0, none, 0), (name(), 1, none, 0), (name(), 2, none, 0)]
    );
    assert_eq!(receive(&mut client, 9, 2), [(name(), 2, none, 1)]);
}

#[test]
fn with_acks_zero_it_is_appended_and_a_refusal_closes() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    let large = batch(Codec::Zstd, MIB);
    send(&mut client, 9, 1, 0, &[(TOPIC, vec![(0, &*large)])]);
    send(&mut client, 9, 2, -1, &[(TOPIC, vec![(0, &*large)])]);
    assert_eq!(
        receive(&mut client, 9, 2),
        [(TOPIC.into(), 0, ErrorCode::None, 1)]
    );
    let mut damaged = large;
    damaged.truncate(damaged.len() - 1);
    let length = (damaged.len() - 12) as i32;
    damaged[8..12].copy_from_slice(&length.to_be_bytes());
    ottla_wire::records::batch::seal(&mut damaged);
    send(&mut client, 9, 3, 0, &[(TOPIC, vec![(0, &*damaged)])]);
    assert!(client.closed().is_empty());
}

/// Keeps every cold-read thread busy until the result is dropped.
fn hold_cold_reads(broker: &Broker) -> Vec<mpsc::Sender<()>> {
    const THREADS: u32 = 8;
    let (begun, begins) = mpsc::channel();
    let hold = |number| {
        let (release, gate) = mpsc::channel::<()>();
        let begun = begun.clone();
        broker.node().executor().cold_read(ColdRead {
            payer: Payer::Tenant(TenantId(70_000 + number)),
            bytes: 1,
            job: Box::new(move |_| {
                begun.send(()).unwrap();
                // Ends when the sender is dropped.
                let _ = gate.recv();
                1
            }),
        });
        release
    };
    let release = (0..THREADS).map(hold).collect();
    (0..THREADS).for_each(|_| begins.recv().unwrap());
    release
}

fn search(client: &mut Client, correlation_id: i32, times: usize) {
    let asked = ListOffsetsPartition {
        timestamp: 1_000,
        current_leader_epoch: -1,
        ..Default::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: TOPIC,
            partitions: vec![asked; times],
        }],
        ..Default::default()
    };
    client.send(&frame(ApiKey::ListOffsets, 5, correlation_id, |bytes| {
        request.encode(bytes, 5);
    }));
}

fn found(client: &mut Client, correlation_id: i32) -> Vec<i64> {
    let body = client.receive(ApiKey::ListOffsets, 5, correlation_id);
    let response = ListOffsetsResponse::decode(&mut Reader::new(&body), 5).unwrap();
    response.topics[0]
        .partitions
        .iter()
        .map(|found| found.offset)
        .collect()
}

#[test]
fn a_timestamp_search_in_large_or_many_batches_leaves_the_event_loop() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    send(
        &mut client,
        9,
        1,
        -1,
        &[(TOPIC, vec![(0, &batch(Codec::Zstd, 10))])],
    );
    receive(&mut client, 9, 1);
    let held = hold_cold_reads(&broker);
    search(&mut client, 2, 8);
    assert_eq!(found(&mut client, 2), [0; 8]);
    search(&mut client, 3, 9);
    wait_for(&broker, "ottla_cold_reads_queued", 1.0);
    assert!(!has_answer(&client));
    drop(held);
    assert_eq!(found(&mut client, 3), [0; 9]);

    let broker = start();
    let mut client = Client::connect(broker.address());
    send(
        &mut client,
        9,
        1,
        -1,
        &[(TOPIC, vec![(0, &batch(Codec::Zstd, MIB))])],
    );
    receive(&mut client, 9, 1);
    let held = hold_cold_reads(&broker);
    search(&mut client, 2, 1);
    wait_for(&broker, "ottla_cold_reads_queued", 1.0);
    drop(held);
    assert_eq!(found(&mut client, 2), [0]);
}
