//! What a log says about itself, and what it refuses: the small answers that others build on.

mod support;

use std::path::Path;

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{AppendError, BatchToAppend, LogConfig, OpenOptions, PartitionLog};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::numbered::*;

const PAGE_BYTES: u64 = 4_096;

#[test]
fn a_log_is_created_at_its_start_offset_with_its_settings() {
    let disk = MemoryDisk::new(1);
    let config = LogConfig {
        retention_bytes: 77,
        ..config()
    };
    let path = Path::new(DIRECTORY);
    let topic_id = Uuid([1; 16]);
    let log = PartitionLog::create(disk.shared(), path, topic_id, config.clone(), 40, START_MS);
    let log = log.expect("created");
    assert_eq!((log.start_offset(), log.end_offset()), (40, 40));
    assert_eq!(log.recovery_point(), 40);
    assert_eq!(log.config(), &config);
    assert_eq!(log.poison(), None);
}

#[test]
fn the_recovery_point_follows_what_a_clean_close_made_durable() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 30);
    assert_eq!(log.recovery_point(), 0);
    log.close().expect("closed");
    let (log, _) = open(&disk, true, 30);
    assert_eq!(log.recovery_point(), 30);
}

#[test]
fn a_poisoned_log_says_why() {
    let disk = MemoryDisk::new(3);
    let mut log = create(&disk);
    append_many(&mut log, 3);
    disk.fail_next_sync();
    sync(&mut log).expect_err("the sync fails");
    let reason = log.poison().expect("poisoned").to_owned();
    assert!(reason.contains("injected"), "{reason}");
}

#[test]
fn a_check_finds_what_an_opening_would_and_changes_nothing() {
    let disk = closed(300);
    let segment = files(&disk, ".log").into_iter().max().expect("a segment");
    let whole = disk.read_file(&segment).expect("there");
    disk.write_file(&segment, &whole[..whole.len() - 10]);
    let options = || OpenOptions {
        now_ms: START_MS,
        ..OpenOptions::default()
    };
    let path = Path::new(DIRECTORY);
    let found = PartitionLog::check(disk.shared(), path, config(), options()).expect("readable");
    assert!(found.cut_bytes > 0, "{found:?}");
    assert_eq!(disk.read_file(&segment).expect("there").len(), whole.len() - 10);
    let (_, opened) = PartitionLog::open(disk.shared(), path, config(), options()).expect("opens");
    assert_eq!(found.cut_bytes, opened.cut_bytes);
}

fn batch_of(value_bytes: usize, options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    builder.append(START_MS, None, Some(&vec![b'v'; value_bytes]), &[]);
    builder.finish()
}

fn append_bytes(log: &mut PartitionLog, bytes: &[u8]) -> Result<i64, AppendError> {
    let batch = BatchToAppend::from(Batch::parse(bytes).expect("built"));
    log.append(&[batch], 0, START_MS)
        .map(|appended| appended.base_offset)
}

#[test]
fn an_idempotent_producer_is_active_and_others_are_not() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 2);
    assert_eq!(log.active_producers().count(), 0);
    let options = BatchOptions {
        producer_id: 9,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchOptions::default()
    };
    append_bytes(&mut log, &batch_of(10, options)).expect("appended");
    let ids: Vec<i64> = log
        .active_producers()
        .map(|producer| producer.producer_id)
        .collect();
    assert_eq!(ids, [9]);
}

#[test]
fn the_unfilled_page_is_what_lies_between_the_last_page_boundary_and_the_end() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    assert!(log.unfilled_page().is_none());
    let overhead = batch_of(100, BatchOptions::default()).len() as u64 - 100;
    // The second batch ends on a page boundary exactly.
    let first = 5_000;
    append_bytes(&mut log, &batch_of(first, BatchOptions::default())).expect("appended");
    let end = log.bytes();
    let page = log.unfilled_page().expect("the page is not full");
    assert_eq!((page.position, page.bytes), (PAGE_BYTES, end - PAGE_BYTES));
    // A value of more than 8191 bytes needs as many bytes for its length as one of 5000.
    let rest = 2 * PAGE_BYTES - end % PAGE_BYTES - overhead;
    let fills = (rest - 4..rest + 1).find(|bytes| {
        let batch = batch_of(usize::try_from(*bytes).unwrap(), BatchOptions::default());
        (end + batch.len() as u64).is_multiple_of(PAGE_BYTES)
    });
    let fills = usize::try_from(fills.expect("some length fits")).unwrap();
    append_bytes(&mut log, &batch_of(fills, BatchOptions::default())).expect("appended");
    assert_eq!(log.bytes() % PAGE_BYTES, 0);
    assert!(log.unfilled_page().is_none());
}

