//! The cost of building a batch of records, checksum included: the part in which clients differ
//! most.
//!
//! Uses the same two batches as published comparisons of Rust clients: 6,400 records of 10 bytes
//! and 64 of 1,000 bytes.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ottla_client::config::{Config, ProducerConfig};
use ottla_client::machine::metadata::snapshot::{Partition, Topic};
use ottla_client::machine::producer::Accumulator;
use ottla_client::machine::time::Moment;
use ottla_client::producer::Record;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::crc32c;

const CASES: [(u32, usize); 2] = [(6_400, 10), (64, 1_000)];
const TIMESTAMP: i64 = 1_700_000_000_000;

fn accumulator() -> Accumulator {
    let config = Config::new()
        .set("bootstrap.servers", "localhost:9092")
        .set("batch.size", 1 << 20);
    let config = ProducerConfig::from_config(&config).expect("the settings are right");
    Accumulator::new(Arc::new(config), Arc::default())
}

fn topic() -> Arc<Topic> {
    Arc::new(Topic {
        name: "bench".into(),
        partitions: vec![Partition::default()],
        ..Topic::default()
    })
}

/// Through the accumulator, as `send` does: lock, room, encoding; then the batch is taken out and
/// checked.
fn accumulate(accumulator: &Accumulator, topic: &Arc<Topic>, records: u32, value: &[u8]) -> u32 {
    let record = Record::new("bench").value(value);
    for _ in 0..records {
        accumulator
            .append(Moment::from_nanos(0), topic, 0, &record, TIMESTAMP, None)
            .expect("there is room");
    }
    let mut queues = Vec::new();
    accumulator.take_activated(&mut queues);
    let batch = queues[0]
        .take(Moment::from_nanos(0), true)
        .expect("it was filled");
    assert_eq!(batch.record_count, records);
    let checksum = crc32c::checksum_of_two(&[0; 40], &batch.records);
    assert!(queues[0].deactivate_if_empty());
    checksum
}

fn build(records: u32, value: &[u8], buffer: Vec<u8>) -> Vec<u8> {
    let mut builder = BatchBuilder::append_to(buffer, BatchOptions::default());
    for _ in 0..records {
        builder.append(TIMESTAMP, None, Some(value), &[]);
    }
    builder.finish()
}

fn bench(criterion: &mut Criterion) {
    for (records, bytes) in CASES {
        let value = vec![b'v'; bytes];
        let mut group = criterion.benchmark_group(format!("{records} records of {bytes} bytes"));
        group.throughput(Throughput::Elements(records.into()));
        let (accumulator, topic) = (accumulator(), topic());
        group.bench_function("accumulator", |bencher| {
            bencher.iter(|| accumulate(&accumulator, &topic, records, black_box(&value)));
        });
        let mut buffer = Vec::new();
        group.bench_function("builder", |bencher| {
            bencher.iter(|| {
                buffer.clear();
                buffer = build(records, black_box(&value), std::mem::take(&mut buffer));
                buffer.len()
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = bench
}
criterion_main!(benches);
