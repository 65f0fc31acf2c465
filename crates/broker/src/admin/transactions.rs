//! The metrics of open transactions: `read_committed` readers of a partition wait for its oldest.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_core::partition::Partition;
use ottla_core::time::Timestamp;
use ottla_core::transaction::stage_times::{BOUNDS_MICROS, Stage, StageTimes};
use ottla_core::transaction::state::Status;

use super::AdminView;
use super::exposition::Page;

/// Upper bounds of the classes, in seconds since the producer last wrote to the partition, and
/// their names.
const IDLE: [(i64, &str); 3] = [(60, "1m"), (300, "5m"), (1_200, "20m")];
const LATE: &str = "+Inf";
/// Beyond `transaction.max.timeout.ms` by this much a transaction is late, as in Apache Kafka
/// (KIP-664).
const LATE_AFTER_MS: i64 = 5 * 60_000;
/// At most this many partitions are named, those for which most markers wait.
const PARTITIONS_MAX: usize = 10;

/// Open transactions by class, and partitions with a late one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Open {
    by_idle: [u64; IDLE.len() + 1],
    partitions_with_late: u64,
}

impl Open {
    /// Counts the transactions of one partition, by when their producers last wrote.
    ///
    /// - `timeout_ms_max`: `transaction.max.timeout.ms`.
    fn count(&mut self, last_written_ms: impl Iterator<Item = i64>, now: Timestamp, timeout_ms_max: i32) {
        let mut is_late = false;
        for last_ms in last_written_ms {
            self.by_idle[class_of(last_ms, now)] += 1;
            is_late |= now.0.saturating_sub(last_ms) > i64::from(timeout_ms_max) + LATE_AFTER_MS;
        }
        self.partitions_with_late += u64::from(is_late);
    }
}

/// The class of what began, or was last written, at this time.
fn class_of(since_ms: i64, now: Timestamp) -> usize {
    let age_s = now.0.saturating_sub(since_ms) / 1_000;
    IDLE.partition_point(|(bound_s, _)| age_s > *bound_s)
}

pub fn write_metrics(page: &mut Page, view: &AdminView) {
    let now = view.node.clock().timestamp();
    let timeout_ms_max = view.node.transactions.config().timeout_ms_max;
    let mut open = Open::default();
    for partition in &view.node.storage.partitions.all() {
        let producers = Partition::with_log(partition, |log| log.open_transactions());
        let last_written_ms = producers.iter().map(|producer| producer.last_timestamp);
        open.count(last_written_ms, now, timeout_ms_max);
    }
    const OPEN: &str = "ottla_open_transactions";
    page.metric(
        OPEN,
        "gauge",
        "Transactions open in a partition, by the time since their producer wrote there, at most `idle`.",
    );
    let names = IDLE.iter().map(|(_, name)| *name).chain([LATE]);
    for (name, count) in names.zip(open.by_idle) {
        page.sample(OPEN, &[("idle", name)], count);
    }
    page.single(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "gauge",
        "Partitions with a transaction whose producer has not written for transaction.max.timeout.ms and 5 minutes.",
        open.partitions_with_late,
    );
    write_coordinators(page, view, now);
}

/// What the coordinators know.
fn write_coordinators(page: &mut Page, view: &AdminView, now: Timestamp) {
    const BY_STATE: &str = "ottla_transactions";
    let open = view.node.transactions.open();
    let count = |status: Status| open.iter().filter(|one| one.state.status == status).count() as u64;
    page.metric(BY_STATE, "gauge", "Transactions that are not complete, by state.");
    for status in [Status::Ongoing, Status::PrepareCommit, Status::PrepareAbort] {
        page.sample(BY_STATE, &[("state", status.name())], count(status));
    }
    let oldest_ms = open.iter().map(|one| one.state.started.0).min();
    page.single(
        "ottla_oldest_transaction_seconds",
        "gauge",
        "Age of the oldest transaction that is not complete; 0 if there is none.",
        oldest_ms.map_or(0, |ms| now.0.saturating_sub(ms).max(0) as u64 / 1_000),
    );
    let mut by_age = [0u64; IDLE.len() + 1];
    for one in &open {
        by_age[class_of(one.state.started.0, now)] += 1;
    }
    const BY_AGE: &str = "ottla_transactions_by_age";
    page.metric(
        BY_AGE,
        "gauge",
        "Transactions that are not complete, by the time since they began, at most `age`.",
    );
    let names = IDLE.iter().map(|(_, name)| *name).chain([LATE]);
    for (name, count) in names.zip(by_age) {
        page.sample(BY_AGE, &[("age", name)], count);
    }
    write_waiting(page, &view.node.transactions.unfinished());
    write_times(page, view.node.transactions.times());
}

