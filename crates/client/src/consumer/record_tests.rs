//! Iteration returns the written records, and the fast decoder only sees records that the checked
//! one accepts.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::records::batch::{BatchHeader, HEADER_BYTES, TimestampType};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::record::{Header as WrittenHeader, Records};

use super::chunk::{Answer, Chunk, Reading};
use super::decode::split_record;
use super::position::Position;
use super::records::{ConsumerRecords, Header};
use super::topic_partition::TopicPartition;

/// All records of these batches from `offset` on, as one poll would return them.
fn records(batches: &[u8], offset: i64) -> ConsumerRecords {
    let name = TopicPartition::new("t", 3);
    let reading = Reading {
        checks_crcs: true,
        read_committed: false,
    };
    let mut chunk = Chunk::new(
        name.clone(),
        1,
        Answer::new(),
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
        WrittenHeader {
            key: b"trace",
            value: Some(b"1"),
        },
        WrittenHeader {
            key: b"empty",
            value: None,
        },
        WrittenHeader {
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

/// Random changes to valid records: whatever the fast decoder accepts, the checked one decodes to
/// the same.
#[test]
fn both_decoders_agree_on_damaged_records() {
    let original = sample(BatchOptions::default());
    let header = BatchHeader::parse(&original).unwrap();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = original[HEADER_BYTES..].to_vec();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            bytes[at] = next(256) as u8;
        }
        if next(4) == 0 {
            bytes.truncate(next(bytes.len()));
        }
        let mut rest = &bytes[..];
        for careful in Records::new(&header, &bytes) {
            let Ok(careful) = careful else {
                break;
            };
            // The checked decoder refuses excess varint bits, which Kafka's decoder cuts off; never
            // the reverse.
            let (fast, after) = split_record(rest).expect("the careful decoder reads it");
            assert_eq!(i64::from(fast.offset_delta), careful.offset);
            assert_eq!((fast.key, fast.value), (careful.key, careful.value));
            let written = careful.headers.iter().map(|header| (header.key, header.value));
            let found = fast.headers.iter().map(|header| (header.key, header.value));
            assert!(written.eq(found));
            rest = after;
            accepted += 1;
        }
        // Must not panic, nor end beyond the bytes.
        while let Some((_, after)) = split_record(rest) {
            assert!(after.len() < rest.len());
            rest = after;
        }
        refused += usize::from(!rest.is_empty());
    }
    assert!(accepted > 1_000 && refused > 1_000, "{accepted} {refused}");
}
