//! How readers find a batch: by way of the indexes, from a place nearby, and past what is wrong.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::disk::{Disk, OpenMode};
use ottla_log::{
    BatchToAppend, Bound, LogConfig, Lookup, OpenOptions, PartitionLog, Read, ReadError, ReadMode, ReadRegion,
};
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::numbered::*;
use support::opening::*;

fn below(offset: i64) -> Bound {
    Bound {
        offset,
        position: None,
    }
}

/// A log of three closed segments and an active one, from which nothing has been evicted.
fn written(count: u32) -> (MemoryDisk, PartitionLog) {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, count);
    sync(&mut log).expect("synced");
    (disk, log)
}

fn checkpoint(log: &mut PartitionLog) {
    log.request_checkpoint();
    let job = log.take_checkpoint().expect("there is something to write");
    let result = job.run();
    log.finish_checkpoint(job, result).expect("written");
}

fn read(log: &PartitionLog, offset: i64, max_bytes: u64, mode: ReadMode) -> ReadRegion {
    let read = log.reader().read(offset, max_bytes as u32, true, log.end(), mode);
    match read {
        Ok(Read::Region(region)) => region,
        other => panic!("{other:?} at {offset}"),
    }
}

fn batch_at(timestamp: i64, value_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(timestamp, None, Some(&vec![b'v'; value_bytes]), &[]);
    builder.finish()
}

fn append_bytes(log: &mut PartitionLog, bytes: &[u8]) {
    let batch = BatchToAppend::from(Batch::parse(bytes).expect("built"));
    log.append(&[batch], 0, START_MS).expect("appended");
}

fn open_with(disk: &MemoryDisk, config: LogConfig, options: OpenOptions) -> PartitionLog {
    let options = OpenOptions {
        now_ms: START_MS,
        ..options
    };
    let opened = PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config, options);
    opened.expect("opens").0
}

/// Relative offset and position.
fn offset_entries(disk: &MemoryDisk, base_offset: i64) -> Vec<(u32, u32)> {
    let bytes = disk.read_file(&file(base_offset, ".index")).expect("there");
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    let entries = bytes.chunks_exact(8);
    entries
        .map(|entry| (number(&entry[..4]), number(&entry[4..])))
        .collect()
}

/// As Apache Kafka: its dump tool compares the entries with the batches.
#[test]
fn index_entries_follow_more_than_an_interval_and_name_the_first_batch_with_their_time() {
    let batch = batch_at(START_MS, 100);
    let length = batch.len() as u32;
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    log.set_config(LogConfig {
        index_interval_bytes: 2 * length,
        ..config()
    });
    (0..10).for_each(|_| append_bytes(&mut log, &batch));
    log.close().expect("closed");
    let expected = [3, 6, 9].map(|nth| (nth, nth * length));
    assert_eq!(offset_entries(&disk, 0), expected);
    let times = disk.read_file(&file(0, ".timeindex")).expect("there");
    assert_eq!(times, [&START_MS.to_be_bytes()[..], &[0; 4]].concat());
}

#[test]
fn a_read_of_whole_batches_ends_exactly_at_its_limit() {
    let (disk, log) = written(400);
    let one = position_of(&disk, &file(0, ".log"), 1);
    for (max_bytes, batches) in [(3 * one, 3), (3 * one - 1, 2), (3 * one + 1, 3), (40 * one, 40)] {
        for from in [0, 7, 50] {
            let read = read(&log, from, max_bytes, ReadMode::Blocking);
            let end = (read.region.bytes, read.end_offset);
            assert_eq!(
                end,
                (batches * one, from + batches as i64),
                "{max_bytes} bytes from {from}"
            );
        }
    }
}

/// Whether the beginning of the first segment is not read for what is near its end.
fn check_reads_nothing_else(disk: &MemoryDisk, what: &str, search: impl FnOnce()) {
    disk.evict();
    search();
    let opened = disk.open(&file(0, ".log"), OpenMode::Read).expect("there");
    assert!(!opened.is_resident(0, 1), "{what}");
}

fn check_searches_are_short(disk: &MemoryDisk, log: &PartitionLog) {
    let reader = log.reader();
    check_reads_nothing_else(disk, "a read", || {
        assert_eq!(read_code(log, 100).expect("intact"), Some(100));
    });
    check_reads_nothing_else(disk, "a time", || {
        let found = reader.offset_for_timestamp(START_MS + 100, log.end(), ReadMode::Blocking);
        assert!(
            matches!(found, Ok(Lookup::Found(found)) if found.offset == 100),
            "{found:?}"
        );
    });
    check_reads_nothing_else(disk, "the largest time", || {
        let found = reader.offset_for_max_timestamp(below(100), ReadMode::Blocking);
        assert!(
            matches!(found, Ok(Lookup::Found(found)) if found.offset == 99),
            "{found:?}"
        );
    });
    check_reads_nothing_else(disk, "the next batch", || {
        assert_eq!(reader.next_batch_behind(100).expect("readable"), Some(101));
    });
}

