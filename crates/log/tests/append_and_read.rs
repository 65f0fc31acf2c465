//! Appends, reads, syncs and reopens on real files.

use std::sync::Arc;

use ottla_log::disk::Disk;
use ottla_log::disk::os::{OsDisk, TemporaryDirectory};
use ottla_log::{
    AppendError, BatchToAppend, Bound, LogConfig, OpenOptions, PartitionLog, Read, ReadError, ReadMode,
    RecoveryReport,
};
use ottla_wire::records::batch::{Batch, batches};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

const NOW_MS: i64 = 1_700_000_000_000;

struct Home {
    directory: TemporaryDirectory,
    disk: Arc<dyn Disk>,
    config: LogConfig,
}

impl Home {
    fn new(config: LogConfig) -> Home {
        Home {
            directory: TemporaryDirectory::new("log").expect("temporary directory"),
            disk: OsDisk::shared(),
            config,
        }
    }

    fn open(&self, clean_shutdown: bool, recovery_point: i64) -> (PartitionLog, RecoveryReport) {
        let options = OpenOptions {
            clean_shutdown,
            recovery_point,
            log_start_offset: 0,
            now_ms: NOW_MS,
            ..OpenOptions::default()
        };
        PartitionLog::open(
            Arc::clone(&self.disk),
            &self.directory.path().join("topic-0"),
            self.config.clone(),
            options,
        )
        .expect("opens")
    }
}

fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 16 * 1024,
        index_interval_bytes: 512,
        ..LogConfig::default()
    }
}

fn build(values: &[&[u8]], timestamp: i64, options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for value in values {
        builder.append(timestamp, None, Some(value), &[]);
    }
    builder.finish()
}

fn append(log: &mut PartitionLog, bytes: &[u8]) -> Result<ottla_log::Appended, AppendError> {
    let batch = Batch::parse(bytes).expect("well built");
    log.append(&[BatchToAppend::from(batch)], 3, NOW_MS)
}

fn sync(log: &mut PartitionLog) {
    let job = log.begin_sync().expect("something to sync");
    let result = job.run();
    log.finish_sync(job, result).expect("synced");
}

/// Returns the values of all records from `offset` to the log's end, read in chunks of `max_bytes`.
fn read_all(log: &PartitionLog, mut offset: i64, max_bytes: u32) -> Vec<(i64, Vec<u8>)> {
    let reader = log.reader();
    let mut records = Vec::new();
    while offset < log.end_offset() {
        let bound = Bound {
            offset: log.end_offset(),
            position: None,
        };
        let read = reader
            .read(offset, max_bytes, true, bound, ReadMode::Blocking)
            .expect("in range");
        let Read::Region(read) = read else {
            panic!("nothing at {offset}")
        };
        let mut bytes = vec![0; read.region.bytes as usize];
        let count = read
            .region
            .file
            .read_at(&mut bytes, read.region.position)
            .expect("readable");
        assert_eq!(count, bytes.len());
        let before = offset;
        for batch in batches(&bytes) {
            let batch = batch.expect("whole");
            batch.verify_checksum().expect("intact");
            for record in batch.records() {
                let record = record.expect("well formed");
                if record.offset >= offset {
                    assert_eq!(record.offset, offset, "offsets are contiguous");
                    records.push((record.offset, record.value.expect("has a value").to_vec()));
                    offset += 1;
                }
            }
        }
        assert!(offset > before, "progress at {before}");
    }
    records
}

fn check_numbered(records: &[(i64, Vec<u8>)], from: i64, to: i64) {
    assert_eq!(records.len() as i64, to - from);
    for (offset, value) in records {
        assert_eq!(value, format!("value {offset}").as_bytes());
    }
}

fn append_numbered(log: &mut PartitionLog, count: i64) {
    for _ in 0..count {
        let first = log.end_offset();
        let values: Vec<String> = (first..first + 3)
            .map(|offset| format!("value {offset}"))
            .collect();
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        append(log, &build(&values, NOW_MS + first, BatchOptions::default())).expect("appended");
    }
}

