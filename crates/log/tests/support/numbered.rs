//! A log on a disk in memory whose records contain their offsets.

use std::path::{Path, PathBuf};

use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{
    AppendError, BatchToAppend, Bound, LogConfig, LogError, OpenOptions, PartitionLog, Read, ReadMode,
    RecoveryReport,
};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, batches};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

pub const DIRECTORY: &str = "data/topic-0";
pub const START_MS: i64 = 1_700_000_000_000;

pub fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 64 * 1024,
        index_interval_bytes: 1_000,
        ..LogConfig::default()
    }
}

pub fn create(disk: &MemoryDisk) -> PartitionLog {
    let log = PartitionLog::create(
        disk.shared(),
        Path::new(DIRECTORY),
        Uuid([1; 16]),
        config(),
        0,
        START_MS,
    );
    disk.sync_directory(Path::new("")).expect("synced");
    log.expect("created")
}

pub fn open(disk: &MemoryDisk, clean_shutdown: bool, recovery_point: i64) -> (PartitionLog, RecoveryReport) {
    let options = OpenOptions {
        clean_shutdown,
        recovery_point,
        log_start_offset: 0,
        now_ms: START_MS,
        ..OpenOptions::default()
    };
    PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config(), options).expect("opens")
}

/// Appends one record whose value contains its offset; its timestamp is `START_MS` plus its offset.
pub fn append(log: &mut PartitionLog) -> Result<i64, AppendError> {
    let offset = log.end_offset();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = format!("{offset:>500}");
    builder.append(START_MS + offset, None, Some(value.as_bytes()), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    log.append(&[batch], 0, START_MS)
        .map(|appended| appended.base_offset)
}

pub fn append_many(log: &mut PartitionLog, count: u32) {
    for _ in 0..count {
        append(log).expect("appended");
    }
}

pub fn sync(log: &mut PartitionLog) -> Result<Bound, LogError> {
    let job = log.begin_sync().expect("something to sync");
    let result = job.run();
    log.finish_sync(job, result)
}

/// Checks every record from `from` to `to`.
pub fn check_records(log: &PartitionLog, from: i64, to: i64) {
    let mut offset = from;
    while offset < to {
        let read = log
            .reader()
            .read(offset, 10_000, true, log.end(), ReadMode::Blocking);
        let Ok(Read::Region(read)) = read else {
            panic!("{read:?} at {offset}")
        };
        let mut bytes = vec![0; read.region.bytes as usize];
        read.region
            .file
            .read_at(&mut bytes, read.region.position)
            .expect("readable");
        for batch in batches(&bytes).map_while(Result::ok) {
            batch.verify_checksum().expect("intact");
            let record = batch.records().next().expect("one").expect("well formed");
            assert_eq!(record.offset, offset);
            assert_eq!(record.value, Some(format!("{offset:>500}").as_bytes()));
            offset += 1;
        }
    }
    assert_eq!(log.end_offset(), to);
}

pub fn files(disk: &MemoryDisk, suffix: &str) -> Vec<PathBuf> {
    let listed = disk.list(Path::new(DIRECTORY)).expect("listed");
    let names = listed.into_iter().map(|entry| entry.path);
    names
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect()
}

/// Closes a log of `count` records cleanly.
pub fn closed(count: u32) -> MemoryDisk {
    let disk = MemoryDisk::new(5);
    let mut log = create(&disk);
    append_many(&mut log, count);
    log.close().expect("closed");
    disk
}
