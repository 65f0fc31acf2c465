//! Iteration returns the written records.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::records::batch::TimestampType;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::record::Header;

use super::chunk::{Chunk, ChunkReading, FetchAnswer};
use super::position::Position;
use super::records::ConsumerRecords;
use super::topic_partition::TopicPartition;

/// All records of these batches from `offset` on, as one poll would return them.
fn records(batches: &[u8], offset: i64) -> ConsumerRecords {
    let name = TopicPartition::new("t", 3);
    let reading = ChunkReading {
        checks_crcs: true,
        read_committed: false,
    };
    let mut chunk = Chunk::new(
        name.clone(),
        1,
        FetchAnswer::new(),
        reading,
        Position::at(offset),
        Bytes::copy_from_slice(batches),
        Vec::new(),
    );
    let mut runs = Vec::new();
    chunk.take(usize::MAX, &mut runs).unwrap();
    assert!(chunk.is_exhausted());
    let mut records = ConsumerRecords::default();
    records.push(&name, runs);
    records
}

fn sample(options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    let headers = [
        Header {
            key: b"trace",
            value: Some(b"1"),
        },
        Header {
            key: b"empty",
            value: None,
        },
        Header {
            key: b"trace",
            value: Some(b"2"),
        },
    ];
    builder.append(5_000, Some(b"key"), Some(&[7; 300]), &headers);
    builder.append(4_000, None, None, &[]);
    builder.append(1_700_000_000_000, Some(b""), Some(b""), &[]);
    builder.finish()
}

#[test]
fn every_field_is_decoded() {
    let options = BatchOptions {
        base_offset: 1_000,
        leader_epoch: 4,
        ..BatchOptions::default()
    };
    let records = records(&sample(options), 0);
    assert_eq!((records.len(), records.iter().len()), (3, 3));
    let all: Vec<_> = records.iter().collect();
    let first = &all[0];
    assert_eq!((first.topic, first.partition, first.offset), ("t", 3, 1_000));
    assert_eq!(
        (first.timestamp, first.timestamp_type),
        (5_000, TimestampType::CreateTime)
    );
    assert_eq!((first.key, first.value), (Some(&b"key"[..]), Some(&[7; 300][..])));
    assert_eq!(first.leader_epoch, Some(4));
    let headers: Vec<Header<'_>> = first.headers.iter().collect();
    assert_eq!(
        headers[1],
        Header {
            key: b"empty",
            value: None
        }
    );
    assert_eq!((first.headers.len(), headers.len()), (3, 3));
    assert_eq!(first.headers.last(b"trace"), Some(Some(&b"2"[..])));
    assert_eq!(first.headers.last(b"empty"), Some(None));
    assert_eq!(first.headers.last(b"none"), None);
    assert_eq!((all[1].offset, all[1].timestamp), (1_001, 4_000));
    assert_eq!((all[1].key, all[1].value, all[1].headers.len()), (None, None, 0));
    assert_eq!((all[2].key, all[2].value), (Some(&b""[..]), Some(&b""[..])));
    assert_eq!(all[2].timestamp, 1_700_000_000_000);
}

#[test]
fn the_brokers_timestamp_applies_to_all_records() {
    let options = BatchOptions {
        log_append_time: Some(77),
        ..BatchOptions::default()
    };
    for record in &records(&sample(options), 0) {
        assert_eq!(
            (record.timestamp, record.timestamp_type),
            (77, TimestampType::LogAppendTime)
        );
        assert_eq!(record.leader_epoch, None);
    }
}

#[test]
fn records_outlive_the_consumer_and_go_to_other_threads() {
    let options = BatchOptions::default();
    let records = Arc::new(records(&sample(options), 1));
    let there = Arc::clone(&records);
    let offsets = std::thread::spawn(move || there.iter().map(|record| record.offset).collect::<Vec<_>>());
    assert_eq!(offsets.join().unwrap(), [1, 2]);
    assert_eq!(records.partitions()[0].len(), 2);
}