#[test]
fn a_read_ends_with_the_last_batch_that_fits() {
    let home = Home::new(LogConfig {
        index_interval_bytes: 512,
        ..LogConfig::default()
    });
    let (mut log, _) = home.open(true, 0);
    append_numbered(&mut log, 200);
    // From 300 on all values, and so all batches, have the same length.
    let bytes_of = |log: &PartitionLog, max_bytes, mode| {
        let bound = Bound {
            offset: log.end_offset(),
            position: None,
        };
        match log
            .reader()
            .read(300, max_bytes, true, bound, mode)
            .expect("in range")
        {
            Read::Region(read) => {
                // What counts for a reader that is woken when its limit is reached.
                assert!(read.reached_bytes >= read.region.bytes);
                assert!(
                    read.reached_bytes == read.region.bytes || read.reached_bytes == u64::from(max_bytes)
                );
                read.region.bytes
            }
            other => panic!("{other:?}"),
        }
    };
    let batch_bytes = bytes_of(&log, 1, ReadMode::Blocking);
    for mode in [ReadMode::Resident, ReadMode::Blocking] {
        for max_bytes in (1..20 * batch_bytes).step_by(17) {
            let whole = (max_bytes / batch_bytes).max(1) * batch_bytes;
            assert_eq!(
                bytes_of(&log, max_bytes as u32, mode),
                whole,
                "{max_bytes} {mode:?}"
            );
        }
        assert_eq!(bytes_of(&log, u32::MAX, mode), 100 * batch_bytes, "{mode:?}");
    }
}

#[test]
fn appended_records_are_read_across_segments_and_after_reopening() {
    let home = Home::new(small_segments());
    let (mut log, report) = home.open(true, 0);
    assert_eq!(report.segment_count, 0);
    append_numbered(&mut log, 1_000);
    for max_bytes in [1, 100, 5_000, 1_000_000] {
        check_numbered(&read_all(&log, 0, max_bytes), 0, 3_000);
    }
    for offset in (0..3_000).step_by(7) {
        check_numbered(&read_all(&log, offset, 1)[..1], offset, offset + 1);
    }
    let recovery_point = log.close().expect("closes");
    assert_eq!(recovery_point, 3_000);
    drop(log);

    let (mut log, report) = home.open(true, recovery_point);
    assert!(report.segment_count > 5, "{report:?}");
    assert_eq!((report.rebuilt_indexes, log.end_offset()), (0, 3_000));
    assert!(
        report.checked_bytes < 2_000,
        "only the end of the last segment: {report:?}"
    );
    append_numbered(&mut log, 10);
    check_numbered(&read_all(&log, 17, 4_000), 17, 3_030);
}

#[test]
fn a_killed_log_is_checked_from_its_recovery_point() {
    let home = Home::new(small_segments());
    let (mut log, _) = home.open(true, 0);
    append_numbered(&mut log, 500);
    log.request_checkpoint();
    sync(&mut log);
    let job = log.take_checkpoint().expect("captured at the sync");
    let result = job.run();
    let recovery_point = log.finish_checkpoint(job, result).expect("written");
    assert_eq!(recovery_point, 1_500);
    append_numbered(&mut log, 50);
    drop(log);

    let (log, report) = home.open(false, recovery_point);
    assert_eq!((log.end_offset(), report.cut_bytes), (1_650, 0));
    assert!(report.checked_bytes < 50 * 200 + 2 * 512, "{report:?}");
    check_numbered(&read_all(&log, 0, 4_000), 0, 1_650);
    drop(log);
    let (log, report) = home.open(false, 0);
    assert_eq!((log.end_offset(), report.cut_bytes), (1_650, 0));
    assert!(report.checked_bytes > 500 * 90, "{report:?}");
}

