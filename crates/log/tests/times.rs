//! Look-ups by time where timestamps do not ascend with offsets, or are not known yet.

mod support;

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{LogConfig, Lookup, PartitionLog, ReadMode};
use ottla_wire::records::builder::BatchOptions;
use support::batches::*;
use support::numbered::*;

/// Timestamp, counted from the start, and offset.
fn found(lookup: Result<Lookup, ottla_log::ReadError>) -> Option<(i64, i64)> {
    match lookup.expect("readable") {
        Lookup::Found(found) => Some((found.timestamp - START_MS, found.offset)),
        Lookup::Nothing => None,
        Lookup::WouldBlock => panic!("blocks"),
    }
}

fn newest(log: &PartitionLog, bound: i64) -> Option<(i64, i64)> {
    found(
        log.reader()
            .offset_for_max_timestamp(below(bound), ReadMode::Blocking),
    )
}

fn first_at(log: &PartitionLog, timestamp: i64) -> Option<(i64, i64)> {
    let reader = log.reader();
    found(reader.offset_for_timestamp(START_MS + timestamp, log.end(), ReadMode::Blocking))
}

/// Segments of about 50 batches of records, with several entries in each index.
fn dense() -> LogConfig {
    LogConfig {
        segment_bytes: 4_000,
        index_interval_bytes: 200,
        ..config()
    }
}

/// Regression: the largest timestamp was that of a deleted record, and nothing was found.
#[test]
fn the_largest_timestamp_is_that_of_a_record_which_is_not_deleted() {
    // The newest are the first: in every segment, and in every batch of three.
    for records in [1, 3] {
        let disk = MemoryDisk::new(1);
        let mut log = created_with(&disk, dense());
        for batch in 0..300 / records {
            let timestamps: Vec<i64> = (0..records)
                .map(|record| START_MS + 1_000 - batch * records - record)
                .collect();
            let bytes = batch_at(&timestamps, 10, BatchOptions::default());
            try_append(&mut log, &bytes, START_MS).expect("appended");
        }
        assert!(bases(&disk).len() > 2);
        for start in [0, 1, 3, 25, bases(&disk)[1], bases(&disk)[1] + 1, 280, 299] {
            log.delete_records_before(start);
            assert_eq!(newest(&log, 300), Some((1_000 - start, start)));
            assert_eq!(newest(&log, start + 3), Some((1_000 - start, start)));
        }
        log.delete_records_before(300);
        assert_eq!(newest(&log, 300), None);
    }
}

#[test]
fn the_largest_timestamp_may_be_behind_the_segment_with_deleted_records() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, dense());
    for offset in 0..200 {
        let timestamp = match offset {
            3 => 900,
            150 => 500,
            _ => offset,
        };
        append_at(&mut log, START_MS + timestamp);
    }
    assert_eq!(newest(&log, 200), Some((900, 3)));
    log.delete_records_before(4);
    assert_eq!(newest(&log, 200), Some((500, 150)));
    assert_eq!(newest(&log, 150), Some((149, 149)));
}

#[test]
fn timestamp_0_can_be_the_largest_and_none_cannot() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, dense());
    append_at(&mut log, -1);
    assert_eq!(newest(&log, 1), None);
    append_at(&mut log, 0);
    assert_eq!(newest(&log, 2), Some((-START_MS, 1)));
}

#[test]
fn segments_are_listed_with_their_newest_timestamps_and_the_last_one_as_it_grows() {
    let disk = MemoryDisk::new(1);
    let batch = batch_at(&[START_MS], 10, BatchOptions::default());
    let mut log = created_with(&disk, two_per_segment(&batch, LogConfig::default()));
    let listed = |log: &PartitionLog| -> Vec<(i64, Option<i64>)> {
        let segments = log.segments();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        assert_eq!(bytes, log.bytes());
        let newest = segments
            .iter()
            .map(|segment| (segment.base_offset, segment.largest_timestamp));
        newest.collect()
    };
    append_at(&mut log, -1);
    assert_eq!(listed(&log), [(0, None)], "without a time");
    append_at(&mut log, 5);
    append_at(&mut log, 9);
    append_at(&mut log, 3);
    append_at(&mut log, 7);
    assert_eq!(listed(&log), [(0, Some(5)), (2, Some(9)), (4, Some(7))]);
    append_at(&mut log, 8);
    assert_eq!(listed(&log)[2], (4, Some(8)));
}

/// A look-up must not take the largest timestamp so far for that of a whole segment.
#[test]
fn records_appended_after_a_look_up_are_found_by_the_next() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, dense());
    for offset in 0..200 {
        assert_eq!(first_at(&log, offset), None);
        append_at(&mut log, START_MS + offset);
        assert_eq!(first_at(&log, offset), Some((offset, offset)));
        assert_eq!(newest(&log, offset + 1), Some((offset, offset)));
        assert_eq!(first_at(&log, 0), Some((0, 0)));
    }
}

#[test]
fn a_truncated_time_index_hides_no_larger_timestamp() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, dense());
    for offset in 0..200 {
        let timestamp = if offset % 50 == 25 { 900 + offset } else { offset };
        append_at(&mut log, START_MS + timestamp);
    }
    let end = log.close().expect("closed");
    for index in files(&disk, ".timeindex") {
        let bytes = disk.read_file(&index).expect("there");
        disk.write_file(&index, &bytes[..bytes.len().min(12)]);
    }
    assert!(bases(&disk).len() > 3);
    let log = reopened_with(&disk, dense(), end);
    log.reader().load_timestamps().expect("readable");
    assert_eq!(newest(&log, 200), Some((1_075, 175)));
    for offset in [25, 75, 125, 175] {
        assert_eq!(first_at(&log, 900 + offset), Some((900 + offset, offset)));
    }
}

/// The first record of a closed segment decides, and a restart does not know its time.
#[test]
fn compaction_is_due_by_the_first_time_of_a_segment_of_an_earlier_process() {
    let disk = MemoryDisk::new(1);
    let config = || LogConfig {
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 1.0,
        max_compaction_lag_ms: 5_000,
        ..dense()
    };
    let mut log = created_with(&disk, config());
    for offset in 0..100 {
        append_at(&mut log, START_MS + if offset == 0 { 0 } else { 4_000 });
    }
    let end = log.close().expect("closed");
    let mut log = reopened_with(&disk, config(), end);
    let now_ms = START_MS + 6_000;
    assert!(log.plan_compaction(now_ms, 0, end).is_none());
    log.reader().load_timestamps().expect("readable");
    assert!(
        log.plan_compaction(now_ms, 0, end).is_none(),
        "by the largest times"
    );
    log.reader().load_compaction_times(0).expect("readable");
    assert!(log.plan_compaction(now_ms, 0, end).is_some());
}
