//! What a reader that must not wait for the device finds in memory, and what it says about the
//! rest.

mod support;

use std::path::Path;

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{
    Bound, LogConfig, LogError, LogReader, Lookup, PartitionLog, Read, ReadError, ReadMode, ReadRegion,
};
use ottla_wire::records::builder::BatchOptions;
use ottla_wire::records::compression::Codec;
use support::batches::*;
use support::numbered::*;

/// The newest batches whose positions are kept in memory.
const RECENT: i64 = 128;

/// A log of one segment without index entries.
fn without_index(disk: &MemoryDisk) -> PartitionLog {
    let config = LogConfig {
        segment_bytes: 1 << 30,
        index_interval_bytes: 1 << 30,
        ..config()
    };
    created_with(disk, config)
}

fn region(read: Read) -> ReadRegion {
    match read {
        Read::Region(region) => region,
        other => panic!("{other:?}"),
    }
}

fn read(reader: &LogReader, offset: i64, max_bytes: u32, bound: Bound, mode: ReadMode) -> Read {
    let read = reader.read(offset, max_bytes, true, bound, mode);
    read.expect("in range")
}

/// Whatever comes before them, or between them and the bound, is on the device.
#[test]
fn the_newest_batches_are_found_without_reading_others() {
    let disk = MemoryDisk::new(1);
    let mut log = without_index(&disk);
    append_many(&mut log, 300);
    sync(&mut log).expect("synced");
    let reader = log.reader();
    let in_the_middle = region(read(&reader, 280, 1, log.end(), ReadMode::Blocking));
    let bounds = [
        log.end(),
        below(300),
        below(280),
        Bound {
            offset: 280,
            position: Some(in_the_middle.at),
        },
    ];
    for offset in 300 - RECENT..280 {
        let place = region(read(&reader, offset, 1, log.end(), ReadMode::Blocking)).region;
        for bound in bounds {
            disk.evict();
            place.file.load(place.position, place.bytes).expect("loaded");
            let found = region(read(&reader, offset, 1, bound, ReadMode::Resident));
            assert_eq!(
                (found.base_offset, found.end_offset),
                (offset, offset + 1),
                "{bound:?}"
            );
        }
    }
    disk.evict();
    let older = read(&reader, 300 - RECENT - 1, 1, log.end(), ReadMode::Resident);
    assert!(matches!(older, Read::WouldBlock), "{older:?}");
}

/// A consumer whose other partitions always have new records is answered without waiting: if each
/// of its reads needed the index file, one that is not in memory would stop it for good.
#[test]
fn a_reader_goes_on_where_it_was_without_the_index_file() {
    let disk = MemoryDisk::new(1);
    let mut log = created_with(
        &disk,
        LogConfig {
            segment_bytes: 1 << 30,
            ..config()
        },
    );
    append_many(&mut log, 600);
    sync(&mut log).expect("synced");
    checkpoint(&mut log);
    let reader = log.reader();
    disk.evict();
    let whole = log.bytes();
    let end = log.end();
    let found = |offset, mode| read(&reader, offset, 2_000, end, mode);
    // As a thread that may wait loads it; then only the records stay in memory.
    let first = region(found(100, ReadMode::Blocking));
    let load = || first.region.file.load(0, whole).expect("loaded");
    disk.evict();
    load();
    let mut offset = 100;
    while offset < 400 {
        let next = region(found(offset, ReadMode::Resident));
        assert_eq!(next.base_offset, offset);
        assert!(next.end_offset > offset, "{next:?}");
        offset = next.end_offset;
    }
    // Readers of what is new leave the places of others alone.
    append_many(&mut log, 200);
    for offset in 620..800 {
        region(
            reader
                .read(offset, 1, true, log.end(), ReadMode::Blocking)
                .expect("in range"),
        );
    }
    disk.evict();
    load();
    assert_eq!(region(found(offset, ReadMode::Resident)).base_offset, offset);
    // Of what was not visited nothing is known, and what is far from it is not looked for.
    let fresh = log.reader();
    let before = fresh
        .read(50, 1, true, log.end(), ReadMode::Resident)
        .expect("in range");
    assert!(matches!(before, Read::WouldBlock), "{before:?}");
}

#[test]
fn nothing_is_read_at_the_bound() {
    let disk = closed(300);
    let (log, _) = open(&disk, true, 300);
    disk.evict();
    for bound in [100, 300] {
        let found = read(&log.reader(), bound, 1, below(bound), ReadMode::Resident);
        assert!(matches!(found, Read::Empty), "{bound}: {found:?}");
    }
}

