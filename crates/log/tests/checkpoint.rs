//! What a checkpoint leaves in the directory: indexes, producer snapshots, aborted transactions.

mod support;

use std::path::{Path, PathBuf};

use ottla_log::crew::Alone;
use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{
    AppendError, BatchToAppend, CheckpointJob, LogConfig, OpenOptions, PartitionLog, RecoveryReport,
};
use ottla_wire::records::batch::{Batch, HEADER_BYTES};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::batches::{created_with, one_batch_per_segment, reopened_with};
use support::numbered::*;
use support::opening::{clean, file, position_of, try_open, unclean};

/// first_offset, last_offset, last_stable_offset, producer_id and a version of two bytes.
const ABORTED_BYTES: usize = 34;

fn take_checkpoint(log: &mut PartitionLog) -> CheckpointJob {
    log.request_checkpoint();
    if let Some(job) = log.begin_sync() {
        let result = job.run();
        log.finish_sync(job, result).expect("synced");
    }
    log.take_checkpoint().expect("there is something to write")
}

fn checkpoint(log: &mut PartitionLog) {
    let job = take_checkpoint(log);
    let result = job.run();
    log.finish_checkpoint(job, result).expect("written");
}

/// Appends a transaction of one record and its abort marker.
fn abort_transaction(log: &mut PartitionLog, producer_id: i64) {
    begin_transaction(log, producer_id);
    write_abort(log, producer_id);
}

fn commit_transaction(log: &mut PartitionLog, producer_id: i64) {
    begin_transaction(log, producer_id);
    write_marker(log, producer_id, 1);
}

fn begin_transaction(log: &mut PartitionLog, producer_id: i64) {
    append_one(log, of_producer(producer_id), b"key", b"value");
}

fn append_batch(log: &mut PartitionLog, producer_id: i64, base_sequence: i32) {
    let options = BatchOptions {
        base_sequence,
        ..of_producer(producer_id)
    };
    append_one(log, options, b"key", b"value");
}

fn write_abort(log: &mut PartitionLog, producer_id: i64) {
    write_marker(log, producer_id, 0);
}

fn write_marker(log: &mut PartitionLog, producer_id: i64, kind: u8) {
    let marker = BatchOptions {
        base_sequence: -1,
        is_control: true,
        ..of_producer(producer_id)
    };
    append_one(log, marker, &[0, 0, 0, kind], &[0, 0, 0, 0, 0, 9]);
}

fn of_producer(producer_id: i64) -> BatchOptions {
    BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    }
}

fn append_one(log: &mut PartitionLog, options: BatchOptions, key: &[u8], value: &[u8]) {
    let mut builder = BatchBuilder::new(options);
    builder.append(START_MS, Some(key), Some(value), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    log.append(&[batch], 0, START_MS).expect("appended");
}

fn names(disk: &MemoryDisk, ending: &str) -> Vec<String> {
    let name = |path: PathBuf| path.file_name().expect("a file").to_string_lossy().into_owned();
    files(disk, ending).into_iter().map(name).collect()
}

#[test]
fn aborted_transactions_are_written_behind_those_of_earlier_checkpoints() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    abort_transaction(&mut log, 7);
    checkpoint(&mut log);
    let index = Path::new(DIRECTORY).join("00000000000000000000.txnindex");
    assert_eq!(disk.read_file(&index).expect("written").len(), ABORTED_BYTES);
    abort_transaction(&mut log, 8);
    abort_transaction(&mut log, 9);
    checkpoint(&mut log);
    checkpoint_of_nothing_new(&mut log, &disk, &index);
    log.close().expect("closed");
    let (log, _) = open(&disk, true, 6);
    let aborted = log.reader().aborted_transactions(0, 6);
    let producers: Vec<i64> = aborted.iter().map(|aborted| aborted.producer_id).collect();
    assert_eq!(producers, [7, 8, 9]);
}

#[test]
fn an_emptied_index_of_aborted_transactions_is_rebuilt_and_one_without_aborts_is_removed() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    abort_transaction(&mut log, 7);
    log.close().expect("closed");
    let index = Path::new(DIRECTORY).join("00000000000000000000.txnindex");
    disk.write_file(&index, b"");
    let (log, _) = open(&disk, true, 2);
    let aborted = log.reader().aborted_transactions(0, 2);
    assert_eq!(aborted.len(), 1, "{aborted:?}");
    assert_eq!(disk.read_file(&index).expect("there").len(), ABORTED_BYTES);

    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 3);
    log.close().expect("closed");
    disk.write_file(&index, b"");
    open(&disk, true, 3);
    assert!(
        !disk.exists(&index),
        "nothing has to be rebuilt at the next start"
    );
}