#[test]
fn a_batch_whose_header_lies_about_magic_or_length_is_refused() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let bytes = batch_of(10, BatchOptions::default());
    let sound = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    let refused = |log: &mut PartitionLog, batch: BatchToAppend<'_>| {
        let outcome = log.append(&[batch], 0, START_MS);
        assert!(
            matches!(outcome, Err(AppendError::InvalidBatch { .. })),
            "{outcome:?}"
        );
    };
    let mut magic = sound;
    magic.header.magic = 1;
    refused(&mut log, magic);
    let cut = BatchToAppend {
        header: sound.header,
        records: &sound.records[..sound.records.len() - 1],
    };
    refused(&mut log, cut);
    assert_eq!(log.end_offset(), 0);
    log.append(&[sound], 0, START_MS).expect("sound");
}

/// Appends one record with this timestamp at this time of the clock.
fn append_at(log: &mut PartitionLog, timestamp: i64, now_ms: i64) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(timestamp, None, Some(b"v"), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    log.append(&[batch], 0, now_ms).expect("appended");
}

/// A log whose segments end after a second.
fn created_with_segment_ms(disk: &MemoryDisk) -> PartitionLog {
    let config = LogConfig {
        segment_ms: 1_000,
        ..config()
    };
    created_with(disk, config)
}

fn created_with(disk: &MemoryDisk, config: LogConfig) -> PartitionLog {
    let path = Path::new(DIRECTORY);
    let log = PartitionLog::create(disk.shared(), path, Uuid([1; 16]), config, 0, START_MS);
    log.expect("created")
}

#[test]
fn a_segment_ends_by_the_time_of_its_records() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with_segment_ms(&disk);
    // The clock runs away; the records' own time decides.
    append_at(&mut log, START_MS, START_MS);
    append_at(&mut log, START_MS + 1_000, START_MS + 50_000);
    assert_eq!(files(&disk, ".log").len(), 1);
    append_at(&mut log, START_MS + 1_001, START_MS + 50_000);
    assert_eq!(files(&disk, ".log").len(), 2);
}

#[test]
fn a_segment_ends_by_the_clock_where_records_have_no_time() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with_segment_ms(&disk);
    append_at(&mut log, -1, START_MS);
    append_at(&mut log, START_MS + 9_000, START_MS + 1_000);
    assert_eq!(files(&disk, ".log").len(), 1);
    append_at(&mut log, -1, START_MS + 1_001);
    assert_eq!(files(&disk, ".log").len(), 2);
}

#[test]
fn a_segment_ends_when_an_index_is_full() {
    let disk = MemoryDisk::new(1);
    let small_index = LogConfig {
        segment_index_bytes: 8 * 12,
        index_interval_bytes: 1,
        ..config()
    };
    let mut log = created_with(&disk, small_index);
    let mut segments = Vec::new();
    for record in 0..40 {
        append_at(&mut log, START_MS + record, START_MS);
        segments.push(files(&disk, ".log").len());
    }
    // Eight entries of twelve bytes fill the time index; one is kept for the end of the segment.
    let first = segments
        .iter()
        .position(|count| *count == 2)
        .expect("a second segment");
    let second = segments
        .iter()
        .position(|count| *count == 3)
        .expect("a third segment");
    assert_eq!(second - first, first, "{segments:?}");
    assert!((6..=9).contains(&first), "{first}");
}

#[test]
fn offsets_end_below_the_largest_number() {
    let disk = MemoryDisk::new(1);
    let path = Path::new(DIRECTORY);
    let start = i64::MAX - 2;
    let log = PartitionLog::create(disk.shared(), path, Uuid([1; 16]), config(), start, START_MS);
    let mut log = log.expect("created");
    append_at(&mut log, START_MS, START_MS);
    append_at(&mut log, START_MS, START_MS);
    let refused = append_bytes(&mut log, &batch_of(1, BatchOptions::default()));
    assert!(
        matches!(refused, Err(AppendError::InvalidBatch { .. })),
        "{refused:?}"
    );
    assert_eq!(log.end_offset(), i64::MAX);
}

#[test]
fn batches_of_idempotent_producers_come_one_per_append() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let options = BatchOptions {
        producer_id: 9,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchOptions::default()
    };
    let bytes = batch_of(10, options);
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    let refused = log.append(&[batch, batch], 0, START_MS);
    assert!(
        matches!(refused, Err(AppendError::InvalidBatch { .. })),
        "{refused:?}"
    );
    log.append(&[batch], 0, START_MS).expect("one alone");
}