fn write_waiting(page: &mut Page, places: &[(Arc<str>, i32)]) {
    page.single(
        "ottla_transaction_markers_waiting",
        "gauge",
        "Markers of decided transactions that are not durable yet.",
        places.len() as u64,
    );
    const BY_PARTITION: &str = "ottla_transaction_partition_markers_waiting";
    page.metric(
        BY_PARTITION,
        "gauge",
        "Markers that are not durable yet, of the ten partitions with most of them.",
    );
    for ((topic, partition), count) in most_waited_for(places) {
        let labels = [("topic", &**topic), ("partition", &*partition.to_string())];
        page.sample(BY_PARTITION, &labels, count);
    }
}

fn most_waited_for(places: &[(Arc<str>, i32)]) -> Vec<(&(Arc<str>, i32), u64)> {
    let mut counts: BTreeMap<&(Arc<str>, i32), u64> = BTreeMap::new();
    for place in places {
        *counts.entry(place).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.truncate(PARTITIONS_MAX);
    counts
}

/// The time from EndTxn to the end, in its stages.
fn write_times(page: &mut Page, times: &StageTimes) {
    const NAME: &str = "ottla_transaction_stage_seconds";
    page.metric(
        NAME,
        "histogram",
        "Ends of transactions: until the decision, then until all markers are durable, then until it is noted.",
    );
    for stage in Stage::ALL {
        let time = times.of(stage);
        let mut count = 0;
        let bounds = BOUNDS_MICROS.iter().map(|micros| seconds(*micros));
        for (bound, class) in bounds.chain([LATE.to_owned()]).zip(time.classes) {
            count += class;
            let labels = [("stage", stage.name()), ("le", &*bound)];
            page.sample("ottla_transaction_stage_seconds_bucket", &labels, count);
        }
        let labels = [("stage", stage.name())];
        let sum = seconds(time.sum_micros);
        page.sample("ottla_transaction_stage_seconds_sum", &labels, sum);
        page.sample("ottla_transaction_stage_seconds_count", &labels, count);
    }
}

fn seconds(micros: u64) -> String {
    (micros as f64 / 1e6).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_counted_by_the_time_since_their_producer_wrote() {
        let now = Timestamp(10_000_000);
        let ago = |seconds: i64| now.0 - seconds * 1_000;
        let mut open = Open::default();
        let mut count = |ages: &[i64], timeout_ms_max| {
            let written_ms: Vec<i64> = ages.iter().map(|age| ago(*age)).collect();
            open.count(written_ms.into_iter(), now, timeout_ms_max);
        };
        count(&[0, 60, 61], 900_000);
        count(&[1_200], 900_000);
        count(&[1_201, 9_000], 900_000);
        // A transaction that may be open for an hour is late after an hour and five minutes.
        count(&[3_900], 3_600_000);
        count(&[3_901], 3_600_000);
        let expected = Open {
            by_idle: [2, 1, 1, 4],
            partitions_with_late: 2,
        };
        assert_eq!(open, expected);
    }

    #[test]
    fn only_the_partitions_with_most_waiting_markers_are_named() {
        let topic: Arc<str> = "t".into();
        let mut places: Vec<(Arc<str>, i32)> = (0..20).map(|index| (topic.clone(), index)).collect();
        places.extend([(topic.clone(), 15), (topic.clone(), 15), (topic, 17)]);
        let mut page = Page::default();
        write_waiting(&mut page, &places);
        let text = page.finish();
        assert!(text.contains("ottla_transaction_markers_waiting 23\n"));
        let named: Vec<&str> = text.lines().filter(|line| line.contains("{topic=")).collect();
        assert_eq!(named.len(), PARTITIONS_MAX);
        let name = "ottla_transaction_partition_markers_waiting";
        assert_eq!(named[0], format!("{name}{{topic=\"t\",partition=\"15\"}} 3"));
        assert_eq!(named[1], format!("{name}{{topic=\"t\",partition=\"17\"}} 2"));
    }

    #[test]
    fn every_stage_has_cumulative_classes_and_their_sum() {
        let mut page = Page::default();
        write_times(&mut page, &StageTimes::default());
        let text = page.finish();
        let lines = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!(lines("_bucket{"), Stage::ALL.len() * (BOUNDS_MICROS.len() + 1));
        assert_eq!(
            (lines("le=\"0.0001\""), lines("le=\"10\""), lines("_sum{")),
            (3, 3, 3)
        );
    }
}
