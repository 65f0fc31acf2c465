//! The cost of an append, a read at the tail and a recovery: `cargo bench -p ottla-log`.
//!
//! Real files in the temporary directory (`TMPDIR`), one partition, batches of 1 KiB, no sync in
//! between: the cost of this crate's code and of one copy to the page cache. Times are CPU times of
//! the thread, so that other load on the machine does not matter.

use std::sync::Arc;
use std::time::Duration;

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

    let start = cpu_time();
    for _ in 0..BATCHES {
        log.append(&[batch], 0, 0).expect("appended");
    }
    report("append", bytes.len(), start);

    let reader = log.reader();
    let start = cpu_time();
    for _ in 0..BATCHES {
        let offset = log.end_offset() - 10;
        let read = reader.read(offset, 1 << 20, true, log.end(), ReadMode::Resident);
        assert!(matches!(read, Ok(Read::Region(_))));
    }
    report("tail read", 0, start);

    let start = cpu_time();
    for index in 0..BATCHES / 5 {
        let offset = i64::from(index.wrapping_mul(2_654_435_761) % BATCHES);
        let read = reader.read(offset, 1 << 20, true, log.end(), ReadMode::Blocking);
        assert!(matches!(read, Ok(Read::Region(_))));
    }
    report("random read (5 shown as 1)", 0, start);

    // Recovery syncs what it finds; the device's time for that is not measured here.
    let job = log.begin_sync().expect("never synced before");
    job.run().expect("synced");
    drop(log);
    let options = OpenOptions {
        clean_shutdown: false,
        recovery_point: 0,
        log_start_offset: 0,
        now_ms: 0,
        ..OpenOptions::default()
    };
    let start = cpu_time();
    let (log, recovery) = PartitionLog::open(disk, &path, config, options).expect("opens");
    let seconds = (cpu_time() - start).as_secs_f64();
    assert_eq!(log.end_offset(), i64::from(BATCHES));
    println!(
        "recovery of everything: {seconds:.2} s of CPU, {:.0} MB/s",
        recovery.checked_bytes as f64 / 1e6 / seconds
    );
}

fn report(what: &str, batch_bytes: usize, start: Duration) {
    let nanoseconds = (cpu_time() - start).as_nanos() as f64 / f64::from(BATCHES);
    println!("{what}: {nanoseconds:.0} ns each, batches of {batch_bytes} bytes");
}

/// Time this thread has spent on a processor.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .expect("three numbers");
    Duration::from_nanos(nanoseconds)
}
