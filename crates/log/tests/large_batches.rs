//! Compressed batches that decompress to large sizes: an event loop is told to leave them to
//! another thread.

use std::path::Path;

use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{BatchToAppend, LogConfig, Lookup, PartitionLog, ReadMode};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::Codec;

const START_MS: i64 = 1_700_000_000_000;

/// A log of one batch with two records, the second of which has a value of `value_bytes`.
fn log_of(codec: Codec, value_bytes: usize) -> PartitionLog {
    let disk = MemoryDisk::new(1);
    let directory = Path::new("data/topic-0");
    let config = LogConfig::default();
    let log = PartitionLog::create(disk.shared(), directory, Uuid([1; 16]), config, 0, START_MS);
    disk.sync_directory(Path::new("")).expect("synced");
    let mut log = log.expect("created");
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    });
    builder.append(START_MS, None, Some(b"small"), &[]);
    builder.append(START_MS + 5, None, Some(&vec![0; value_bytes]), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    log.append(&[batch], 0, START_MS).expect("appended");
    log
}

#[test]
fn a_timestamp_is_searched_in_a_large_batch_only_where_waiting_is_allowed() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for (value_bytes, is_large) in [(100_000, false), (1 << 20, true)] {
            let log = log_of(codec, value_bytes);
            let search = |mode| log.reader().offset_for_timestamp(START_MS + 1, log.end(), mode);
            let found = search(ReadMode::Blocking).expect("works");
            assert!(
                matches!(found, Lookup::Found(found) if found.offset == 1),
                "{codec}: {found:?}"
            );
            let here = search(ReadMode::Resident).expect("works");
            let expected = if is_large { Lookup::WouldBlock } else { found };
            assert_eq!(here, expected, "{codec} with {value_bytes} bytes");
        }
    }
}

#[test]
fn the_second_record_of_a_compressed_batch_is_found_by_its_offset() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let log = log_of(codec, 1 << 20);
        let found = log.reader().first_record_from(1, log.end(), ReadMode::Blocking);
        let found = found.expect("works");
        assert!(
            matches!(found, Lookup::Found(found) if (found.offset, found.timestamp) == (1, START_MS + 5)),
            "{codec}: {found:?}"
        );
    }
}