/// Committed transactions of the producers 7 and 8, another record, and an aborted transaction of
/// two batches: the only line of the index.
#[test]
fn an_index_of_aborted_transactions_that_the_log_contradicts_is_rebuilt() {
    let aborted_after = |changes: &[(usize, u8)]| {
        let disk = MemoryDisk::new(1);
        let mut log = create(&disk);
        commit_transaction(&mut log, 7);
        commit_transaction(&mut log, 8);
        append_many(&mut log, 1);
        for base_sequence in [1, 2] {
            append_batch(&mut log, 7, base_sequence);
        }
        write_abort(&mut log, 7);
        checkpoint(&mut log);
        log.close().expect("closed");
        let index = Path::new(DIRECTORY).join("00000000000000000000.txnindex");
        let written = disk.read_file(&index).expect("there");
        let mut bytes = written.clone();
        for (position, value) in changes {
            bytes[*position] = *value;
        }
        disk.write_file(&index, &bytes);
        let (log, report) = open(&disk, true, 8);
        assert_eq!(disk.read_file(&index).expect("there"), written, "written again");
        assert_eq!(report.rebuilt_indexes, usize::from(bytes != written));
        let aborted = log.reader().aborted_transactions(0, 8);
        let [aborted] = aborted[..] else {
            panic!("{aborted:?}");
        };
        (aborted.producer_id, aborted.first_offset, aborted.last_offset)
    };
    let truth = aborted_after(&[]);
    assert_eq!(truth, (7, 5, 7));
    // The last bytes of the fields.
    let (producer, first, last, stable) = (9, 17, 25, 33);
    for changes in [
        &[(producer, 8)][..],
        // Another transaction's batch, a marker, another producer's batch, a record in no
        // transaction, a later batch.
        &[(first, 0)],
        &[(first, 1)],
        &[(first, 2)],
        &[(first, 4)],
        &[(first, 6)],
        // A batch in place of the marker.
        &[(last, 6), (stable, 7)],
    ] {
        assert_eq!(aborted_after(changes), truth, "{changes:?}");
    }
}

/// The marker of the transaction that the line names by mistake is in a later segment.
#[test]
fn a_transaction_is_followed_across_segments() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(&disk, one_batch_per_segment());
    commit_transaction(&mut log, 7);
    append_batch(&mut log, 7, 1);
    write_abort(&mut log, 7);
    checkpoint(&mut log);
    log.close().expect("closed");
    let index = Path::new(DIRECTORY).join("00000000000000000003.txnindex");
    let mut bytes = disk.read_file(&index).expect("there");
    assert_eq!(bytes[17], 2, "where it begins");
    bytes[17] = 0;
    disk.write_file(&index, &bytes);
    let log = reopened_with(&disk, one_batch_per_segment(), 4);
    let aborted = log.reader().aborted_transactions(0, 4);
    assert_eq!(aborted[0].first_offset, 2);
}

#[test]
fn a_last_stable_offset_that_hides_a_later_abort_is_not_believed() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    begin_transaction(&mut log, 7);
    begin_transaction(&mut log, 8);
    write_abort(&mut log, 7);
    write_abort(&mut log, 8);
    checkpoint(&mut log);
    log.close().expect("closed");
    let index = Path::new(DIRECTORY).join("00000000000000000000.txnindex");
    let mut bytes = disk.read_file(&index).expect("there");
    let (_, report) = open(&disk, true, 4);
    assert_eq!(report.rebuilt_indexes, 0);
    let last_stable = ABORTED_BYTES - 1;
    assert_eq!(
        bytes[last_stable], 1,
        "where the transaction of producer 8 begins"
    );
    bytes[last_stable] = 3;
    disk.write_file(&index, &bytes);
    let (log, _) = open(&disk, true, 4);
    let aborted = log.reader().aborted_transactions(0, 3);
    let producers: Vec<i64> = aborted.iter().map(|aborted| aborted.producer_id).collect();
    assert_eq!(producers, [7, 8]);
}

