//! What closing a log leaves in its directory, and when there is nothing left to do.

mod support;

use std::path::Path;

use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{AppendError, BatchToAppend, LogConfig, PartitionLog};
use ottla_wire::records::batch::{Batch, NO_TIMESTAMP};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::numbered::*;

#[test]
fn everything_is_durable_when_a_log_is_closed() {
    // With one segment and with several.
    for (seed, count) in (0..10).flat_map(|seed| [(seed, 30), (seed, 300)]) {
        let disk = MemoryDisk::new(seed);
        let mut log = create(&disk);
        append_many(&mut log, count);
        let end = i64::from(count);
        assert_eq!(log.close().expect("closed"), end);
        assert_eq!((log.durable_offset(), log.recovery_point()), (end, end));
        drop(log);
        disk.power_cut();
        let (log, report) = open(&disk, true, end);
        assert_eq!((report.findings, report.replayed_batches), (Vec::new(), 0));
        check_records(&log, 0, end);
    }
}

#[test]
fn a_closed_log_has_nothing_left_to_close() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    assert!(log.begin_close().expect("works").is_none(), "it is empty");
    append_many(&mut log, 30);
    let begun = disk.operations();
    assert_eq!(log.close().expect("closed"), 30);
    assert!(disk.operations() > begun);
    let closed = disk.operations();
    assert_eq!(log.close().expect("closed"), 30);
    assert_eq!(disk.operations(), closed);
}

/// It holds nothing yet, but its name must be as durable as the others.
#[test]
fn a_segment_that_was_begun_after_a_close_is_durable_after_the_next() {
    for seed in 0..20 {
        let disk = MemoryDisk::new(seed);
        let mut log = create(&disk);
        append_many(&mut log, 30);
        log.close().expect("closed");
        log.set_config(LogConfig {
            compact: true,
            max_compaction_lag_ms: 1_000,
            ..config()
        });
        log.roll_if_overdue(START_MS + 2_000).expect("rolled");
        log.close().expect("closed");
        drop(log);
        disk.power_cut();
        assert_eq!(files(&disk, ".log").len(), 2, "seed {seed}");
        let (log, report) = open(&disk, true, 30);
        assert_eq!(report.findings, Vec::new(), "seed {seed}");
        check_records(&log, 0, 30);
    }
}

/// Nothing else is missing: the records have no time that an index could hold.
#[test]
fn a_missing_snapshot_is_written_at_the_next_close() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_without_time(&mut log);
    log.close().expect("closed");
    for path in files(&disk, ".snapshot") {
        disk.remove_file(&path).expect("removed");
    }
    let (mut log, _) = open(&disk, true, 1);
    log.close().expect("closed");
    let snapshot = Path::new(DIRECTORY).join("00000000000000000001.snapshot");
    assert_eq!(files(&disk, ".snapshot"), [snapshot]);
    let (mut log, _) = open(&disk, true, 1);
    assert!(log.begin_close().expect("works").is_none());
}

/// Nothing else has changed since the log was created.
#[test]
fn space_that_was_reserved_for_an_append_that_failed_is_given_back() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let empty = disk.used_bytes();
    disk.begin_shortage(1, 1);
    let refused = append(&mut log).expect_err("no descriptor is left to write with");
    assert!(matches!(refused, AppendError::Log(error) if error.is_shortage()));
    let reserved = disk.used_bytes();
    assert!(reserved > empty);
    log.close().expect("closed");
    assert!(disk.used_bytes() < reserved);
}

fn append_without_time(log: &mut PartitionLog) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(NO_TIMESTAMP, None, Some(b"value"), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    log.append(&[batch], 0, START_MS).expect("appended");
}