#[test]
fn a_reader_never_reads_beyond_its_bound() {
    let home = Home::new(small_segments());
    let (mut log, _) = home.open(true, 0);
    append_numbered(&mut log, 40);
    sync(&mut log);
    let durable = log.durable();
    append_numbered(&mut log, 40);
    for bound in [
        durable,
        Bound {
            position: None,
            ..durable
        },
    ] {
        let read = log
            .reader()
            .read(100, 1 << 30, true, bound, ReadMode::Blocking)
            .expect("in range");
        let Read::Region(read) = read else {
            panic!("{read:?}")
        };
        let mut bytes = vec![0; read.region.bytes as usize];
        read.region
            .file
            .read_at(&mut bytes, read.region.position)
            .expect("readable");
        let last = batches(&bytes)
            .map(|batch| batch.expect("whole").header)
            .last()
            .expect("not empty");
        assert_eq!(last.next_offset(), 120);
        let read = log
            .reader()
            .read(120, 1 << 30, true, bound, ReadMode::Blocking)
            .expect("at the bound");
        assert!(matches!(read, Read::Empty));
    }
    let beyond = log.reader().read(241, 1, true, log.end(), ReadMode::Blocking);
    assert!(matches!(
        beyond,
        Err(ReadError::OffsetOutOfRange {
            offset: 241,
            start_offset: 0,
            end_offset: 240
        })
    ));
}

#[test]
fn a_producers_retry_is_recognised_after_a_kill_even_several_batches_back() {
    // With two batches per segment, the snapshot is one batch after the beginning of a segment.
    for segment_bytes in [small_segments().segment_bytes, 150] {
        recognise_retries(LogConfig {
            segment_bytes,
            ..LogConfig::default()
        });
    }
}

fn recognise_retries(config: LogConfig) {
    let home = Home::new(config);
    let (mut log, _) = home.open(true, 0);
    let produced = |sequence: i32| {
        let options = BatchOptions {
            producer_id: 9,
            producer_epoch: 0,
            base_sequence: sequence,
            ..BatchOptions::default()
        };
        build(&[b"x"], NOW_MS, options)
    };
    for sequence in 0..10 {
        append(&mut log, &produced(sequence)).expect("in sequence");
    }
    let recovery_point = log.close().expect("closes");
    drop(log);
    let (mut log, report) = home.open(false, recovery_point);
    assert_eq!(report.replayed_batches, 0, "the snapshot is complete");
    for sequence in 5..10 {
        let again = append(&mut log, &produced(sequence)).expect("recognised");
        assert!(again.duplicate);
        assert_eq!(again.base_offset, i64::from(sequence));
    }
    assert!(matches!(
        append(&mut log, &produced(11)),
        Err(AppendError::OutOfOrderSequence { .. })
    ));
    assert!(!append(&mut log, &produced(10)).expect("next").duplicate);
}

#[test]
fn nothing_is_unstable_below_the_start_of_a_log() {
    let home = Home::new(LogConfig::default());
    let (mut log, _) = home.open(true, 0);
    let open = BatchOptions {
        producer_id: 1,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    append(&mut log, &build(&[b"a", b"b", b"c"], NOW_MS, open)).expect("appended");
    assert_eq!(log.last_stable_offset(3), 0);
    log.delete_records_before(2);
    assert_eq!(log.last_stable_offset(3), 2);
    assert_eq!(log.last_stable_offset(1), 1, "never above the bound");
}

#[test]
fn a_restart_forgets_producers_that_have_been_silent_unless_their_transaction_is_open() {
    let home = Home::new(LogConfig {
        producer_id_expiration_ms: 1_000,
        ..LogConfig::default()
    });
    let (mut log, _) = home.open(true, 0);
    for (producer_id, is_transactional, age_ms) in [(1, false, 1_000), (2, true, 1_000), (3, false, 999)] {
        let options = BatchOptions {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            is_transactional,
            ..BatchOptions::default()
        };
        append(&mut log, &build(&[b"x"], NOW_MS - age_ms, options)).expect("appended");
    }
    let recovery_point = log.close().expect("closes");
    drop(log);
    let (log, report) = home.open(true, recovery_point);
    assert_eq!(report.replayed_batches, 0, "a snapshot tells all");
    let known: Vec<i64> = log
        .active_producers()
        .map(|producer| producer.producer_id)
        .collect();
    assert_eq!(known, [2, 3]);
}
