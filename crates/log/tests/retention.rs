//! What retention and DeleteRecords remove, and what becomes of the files.

mod support;

use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{LogConfig, PartitionLog};
use support::batches::*;
use support::numbered::*;

fn by_time(delete: bool, retention_ms: i64) -> LogConfig {
    LogConfig {
        delete,
        retention_ms,
        ..one_batch_per_segment()
    }
}

/// A log with a segment for each of these records.
fn of_records(disk: &MemoryDisk, timestamps: &[i64], config: LogConfig) -> PartitionLog {
    let mut log = created_with(disk, config);
    for timestamp in timestamps {
        append_at(&mut log, *timestamp);
    }
    log
}

#[test]
fn a_record_expires_when_it_is_older_than_the_retention_time() {
    for (config, timestamp, now_ms, expires) in [
        (by_time(true, 1_000), 5_000, 6_000, false),
        (by_time(true, 1_000), 5_000, 6_001, true),
        (by_time(true, 1_000), 0, 1_000, false),
        (by_time(true, 1_000), 0, 1_001, true),
        (by_time(true, 0), 5_000, 5_000, false),
        (by_time(true, 0), 5_000, 5_001, true),
        (by_time(true, -1), 0, START_MS, false),
        (by_time(false, 1_000), 0, START_MS, false),
        // Without a timestamp it never does.
        (by_time(true, 1_000), -1, START_MS, false),
    ] {
        let what = format!("{timestamp} at {now_ms}, {config:?}");
        // In a closed segment, and in the one that is appended to.
        for timestamps in [&[timestamp, now_ms][..], &[timestamp]] {
            let mut log = of_records(&MemoryDisk::new(1), timestamps, config.clone());
            let end = log.end_offset();
            let removal = log.retain(now_ms, end).expect("retained");
            assert_eq!(removal.is_some(), expires, "{what}");
            assert_eq!(log.start_offset(), i64::from(expires), "{what}");
        }
    }
}

#[test]
fn nothing_expires_whose_time_has_not_been_read() {
    let disk = MemoryDisk::new(1);
    let config = by_time(true, 1_000);
    let end = of_records(&disk, &[0, START_MS], config.clone())
        .close()
        .expect("closed");
    let mut log = reopened_with(&disk, config, end);
    assert!(log.retain(START_MS, 2).expect("retained").is_none());
    log.reader().load_timestamps().expect("readable");
    assert!(log.retain(START_MS, 2).expect("retained").is_some());
}

#[test]
fn the_active_segment_stays_while_records_of_it_are_above_the_high_watermark() {
    let disk = MemoryDisk::new(1);
    let config = LogConfig {
        segment_bytes: 1 << 20,
        ..by_time(true, 1_000)
    };
    let mut log = of_records(&disk, &[0, 0, 0], config);
    for high_watermark in [0, 2] {
        let removal = log.retain(START_MS, high_watermark).expect("retained");
        assert!(removal.is_none(), "{removal:?}");
        assert_eq!(bases(&disk), [0]);
    }
    log.retain(START_MS, 3)
        .expect("retained")
        .expect("all have expired");
    assert_eq!((bases(&disk), log.start_offset()), (vec![0, 3], 3));
}

#[test]
fn a_segment_whose_records_are_all_deleted_is_removed() {
    let disk = MemoryDisk::new(1);
    let mut log = of_records(&disk, &[START_MS; 4], by_time(true, -1));
    assert_eq!(log.delete_records_before(2), 2);
    let mut removal = log.retain(START_MS, 4).expect("retained").expect("two are");
    assert_eq!(removal.segment_count(), 2);
    assert!(!removal.is_renamed());
    removal.rename().expect("renamed");
    assert!(removal.is_renamed());
    assert_eq!(bases(&disk), [2, 3]);
    assert!(log.retain(START_MS, 4).expect("retained").is_none());
}

#[test]
fn files_that_are_gone_are_purged_and_others_must_be_removed() {
    let disk = MemoryDisk::new(1);
    let mut log = of_records(&disk, &[START_MS; 3], by_time(true, -1));
    log.delete_records_before(2);
    let mut removal = log.retain(START_MS, 3).expect("retained").expect("two");
    removal.rename().expect("renamed");
    let renamed = files(&disk, ".deleted");
    assert!(renamed.len() >= 2, "{renamed:?}");
    disk.remove_file(&renamed[0]).expect("removed");
    disk.cut_power_at(disk.operations() + 1);
    removal.purge().expect_err("there is no power");
    disk.kill();
    removal.purge().expect("removed");
    assert_eq!(files(&disk, ".deleted"), Vec::<std::path::PathBuf>::new());
}

#[test]
fn an_empty_log_has_nothing_to_remove() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, by_time(true, 0));
    assert!(log.retain(START_MS, 0).expect("retained").is_none());
    append_at(&mut log, START_MS);
    assert_eq!(bases(&disk), [0]);
}

/// A snapshot is due for every segment; those of removed ones would stay for ever.
#[test]
fn a_checkpoint_writes_the_snapshots_and_indexes_of_the_segments_that_are_left() {
    let disk = MemoryDisk::new(1);
    let mut log = of_records(&disk, &[START_MS; 6], by_time(true, -1));
    log.delete_records_before(3);
    let mut removal = log.retain(START_MS, 6).expect("retained").expect("three");
    removal.rename().expect("renamed");
    removal.purge().expect("removed");
    checkpoint(&mut log);
    assert_eq!(offsets_of(&disk, ".snapshot"), [3, 4, 5, 6]);
    for suffix in [".index", ".timeindex"] {
        assert_eq!(offsets_of(&disk, suffix), [3, 4, 5], "{suffix}");
    }
}