/// Regression: the contents of an older snapshot showed the records of an aborted transaction.
#[test]
fn a_snapshot_that_belongs_to_another_offset_is_not_believed() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let snapshot = |offset: i64| Path::new(DIRECTORY).join(format!("{offset:020}.snapshot"));
    let contents = |offset| disk.read_file(&snapshot(offset)).expect("there");
    append_many(&mut log, 3);
    checkpoint(&mut log);
    let nothing = contents(3);
    begin_transaction(&mut log, 7);
    checkpoint(&mut log);
    let open_at_3 = contents(4);
    write_abort(&mut log, 7);
    let before_checkpoint = disk.fork(1);
    checkpoint(&mut log);
    begin_transaction(&mut log, 8);
    let ended = contents(5);
    let aborted = |disk: &MemoryDisk, offset: i64, contents: &[u8]| {
        disk.write_file(&snapshot(offset), contents);
        let (log, report) = open(disk, false, offset);
        let end = log.end_offset();
        let aborted = log.reader().aborted_transactions(0, end).len();
        (aborted, log.last_stable_offset(end), report.replayed_batches)
    };
    // The right one is believed: only the batches behind it are read.
    assert_eq!(aborted(&before_checkpoint.fork(1), 4, &open_at_3), (1, 5, 1));
    assert_eq!(aborted(&before_checkpoint.fork(1), 4, &nothing), (1, 5, 2));
    assert_eq!(aborted(&before_checkpoint.fork(1), 4, &ended), (1, 5, 2));
    assert_eq!(aborted(&disk.fork(1), 5, &ended), (1, 5, 1));
    assert_eq!(aborted(&disk.fork(1), 5, &open_at_3), (1, 5, 3));
    assert_eq!(aborted(&disk.fork(1), 5, &nothing), (1, 5, 3));
}

/// The difference to now does not fit into 64 bits.
#[test]
fn a_damaged_time_of_a_producer_s_batch_does_not_end_the_start() {
    const SIGN_OF_MAX_TIMESTAMP: u64 = 35;
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    begin_transaction(&mut log, 7);
    log.close().expect("closed");
    disk.corrupt(&files(&disk, ".log")[0], SIGN_OF_MAX_TIMESTAMP, 0x80);
    let (log, _) = open(&disk, true, 1);
    assert_eq!((log.end_offset(), log.last_stable_offset(1)), (1, 0));
}

/// The bit makes an abort of a commit, but for the checksum.
#[test]
fn a_damaged_abort_marker_does_not_commit_its_transaction() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    abort_transaction(&mut log, 7);
    append_many(&mut log, 3);
    log.close().expect("closed");
    for snapshot in files(&disk, ".snapshot") {
        disk.remove_file(&snapshot).expect("removed");
    }
    let path = Path::new(DIRECTORY).join("00000000000000000000.log");
    let bytes = disk.read_file(&path).expect("there");
    let first = Batch::parse(&bytes).expect("intact").bytes.len();
    // Length, attributes, timestamp, offset, length of the key: one byte each. Then its version.
    let kind_at = first + HEADER_BYTES + 5 + 3;
    assert_eq!(bytes[kind_at - 3..=kind_at], [0, 0, 0, 0], "version 0, an abort");
    disk.corrupt(&path, kind_at as u64, 1);
    let (log, _) = open(&disk, false, 5);
    assert_eq!(log.last_stable_offset(5), 0, "it is open");
}

/// Another record and checkpoint; the index of aborted transactions stays as it is.
fn checkpoint_of_nothing_new(log: &mut PartitionLog, disk: &MemoryDisk, index: &Path) {
    let before = disk.read_file(index).expect("there");
    assert_eq!(before.len(), 3 * ABORTED_BYTES);
    append(log).expect("appended");
    checkpoint(log);
    assert_eq!(disk.read_file(index).expect("there"), before);
}

#[test]
fn a_checkpoint_removes_the_snapshot_of_the_one_before() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 3);
    checkpoint(&mut log);
    assert_eq!(names(&disk, ".snapshot"), ["00000000000000000003.snapshot"]);
    append_many(&mut log, 2);
    checkpoint(&mut log);
    assert_eq!(names(&disk, ".snapshot"), ["00000000000000000005.snapshot"]);
}

#[test]
fn a_snapshot_that_is_gone_already_does_not_fail_a_checkpoint() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 3);
    checkpoint(&mut log);
    append_many(&mut log, 2);
    let job = take_checkpoint(&mut log);
    disk.remove_file(&Path::new(DIRECTORY).join("00000000000000000003.snapshot"))
        .expect("removed");
    let result = job.run();
    log.finish_checkpoint(job, result).expect("it is gone already");
    assert_eq!(log.recovery_point(), 5);
}

#[test]
fn checkpoints_that_run_together_are_tried_one_by_one_where_one_fails() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 30);
    let jobs = [take_checkpoint(&mut log)];
    disk.fail_next_sync();
    let results = CheckpointJob::run_all(&disk, &jobs, &Alone);
    assert!(matches!(results[..], [Ok(())]), "{results:?}");
    assert_eq!(names(&disk, ".snapshot"), ["00000000000000000030.snapshot"]);
    let index = Path::new(DIRECTORY).join("00000000000000000000.index");
    assert!(!disk.read_file(&index).expect("there").is_empty());
}

