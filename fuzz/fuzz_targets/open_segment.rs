//! A partition's directory with arbitrary file contents: opening it terminates, and an opened log
//! can be read and written.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{BatchToAppend, LogConfig, OpenOptions, PartitionLog, Read, ReadMode};
use ottla_wire::records::batch::{Batch, BatchHeader, HEADER_BYTES, seal};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

const DIRECTORY: &str = "topic-0";

fuzz_target!(|input: &[u8]| {
    // Flags, recovery point, then the files, each with its length before it.
    let Some((&[flags, recovery_point], rest)) = input.split_first_chunk() else { return };
    let disk = MemoryDisk::new(u64::from(flags));
    disk.create_directories(Path::new(DIRECTORY)).expect("there is power");
    let mut rest = rest;
    for name in [
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000003.snapshot",
        "00000000000000000000.log.swap",
        "00000000000000000009.log",
        "leader-epoch-checkpoint",
        "00000000000000000000.log",
    ] {
        let bytes = take_file(&mut rest);
        if !bytes.is_empty() || flags & 1 != 0 {
            let bytes = if name.contains(".log") && flags & 2 != 0 { seal_all(bytes) } else { bytes.to_vec() };
            disk.write_file(&Path::new(DIRECTORY).join(name), &bytes);
        }
    }
    let config = LogConfig {
        segment_bytes: 4_096,
        index_interval_bytes: 64,
        compact: flags & 4 != 0,
        ..LogConfig::default()
    };
    let options = OpenOptions {
        clean_shutdown: flags & 8 != 0,
        recovery_point: i64::from(recovery_point),
        log_start_offset: i64::from(flags >> 6),
        proven_end: 0,
        is_start_proven: flags & 32 != 0,
        gaps_below: 0,
        accept_loss: flags & 16 != 0,
        now_ms: 1_000,
    };
    let opened = PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config.clone(), options);
    let Ok((mut log, _)) = opened else { return };
    read_through(&log);
    let before = log.end_offset();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1, None, Some(b"x"), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    if log.append(&[batch], 1, 2_000).is_err() {
        return;
    }
    log.close().expect("the disk is healthy");
    // After our own clean close the log must open to the same state.
    let options = OpenOptions { clean_shutdown: true, accept_loss: false, ..options };
    let (log, _) =
        PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config, options).expect("we closed it ourselves");
    assert_eq!(log.end_offset(), before + 1);
});

/// Takes a length byte, in units of 8 bytes, and that many bytes.
fn take_file<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((&length, bytes)) = rest.split_first() else { return &[] };
    let (file, after) = bytes.split_at(bytes.len().min(usize::from(length) * 8));
    *rest = after;
    file
}

/// Corrects all checksums, so that the input reaches the code after the checks.
fn seal_all(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    let mut position = 0;
    while sealed.len() - position >= HEADER_BYTES {
        let Ok(header) = BatchHeader::parse(&sealed[position..]) else { break };
        let end = position + header.total_bytes();
        if end > sealed.len() {
            break;
        }
        seal(&mut sealed[position..end]);
        position = end;
    }
    sealed
}

fn read_through(log: &PartitionLog) {
    let reader = log.reader();
    let mut offset = log.start_offset();
    while let Ok(Read::Region(read)) = reader.read(offset, 1, true, log.end(), ReadMode::Blocking) {
        let mut bytes = vec![0; usize::try_from(read.region.bytes).expect("small")];
        read.region.file.read_at(&mut bytes, read.region.position).expect("healthy");
        let header = BatchHeader::parse(&bytes).expect("a region begins with a batch");
        assert!(header.last_offset() >= offset);
        offset = header.next_offset();
    }
    let _ = reader.offset_for_timestamp(5, log.end(), ReadMode::Blocking);
    let _ = reader.offset_for_max_timestamp(log.end(), ReadMode::Blocking);
    let _ = reader.aborted_transactions(0, log.end_offset());
}
