//! Batches of any shape, in a log with any settings, on a disk in memory.

use std::path::Path;

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{
    AppendError, Appended, BatchToAppend, Bound, CheckpointJob, LogConfig, OpenOptions, PartitionLog,
};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use super::numbered::{DIRECTORY, START_MS, files};

pub fn created_with(disk: &MemoryDisk, config: LogConfig) -> PartitionLog {
    let path = Path::new(DIRECTORY);
    PartitionLog::create(disk.shared(), path, Uuid([1; 16]), config, 0, START_MS).expect("created")
}

/// Opens a log that was stopped cleanly.
pub fn reopened_with(disk: &MemoryDisk, config: LogConfig, recovery_point: i64) -> PartitionLog {
    let options = OpenOptions {
        clean_shutdown: true,
        recovery_point,
        now_ms: START_MS,
        ..OpenOptions::default()
    };
    let opened = PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config, options);
    opened.expect("opens").0
}

/// Settings by which every batch begins a segment.
pub fn one_batch_per_segment() -> LogConfig {
    LogConfig {
        segment_bytes: 1,
        retention_ms: -1,
        ..LogConfig::default()
    }
}

/// A segment holds two batches of this size.
pub fn two_per_segment(batch: &[u8], more: LogConfig) -> LogConfig {
    LogConfig {
        segment_bytes: 2 * batch.len() as u32,
        ..more
    }
}

/// One record per timestamp.
pub fn batch_at(timestamps: &[i64], value_bytes: usize, options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for timestamp in timestamps {
        builder.append(*timestamp, Some(b"k"), Some(&vec![b'v'; value_bytes]), &[]);
    }
    builder.finish()
}

pub fn try_append(log: &mut PartitionLog, bytes: &[u8], now_ms: i64) -> Result<Appended, AppendError> {
    let batch = BatchToAppend::from(Batch::parse(bytes).expect("built"));
    log.append(&[batch], 0, now_ms)
}

/// Appends one record with this timestamp.
pub fn append_at(log: &mut PartitionLog, timestamp: i64) {
    let bytes = batch_at(&[timestamp], 10, BatchOptions::default());
    try_append(log, &bytes, START_MS).expect("appended");
}

/// Appends one record with a value of this length.
pub fn append_sized(log: &mut PartitionLog, value_bytes: usize) {
    let bytes = batch_at(&[START_MS], value_bytes, BatchOptions::default());
    try_append(log, &bytes, START_MS).expect("appended");
}

/// The base offsets of the segments.
pub fn bases(disk: &MemoryDisk) -> Vec<i64> {
    offsets_of(disk, ".log")
}

/// The offsets in the names of a kind of file.
pub fn offsets_of(disk: &MemoryDisk, suffix: &str) -> Vec<i64> {
    let names = files(disk, suffix).into_iter();
    let mut offsets: Vec<i64> = names
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .map(|digits| digits.parse().expect("an offset"))
        .collect();
    offsets.sort_unstable();
    offsets
}

pub fn below(offset: i64) -> Bound {
    Bound {
        offset,
        position: None,
    }
}

pub fn write_checkpoint(log: &mut PartitionLog, job: CheckpointJob) -> i64 {
    let result = job.run();
    log.finish_checkpoint(job, result).expect("written")
}

pub fn checkpoint(log: &mut PartitionLog) -> i64 {
    log.request_checkpoint();
    if let Some(job) = log.begin_sync() {
        let result = job.run();
        log.finish_sync(job, result).expect("synced");
    }
    let job = log.take_checkpoint().expect("there is something to write");
    write_checkpoint(log, job)
}
