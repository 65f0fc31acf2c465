//! One record at a time, sent, acknowledged and read: measures what Kafka's end-to-end latency tool
//! measures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_client::Error;
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, ConsumerRecord, ConsumerRecords, TopicPartition};
use ottla_client::producer::{Producer, Record};

use crate::load::contents::Noise;
use crate::report::histogram::Latencies;

/// A record that has not arrived within this time counts as lost.
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);
const CLOSE: Duration = Duration::from_secs(30);
/// While it runs, the time of the first of every this many records is reported.
const TOLD_EVERY: u64 = 1_000;

#[derive(Clone, Debug)]
pub struct EndToEndPerf {
    /// For all clients.
    pub config: Config,
    pub topic: String,
    pub records: u64,
    /// `1` or `all`.
    pub acks: String,
    pub value_bytes: usize,
    /// 0: an empty key, as in Kafka's tool.
    pub key_bytes: usize,
    pub headers: HeaderShape,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderShape {
    pub count: usize,
    pub key_bytes: usize,
    /// `None`: headers without a value.
    pub value_bytes: Option<usize>,
}

#[derive(Clone, Debug)]
pub enum EndToEndEvent {
    /// The topic did not exist and is created with one partition.
    CreatesTopic,
    /// A record's number and time.
    Record { number: u64, nanos: u64 },
}

#[derive(Clone, Debug, Default)]
pub struct EndToEndOutcome {
    pub records: u64,
    pub latencies: Latencies,
    pub nanos_in_all: u128,
    pub was_interrupted: bool,
}

impl EndToEndOutcome {
    /// NaN when there were no records.
    pub fn mean_ms(&self) -> f64 {
        self.nanos_in_all as f64 / self.records as f64 / 1e6
    }
}

/// Sends the records one by one. `stop` ends it after the current one.
///
/// - Errors: invalid settings; a record that is not acknowledged, does not arrive within 60 s, or
///   arrives changed or with others.
pub fn run(
    perf: &EndToEndPerf,
    stop: &AtomicBool,
    mut observer: impl FnMut(EndToEndEvent),
) -> Result<EndToEndOutcome, Error> {
    let consumer_config = perf
        .config
        .clone()
        .set("group.id", format!("test-group-{:016x}", Noise::fresh().draw()))
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "latest")
        // The broker answers at once with what it has.
        .set("fetch.max.wait.ms", 0);
    let producer_config = perf
        .config
        .clone()
        .set("linger.ms", 0)
        .set("max.block.ms", i64::MAX)
        .set("acks", &perf.acks);
    let mut consumer = Consumer::new(&consumer_config)?;
    let producer = Producer::new(&producer_config)?;
    if !consumer
        .list_topics()?
        .iter()
        .any(|topic| *topic.name == *perf.topic)
    {
        observer(EndToEndEvent::CreatesTopic);
        create_topic(perf)?;
    }
    stand_at_the_end(&mut consumer, &perf.topic)?;
    let mut noise = Noise::new(0);
    let mut outcome = EndToEndOutcome::default();
    for number in 0..perf.records {
        if stop.load(Ordering::Relaxed) {
            outcome.was_interrupted = true;
            break;
        }
        let nanos = one(perf, &producer, &mut consumer, &mut noise)?;
        outcome.records += 1;
        outcome.nanos_in_all += u128::from(nanos);
        outcome.latencies.record(nanos / 1_000);
        if number % TOLD_EVERY == 0 {
            observer(EndToEndEvent::Record { number, nanos });
        }
    }
    consumer.commit_sync()?;
    consumer.close(CLOSE)?;
    Ok(outcome)
}

fn create_topic(perf: &EndToEndPerf) -> Result<(), Error> {
    let admin = Admin::new(&perf.config)?;
    let topic = NewTopic::new(&perf.topic).partitions(1).replicas(1);
    for (_, outcome) in admin.create_topics(vec![topic]).wait()? {
        outcome?;
    }
    admin.close(CLOSE);
    Ok(())
}

fn stand_at_the_end(consumer: &mut Consumer, topic: &str) -> Result<(), Error> {
    let count = consumer.partitions_for(topic)?.partitions.len() as i32;
    let partitions: Vec<TopicPartition> = (0..count)
        .map(|number| TopicPartition::new(topic, number))
        .collect();
    consumer.assign(partitions.iter().cloned())?;
    consumer.seek_to_end(&partitions)?;
    for partition in &partitions {
        // Determined now: later the position would be after the first record.
        consumer.position(partition)?;
    }
    Ok(())
}

/// Sends one record and reads it; returns the nanoseconds taken.
fn one(
    perf: &EndToEndPerf,
    producer: &Producer,
    consumer: &mut Consumer,
    noise: &mut Noise,
) -> Result<u64, Error> {
    let key = letters(noise, perf.key_bytes);
    let value = letters(noise, perf.value_bytes);
    let headers: Vec<(String, Option<Vec<u8>>)> = (0..perf.headers.count)
        .map(|_| {
            let key = String::from_utf8(letters(noise, perf.headers.key_bytes)).expect("letters are UTF-8");
            (key, perf.headers.value_bytes.map(|bytes| letters(noise, bytes)))
        })
        .collect();
    let borrowed: Vec<(&str, Option<&[u8]>)> = headers
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_deref()))
        .collect();
    let record = Record::new(&perf.topic)
        .key(&key)
        .value(&value)
        .headers(&borrowed);
    let begin = Instant::now();
    producer.send(&record)?.wait()?;
    let records = consumer.poll(ARRIVES_WITHIN)?;
    let nanos = begin.elapsed().as_nanos() as u64;
    check(&record, &records)?;
    Ok(nanos)
}

/// Returns the same letter, repeated.
fn letters(noise: &mut Noise, bytes: usize) -> Vec<u8> {
    vec![b'A' + noise.below(26) as u8; bytes]
}

fn check(sent: &Record<'_>, received: &ConsumerRecords) -> Result<(), Error> {
    let problem = match received.iter().next() {
        None => format!("the record did not arrive within {} s", ARRIVES_WITHIN.as_secs()),
        Some(record) if !is_same(sent, &record) => String::from(
            "the record that arrived is not the one that was sent; does another producer write to the topic?",
        ),
        Some(_) if received.len() != 1 => format!("{} records arrived, one was sent", received.len()),
        Some(_) => return Ok(()),
    };
    Err(Error::IllegalState {
        message: problem.into(),
    })
}

fn is_same(sent: &Record<'_>, received: &ConsumerRecord<'_>) -> bool {
    let headers: Vec<_> = received.headers.iter().collect();
    let same_headers = headers.len() == sent.headers.len()
        && headers
            .iter()
            .zip(sent.headers)
            .all(|(received, (key, value))| received.key == key.as_bytes() && received.value == *value);
    received.key == sent.key && received.value == sent.value && same_headers
}
