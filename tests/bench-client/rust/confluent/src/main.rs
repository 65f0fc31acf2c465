//! confluent-kafka, Confluent's own client in Rust: `send` of byte slices with a callback; `poll`
//! after `assign`.

use std::collections::HashMap;
use std::time::Duration;

use confluent_kafka::common::TopicPartition;
use confluent_kafka::common::serialization::{ByteArrayDeserializer, ByteArraySerializer};
use confluent_kafka::consumer::{Consumer as _, ConsumerConfig, KafkaConsumer};
use confluent_kafka::producer::{
    Callback, KafkaProducer, Producer as _, ProducerConfig, ProducerRecord, callback,
};
use skeleton::arguments::Arguments;
use skeleton::consume::{self, Ledger, Read};
use skeleton::produce::{self, Answers, Job, Load};
use tokio::runtime::Runtime;

const VERSION: &str = "confluent-kafka 1.0.0";

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
    producer: KafkaProducer<Vec<u8>, Vec<u8>>,
    topic: String,
    slow_topic: String,
}

impl Producer {
    fn new(load: &Load, runtime: Runtime) -> Producer {
        let mut settings = HashMap::from([
            ("bootstrap.servers".to_string(), load.bootstrap.clone()),
            ("acks".to_string(), "all".to_string()),
            ("enable.idempotence".to_string(), "true".to_string()),
            ("compression.type".to_string(), load.compression.clone()),
        ]);
        let mut set = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                settings.insert(key.to_string(), value);
            }
        };
        set("batch.size", load.batch_bytes.map(|bytes| bytes.to_string()));
        // As in Java: a request must have room for a batch.
        set(
            "max.request.size",
            load.batch_bytes
                .map(|bytes| (bytes + 65_536).max(1_048_576).to_string()),
        );
        set(
            "linger.ms",
            load.linger_ms.map(|milliseconds| milliseconds.to_string()),
        );
        set("buffer.memory", load.buffer_bytes.map(|bytes| bytes.to_string()));
        let config = ProducerConfig::new(&settings).expect("settings");
        let _inside = runtime.enter();
        let producer = KafkaProducer::new(
            config,
            ByteArraySerializer::default(),
            ByteArraySerializer::default(),
        )
        .expect("a producer");
        drop(_inside);
        Producer {
            runtime,
            producer,
            topic: load.topic.clone(),
            slow_topic: load.slow_topic.clone(),
        }
    }
}

impl produce::Contender for Producer {
    fn version(&self) -> String {
        VERSION.to_string()
    }

    fn send_all(&self, job: &mut Job, answers: &'static Answers) {
        self.runtime.block_on(async {
            while let Some(item) = job.next() {
                let topic = if item.slow { &self.slow_topic } else { &self.topic };
                let record = ProducerRecord::<&[u8], &[u8]>::with_partition_key(
                    topic.clone(),
                    Some(item.partition),
                    None,
                    Some(item.value),
                )
                .expect("a record");
                let done: Box<dyn Callback> = Box::new(callback::new(move |_, error| match error {
                    None => answers.acknowledged(item.slot),
                    Some(error) => answers.failed(error),
                }));
                if let Err(error) = KafkaProducer::send(&self.producer, record, Some(done)).await {
                    answers.failed(&error);
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
    consumer: KafkaConsumer<Vec<u8>, Vec<u8>>,
    partitions: Vec<TopicPartition>,
}

impl Consumer {
    fn new(read: &Read, runtime: Runtime) -> Consumer {
        let settings = HashMap::from([
            ("bootstrap.servers".to_string(), read.bootstrap.clone()),
            ("group.protocol".to_string(), "consumer".to_string()),
            ("enable.auto.commit".to_string(), "false".to_string()),
            ("auto.offset.reset".to_string(), "earliest".to_string()),
        ]);
        let config = ConsumerConfig::new(&settings).expect("settings");
        let partitions: Vec<TopicPartition> = (0..read.partitions)
            .map(|partition| TopicPartition::new(read.topic.clone(), partition))
            .collect();
        let consumer = runtime.block_on(async {
            let mut consumer = KafkaConsumer::new(
                config,
                ByteArrayDeserializer::default(),
                ByteArrayDeserializer::default(),
            )
            .expect("a consumer");
            consumer.assign(partitions.clone()).await.expect("assign");
            consumer
        });
        Consumer {
            runtime,
            consumer,
            partitions,
        }
    }
}

impl consume::Contender for Consumer {
    fn version(&self) -> String {
        VERSION.to_string()
    }

    fn rewind(&mut self) {
        self.runtime
            .block_on(self.consumer.seek_to_beginning(&self.partitions))
            .expect("seek");
    }

    fn read(&mut self, records: u64, ledger: &mut Ledger) {
        self.runtime.block_on(async {
            while ledger.records < records {
                let found = self
                    .consumer
                    .poll(Duration::from_millis(100))
                    .await
                    .expect("poll");
                for partition in &self.partitions {
                    for record in found.records_with_partition(partition) {
                        ledger.see(
                            record.partition(),
                            record.offset(),
                            record.value().map_or(&[][..], Vec::as_slice),
                        );
                    }
                }
            }
        });
    }
}
