//! Copies the records of one topic to another, each at least once.
//!
//! The guarantee comes from the order: read, write, wait until everything written is acknowledged,
//! and only then commit what was read. A process that dies in between restarts at the last commit
//! and writes some records twice, but loses none.
//!
//! ```text
//! cargo run --example transfer -- localhost:9092 copiers orders orders-copy
//! ```

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, RebalanceListener, TopicPartition};
use ottla_client::producer::{Producer, Record, SendFuture};

const IDLE_MAX: Duration = Duration::from_secs(10);

/// Prints which partitions are assigned and revoked. Nothing else is needed: every poll's records
/// are committed before the next poll, and rebalances happen inside polls.
struct Announcer;

impl RebalanceListener for Announcer {
    fn partitions_assigned(&mut self, _consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        println!("assigned: {partitions:?}");
    }

    fn partitions_revoked(&mut self, _consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        println!("revoked: {partitions:?}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [servers, group, from, to] = &arguments[..] else {
        return Err("usage: transfer BOOTSTRAP_SERVERS GROUP FROM_TOPIC TO_TOPIC".into());
    };
    let mut consumer = Consumer::new(
        &Config::new()
            .set("bootstrap.servers", servers)
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            // An automatic commit would not wait for the producer.
            .set("enable.auto.commit", "false"),
    )?;
    consumer.set_rebalance_listener(Announcer);
    consumer.subscribe([from.as_str()])?;
    let producer = Producer::new(&Config::new().set("bootstrap.servers", servers))?;

    let mut transferred = 0_u64;
    let mut last_record = Instant::now();
    while last_record.elapsed() < IDLE_MAX {
        let records = consumer.poll(Duration::from_secs(1))?;
        if records.is_empty() {
            continue;
        }
        last_record = Instant::now();
        let mut sent: Vec<SendFuture> = Vec::with_capacity(records.len());
        for record in &records {
            let mut copy = Record::new(to).timestamp(record.timestamp);
            // Null and empty differ: in a compacted topic, a null value deletes the key.
            if let Some(key) = &record.key {
                copy = copy.key(key);
            }
            if let Some(value) = &record.value {
                copy = copy.value(value);
            }
            let headers: Vec<(&str, Option<&[u8]>)> = record
                .headers
                .iter()
                .map(|header| Ok((std::str::from_utf8(header.key)?, header.value)))
                .collect::<Result<_, std::str::Utf8Error>>()?;
            sent.push(producer.send(&copy.headers(&headers))?);
        }
        // Send now instead of after linger.ms.
        producer.flush()?;
        for record in sent {
            record.wait()?;
        }
        match consumer.commit_sync() {
            Ok(()) => transferred += records.len() as u64,
            // A rebalance came first: the partitions' new owners write these records again.
            Err(error) if !error.is_fatal() => println!("not committed: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    println!("{transferred} records transferred");
    producer.close(Duration::from_secs(30))?;
    consumer.close(Duration::from_secs(30))?;
    Ok(())
}
