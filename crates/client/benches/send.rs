//! The cost of `send` for the calling thread, and the contention of threads that share a partition.
//!
//! `bench_results` compares the ways to learn a record's result: a future, a closure, a tag.
//!
//! The sender is replaced by a machine that takes batches and acknowledges them without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ottla_client::Error;
use ottla_client::config::Config;
use ottla_client::machine::metadata::snapshot::{NodeId, Partition, Snapshot, Topic};
use ottla_client::machine::network::io::{Action, Event, Machine};
use ottla_client::machine::producer::DeliveryHandler;
use ottla_client::machine::producer::PartitionQueue;
use ottla_client::machine::producer::Placed;
use ottla_client::machine::producer::SenderParts;
use ottla_client::machine::time::{Moment, Timestamp};
use ottla_client::producer::{Producer, Record, RecordMetadata};

/// Acknowledges every batch at once.
struct NullSender {
    parts: SenderParts,
    queues: Vec<Arc<PartitionQueue>>,
    is_finished: bool,
}

impl Machine for NullSender {
    fn handle(&mut self, _now: Moment, _event: Event) {}

    fn turn(&mut self, now: Moment, _wall: Timestamp, _actions: &mut Vec<Action>) {
        self.parts.accumulator.take_activated(&mut self.queues);
        let is_closing = self.parts.commands.close_deadline().is_some();
        for queue in &self.queues {
            while let Some(batch) = queue.take(now, is_closing) {
                let placed = Placed {
                    base_offset: 0,
                    log_append_time: None,
                };
                batch.finish(Ok(placed), &self.parts.callbacks);
            }
        }
        self.queues.retain(|queue| !queue.deactivate_if_empty());
        self.is_finished = is_closing && self.queues.is_empty();
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}

fn producer(delivery: Option<DeliveryHandler>) -> Producer {
    let config = Config::new()
        .set("bootstrap.servers", "localhost:1")
        .set("buffer.memory", 64 << 20);
    Producer::with_machine(&config, delivery, |parts| {
        let partition = Partition {
            leader: Some(NodeId(1)),
            ..Partition::default()
        };
        let topic = Topic {
            name: "bench".into(),
            partitions: vec![partition; 4],
            ..Topic::default()
        };
        parts.metadata.publish(Snapshot {
            version: 1,
            topics: [(Arc::clone(&topic.name), Arc::new(topic))].into(),
            ..Snapshot::default()
        });
        Box::new(NullSender {
            parts,
            queues: Vec::new(),
            is_finished: false,
        })
    })
    .expect("the system has threads and descriptors")
}

/// Sends `records` in total, from `threads` threads.
fn send(producer: &Producer, records: u64, threads: u64, is_shared: bool, bytes: usize) -> Duration {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let value = vec![b'v'; bytes];
                let partition = if is_shared { 0 } else { thread as i32 };
                let record = Record::new("bench").partition(partition).value(&value);
                for _ in 0..records.div_ceil(threads) {
                    drop(producer.send(&record).expect("there is room"));
                }
            });
        }
    });
    started.elapsed()
}

/// The calls of one thread; results are counted on the callback thread.
fn send_each(producer: &Producer, records: u64, send: impl Fn(&Producer, &Record<'_>, u64)) -> Duration {
    let value = vec![b'v'; 256];
    let record = Record::new("bench").partition(0).value(&value);
    let started = Instant::now();
    for number in 0..records {
        send(producer, &record, number);
    }
    producer.flush().expect("there is no callback that flushes");
    started.elapsed()
}

fn bench_results(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("results of 256 bytes");
    group.throughput(Throughput::Elements(1));
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let handler: DeliveryHandler = Box::new(move |tag, outcome| {
        counted.fetch_add(tag & u64::from(outcome.is_ok()), Ordering::Relaxed);
    });
    let producer = producer(Some(handler));
    group.bench_function("future", |bencher| {
        bencher.iter_custom(|records| {
            send_each(&producer, records, |producer, record, _| {
                drop(producer.send(record).expect("there is room"));
            })
        });
    });
    group.bench_function("closure", |bencher| {
        bencher.iter_custom(|records| {
            send_each(&producer, records, |producer, record, number| {
                let count = Arc::clone(&count);
                let callback = move |outcome: Result<RecordMetadata, Error>| {
                    count.fetch_add(number & u64::from(outcome.is_ok()), Ordering::Relaxed);
                };
                producer.send_with(record, callback).expect("there is room");
            })
        });
    });
    group.bench_function("tag", |bencher| {
        bencher.iter_custom(|records| {
            send_each(&producer, records, |producer, record, number| {
                producer.send_tagged(record, number).expect("there is room");
            })
        });
    });
    group.finish();
}

fn bench(criterion: &mut Criterion) {
    for bytes in [10, 256] {
        let mut group = criterion.benchmark_group(format!("send {bytes} bytes"));
        group.throughput(Throughput::Elements(1));
        for (name, is_shared) in [("one partition", true), ("own partitions", false)] {
            for threads in [1, 2, 4] {
                let producer = producer(None);
                group.bench_with_input(BenchmarkId::new(name, threads), &threads, |bencher, threads| {
                    bencher.iter_custom(|records| send(&producer, records, *threads, is_shared, bytes));
                });
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1));
    targets = bench, bench_results
}
criterion_main!(benches);
