//! Our clients' work over each kind of connection: create a topic, produce, consume, outlive a
//! session.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::Error;
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, TopicPartition};
use ottla_client::metrics::Metric;
use ottla_client::producer::{Producer, Record};

const RECORDS: usize = 3_000;
const VALUE_BYTES: usize = 2_000;
/// Timeout of all of it, far above the usual time.
const PATIENCE: Duration = Duration::from_secs(45);

/// The kind of client that makes the first call.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    Admin,
    Producer,
    Consumer,
}

impl Caller {
    pub const ALL: [Caller; 3] = [Caller::Admin, Caller::Producer, Caller::Consumer];

    pub fn attempt(self, config: &Config, limit: Duration) -> Result<(), Error> {
        match self {
            Caller::Admin => Admin::new(config)?.describe_cluster().wait().map(drop),
            Caller::Producer => {
                let record = Record {
                    topic: "anything",
                    value: Some(b"anything"),
                    ..Record::default()
                };
                Producer::new(config)?.send(&record)?.wait().map(drop)
            }
            Caller::Consumer => {
                let mut consumer = Consumer::new(config)?;
                consumer.assign([TopicPartition::new("anything", 0)])?;
                consumer.poll(limit).map(drop)
            }
        }
    }
}

/// Checks that all produced records are consumed, in order.
pub fn run(config: &Config, topic: &str) -> Result<()> {
    let admin = Admin::new(config)?;
    let created = admin.create_topics(vec![NewTopic::new(topic)]).wait()?;
    for result in created.into_values() {
        result.context("the topic")?;
    }
    let producer = Producer::new(config)?;
    let mut sent = Vec::new();
    for number in 0..RECORDS {
        let (key, value) = (number.to_string(), value(number));
        let record = Record {
            topic,
            key: Some(key.as_bytes()),
            value: Some(&value),
            ..Record::default()
        };
        sent.push(producer.send(&record)?);
    }
    for (number, future) in sent.into_iter().enumerate() {
        let offset = future.wait()?.offset;
        ensure!(offset == number as i64, "record {number} is at offset {offset}");
    }
    producer.close(PATIENCE)?;

    let config = config
        .clone()
        .set("auto.offset.reset", "earliest")
        .set("group.id", topic);
    let mut consumer = Consumer::new(&config)?;
    consumer.subscribe([topic])?;
    let started = Instant::now();
    let mut number = 0;
    while number < RECORDS {
        ensure!(
            started.elapsed() < PATIENCE,
            "{number} of {RECORDS} records came back"
        );
        for record in consumer.poll(Duration::from_millis(500))?.iter() {
            ensure!(
                record.key == Some(number.to_string().as_bytes()) && record.value == Some(&value(number)),
                "record {number} came back changed"
            );
            number += 1;
        }
    }
    consumer.close(PATIENCE)?;
    Ok(())
}

/// A value that differs from record to record and does not compress to almost nothing.
fn value(number: usize) -> Vec<u8> {
    (0..VALUE_BYTES)
        .map(|at| ((at * 31 + number * 17) >> 3) as u8)
        .collect()
}

/// Produces over several sessions on one connection: without re-authentication the client would
/// lose it.
pub fn outlive_sessions(config: &Config, topic: &str) -> Result<()> {
    const SESSIONS: f64 = 3.0;
    let producer = Producer::new(config)?;
    let send = || -> Result<(), Error> {
        let record = Record {
            topic,
            value: Some(b"still here"),
            ..Record::default()
        };
        producer.send(&record)?.wait().map(drop)
    };
    send()?;
    let connections = total(&producer, "connection-creation-total")?;
    let started = Instant::now();
    while total(&producer, "successful-reauthentication-total")? < SESSIONS {
        ensure!(started.elapsed() < PATIENCE, "no session is renewed");
        send()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let connections_now = total(&producer, "connection-creation-total")?;
    ensure!(
        connections == connections_now,
        "{connections} connections became {connections_now}"
    );
    Ok(())
}

fn total(producer: &Producer, name: &str) -> Result<f64> {
    let metrics = producer.metrics().snapshot();
    // Metrics of the whole client, not of one node.
    let found: Vec<&Metric> = metrics
        .iter()
        .filter(|metric| metric.name == name && metric.group == "producer-metrics")
        .collect();
    match found.as_slice() {
        [metric] => metric.number().context("a number"),
        other => bail!("{} metrics are called {name}", other.len()),
    }
}