#[test]
fn a_search_reads_only_what_is_near() {
    let (disk, mut log) = written(400);
    check_searches_are_short(&disk, &log);
    checkpoint(&mut log);
    check_searches_are_short(&disk, &log);

    // Entries that lead to the place become wrong: the search goes back by half of the entries.
    let entries = offset_entries(&disk, 0);
    let nth = entries.iter().position(|entry| entry.0 == 100).expect("an entry");
    disk.corrupt(&file(0, ".index"), nth as u64 * 8 + 7, 1);
    disk.corrupt(&file(0, ".timeindex"), (nth as u64 - 1) * 12 + 7, 1);
    check_searches_are_short(&disk, &log);
}

#[test]
fn the_largest_time_of_a_closed_segment_is_read_from_its_index() {
    let disk = closed(300);
    let (log, _) = try_open(&disk, clean()).expect("opens");
    check_reads_nothing_else(&disk, "the largest time", || {
        let reader = log.reader();
        let found = reader.offset_for_max_timestamp(log.end(), ReadMode::Blocking);
        assert!(
            matches!(found, Ok(Lookup::Found(found)) if found.offset == 299),
            "{found:?}"
        );
    });
}

#[test]
fn the_largest_time_below_a_bound_is_that_of_the_batch_before_it() {
    let (_, mut log) = written(400);
    let check = |log: &PartitionLog| {
        for bound in [1, 2, 50, 113, 114, 115, 150, 228, 229, 399, 400] {
            let found = log
                .reader()
                .offset_for_max_timestamp(below(bound), ReadMode::Blocking);
            let Ok(Lookup::Found(found)) = found else {
                panic!("{found:?} below {bound}")
            };
            assert_eq!((found.offset, found.timestamp), (bound - 1, START_MS + bound - 1));
        }
    };
    check(&log);
    checkpoint(&mut log);
    check(&log);
}

/// A bound in the middle of the bytes that are read at once.
#[test]
fn a_search_up_to_a_bound_does_not_stumble_over_what_follows() {
    let (_, mut log) = written(1);
    (0..80).for_each(|_| append_bytes(&mut log, &batch_at(START_MS, 100)));
    for bound in 1..80 {
        let reader = log.reader();
        let found = reader.offset_for_timestamp(START_MS + 1, below(bound), ReadMode::Resident);
        assert_eq!(found.expect("readable"), Lookup::Nothing, "{bound}");
    }
}

/// The entry is right, but not the first batch with that time.
#[test]
fn a_time_index_entry_with_the_time_itself_is_not_taken_for_the_first_record() {
    let disk = MemoryDisk::new(1);
    let small = LogConfig {
        segment_bytes: 3_000,
        index_interval_bytes: 300,
        ..config()
    };
    let mut log = create(&disk);
    log.set_config(small.clone());
    (0..40).for_each(|_| append_bytes(&mut log, &batch_at(START_MS, 100)));
    let recovery_point = log.close().expect("closed");
    let entry = offset_entries(&disk, 0)[1];
    let time = [&START_MS.to_be_bytes()[..], &entry.0.to_be_bytes()].concat();
    disk.write_file(&file(0, ".timeindex"), &time);
    let log = open_with(&disk, small, unclean(recovery_point));
    let reader = log.reader();
    let found = reader.offset_for_timestamp(START_MS, log.end(), ReadMode::Blocking);
    assert!(
        matches!(found, Ok(Lookup::Found(found)) if found.offset == 0),
        "{found:?}"
    );
}

/// Compaction leaves the header of a producer's last batch.
#[test]
fn a_segment_may_end_with_a_batch_without_records() {
    let disk = closed(300);
    let big = batch_at(START_MS, 5_000);
    let header = Batch::parse(&big).expect("built").header;
    let mut empty = BatchBuilder::replacing(&header, Vec::new(), None).finish();
    empty[..8].copy_from_slice(&i64::to_be_bytes(1));
    disk.write_file(&file(0, ".log"), &[&big[..], &empty].concat());
    for rebuilt_indexes in [1, 0] {
        let (log, report) = try_open(&disk, with_gaps(unclean(300))).expect("opens");
        assert_eq!(
            (report.findings, report.rebuilt_indexes),
            (Vec::new(), rebuilt_indexes)
        );
        assert_eq!(read_code(&log, 0).expect("intact"), Some(0));
        assert_eq!(read_code(&log, 1).expect("intact"), Some(1));
        assert_eq!(read_code(&log, 50).expect("a gap"), Some(114));
    }
    assert_eq!(offset_entries(&disk, 0), [(1, big.len() as u32)]);
}

