//! What readers are told besides batches: where the log begins and ends, how its files are called,
//! where they continue, how a producer's last transaction ended.

mod support;

use std::path::{Path, PathBuf};

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{AbortedTransaction, LogConfig, PartitionLog, Read, ReadMode};
use ottla_wire::records::builder::BatchOptions;
use ottla_wire::records::control::{TransactionMarker, TransactionResult};
use support::batches::*;
use support::numbered::*;

#[test]
fn a_reader_knows_where_the_log_begins_and_ends() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let reader = log.reader();
    assert_eq!((reader.start_offset(), reader.end_offset()), (0, 0));
    append_many(&mut log, 9);
    log.delete_records_before(4);
    assert_eq!((reader.start_offset(), reader.end_offset()), (4, 9));
}

#[test]
fn a_segment_that_is_gone_is_called_by_its_name_alone() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, one_batch_per_segment());
    (0..3).for_each(|_| append_at(&mut log, START_MS));
    let reader = log.reader();
    for base in 0..3 {
        let name = format!("{base:020}.log");
        assert_eq!(reader.log_path(base), Path::new(DIRECTORY).join(name));
    }
    log.delete_records_before(1);
    log.retain(START_MS, 3)
        .expect("retained")
        .expect("one is not needed");
    assert_eq!(reader.log_path(0), PathBuf::from("00000000000000000000.log"));
}

#[test]
fn a_reader_that_cannot_read_a_batch_continues_at_the_next() {
    let disk = MemoryDisk::new(1);
    let bytes = batch_at(&[START_MS; 3], 100, BatchOptions::default());
    let mut log = created_with(
        &disk,
        LogConfig {
            segment_bytes: 4 * bytes.len() as u32,
            index_interval_bytes: 1,
            ..config()
        },
    );
    for _ in 0..10 {
        try_append(&mut log, &bytes, START_MS).expect("appended");
    }
    assert_eq!(bases(&disk), [0, 12, 24]);
    let next = |offset| log.reader().next_batch_behind(offset).expect("readable");
    for offset in 0..27 {
        assert_eq!(next(offset), Some(offset / 3 * 3 + 3), "{offset}");
    }
    for offset in 27..30 {
        assert_eq!(next(offset), None, "{offset}");
    }
}

fn begin_transaction(log: &mut PartitionLog, producer_id: i64, base_sequence: i32) -> i64 {
    let options = BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence,
        is_transactional: true,
        ..BatchOptions::default()
    };
    let bytes = batch_at(&[START_MS], 10, options);
    try_append(log, &bytes, START_MS).expect("appended").base_offset
}

/// Returns the marker's offset; its timestamp is that much later than the start.
fn end_transaction(log: &mut PartitionLog, producer_id: i64, result: TransactionResult) -> i64 {
    let marker = TransactionMarker {
        producer_id,
        producer_epoch: 0,
        result,
        coordinator_epoch: 3,
    };
    let bytes = marker.to_batch(0, 0, START_MS + log.end_offset());
    try_append(log, &bytes, START_MS).expect("appended").base_offset
}

#[test]
fn the_last_marker_of_a_producer_is_found_below_a_bound() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(
        &disk,
        LogConfig {
            segment_bytes: 300,
            ..config()
        },
    );
    begin_transaction(&mut log, 7, 0);
    let aborted = end_transaction(&mut log, 7, TransactionResult::Abort);
    begin_transaction(&mut log, 7, 1);
    begin_transaction(&mut log, 8, 0);
    let committed = end_transaction(&mut log, 7, TransactionResult::Commit);
    let other = end_transaction(&mut log, 8, TransactionResult::Abort);
    assert!(bases(&disk).len() > 1);
    let last = |producer_id, bound| {
        let found = log.reader().last_marker(producer_id, bound).expect("readable");
        found.map(|marker| (marker.timestamp - START_MS, marker.is_commit))
    };
    let end = log.end_offset();
    assert_eq!(last(7, end), Some((committed, true)));
    assert_eq!(last(7, committed + 1), Some((committed, true)));
    assert_eq!(last(7, committed), Some((aborted, false)));
    assert_eq!(last(7, aborted), None);
    assert_eq!(last(8, end), Some((other, false)));
    assert_eq!(last(8, other), None);
    assert_eq!(last(9, end), None);
}

