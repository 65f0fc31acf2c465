//! krafka: `enqueue` and its handles, which are awaited in order; `poll` of an assigned consumer.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use krafka::consumer::AutoOffsetReset;
use krafka::producer::DeliveryHandle;
use krafka::{Compression, Kafka, Record};
use skeleton::arguments::Arguments;
use skeleton::consume::{self, Ledger, Read};
use skeleton::produce::{self, Answers, Job, Load};
use tokio::runtime::Runtime;

const VERSION: &str = "krafka 0.28.1";

fn main() {
    let arguments = Arguments::of_process();
    let runtime = Runtime::new().expect("a tokio runtime with its defaults");
    match arguments.mode.as_str() {
        "produce" => {
            let load = Load::from(&arguments);
            produce::run(&load, &Producer::new(&load, runtime));
        }
        "consume" => {
            let read = Read::from(&arguments);
            consume::run(&read, &mut Consumer::new(&read, runtime));
        }
        other => panic!("unknown mode {other}"),
    }
    // The background tasks are idle, and the report is written.
    std::process::exit(0);
}

struct Producer {
    runtime: Runtime,
    producer: krafka::producer::Producer,
    topic: String,
    slow_topic: String,
}

impl Producer {
    fn new(load: &Load, runtime: Runtime) -> Producer {
        let producer = runtime.block_on(async {
            let kafka = Kafka::builder(load.bootstrap.clone())
                .connect()
                .await
                .expect("connect");
            let compression = match load.compression.as_str() {
                "none" => Compression::None,
                "lz4" => Compression::Lz4,
                other => panic!("compression={other}"),
            };
            let mut builder = kafka.producer().compression(compression);
            if let Some(bytes) = load.batch_bytes {
                builder = builder.batch_size(bytes);
            }
            if let Some(milliseconds) = load.linger_ms {
                builder = builder.linger(Duration::from_millis(milliseconds));
            }
            if let Some(bytes) = load.buffer_bytes {
                builder = builder.buffer_memory(bytes);
            }
            builder.build().await.expect("a producer")
        });
        Producer {
            runtime,
            producer,
            topic: load.topic.clone(),
            slow_topic: load.slow_topic.clone(),
        }
    }
}

/// Takes the completed answers at the front.
fn collect(waiting: &mut VecDeque<(u64, DeliveryHandle)>, answers: &Answers) {
    let mut context = Context::from_waker(Waker::noop());
    while let Some((slot, handle)) = waiting.front_mut() {
        let Poll::Ready(result) = Pin::new(handle).poll(&mut context) else {
            return;
        };
        match result {
            Ok(_) => answers.acknowledged(*slot),
            Err(error) => answers.failed(&error),
        }
        waiting.pop_front();
    }
}

impl produce::Contender for Producer {
    fn version(&self) -> String {
        VERSION.to_string()
    }

    fn send_all(&self, job: &mut Job, answers: &'static Answers) {
        let record = |item: &produce::Item| {
            let topic = if item.slow { &self.slow_topic } else { &self.topic };
            Record::new(topic.as_str(), item.value).partition(item.partition)
        };
        if job.is_paced() {
            // Answers are timed, so a task must wait for them while the loop sleeps.
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<(u64, DeliveryHandle)>();
            let waiter = self.runtime.spawn(async move {
                while let Some((slot, handle)) = receiver.recv().await {
                    match handle.await {
                        Ok(_) => answers.acknowledged(slot),
                        Err(error) => answers.failed(&error),
                    }
                }
            });
            self.runtime.block_on(async {
                while let Some(item) = job.next() {
                    match self.producer.enqueue(record(&item)).await {
                        Ok(handle) => sender.send((item.slot, handle)).expect("the waiter lives"),
                        Err(error) => answers.failed(&error),
                    }
                }
                drop(sender);
                waiter.await.expect("the waiter does not panic");
            });
            return;
        }
        self.runtime.block_on(async {
            let mut waiting = VecDeque::new();
            while let Some(item) = job.next() {
                match self.producer.enqueue(record(&item)).await {
                    Ok(handle) => waiting.push_back((item.slot, handle)),
                    Err(error) => answers.failed(&error),
                }
                if waiting.len() % 64 == 0 {
                    collect(&mut waiting, answers);
                }
            }
            for (slot, handle) in waiting {
                match handle.await {
                    Ok(_) => answers.acknowledged(slot),
                    Err(error) => answers.failed(&error),
                }
            }
        });
    }

    fn flush(&self) {
        self.runtime.block_on(self.producer.flush()).expect("flush");
    }
}

struct Consumer {
    runtime: Runtime,
    consumer: krafka::consumer::Consumer,
    topic: String,
    partitions: i32,
}

impl Consumer {
    fn new(read: &Read, runtime: Runtime) -> Consumer {
        let consumer = runtime.block_on(async {
            let kafka = Kafka::builder(read.bootstrap.clone())
                .connect()
                .await
                .expect("connect");
            let consumer = kafka
                .consumer_without_group()
                .auto_offset_reset(AutoOffsetReset::Earliest)
                .build()
                .await
                .expect("a consumer");
            let partitions = (0..read.partitions).collect();
            consumer.assign(&read.topic, partitions).await.expect("assign");
            consumer
        });
        Consumer {
            runtime,
            consumer,
            topic: read.topic.clone(),
            partitions: read.partitions,
        }
    }
}

impl consume::Contender for Consumer {
    fn version(&self) -> String {
        VERSION.to_string()
    }

    fn rewind(&mut self) {
        self.runtime.block_on(async {
            for partition in 0..self.partitions {
                self.consumer.seek(&self.topic, partition, 0).await.expect("seek");
            }
        });
    }

    fn read(&mut self, records: u64, ledger: &mut Ledger) {
        self.runtime.block_on(async {
            while ledger.records < records {
                for record in self
                    .consumer
                    .poll(Duration::from_millis(100))
                    .await
                    .expect("poll")
                {
                    ledger.see(
                        record.partition,
                        record.offset,
                        record.value.as_deref().unwrap_or_default(),
                    );
                }
            }
        });
    }
}
