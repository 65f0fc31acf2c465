//! No thread on the hot path waits for a disk read: a broker on a disk whose every cold read takes
//! 50 ms, or never ends.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ottla_broker::broker::{Additions, Broker, TemporaryDirectory};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use ottla_wire::messages::metadata::MetadataRequest;
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch::batches;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::slow_disk::SlowDisk;
use support::{Client, frame};

const DELAY: Duration = Duration::from_millis(50);
const OLD: &str = "old";
const HOT: &str = "hot";

/// Size of one record; 1,000 of them make a topic larger than several loads.
const RECORD_BYTES: usize = 10_000;
const RECORDS: i64 = 400;

/// Distance between consumers' start offsets: the file position of the last batches is known
/// without reading the disk.
const STEP: i64 = 19;

/// The page cache, and memory of the logs' own.
const DURABILITIES: [&str; 2] = ["page-cache", "disk"];

/// A broker whose topic `old` is not in the page cache.
struct World {
    broker: Broker,
    disk: SlowDisk,
    directory: TemporaryDirectory,
}

impl World {
    fn start(durability: &str) -> World {
        World::start_with(&[("ottla.durability", durability)])
    }

    fn start_with(more: &[(&str, &str)]) -> World {
        let disk = SlowDisk::new(DELAY);
        let directory = TemporaryDirectory::create().unwrap();
        let path = directory.path().to_string_lossy().into_owned();
        let properties = [
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("log.dirs", path.as_str()),
            ("ottla.admin.listener", ""),
            // A single loop: a request that blocks it blocks all clients.
            ("num.network.threads", "1"),
        ];
        let properties: BTreeMap<String, String> = (properties.iter().chain(more))
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let additions = Additions {
            disk: Some(disk.shared()),
            ..Additions::default()
        };
        let broker = Broker::start_with(&properties, additions).unwrap();
        let world = World {
            broker,
            disk,
            directory,
        };
        let mut client = world.client();
        for topic in [OLD, HOT] {
            create_topic(&mut client, topic);
        }
        for index in 0..RECORDS {
            client.send(&produce_frame(index as i32, OLD, index));
            assert_eq!(produced(&mut client, index as i32), index);
        }
        world.evict(OLD);
        world
    }

    /// What was written of the topic is now on the device only.
    fn evict(&self, topic: &str) {
        self.disk.evict(&self.path_of(topic));
        if let Some(memory) = self.broker.log_memory() {
            memory.forget();
        }
    }

    fn path_of(&self, topic: &str) -> PathBuf {
        self.directory.path().join(format!("{topic}-0"))
    }

    fn client(&self) -> Client {
        Client::connect(self.broker.address())
    }

    /// Checks that only the threads meant to wait for the disk have waited.
    fn check_waits(&self) {
        let waits = self.disk.waits();
        assert!(!waits.is_empty(), "nothing was cold: the test proves nothing");
        let others: Vec<&String> = waits.iter().filter(|name| *name != "ottla-cold-read").collect();
        assert!(others.is_empty(), "waited for the device: {others:?}");
    }
}

impl Drop for World {
    /// A failed test must not leave a thread waiting for ever: the broker joins its threads.
    fn drop(&mut self) {
        self.disk.open_gate();
    }
}

fn create_topic(client: &mut Client, name: &str) {
    let topic = CreatableTopic {
        name,
        num_partitions: 1,
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
    let body = client.receive(ApiKey::CreateTopics, 5, 1);
    let response = CreateTopicsResponse::decode(&mut Reader::new(&body), 5).unwrap();
    assert_eq!(response.topics[0].error_code, ErrorCode::None.code());
}

/// Differs from record to record, so that a byte from the wrong place is detected.
fn value(number: i64) -> Vec<u8> {
    (0..RECORD_BYTES as i64)
        .map(|index| ((number * 31 + index) % 251) as u8)
        .collect()
}

fn produce_frame(correlation_id: i32, topic: &str, number: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000 + number, None, Some(&value(number)), &[]);
    let records = builder.finish();
    let topic = TopicProduceData {
        name: topic,
        partition_data: vec![PartitionProduceData {
            index: 0,
            records: Some(&records),
        }],
        ..Default::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..Default::default()
    };
    frame(ApiKey::Produce, 9, correlation_id, |bytes| {
        request.encode(bytes, 9)
    })
}

fn produced(client: &mut Client, correlation_id: i32) -> i64 {
    let body = client.receive(ApiKey::Produce, 9, correlation_id);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!(
        partition.error_code,
        ErrorCode::None.code(),
        "{:?}",
        partition.error_message
    );
    partition.base_offset
}