/// Apache Kafka reads it from the file, too.
#[test]
fn an_aborted_transaction_tells_the_last_stable_offset_at_its_end() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 2);
    let first = begin_transaction(&mut log, 7, 0);
    let second = begin_transaction(&mut log, 8, 0);
    let one = end_transaction(&mut log, 7, TransactionResult::Abort);
    let two = end_transaction(&mut log, 8, TransactionResult::Abort);
    let aborted = |producer_id, first_offset, last_offset, last_stable_offset| AbortedTransaction {
        producer_id,
        first_offset,
        last_offset,
        last_stable_offset,
    };
    let expected = [aborted(7, first, one, second), aborted(8, second, two, two + 1)];
    assert_eq!(log.reader().aborted_transactions(0, log.end_offset()), expected);
}

/// Three are known from before a restart.
#[test]
fn an_aborted_transaction_is_written_once() {
    const ENTRY_BYTES: usize = 34;
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let abort = |log: &mut PartitionLog, producer_id: i64| {
        begin_transaction(log, producer_id, 0);
        end_transaction(log, producer_id, TransactionResult::Abort);
    };
    (0..3).for_each(|producer_id| abort(&mut log, producer_id));
    let end = log.close().expect("closed");
    let mut log = reopened_with(&disk, config(), end);
    for producers in [3..5, 5..6, 6..7] {
        let count = producers.end as usize;
        producers.for_each(|producer_id| abort(&mut log, producer_id));
        checkpoint(&mut log);
        let index = disk.read_file(&files(&disk, ".txnindex")[0]).expect("written");
        assert_eq!(index.len(), count * ENTRY_BYTES);
        let producer_ids = index.chunks(ENTRY_BYTES).map(|entry| entry[9]);
        assert!(producer_ids.eq(0..count as u8), "{index:?}");
    }
}

#[test]
fn open_transactions_are_listed_with_their_producers() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let open = |log: &PartitionLog| -> Vec<(i64, i64)> {
        let open = log.open_transactions().into_iter();
        open.map(|producer| (producer.producer_id, producer.transaction_first_offset))
            .collect()
    };
    assert_eq!(open(&log), []);
    for producer_id in [7, 8, 9] {
        begin_transaction(&mut log, producer_id, 0);
    }
    end_transaction(&mut log, 8, TransactionResult::Commit);
    assert_eq!(open(&log), [(7, 0), (9, 2)]);
}

#[test]
fn a_silent_producer_expires_in_a_log_that_is_in_use() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(
        &disk,
        LogConfig {
            producer_id_expiration_ms: 1_000,
            ..config()
        },
    );
    for (producer_id, timestamp) in [(7, START_MS), (8, START_MS), (9, START_MS + 1)] {
        let options = BatchOptions {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            ..BatchOptions::default()
        };
        let bytes = batch_at(&[timestamp], 10, options);
        try_append(&mut log, &bytes, START_MS).expect("appended");
    }
    assert_eq!(log.expire_producers(START_MS + 999), 0);
    assert_eq!(log.expire_producers(START_MS + 1_000), 2);
    let left: Vec<i64> = log
        .active_producers()
        .map(|producer| producer.producer_id)
        .collect();
    assert_eq!(left, [9]);
}

/// The bound is the beginning of the batch behind the gap.
#[test]
fn a_gap_left_by_compaction_is_empty_up_to_the_bound() {
    let disk = MemoryDisk::new(1);
    let batch = batch_at(&[START_MS], 10, BatchOptions::default());
    let compacting = LogConfig {
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.0,
        ..config()
    };
    let mut log = created_with(&disk, two_per_segment(&batch, compacting));
    (0..3).for_each(|_| append_at(&mut log, START_MS));
    checkpoint(&mut log);
    log.reader().load_compaction_times(0).expect("readable");
    let mut job = log
        .plan_compaction(START_MS, 0, 3)
        .expect("the first segment is dirty");
    job.run(1 << 20).expect("compacted");
    log.install_compaction(&job);
    job.replace_files().expect("replaced");
    log.finish_compaction(job);
    let read = |bound| {
        log.reader()
            .read(0, 1 << 20, true, below(bound), ReadMode::Blocking)
    };
    let Ok(Read::Region(found)) = read(2) else {
        panic!("the record behind the gap is there")
    };
    assert_eq!(found.base_offset, 1);
    let empty = read(1);
    assert!(matches!(empty, Ok(Read::Empty)), "{empty:?}");
}