#[test]
fn a_power_cut_after_a_checkpoint_leaves_its_indexes() {
    for seed in 0..20 {
        let disk = MemoryDisk::new(seed);
        let mut log = create(&disk);
        append_many(&mut log, 30);
        checkpoint(&mut log);
        let read = || {
            ["index", "timeindex"].map(|ending| {
                let path = Path::new(DIRECTORY).join(format!("00000000000000000000.{ending}"));
                disk.read_file(&path).expect("there")
            })
        };
        let written = read();
        assert!(written.iter().all(|bytes| !bytes.is_empty()));
        drop(log);
        disk.power_cut();
        assert_eq!(read(), written, "seed {seed}");
    }
}

/// Appends a batch of `append`'s length that is not part of a transaction; whether it was known.
fn append_in_sequence(log: &mut PartitionLog, base_sequence: i32) -> Result<bool, AppendError> {
    let options = BatchOptions {
        base_sequence,
        is_transactional: false,
        ..of_producer(7)
    };
    let mut builder = BatchBuilder::new(options);
    let value = format!("{base_sequence:>500}");
    builder.append(START_MS, None, Some(value.as_bytes()), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    Ok(log.append(&[batch], 0, START_MS)?.duplicate)
}

fn snapshot_of(offset: i64) -> PathBuf {
    file(offset, ".snapshot")
}

fn producers(log: &PartitionLog) -> Vec<i64> {
    log.active_producers()
        .map(|producer| producer.producer_id)
        .collect()
}

#[test]
fn a_snapshot_above_the_recovery_point_is_removed_and_one_below_it_stays() {
    let disk = closed(300);
    let snapshots = [114, 228, 300].map(|offset| format!("{offset:020}.snapshot"));
    try_open(&disk, clean()).expect("opens");
    assert_eq!(names(&disk, ".snapshot"), snapshots);
    try_open(&disk, unclean(299)).expect("opens");
    assert_eq!(names(&disk, ".snapshot"), snapshots[..2]);
}

/// Retention has removed all records.
#[test]
fn a_snapshot_at_the_start_of_the_log_knows_its_producers() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_in_sequence(&mut log, 0).expect("appended");
    log.close().expect("closed");
    let deleted = OpenOptions {
        log_start_offset: 1,
        ..unclean(1)
    };
    let (log, _) = try_open(&disk, deleted).expect("opens");
    assert_eq!((log.start_offset(), producers(&log)), (1, vec![7]));
}

#[test]
fn an_abort_behind_the_snapshot_is_noted_once() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    begin_transaction(&mut log, 7);
    checkpoint(&mut log);
    let open_at_1 = disk.read_file(&snapshot_of(1)).expect("there");
    write_abort(&mut log, 7);
    checkpoint(&mut log);
    drop(log);
    disk.remove_file(&snapshot_of(2)).expect("removed");
    disk.write_file(&snapshot_of(1), &open_at_1);
    let (log, report) = open(&disk, false, 2);
    assert_eq!(report.replayed_batches, 1, "the marker");
    assert_eq!(log.reader().aborted_transactions(0, 10).len(), 1);
}

/// Of one segment or of two, the transaction indexes are rebuilt.
#[test]
fn damaged_indexes_of_aborted_transactions_are_rebuilt_from_the_first_damaged_one_on() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    abort_transaction(&mut log, 7);
    append_many(&mut log, 120);
    abort_transaction(&mut log, 8);
    log.close().expect("closed");
    let indexes = files(&disk, ".txnindex");
    let contents =
        |disk: &MemoryDisk| -> Vec<_> { indexes.iter().map(|path| disk.read_file(path)).collect() };
    assert_eq!(indexes.len(), 2);
    for damaged in [&indexes[..], &indexes[..1], &indexes[1..]] {
        let disk = disk.fork(1);
        let whole = contents(&disk);
        for path in damaged {
            let bytes = disk.read_file(path).expect("there");
            disk.write_file(path, &bytes[..ABORTED_BYTES - 1]);
        }
        let (log, report) = open(&disk, true, 124);
        assert_eq!(report.rebuilt_indexes, damaged.len());
        assert!(contents(&disk) == whole, "{damaged:?}");
        assert_eq!(log.reader().aborted_transactions(0, 124).len(), 2);
    }
}