fn fetch_frame(correlation_id: i32, topics: &[(&str, i64)]) -> Vec<u8> {
    let topic = |&(topic, fetch_offset): &(&'static str, i64)| FetchTopic {
        topic,
        partitions: vec![FetchPartition {
            partition: 0,
            fetch_offset,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        }],
        ..Default::default()
    };
    let topics: Vec<(&'static str, i64)> = topics
        .iter()
        .map(|(name, offset)| (if *name == OLD { OLD } else { HOT }, *offset))
        .collect();
    let request = FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: topics.iter().map(topic).collect(),
        ..Default::default()
    };
    frame(ApiKey::Fetch, 11, correlation_id, |bytes| {
        request.encode(bytes, 11)
    })
}

/// Offsets of the complete batches of each topic; their records are checked against those produced.
fn fetched(client: &mut Client, correlation_id: i32) -> BTreeMap<String, Vec<i64>> {
    let body = client.receive(ApiKey::Fetch, 11, correlation_id);
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    let mut found = BTreeMap::new();
    for topic in &response.responses {
        let partition = &topic.partitions[0];
        assert_eq!(partition.error_code, ErrorCode::None.code());
        let mut offsets = Vec::new();
        for batch in batches(partition.records.unwrap_or_default()) {
            // The last one may be truncated.
            let Ok(batch) = batch else { break };
            let offset = batch.header.base_offset;
            let bytes = batch.record_bytes();
            let expected = value(offset);
            assert!(
                bytes.windows(RECORD_BYTES).any(|window| window == expected),
                "record {offset}"
            );
            offsets.push(offset);
        }
        found.insert(topic.topic.to_string(), offsets);
    }
    found
}

fn has_answer(client: &Client) -> bool {
    client.socket.set_nonblocking(true).unwrap();
    let peeked = client.socket.peek(&mut [0]);
    client.socket.set_nonblocking(false).unwrap();
    peeked.is_ok()
}

#[test]
fn all_other_requests_are_served_while_cold_reads_hang() {
    for durability in DURABILITIES {
        all_other_requests_are_served_while_cold_reads_hang_with(durability);
    }
}

fn all_other_requests_are_served_while_cold_reads_hang_with(durability: &str) {
    let world = World::start(durability);
    world.disk.close_gate();
    let mut lagging: Vec<Client> = (0..20).map(|_| world.client()).collect();
    for (index, client) in lagging.iter_mut().enumerate() {
        client.send(&fetch_frame(1, &[(OLD, index as i64 * STEP)]));
    }
    let mut searching = world.client();
    let partition = ListOffsetsPartition {
        timestamp: 1_000 + 77,
        ..Default::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: OLD,
            partitions: vec![partition],
        }],
        ..Default::default()
    };
    searching.send(&frame(ApiKey::ListOffsets, 5, 1, |bytes| {
        request.encode(bytes, 5)
    }));
    world.disk.wait_for_waiting(1);

    // Each of these would hang if the event loop, or a sync thread, waited for the device.
    let mut client = world.client();
    for number in 0..50 {
        let id = number as i32;
        client.send(&produce_frame(id, HOT, number));
        assert_eq!(produced(&mut client, id), number);
        client.send(&fetch_frame(id, &[(HOT, number)]));
        assert_eq!(fetched(&mut client, id)[HOT], [number]);
        client.send(&produce_frame(id, OLD, RECORDS + number));
        assert_eq!(produced(&mut client, id), RECORDS + number, "the topic itself");
    }
    client.send(&frame(ApiKey::Metadata, 1, 7, |bytes| {
        MetadataRequest::default().encode(bytes, 1)
    }));
    client.receive(ApiKey::Metadata, 1, 7);
    // The reads did hang meanwhile, and no answer was sent without its data.
    assert!(lagging.iter().all(|client| !has_answer(client)) && !has_answer(&searching));

    world.disk.open_gate();
    for (index, client) in lagging.iter_mut().enumerate() {
        assert_eq!(fetched(client, 1)[OLD][0], index as i64 * STEP);
    }
    let body = searching.receive(ApiKey::ListOffsets, 5, 1);
    let response = ListOffsetsResponse::decode(&mut Reader::new(&body), 5).unwrap();
    assert_eq!(response.topics[0].partitions[0].offset, 77);
    world.check_waits();
}

#[test]
fn a_consumer_catches_up_through_reads_of_50_ms_beside_a_producer() {
    for durability in DURABILITIES {
        a_consumer_catches_up_through_reads_of_50_ms_beside_a_producer_with(durability);
    }
}

