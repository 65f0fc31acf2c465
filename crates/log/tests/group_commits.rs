//! Checkpoints from the log's side: when one is captured, and what it makes of the recovery point.

mod support;

use std::path::Path;

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{LEADER_EPOCH_FILE, LogConfig};
use ottla_wire::records::builder::BatchOptions;
use support::batches::*;
use support::numbered::{DIRECTORY, START_MS, append_many, config, create, files, open, sync};

#[test]
fn a_checkpoint_is_captured_by_a_sync_that_comes_after_its_request_and_one_at_a_time() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 3);
    assert!(!log.wants_checkpoint());
    sync(&mut log).expect("synced");
    assert!(!log.has_checkpoint_ready() && !log.wants_checkpoint());
    append_many(&mut log, 1);
    log.request_checkpoint();
    assert!(log.wants_checkpoint() && !log.has_checkpoint_ready());
    sync(&mut log).expect("synced");
    assert!(!log.wants_checkpoint() && log.has_checkpoint_ready());
    // A second one waits while the first is ready, or under way.
    append_many(&mut log, 2);
    log.request_checkpoint();
    sync(&mut log).expect("synced");
    assert!(!log.wants_checkpoint());
    let job = log.take_checkpoint().expect("ready");
    append_many(&mut log, 1);
    sync(&mut log).expect("synced");
    assert!(!log.wants_checkpoint() && !log.has_checkpoint_ready());
    assert_eq!(write_checkpoint(&mut log, job), 4);
    assert!(log.wants_checkpoint());
    append_many(&mut log, 1);
    sync(&mut log).expect("synced");
    let job = log.take_checkpoint().expect("ready");
    assert_eq!(write_checkpoint(&mut log, job), 8);
}

#[test]
fn a_checkpoint_of_what_is_durable_is_ready_at_once() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 3);
    sync(&mut log).expect("synced");
    log.request_checkpoint();
    assert!(log.has_checkpoint_ready());
    let job = log.take_checkpoint().expect("ready");
    assert_eq!(write_checkpoint(&mut log, job), 3);
    log.request_checkpoint();
    assert!(!log.has_checkpoint_ready(), "nothing is new");
}

#[test]
fn what_a_recovery_would_read_is_what_was_appended_since_the_checkpoint() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    assert_eq!(log.bytes_behind_recovery_point(), 0);
    append_many(&mut log, 150);
    assert_eq!(log.bytes_behind_recovery_point(), log.bytes());
    assert_eq!(checkpoint(&mut log), 150);
    assert_eq!(log.bytes_behind_recovery_point(), 0);
    let before = log.bytes();
    append_many(&mut log, 20);
    assert_eq!(log.bytes_behind_recovery_point(), log.bytes() - before);
    drop(log);
    disk.kill();
    let (mut log, report) = open(&disk, false, 150);
    assert!(report.checked_bytes >= 20 * 500, "{report:?}");
    assert_eq!(log.bytes_behind_recovery_point(), report.checked_bytes);
    assert_eq!(checkpoint(&mut log), 170);
    assert_eq!(log.bytes_behind_recovery_point(), 0);
}

#[test]
fn a_checkpoint_at_the_recovery_point_counts_as_one() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 150);
    assert_eq!(checkpoint(&mut log), 150);
    drop(log);
    disk.kill();
    let (mut log, _) = open(&disk, false, 150);
    assert!(log.bytes_behind_recovery_point() > 0, "the end was read");
    // The last segment is closed, and no record is new.
    log.set_config(LogConfig {
        compact: true,
        max_compaction_lag_ms: 1_000,
        ..config()
    });
    log.roll_if_overdue(START_MS + 9_000).expect("rolled");
    assert_eq!(checkpoint(&mut log), 150);
    assert_eq!(log.bytes_behind_recovery_point(), 0);
}

#[test]
fn a_leader_epoch_without_records_is_not_written() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 3);
    log.close().expect("closed");
    let path = Path::new(DIRECTORY).join(LEADER_EPOCH_FILE);
    let before = disk.read_file(&path).expect("there");
    let (mut log, _) = open(&disk, true, 3);
    log.assign_leader_epoch(7);
    let latest = log.leader_epochs().latest().expect("assigned");
    assert_eq!((latest.leader_epoch, latest.start_offset), (7, 3));
    log.close().expect("closed");
    assert_eq!(disk.read_file(&path).expect("there"), before);
}

/// Apache Kafka expects one for every segment.
#[test]
fn the_snapshot_at_the_beginning_of_a_segment_outlives_later_checkpoints() {
    let disk = MemoryDisk::new(1);
    let batch = batch_at(&[START_MS], 10, BatchOptions::default());
    let mut log = created_with(&disk, two_per_segment(&batch, config()));
    let mut write = |count: usize| {
        for _ in 0..count {
            try_append(&mut log, &batch, START_MS).expect("appended");
        }
        checkpoint(&mut log);
    };
    // The segment is full; the next one begins where the snapshot was taken.
    write(2);
    write(1);
    write(1);
    let expected = [2, 4].map(|offset| Path::new(DIRECTORY).join(format!("{offset:020}.snapshot")));
    let mut found = files(&disk, ".snapshot");
    found.sort();
    assert_eq!(found, expected);
}

/// Entries would be written twice, or behind a hole.
#[test]
fn indexes_written_piece_by_piece_are_those_written_at_once() {
    let indexes = |pieces: i64| {
        let disk = MemoryDisk::new(1);
        let config = LogConfig {
            index_interval_bytes: 1,
            ..config()
        };
        let mut log = created_with(&disk, config.clone());
        for piece in 0..pieces {
            for offset in 0..24 / pieces {
                append_at(&mut log, START_MS + piece * (24 / pieces) + offset);
            }
            if piece % 2 == 0 && piece + 1 < pieces {
                checkpoint(&mut log);
                continue;
            }
            let end = log.close().expect("closed");
            if piece + 1 < pieces {
                log = reopened_with(&disk, config.clone(), end);
            }
        }
        let read = |suffix| disk.read_file(&files(&disk, suffix)[0]).expect("there");
        (read(".index"), read(".timeindex"))
    };
    let at_once = indexes(1);
    assert_eq!((at_once.0.len(), at_once.1.len()), (23 * 8, 23 * 12));
    for pieces in [2, 4, 8] {
        assert_eq!(indexes(pieces), at_once, "{pieces} pieces");
    }
}
