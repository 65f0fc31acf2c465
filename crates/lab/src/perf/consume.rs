//! One consumer of a group: measures what Kafka's consumer performance tool measures.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use ottla_client::Error;
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, RebalanceListener, TopicPartition};

use super::{MetricLine, metric_lines};
use crate::load::lock;

const POLL: Duration = Duration::from_millis(100);
const CLOSE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct ConsumePerf {
    /// Includes `group.id`.
    pub config: Config,
    pub topics: Topics,
    pub records: u64,
    /// Ends when nothing has arrived for this long.
    pub timeout: Duration,
    pub reporting_interval: Duration,
}

#[derive(Clone, Debug)]
pub enum Topics {
    Named(String),
    /// A regular expression that matches whole names.
    Matching(String),
}

/// One reporting interval of the run, reported at its end.
#[derive(Clone, Copy, Debug)]
pub struct ConsumeInterval {
    pub end: SystemTime,
    pub seconds: f64,
    /// Since the start of the run.
    pub records_in_all: u64,
    pub bytes_in_all: u64,
    pub records: u64,
    pub bytes: u64,
    /// Time in the interval without any partition.
    pub rebalance: Duration,
}

#[derive(Clone, Debug)]
pub struct ConsumePerfOutcome {
    pub start: SystemTime,
    pub end: SystemTime,
    pub seconds: f64,
    pub records: u64,
    pub bytes: u64,
    /// Time without any partition.
    pub rebalance: Duration,
    /// Fewer records arrived than were asked for.
    pub has_timed_out: bool,
    pub was_interrupted: bool,
    pub metrics: Vec<MetricLine>,
}

/// Reads until there are enough records, or none have arrived for `timeout`. `stop` ends it too.
///
/// - Errors: invalid settings; the errors of `poll`.
pub fn run(
    perf: &ConsumePerf,
    stop: &AtomicBool,
    mut observer: impl FnMut(ConsumeInterval),
) -> Result<ConsumePerfOutcome, Error> {
    let mut consumer = Consumer::new(&perf.config)?;
    let (start, begin) = (SystemTime::now(), Instant::now());
    let joining = Arc::new(Mutex::new(Joining::new(begin)));
    consumer.set_rebalance_listener(Listener(Arc::clone(&joining)));
    match &perf.topics {
        Topics::Named(topic) => consumer.subscribe([topic.as_str()])?,
        Topics::Matching(pattern) => consumer.subscribe_pattern(pattern)?,
    }
    let mut counts = Counts::default();
    let (mut reported, mut reported_at, mut arrived_at) = (Counts::default(), begin, begin);
    while counts.records < perf.records && !stop.load(Ordering::Relaxed) {
        let records = consumer.poll(POLL)?;
        let now = Instant::now();
        if records.is_empty() {
            if now - arrived_at > perf.timeout {
                break;
            }
            continue;
        }
        arrived_at = now;
        for record in &records {
            counts.records += 1;
            counts.bytes += (record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)) as u64;
        }
        if now - reported_at >= perf.reporting_interval {
            observer(ConsumeInterval {
                end: SystemTime::now(),
                seconds: (now - reported_at).as_secs_f64(),
                records_in_all: counts.records,
                bytes_in_all: counts.bytes,
                records: counts.records - reported.records,
                bytes: counts.bytes - reported.bytes,
                rebalance: lock(&joining).take_interval(),
            });
            (reported, reported_at) = (counts, now);
        }
    }
    let (end, seconds) = (SystemTime::now(), begin.elapsed().as_secs_f64());
    let metrics = metric_lines(consumer.metrics());
    consumer.close(CLOSE)?;
    let rebalance = lock(&joining).in_all;
    let was_interrupted = stop.load(Ordering::Relaxed);
    Ok(ConsumePerfOutcome {
        start,
        end,
        seconds,
        records: counts.records,
        bytes: counts.bytes,
        rebalance,
        has_timed_out: counts.records < perf.records && !was_interrupted,
        was_interrupted,
        metrics,
    })
}

#[derive(Clone, Copy, Default)]
struct Counts {
    records: u64,
    bytes: u64,
}

/// The time from the loss of the last partition, or the start, to the first assigned one.
struct Joining {
    since: Instant,
    assigned: BTreeSet<TopicPartition>,
    in_all: Duration,
    in_interval: Duration,
}

impl Joining {
    fn new(since: Instant) -> Joining {
        Joining {
            since,
            assigned: BTreeSet::new(),
            in_all: Duration::ZERO,
            in_interval: Duration::ZERO,
        }
    }

    fn take_interval(&mut self) -> Duration {
        std::mem::take(&mut self.in_interval)
    }

    fn assigned(&mut self, partitions: &BTreeSet<TopicPartition>, now: Instant) {
        if self.assigned.is_empty() {
            let took = now.saturating_duration_since(self.since);
            self.in_all += took;
            self.in_interval += took;
        }
        self.assigned.extend(partitions.iter().cloned());
    }

    fn revoked(&mut self, partitions: &BTreeSet<TopicPartition>, now: Instant) {
        self.assigned.retain(|partition| !partitions.contains(partition));
        if self.assigned.is_empty() {
            self.since = now;
        }
    }
}

struct Listener(Arc<Mutex<Joining>>);

impl RebalanceListener for Listener {
    fn partitions_assigned(&mut self, _: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        lock(&self.0).assigned(partitions, Instant::now());
    }

    fn partitions_revoked(&mut self, _: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        lock(&self.0).revoked(partitions, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_without_partitions_counts_as_rebalance() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let some = |number| BTreeSet::from([TopicPartition::new("t", number)]);
        let mut joining = Joining::new(begin);
        joining.assigned(&some(0), at(300));
        joining.assigned(&some(1), at(900));
        joining.revoked(&some(0), at(1_000));
        joining.assigned(&some(2), at(1_500));
        assert_eq!(joining.take_interval(), Duration::from_millis(300));
        joining.revoked(
            &BTreeSet::from([TopicPartition::new("t", 1), TopicPartition::new("t", 2)]),
            at(2_000),
        );
        joining.assigned(&some(0), at(2_200));
        assert_eq!(joining.take_interval(), Duration::from_millis(200));
        assert_eq!(joining.in_all, Duration::from_millis(500));
    }
}
