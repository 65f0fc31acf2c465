//! What an append, a read at the tail and a recovery cost: `cargo bench -p ottla-log`.
//!
//! Real files in the temporary directory (`TMPDIR`), one partition, batches of 1 KiB, no sync in between: the cost of our
//! own code and of one copy to the page cache.

use std::sync::Arc;
use std::time::Instant;

use ottla_log::disk::os::{OsDisk, TemporaryDirectory};
use ottla_log::{BatchToAppend, LogConfig, OpenOptions, PartitionLog, Read, ReadMode};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

const BATCHES: u32 = 500_000;

fn main() {
    let directory = TemporaryDirectory::new("bench").expect("temporary directory");
    let path = directory.path().join("topic-0");
    let config = LogConfig::default();
    let disk = OsDisk::shared();
    let mut log = PartitionLog::create(Arc::clone(&disk), &path, Uuid([1; 16]), config.clone(), 0, 0)
        .expect("an empty directory");
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1, None, Some(&[b'x'; 950]), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("just built"));

    let start = Instant::now();
    for _ in 0..BATCHES {
        log.append(&[batch], 0, 0).expect("appended");
    }
    report("append", bytes.len(), start);

    let reader = log.reader();
    let start = Instant::now();
    for _ in 0..BATCHES {
        let offset = log.end_offset() - 10;
        let read = reader.read(offset, 1 << 20, true, log.end(), ReadMode::Resident);
        assert!(matches!(read, Ok(Read::Region(_))));
    }
    report("tail read", 0, start);

    let start = Instant::now();
    for index in 0..BATCHES / 5 {
        let offset = i64::from(index.wrapping_mul(2_654_435_761) % BATCHES);
        let read = reader.read(offset, 1 << 20, true, log.end(), ReadMode::Blocking);
        assert!(matches!(read, Ok(Read::Region(_))));
    }
    report("random read (5 shown as 1)", 0, start);

    drop(log);
    let options = OpenOptions {
        clean_shutdown: false,
        recovery_point: 0,
        log_start_offset: 0,
        now_ms: 0,
    };
    let start = Instant::now();
    let (log, recovery) = PartitionLog::open(disk, &path, config, options).expect("opens");
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(log.end_offset(), i64::from(BATCHES));
    println!(
        "recovery of everything: {seconds:.2} s, {:.0} MB/s",
        recovery.checked_bytes as f64 / 1e6 / seconds
    );
}

fn report(what: &str, batch_bytes: usize, start: Instant) {
    let nanoseconds = start.elapsed().as_nanos() as f64 / f64::from(BATCHES);
    println!("{what}: {nanoseconds:.0} ns each, batches of {batch_bytes} bytes");
}
