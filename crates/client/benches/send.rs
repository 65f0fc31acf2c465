//! The cost of `send` for the calling thread, and the contention of threads that share a partition.
//!
//! The sender is replaced by a machine that takes batches and acknowledges them without a network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ottla_client::config::Config;
use ottla_client::machine::metadata::snapshot::{NodeId, Partition, Snapshot, Topic};
use ottla_client::machine::network::io::{Action, Event, Machine};
use ottla_client::machine::producer::PartitionQueue;
use ottla_client::machine::producer::Placed;
use ottla_client::machine::producer::SenderParts;
use ottla_client::machine::time::{Moment, Timestamp};
use ottla_client::producer::{Producer, Record};

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

fn producer() -> Producer {
    let config = Config::new()
        .set("bootstrap.servers", "localhost:1")
        .set("buffer.memory", 64 << 20);
    Producer::with_machine(&config, |parts| {
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

fn bench(criterion: &mut Criterion) {
    for bytes in [10, 256] {
        let mut group = criterion.benchmark_group(format!("send {bytes} bytes"));
        group.throughput(Throughput::Elements(1));
        for (name, is_shared) in [("one partition", true), ("own partitions", false)] {
            for threads in [1, 2, 4] {
                let producer = producer();
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
    targets = bench
}
criterion_main!(benches);
