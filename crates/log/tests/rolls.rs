//! When a segment ends, what one append may hold, and the space that is reserved for it.

mod support;

use std::path::Path;

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{AppendError, BatchToAppend, LogConfig, LogError, PartitionLog};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::BatchOptions;
use support::batches::*;
use support::numbered::{START_MS, append, append_many, config};

const PAGE_BYTES: u64 = 4096;

#[test]
fn a_segment_holds_what_fits_exactly() {
    let disk = MemoryDisk::new(1);
    let batch = batch_at(&[START_MS], 10, BatchOptions::default());
    let mut log = created_with(&disk, two_per_segment(&batch, LogConfig::default()));
    for _ in 0..5 {
        try_append(&mut log, &batch, START_MS).expect("appended");
    }
    assert_eq!(bases(&disk), [0, 2, 4]);
}

#[test]
fn timestamp_0_is_a_time() {
    let second = || LogConfig {
        segment_ms: 1_000,
        ..LogConfig::default()
    };
    // Records that are 10 seconds apart, though the clock stands still.
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, second());
    append_at(&mut log, 0);
    append_at(&mut log, 10_000);
    assert_eq!(bases(&disk), [0, 1]);
    // An older record, 10 seconds later.
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, second());
    append_at(&mut log, 500);
    let older = batch_at(&[0], 10, BatchOptions::default());
    try_append(&mut log, &older, START_MS + 10_000).expect("appended");
    assert_eq!(bases(&disk), [0]);
}

/// As in Apache Kafka, one entry of the time index is kept for the end of the segment.
#[test]
fn an_index_holds_no_more_than_its_size() {
    let config = || LogConfig {
        segment_index_bytes: 96,
        index_interval_bytes: 1,
        ..LogConfig::default()
    };
    // Every batch but the first of a segment gets an entry. 12 of 8 bytes fill the offset index;
    // records without a time have no other.
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, config());
    (0..30).for_each(|_| append_at(&mut log, -1));
    assert_eq!(bases(&disk), [0, 13, 26]);
    // 8 of 12 bytes fill the time index.
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, config());
    (0..20).for_each(|offset| append_at(&mut log, START_MS + offset));
    assert_eq!(bases(&disk), [0, 8, 16]);
}

#[test]
fn an_offset_lies_within_31_bits_of_its_segment() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, LogConfig::default());
    append_at(&mut log, START_MS);
    let bytes = batch_at(&[START_MS], 10, BatchOptions::default());
    let mut wide = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    wide.header.last_offset_delta = i32::MAX - 1;
    let appended = log.append(&[wide], 0, START_MS).expect("appended");
    assert_eq!(appended.last_offset, i64::from(i32::MAX));
    assert_eq!(bases(&disk), [0]);
    wide.header.last_offset_delta = 9;
    log.append(&[wide], 0, START_MS).expect("appended");
    assert_eq!(bases(&disk), [0, 1 << 31]);
}

/// A batch of this length.
fn batch_of(bytes: usize) -> Vec<u8> {
    let build = |value_bytes| batch_at(&[START_MS], value_bytes, BatchOptions::default());
    let overhead = build(bytes - 100).len() - (bytes - 100);
    let batch = build(bytes - overhead);
    assert_eq!(batch.len(), bytes);
    batch
}

#[test]
fn one_append_holds_less_than_2_gib() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, LogConfig::default());
    // None of them is written.
    disk.set_capacity(Some(disk.used_bytes()));
    let (mebibyte, shorter) = (batch_of(1 << 20), batch_of((1 << 20) - 1));
    let parse = |bytes| BatchToAppend::from(Batch::parse(bytes).expect("built"));
    let mut batches = vec![parse(&mebibyte); 2_047];
    batches.push(parse(&shorter));
    let refused = log.append(&batches, 0, START_MS);
    assert!(
        matches!(refused, Err(AppendError::Log(LogError::NoSpace { .. }))),
        "{refused:?}"
    );
    for more in [&mebibyte, &batch_of(2 << 20)] {
        batches.pop();
        batches.push(parse(more));
        let refused = log.append(&batches, 0, START_MS);
        assert!(
            matches!(refused, Err(AppendError::InvalidBatch { .. })),
            "{refused:?}"
        );
    }
}

/// The age at which the segment of a log with this name ends.
fn age_at_the_end(name: &str) -> i64 {
    let disk = MemoryDisk::new(1);
    let config = LogConfig {
        segment_ms: 1_000,
        segment_jitter_ms: 500,
        ..LogConfig::default()
    };
    let path = Path::new(name);
    let log = PartitionLog::create(disk.shared(), path, Uuid([1; 16]), config, 0, START_MS);
    let mut log = log.expect("created");
    append_at(&mut log, START_MS);
    let second = |log: &PartitionLog| log.end().position.expect("known").segment_base_offset > 0;
    (0..2_000)
        .find(|age| {
            append_at(&mut log, START_MS + age);
            second(&log)
        })
        .expect("it ends")
}

#[test]
fn segments_of_different_logs_end_at_different_ages_within_the_jitter() {
    let ages = || -> Vec<i64> {
        let names = (0..10).map(|partition| format!("topic-{partition}"));
        names.map(|name| age_at_the_end(&name)).collect()
    };
    let first = ages();
    assert!(first.iter().all(|age| (501..=1_001).contains(age)), "{first:?}");
    assert!(first.iter().any(|age| *age != first[0]), "{first:?}");
    assert_eq!(ages(), first, "the same at every start");
}

fn one_segment() -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 30,
        ..config()
    }
}

#[test]
fn what_is_reserved_can_be_written_though_the_disk_has_filled_up_since() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, one_segment());
    append_many(&mut log, 1);
    assert!(disk.used_bytes() < 100_000, "a small log stays small");
    disk.set_capacity(Some(disk.used_bytes()));
    append_many(&mut log, 100);
}

#[test]
fn a_disk_is_filled_up_to_its_last_page() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, one_segment());
    let capacity = disk.used_bytes() + 50 * PAGE_BYTES;
    disk.set_capacity(Some(capacity));
    let refused = loop {
        if let Err(error) = append(&mut log) {
            break error;
        }
    };
    assert!(
        matches!(refused, AppendError::Log(LogError::NoSpace { .. })),
        "{refused}"
    );
    assert_eq!(disk.used_bytes(), capacity);
    assert!(log.bytes() > 49 * PAGE_BYTES, "{}", log.bytes());
}

#[test]
fn a_shortage_while_space_is_reserved_refuses_one_append() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, one_segment());
    disk.begin_shortage(0, 1);
    let refused = append(&mut log);
    assert!(
        matches!(&refused, Err(AppendError::Log(error)) if error.is_shortage()),
        "{refused:?}"
    );
    append_many(&mut log, 3);
}
