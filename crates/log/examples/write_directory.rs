//! Writes a partition's directory for inspection by other programs: `write_directory <directory>
//! <batches>`.

use std::path::PathBuf;

use ottla_log::disk::os::OsDisk;
use ottla_log::{BatchToAppend, LogConfig, PartitionLog};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("a directory"));
    let batch_count: i32 = arguments
        .next()
        .expect("a number of batches")
        .parse()
        .expect("a number");
    let config = LogConfig {
        segment_bytes: 64 * 1024,
        ..LogConfig::default()
    };
    let mut log = PartitionLog::create(OsDisk::shared(), &directory, Uuid([5; 16]), config, 0, 0)
        .expect("an empty directory");
    for sequence in 0..batch_count {
        let options = BatchOptions {
            producer_id: 1000,
            producer_epoch: 2,
            base_sequence: sequence * 3,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        for record in 0..3 {
            // Timestamps go back and forth, so that the time index does not simply follow the
            // offsets.
            let timestamp = 1_700_000_000_000 + i64::from(sequence * 10 + record - sequence % 7 * 100);
            builder.append(timestamp, Some(b"key"), Some(&[b'v'; 200]), &[]);
        }
        let bytes = builder.finish();
        let batch = BatchToAppend::from(Batch::parse(&bytes).expect("just built"));
        log.append(&[batch], sequence / 100, 1_700_000_000_000)
            .expect("appended");
    }
    println!("closed at {}", log.close().expect("closed"));
}
