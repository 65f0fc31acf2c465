//! Common to all cases: clients on one bootstrap address, waiting, and the result lines.

use anyhow::{Context, Result, bail, ensure};
use ottla_client::Error;
use ottla_client::admin::{Admin, NewTopic, OffsetSpec, TopicPartition};
use ottla_client::config::Config;
use ottla_client::consumer::Consumer;
use ottla_client::producer::{Producer, Record, RecordMetadata};
use ottla_wire::error_code::ErrorCode;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

pub const MINUTE: Duration = Duration::from_secs(60);

pub struct Suite {
    pub bootstrap: String,
    pub admin: Admin,
    failures: usize,
}

/// A record that outlives its poll.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub is_append_time: bool,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Taken {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }
}

impl Suite {
    pub fn new(bootstrap: &str) -> Result<Suite> {
        Ok(Suite {
            bootstrap: bootstrap.to_string(),
            admin: Admin::new(&Config::new().set("bootstrap.servers", bootstrap))?,
            failures: 0,
        })
    }

    pub fn failures(&self) -> usize {
        self.failures
    }

    /// Runs one case and prints `CASE<tab>name<tab>ok|fail<tab>detail`.
    pub fn run(&mut self, name: &str, body: impl FnOnce(&Suite) -> Result<()>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| body(self))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            bail!(
                "panicked: {}",
                text.or(panic.downcast_ref::<&str>().copied())
                    .unwrap_or("no text")
            )
        });
        match outcome {
            Ok(()) => println!("CASE\t{name}\tok\t"),
            Err(error) => {
                self.failures += 1;
                let text = format!("{error:#}").replace(['\t', '\n', '\r'], " ");
                println!("CASE\t{name}\tfail\t{text}");
            }
        }
    }

    pub fn config(&self, settings: &[(&str, &str)]) -> Config {
        let base = Config::new().set("bootstrap.servers", &self.bootstrap);
        settings
            .iter()
            .fold(base, |config, (key, value)| config.set(*key, value))
    }

    pub fn producer(&self, settings: &[(&str, &str)]) -> Result<Producer> {
        Ok(Producer::new(&self.config(settings))?)
    }

    pub fn consumer(&self, settings: &[(&str, &str)]) -> Result<Consumer> {
        let base = [("auto.offset.reset", "earliest"), ("enable.auto.commit", "false")];
        Ok(Consumer::new(&self.config(&[&base, settings].concat()))?)
    }

    /// Creates a topic and waits until all of its partitions are served.
    pub fn create_topic(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<()> {
        let topic = NewTopic::new(name).partitions(partitions).replicas(1);
        let topic = configs
            .iter()
            .fold(topic, |topic, (key, value)| topic.config(*key, value));
        self.admin
            .create_topics(vec![topic])
            .wait()?
            .remove(name)
            .context("an answer")??;
        // In Apache Kafka a new topic is not known everywhere immediately.
        eventually("every partition has an end", || {
            let ends = (0..partitions)
                .map(|index| (partition(name, index), OffsetSpec::Latest))
                .collect();
            Ok(self
                .admin
                .list_offsets(ends)
                .wait()?
                .values()
                .all(std::result::Result::is_ok))
        })?;
        Ok(())
    }

    /// Writes `count` records named value-0, value-1, ... and returns the acknowledgements.
    pub fn fill(&self, topic: &str, partition: Option<i32>, count: usize) -> Result<Vec<RecordMetadata>> {
        let producer = self.producer(&[("linger.ms", "5")])?;
        let mut sent = Vec::new();
        for i in 0..count {
            let (key, value) = (format!("key-{i}"), format!("value-{i}"));
            let record = Record {
                topic,
                partition,
                key: Some(key.as_bytes()),
                value: Some(value.as_bytes()),
                ..Record::default()
            };
            sent.push(producer.send(&record)?);
        }
        producer.flush()?;
        let metadata = sent.into_iter().map(|sent| Ok(sent.wait()?)).collect();
        producer.close(MINUTE)?;
        metadata
    }

    pub fn offset(&self, topic: &str, index: i32, spec: OffsetSpec) -> Result<i64> {
        Ok(self.listed(topic, index, spec)?.offset)
    }

    pub fn listed(
        &self,
        topic: &str,
        index: i32,
        spec: OffsetSpec,
    ) -> Result<ottla_client::admin::ListedOffset> {
        let name = partition(topic, index);
        let mut found = self.admin.list_offsets([(name.clone(), spec)].into()).wait()?;
        Ok(found.remove(&name).context("an answer for the partition")??)
    }
}

pub fn partition(topic: &str, index: i32) -> TopicPartition {
    TopicPartition::new(topic, index)
}

pub fn partitions(topic: &str, count: i32) -> Vec<TopicPartition> {
    (0..count).map(|index| partition(topic, index)).collect()
}

/// A text record for `send`.
pub fn text_record<'a>(topic: &'a str, index: i32, value: &'a str) -> Record<'a> {
    Record {
        topic,
        partition: Some(index),
        value: Some(value.as_bytes()),
        ..Record::default()
    }
}

/// Returns copies of one poll's records.
pub fn poll(consumer: &mut Consumer, timeout: Duration) -> Result<Vec<Taken>> {
    let records = consumer.poll(timeout)?;
    let taken = records.iter().map(|record| Taken {
        partition: record.partition,
        offset: record.offset,
        timestamp: record.timestamp,
        is_append_time: format!("{:?}", record.timestamp_type).contains("Append"),
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record
            .headers
            .iter()
            .map(|header| {
                (
                    String::from_utf8_lossy(header.key).into_owned(),
                    header.value.map(<[u8]>::to_vec),
                )
            })
            .collect(),
    });
    Ok(taken.collect())
}

/// Polls until `count` records have arrived, then once more to check that there are no others.
pub fn take(consumer: &mut Consumer, count: usize) -> Result<Vec<Taken>> {
    let mut taken = Vec::new();
    let give_up = Instant::now() + MINUTE;
    while taken.len() < count {
        taken.extend(poll(consumer, Duration::from_millis(200))?);
        ensure!(
            Instant::now() < give_up,
            "only {} of {count} records in a minute",
            taken.len()
        );
    }
    taken.extend(poll(consumer, Duration::from_millis(100))?);
    same(&count, &taken.len(), "records consumed")?;
    Ok(taken)
}

pub fn same<T: PartialEq + Debug>(expected: &T, actual: &T, what: &str) -> Result<()> {
    ensure!(
        expected == actual,
        "{what}: expected {expected:?}, got {actual:?}"
    );
    Ok(())
}

/// Checks that the call failed with this error code of the broker.
pub fn fails_with<T: Debug>(code: ErrorCode, outcome: std::result::Result<T, Error>) -> Result<()> {
    match outcome {
        Err(Error::Broker { code: found, .. }) if found == code => Ok(()),
        other => bail!("expected {}, got {other:?}", code.name()),
    }
}

/// Returns the result of a call for a single item.
pub fn only<K: Ord + Debug, T>(
    results: std::result::Result<BTreeMap<K, std::result::Result<T, Error>>, Error>,
) -> std::result::Result<T, Error> {
    let mut results = results?;
    let (_, only) = results.pop_first().expect("an answer for what was named");
    only
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let give_up = Instant::now() + MINUTE;
    while !holds().with_context(|| what.to_string())? {
        ensure!(Instant::now() < give_up, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