#[test]
fn a_region_that_ends_where_the_device_begins_says_so() {
    let disk = MemoryDisk::new(1);
    let mut log = without_index(&disk);
    (0..20).for_each(|_| append_sized(&mut log, 10_000));
    sync(&mut log).expect("synced");
    let reader = log.reader();
    let first = region(read(&reader, 0, 1, log.end(), ReadMode::Blocking));
    let resident = |max_bytes| region(read(&reader, 0, max_bytes, log.end(), ReadMode::Resident));
    disk.evict();
    first.region.file.load(0, 70_000).expect("loaded");
    let cut = resident(1 << 20);
    assert!(cut.is_cut && cut.reached_bytes < 70_000, "{cut:?}");
    assert!(cut.region.bytes > cut.reached_bytes / 2, "{cut:?}");
    assert!(!resident(30_000).is_cut);
    first.region.file.load(0, 300_000).expect("loaded");
    let all = resident(1 << 20);
    assert_eq!((all.is_cut, all.region.bytes), (false, log.bytes()));
    assert!(!resident(60_000).is_cold_behind, "all of it is in memory");
    // What was appended lately is in memory, and the next range ends in it.
    disk.evict();
    first.region.file.load(0, 61_440).expect("loaded");
    first.region.file.load(102_400, 100_000).expect("loaded");
    let limited = resident(60_000);
    assert!(!limited.is_cut && limited.is_cold_behind, "{limited:?}");
    // The header of the batch behind the first need not be read.
    disk.evict();
    first.region.file.load(0, first.region.bytes).expect("loaded");
    let one = resident(1);
    assert_eq!((one.region.bytes, one.end_offset), (first.region.bytes, 1));
}

/// Waiting for the device would not help.
#[test]
fn a_hole_is_an_error_for_a_reader_that_must_not_wait() {
    let disk = closed(300);
    let segment = &files(&disk, ".log")[0];
    let bytes = disk.read_file(segment).expect("there");
    let length = bytes.len() / 114;
    disk.write_file(segment, &bytes[..100 * length]);
    let (log, _) = open(&disk, true, 0);
    let reader = log.reader();
    let behind = region(read(&reader, 114, 1, log.end(), ReadMode::Blocking));
    if let Some(unchecked) = behind.unchecked {
        unchecked.check(behind.region.bytes).expect("intact");
    }
    for mode in [ReadMode::Resident, ReadMode::Blocking] {
        let hole = reader.read(105, 1, true, log.end(), mode);
        assert!(
            matches!(hole, Err(ReadError::Log(LogError::Corrupt { .. }))),
            "{mode:?}: {hole:?}"
        );
    }
}

/// Half a mebibyte is what may be decompressed there; this need not be.
#[test]
fn a_large_uncompressed_batch_is_looked_up_where_it_is() {
    let disk = MemoryDisk::new(1);
    let mut log = without_index(&disk);
    append_sized(&mut log, 600 * 1024);
    let found = log
        .reader()
        .offset_for_timestamp(START_MS, log.end(), ReadMode::Resident);
    assert!(
        matches!(found, Ok(Lookup::Found(found)) if found.offset == 0),
        "{found:?}"
    );
}

#[test]
fn a_batch_that_is_no_longer_whole_is_not_looked_into() {
    let disk = MemoryDisk::new(1);
    let mut log = without_index(&disk);
    append_sized(&mut log, 1_000);
    let path = Path::new(DIRECTORY).join("00000000000000000000.log");
    let bytes = disk.read_file(&path).expect("there");
    disk.write_file(&path, &bytes[..bytes.len() - 100]);
    let found = log
        .reader()
        .offset_for_timestamp(START_MS, log.end(), ReadMode::Blocking);
    assert!(found.is_err(), "{found:?}");
}

#[test]
fn a_compressed_batch_that_compaction_has_emptied_is_passed_over() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let disk = MemoryDisk::new(1);
        let mut log = without_index(&disk);
        let options = BatchOptions {
            compression: codec.into(),
            ..BatchOptions::default()
        };
        let empty = batch_at(&[], 0, options);
        try_append(&mut log, &empty, START_MS).expect("appended");
        append_at(&mut log, START_MS + 7);
        let found = log.reader().first_record_from(0, log.end(), ReadMode::Blocking);
        assert!(
            matches!(found, Ok(Lookup::Found(found)) if (found.offset, found.timestamp) == (1, START_MS + 7)),
            "{codec:?}: {found:?}"
        );
    }
}
