//! Records for consumers to read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ottla_client::config::Config;
use ottla_client::producer::{Producer, Record, Transaction, TransactionalProducer};

/// Records that another client writes for a consumer.
#[derive(Clone, Copy, Debug)]
pub struct Feed {
    pub records_per_second: u32,
    pub record_bytes: usize,
    /// Nine of ten records go to partition 0.
    pub is_skewed: bool,
    /// Records that are written before the consumer begins, with timestamps of an hour before.
    pub stored: u32,
    /// A transaction begins in partition 0 before all but what is stored, and stays open.
    pub is_held: bool,
}

/// Old enough that no broker would expect them in memory.
const STORED_AGE: Duration = Duration::from_secs(3_600);

/// Writes records for a consumer until it is dropped.
pub struct Feeder {
    is_over: Arc<AtomicBool>,
    is_skewed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    pub fn start(bootstrap: &str, topic: &str, partitions: i32, feed: Feed) -> Result<Feeder> {
        let config = Config::new()
            .set("bootstrap.servers", bootstrap)
            .set("client.id", format!("{topic}-feed"));
        let producer = Producer::new(&config)?;
        store(&producer, topic, partitions, feed)?;
        let open = feed.is_held.then(|| holder(bootstrap, topic)).transpose()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let is_skewed = Arc::new(AtomicBool::new(feed.is_skewed));
        let (over, skewed, topic) = (Arc::clone(&is_over), Arc::clone(&is_skewed), topic.to_owned());
        let thread = std::thread::spawn(move || {
            let value = vec![b'v'; feed.record_bytes];
            // Open until the thread ends. Without it the remedy gains nothing.
            let _transaction = open.as_ref().map(|producer| {
                hold(producer, &topic, &value)
                    .inspect_err(|error| eprintln!("no transaction is open in {topic}: {error:#}"))
            });
            let began = Instant::now();
            let mut sent = 0_u64;
            while !over.load(Ordering::Relaxed) {
                let due = (began.elapsed().as_secs_f64() * f64::from(feed.records_per_second)) as u64;
                for number in sent..due {
                    let is_first = skewed.load(Ordering::Relaxed) && number % 10 > 0;
                    let partition = if is_first {
                        0
                    } else {
                        (number / 10 + number) as i32 % partitions
                    };
                    // A feeder that cannot write shows in the consumer's rate.
                    let _ = producer.send(&Record::new(&topic).partition(partition).value(&value));
                }
                sent = due;
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = producer.close(Duration::from_secs(5));
        });
        Ok(Feeder {
            is_over,
            is_skewed,
            thread: Some(thread),
        })
    }

    /// From now on partition 0 gets nine of ten records, or no more than the others.
    pub fn skew(&self, is_skewed: bool) {
        self.is_skewed.store(is_skewed, Ordering::Relaxed);
    }
}

/// A producer whose transaction the coordinator leaves open for longer than a trial takes.
fn holder(bootstrap: &str, topic: &str) -> Result<TransactionalProducer> {
    let config = Config::new()
        .set("bootstrap.servers", bootstrap)
        .set("client.id", format!("{topic}-open"))
        .set("transactional.id", format!("{topic}-open"))
        .set("transaction.timeout.ms", "600000");
    let producer = TransactionalProducer::new(&config)?;
    producer.init().context("a transaction that is to stay open")?;
    Ok(producer)
}

/// Opens a transaction in partition 0.
fn hold<'a>(producer: &'a TransactionalProducer, topic: &str, value: &[u8]) -> Result<Transaction<'a>> {
    let transaction = producer.begin()?;
    transaction
        .send(&Record::new(topic).partition(0).value(value))?
        .wait()?;
    Ok(transaction)
}

/// Writes the records that are there from the beginning.
fn store(producer: &Producer, topic: &str, partitions: i32, feed: Feed) -> Result<()> {
    let written = SystemTime::now().duration_since(UNIX_EPOCH)? - STORED_AGE;
    let value = vec![b'v'; feed.record_bytes];
    let mut sent = Vec::new();
    for number in 0..feed.stored {
        let record = Record::new(topic)
            .partition(number as i32 % partitions)
            .value(&value);
        sent.push(producer.send(&record.timestamp(written.as_millis() as i64))?);
    }
    for record in sent {
        record.wait().context("a record that is to be stored")?;
    }
    Ok(())
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