/// Compaction has removed the marker of a transaction. Without the snapshot it would be open.
#[test]
fn a_snapshot_is_believed_where_compaction_may_have_removed_the_proof() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    abort_transaction(&mut log, 7);
    append_many(&mut log, 3);
    log.close().expect("closed");
    let path = file(0, ".log");
    let mut bytes = disk.read_file(&path).expect("there");
    let first = Batch::parse(&bytes).expect("intact").bytes.len();
    let marker = Batch::parse(&bytes[first..]).expect("intact").bytes.len();
    bytes.drain(first..first + marker);
    disk.write_file(&path, &bytes);
    let stopped = |gaps_below| OpenOptions {
        gaps_below,
        ..clean()
    };
    let (log, report) = try_open(&disk, stopped(5)).expect("opens");
    assert_eq!((log.last_stable_offset(5), report.replayed_batches), (5, 0));
}

/// A producer that had expired when the snapshot was written is missing there.
#[test]
fn a_producer_that_has_expired_does_not_contradict_a_snapshot_without_it() {
    let disk = MemoryDisk::new(1);
    let nothing = closed(1).read_file(&snapshot_of(1)).expect("there");
    let mut log = create(&disk);
    append_in_sequence(&mut log, 0).expect("appended");
    checkpoint(&mut log);
    drop(log);
    disk.write_file(&snapshot_of(1), &nothing);
    let expiration_ms = LogConfig::default().producer_id_expiration_ms;
    let open_at = |now_ms: i64| -> (PartitionLog, RecoveryReport) {
        let options = OpenOptions { now_ms, ..unclean(1) };
        let disk = disk.fork(1).shared();
        PartitionLog::open(disk, Path::new(DIRECTORY), config(), options).expect("opens")
    };
    let (log, report) = open_at(START_MS + expiration_ms);
    assert_eq!((producers(&log), report.replayed_batches), (vec![], 0));
    let (log, report) = open_at(START_MS + expiration_ms - 1);
    assert_eq!((producers(&log), report.replayed_batches), (vec![7], 1));
}

/// The batches that a client may retry are in the segment before; what follows them is damaged.
#[test]
fn older_batches_of_a_producer_are_recalled_from_the_segment_before() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 110);
    for sequence in 0..4 {
        append_in_sequence(&mut log, sequence).expect("in sequence");
    }
    checkpoint(&mut log);
    append_many(&mut log, 3);
    sync(&mut log).expect("synced");
    drop(log);
    let second = file(114, ".log");
    for damaged in [false, true] {
        let disk = disk.fork(1);
        if damaged {
            disk.corrupt(&second, 16, 1);
        }
        let (mut log, report) = try_open(&disk, unclean(117)).expect("opens");
        assert_eq!(
            report.findings.len(),
            usize::from(damaged),
            "{:?}",
            report.findings
        );
        for sequence in 0..4 {
            assert!(
                append_in_sequence(&mut log, sequence).expect("recognised"),
                "{damaged}"
            );
        }
    }
}

fn open_with(disk: &MemoryDisk, config: LogConfig, recovery_point: i64) -> (PartitionLog, RecoveryReport) {
    let options = OpenOptions {
        now_ms: START_MS,
        ..unclean(recovery_point)
    };
    PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config, options).expect("opens")
}

/// The search for the place of the snapshot ends with the damage.
#[test]
fn a_snapshot_behind_a_damaged_batch_is_used() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let without_index = LogConfig {
        index_interval_bytes: 1 << 20,
        ..config()
    };
    log.set_config(without_index.clone());
    append_many(&mut log, 98);
    append_in_sequence(&mut log, 0).expect("appended");
    append_many(&mut log, 1);
    checkpoint(&mut log);
    drop(log);
    let path = file(0, ".log");
    disk.corrupt(&path, position_of(&disk, &path, 98) + 16, 1);
    let (log, report) = open_with(&disk, without_index, 100);
    assert_eq!((producers(&log), report.replayed_batches), (vec![7], 0));
}

#[test]
fn a_batch_far_below_the_snapshot_is_recalled() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    let one_segment = LogConfig {
        segment_bytes: 1 << 20,
        ..config()
    };
    log.set_config(one_segment.clone());
    append_many(&mut log, 300);
    append_in_sequence(&mut log, 0).expect("appended");
    append_many(&mut log, 300);
    append_in_sequence(&mut log, 1).expect("appended");
    let recovery_point = log.close().expect("closed");
    assert!(disk.read_file(&file(0, ".log")).expect("there").len() > 300 * 1024);
    let (mut log, _) = open_with(&disk, one_segment, recovery_point);
    assert!(append_in_sequence(&mut log, 0).expect("recognised"));
}