/// An event loop has no time for checksums.
#[test]
fn bytes_from_before_the_start_are_verified_by_the_first_search_that_may_wait() {
    let disk = closed(100);
    let (log, _) = try_open(&disk, clean()).expect("opens");
    let one = position_of(&disk, &file(0, ".log"), 1);
    // A search that begins with an index entry does not know which offset is due there.
    let with_entry: BTreeSet<i64> = offset_entries(&disk, 0)
        .iter()
        .map(|entry| i64::from(entry.0))
        .collect();
    // The start itself has read the first batch.
    for offset in 1..60 {
        let resident = || {
            log.reader()
                .read(offset, one as u32, true, log.end(), ReadMode::Resident)
                .expect("intact")
        };
        assert!(matches!(resident(), Read::WouldBlock), "offset {offset}");
        let found = read(&log, offset, one, ReadMode::Blocking);
        assert_eq!(
            found.unchecked.is_some(),
            with_entry.contains(&offset),
            "offset {offset}"
        );
        if let Some(unchecked) = found.unchecked {
            assert_eq!(unchecked.check(one).expect("intact"), one);
        }
        assert!(matches!(resident(), Read::Region(_)), "offset {offset}");
    }
}

/// No checksum covers a base offset. Where compaction may have left gaps, the batches around it
/// must tell.
#[test]
fn a_wrong_base_offset_takes_no_other_batch_its_place_where_gaps_are_allowed() {
    let intact = closed(100);
    let path = file(0, ".log");
    let one = position_of(&intact, &path, 1);
    for nth in [0, 1, 40, 41, 97] {
        for wrong in (0..110).filter(|wrong| *wrong != nth) {
            let disk = intact.fork(1);
            let mut bytes = disk.read_file(&path).expect("there");
            let at = (nth as u64 * one) as usize;
            bytes[at..at + 8].copy_from_slice(&i64::to_be_bytes(wrong));
            disk.write_file(&path, &bytes);
            let (log, _) = try_open(&disk, with_gaps(unclean(100))).expect("opens");
            for wanted in 0..100 {
                let context = || format!("{wrong} at {nth}, read of {wanted}");
                let read = log
                    .reader()
                    .read(wanted, 600, true, log.end(), ReadMode::Blocking);
                match read {
                    Ok(Read::Region(found)) => {
                        assert_eq!(found.at.position, wanted as u64 * one, "{}", context());
                        let served = found.unchecked.map_or(Ok(one), |unchecked| unchecked.check(one));
                        assert_eq!(served.is_ok(), wanted != nth, "{}", context());
                    }
                    Err(ReadError::Log(_)) => assert_eq!(wanted, nth, "{}", context()),
                    other => panic!("{other:?}: {}", context()),
                }
            }
        }
    }
}

/// The batch that would tell by its offset which of two neighbours is wrong is gone.
#[test]
fn a_gap_behind_a_wrong_base_offset_does_not_make_its_neighbour_wrong() {
    const GONE: i64 = 42;
    let intact = closed(100);
    let path = file(0, ".log");
    let one = position_of(&intact, &path, 1) as usize;
    for suffix in [".index", ".timeindex"] {
        intact.remove_file(&file(0, suffix)).expect("removed");
    }
    let without_index = LogConfig {
        index_interval_bytes: 1 << 20,
        ..config()
    };
    let open_with_offset = |nth: usize, wrong: i64| {
        let disk = intact.fork(1);
        let mut bytes = disk.read_file(&path).expect("there");
        bytes[nth * one..nth * one + 8].copy_from_slice(&wrong.to_be_bytes());
        bytes.drain(GONE as usize * one..(GONE as usize + 1) * one);
        disk.write_file(&path, &bytes);
        // After a clean stop nothing has been verified yet.
        let stopped = OpenOptions {
            clean_shutdown: true,
            ..with_gaps(unclean(100))
        };
        open_with(&disk, without_index.clone(), stopped)
    };
    let position = |log: &PartitionLog, offset| read(log, offset, 600, ReadMode::Blocking).at.position;
    let log = open_with_offset(41, 40);
    assert_eq!(position(&log, 40), 40 * one as u64);
    let log = open_with_offset(40, 60);
    assert_eq!(position(&log, 60), 59 * one as u64);
}

/// KIP-354: what is overdue is known by the first time of a segment from before the start.
#[test]
fn a_segment_from_before_the_start_is_compacted_when_its_first_record_is_overdue() {
    const LAG_MS: i64 = 1_000;
    let disk = closed(300);
    let compacted = LogConfig {
        compact: true,
        min_cleanable_dirty_ratio: 2.0,
        max_compaction_lag_ms: LAG_MS,
        ..config()
    };
    let mut log = open_with(&disk, compacted, unclean(300));
    log.reader().load_compaction_times(0).expect("readable");
    let mut is_due = |now_ms: i64| log.plan_compaction(now_ms, 0, 300).is_some();
    assert!(!is_due(START_MS + LAG_MS));
    assert!(is_due(START_MS + LAG_MS + 1));
}