fn a_consumer_catches_up_through_reads_of_50_ms_beside_a_producer_with(durability: &str) {
    let world = World::start(durability);
    let mut consumer = world.client();
    let mut client = world.client();
    let (mut offset, mut number) = (0, 0);
    while offset < RECORDS {
        let id = offset as i32;
        consumer.send(&fetch_frame(id, &[(OLD, offset)]));
        client.send(&produce_frame(id, HOT, number));
        assert_eq!(produced(&mut client, id), number);
        number += 1;
        let offsets = &fetched(&mut consumer, id)[OLD];
        assert!(
            offsets.iter().copied().eq(offset..offset + offsets.len() as i64),
            "{offsets:?}"
        );
        offset += offsets.len() as i64;
    }
    world.check_waits();
    // 4 MB in loads of 512 KiB, each with as much read-ahead: most fetches found their data
    // resident.
    let waits = world.disk.waits().len() as i64;
    // Past the page cache a walk along headers reads pieces of its own.
    let waits_max = if world.broker.log_memory().is_some() {
        40
    } else {
        24
    };
    assert!(waits <= waits_max, "{waits} waits for the device");
}

#[test]
fn a_lagging_partition_gets_its_share_beside_one_that_always_has_new_records() {
    for durability in DURABILITIES {
        a_lagging_partition_gets_its_share_beside_one_that_always_has_new_records_with(durability);
    }
}

fn a_lagging_partition_gets_its_share_beside_one_that_always_has_new_records_with(durability: &str) {
    let world = World::start(durability);
    let mut client = world.client();
    let mut consumer = world.client();
    let (mut old, mut hot) = (0, 0);
    // Every fetch finds new records in the hot topic, and could be answered with those alone for
    // ever.
    for round in 0.. {
        client.send(&produce_frame(round, HOT, i64::from(round)));
        produced(&mut client, round);
        consumer.send(&fetch_frame(round, &[(HOT, hot), (OLD, old)]));
        let found = fetched(&mut consumer, round);
        hot += found[HOT].len() as i64;
        old += found[OLD].len() as i64;
        if old >= 200 {
            break;
        }
        assert!(round < 2_000, "the lagging partition came to {old}");
        // As fast as the disk can be: one load.
        std::thread::sleep(Duration::from_millis(5));
    }
    world.check_waits();
}

#[test]
fn no_more_is_sent_than_was_loaded() {
    for durability in DURABILITIES {
        no_more_is_sent_than_was_loaded_with(durability);
    }
}

fn no_more_is_sent_than_was_loaded_with(durability: &str) {
    let world = World::start(durability);
    let mut client = world.client();
    // One of the last batches: its existence and position are known without reading the disk. A
    // megabyte is requested.
    client.send(&fetch_frame(1, &[(OLD, RECORDS - 115)]));
    let offsets = &fetched(&mut client, 1)[OLD];
    let loaded_max = 512 * 1024 / RECORD_BYTES;
    assert!((1..=loaded_max).contains(&offsets.len()), "{offsets:?}");
    world.check_waits();
}

#[test]
fn what_leaves_memory_before_it_is_sent_is_loaded_on_another_thread() {
    for durability in DURABILITIES {
        what_leaves_memory_before_it_is_sent_is_loaded_on_another_thread_with(durability);
    }
}

fn what_leaves_memory_before_it_is_sent_is_loaded_on_another_thread_with(durability: &str) {
    // The socket takes little, so most of an answer stays in its file.
    let world = World::start_with(&[
        ("socket.send.buffer.bytes", "16384"),
        ("ottla.durability", durability),
    ]);
    let mut client = world.client();
    for number in 0..300 {
        client.send(&produce_frame(number, HOT, i64::from(number)));
        produced(&mut client, number);
    }
    let mut slow = world.client();
    slow.send(&fetch_frame(1, &[(HOT, 0)]));
    // Its beginning is on its way: nothing was cold when the fetch was answered.
    while !has_answer(&slow) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.disk.waits(), Vec::<String>::new());
    world.disk.close_gate();
    world.evict(HOT);
    let reader = std::thread::spawn(move || {
        let offsets = fetched(&mut slow, 1)[HOT].clone();
        assert!(offsets.len() > 90, "{}", offsets.len());
    });
    world.disk.wait_for_waiting(1);
    // The loop goes on while the rest of the answer is read from the device.
    client.send(&produce_frame(300, HOT, 300));
    assert_eq!(produced(&mut client, 300), 300);
    world.disk.open_gate();
    reader.join().unwrap();
    world.check_waits();
}
