//! producer 3: is it one broker, or one partition?
//!
//! | test | finding |
//! |---|---|
//! | the pipe to one broker is full, that to another at half of it or less | B2: uneven leaders |
//! | a hard backlog, and batches whose mean is below 0.65 of the largest, where partitions are not known apart | B2: a few keys, suspected |
//! | records wait, and one partition of at least three of its topic gets half of the bytes or more, and three times the mean of the others | B2: a hot key |
//!
//! **Why it says something**: the batches of the full broker or partition hold the buffer's memory,
//! and all others stop with them. **A hot key** goes to one partition however many there are, so
//! more partitions change nothing; a request holds one batch of that partition, so a larger
//! batch.size carries more of it in each (F30). Measured: 90 % of records with one key and small
//! batches; partitions gained nothing, batch.size all. **One partition of a topic** that has no
//! other is no hot key: keys of other topics never went to it, and more partitions of its own would
//! take some of its records.
//!
//! **Numbers**: U of each broker; bytes and batches of each partition, as brokers count them. Where
//! they do not, as Apache Kafka, the records of each partition by the ends of the logs: those of
//! this client where it says that it sent about as many, otherwise with low confidence.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::WrittenPartition;
use crate::doctor::used::UsedNumbers;

use super::super::found::Found;
use super::super::inference;
use super::super::words::known;
use super::backlog::Backlog;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Pipe, Reading, positive, ratio, reaches};
use super::sender_rate::{larger_batches, larger_than_largest, second_producer};
use super::{PARTITIONS, Rule, refusals, rule};
use crate::model::ceilings::{Ceiling, cut, next};
use crate::model::constants::FULL;
use crate::numbers::{bytes, number, percent};

pub(crate) const RULE: Rule = rule("producer 3", "Is it one broker, or one partition?", ask);

const HALF: f64 = 0.5;
/// A hot partition gets this multiple of the mean of the others.
const HOT: f64 = 3.0;
const PARTITIONS_MIN: f64 = 3.0;
/// Batches of a backlog whose mean is below this share of the largest are not of even partitions.
const UNEVEN: f64 = 0.65;

fn ask(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("U of the fullest broker", reading.used(), ""),
        known(
            "partitions",
            reading
                .snapshot
                .brokers
                .iter()
                .map(|side| side.partitions_written)
                .sum(),
            "",
        ),
    ];
    if reading.bound == Bound::Pipe
        && let Some((hot, cool)) = brokers(reading)
    {
        return of_brokers(reading, numbers, hot, cool);
    }
    let is_slow =
        reading.backlog != Backlog::None && matches!(reading.bound, Bound::Pipe | Bound::Blocked(_));
    match hot_partition(reading).or_else(|| hot_at_cluster(reading)) {
        Some(hot) if is_slow => of_key(reading, numbers, hot),
        Some(hot) => Found::nothing(
            numbers,
            format!(
                "{}-{} gets {} of the {}, and nothing waits for it",
                hot.partition.topic,
                hot.partition.partition,
                percent(hot.share),
                hot.of
            ),
        ),
        None if is_slow && has_uneven_batches(reading) => of_uneven(reading, numbers),
        None => Found::nothing(numbers, "no"),
    }
}

/// The broker whose pipe is full, and one whose pipe is at most half as full.
fn brokers<'r, 'a>(reading: &'r Reading<'a>) -> Option<(&'r Pipe<'a>, &'r Pipe<'a>)> {
    let hottest = reading
        .hottest()
        .filter(|pipe| pipe.used.is_some_and(|used| reaches(used, FULL)))?;
    let coolest = reading
        .nodes
        .iter()
        .filter(|pipe| pipe.used.is_some())
        .min_by(|a, b| a.used.unwrap_or(0.0).total_cmp(&b.used.unwrap_or(0.0)))?;
    (coolest.used? <= HALF * hottest.used?).then_some((hottest, coolest))
}

fn of_brokers(
    reading: &Reading<'_>,
    numbers: impl Into<UsedNumbers>,
    hot: &Pipe<'_>,
    cool: &Pipe<'_>,
) -> Found {
    let name = |pipe: &Pipe<'_>| {
        pipe.node_id
            .map_or_else(|| "one broker".to_owned(), |id| format!("broker {id}"))
    };
    let share = |pipe: &Pipe<'_>| percent(pipe.used.unwrap_or(0.0).min(1.0));
    let text = format!(
        "Requests to {} are at their limit while those to {} are at {}: its batches hold the memory that all others wait for.",
        name(hot),
        name(cool),
        share(cool)
    );
    let used: Vec<f64> = reading.nodes.iter().filter_map(|pipe| pipe.used).collect();
    let mean = used.iter().sum::<f64>() / used.len().max(1) as f64;
    let now = reading.records_per_second.unwrap_or(0.0);
    let even = now * hot.used.unwrap_or(mean) / mean.max(1e-3);
    let mut ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Worker, Kind::Link]);
    ceilings.push(Ceiling {
        records_per_second: even,
        text: format!(
            "the request rate of all brokers together: {} records/s",
            number(even)
        ),
    });
    let high = cut(&ceilings, even);
    Found::verdict(numbers, Verdict::Skew, confidence(reading, Verdict::Skew, false), text.clone())
        .finding(FindingId::B2, text)
        .recommend(Some(Recommendation {
            set: "move leaders of the topic off the full broker, or choose keys that spread; adaptive partitioning for records without key".to_owned(),
            why: format!("requests would be at {} everywhere instead of {} on one broker", percent(mean), share(hot)),
            promise: promise::records(now, 0.8 * high, high),
            next_ceiling: next(&ceilings),
            cost: "a reassignment copies no data if only leadership moves; new keys change the order of records".to_owned(),
        }))
        .refusals(refusals::of_memory(reading))
}

/// The partition that gets most of the bytes, or records.
struct Hot<'r> {
    partition: &'r WrittenPartition,
    share: f64,
    of: &'static str,
    /// Others may have written them.
    is_doubtful: bool,
}

/// By the ends of the topics' partitions, where no broker counts by client.
fn hot_at_cluster<'r>(reading: &'r Reading<'_>) -> Option<Hot<'r>> {
    let cluster = reading.snapshot.cluster.as_ref()?;
    let hot = cluster.partitions.first()?;
    let (rate, all) = (
        positive(hot.records_per_second)?,
        positive(cluster.records_per_second)?,
    );
    let listed = cluster
        .partitions
        .iter()
        .filter_map(|partition| Some((partition, positive(partition.records_per_second)?)));
    let (of_topic, count) = of_its_topic(hot, listed, all, positive(cluster.partitions_written)?);
    is_hot(rate, of_topic, count)?;
    let share = is_hot(rate, all, positive(cluster.partitions_written)?)?;
    Some(Hot {
        partition: hot,
        share,
        of: "records",
        is_doubtful: !cluster.is_alone,
    })
}

/// The share of a partition that is hot among `count`.
fn is_hot(rate: f64, all: f64, count: f64) -> Option<f64> {
    let others = (all - rate) / (count - 1.0).max(1.0);
    let share = rate / all.max(1e-9);
    (count >= PARTITIONS_MIN && share >= HALF && rate >= HOT * others).then_some(share)
}

/// What is written to the topic of a partition, and to how many of its partitions. Those that are
/// not listed are of the same topic only where all that are listed are.
fn of_its_topic<'r>(
    hot: &WrittenPartition,
    listed: impl Iterator<Item = (&'r WrittenPartition, f64)> + Clone,
    all: f64,
    count: f64,
) -> (f64, f64) {
    let own = listed
        .clone()
        .filter(|(partition, _)| partition.topic == hot.topic);
    match own.clone().count() == listed.count() {
        true => (all, count),
        false => (own.clone().map(|(_, rate)| rate).sum(), own.count() as f64),
    }
}

fn hot_partition<'r>(reading: &'r Reading<'_>) -> Option<Hot<'r>> {
    let sides = || reading.snapshot.brokers.iter();
    let rate = |partition: &WrittenPartition| {
        positive(partition.bytes_per_second).or(positive(partition.records_per_second))
    };
    let hot = sides()
        .flat_map(|side| &side.partitions)
        .filter(|partition| rate(partition).is_some())
        .max_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)))?;
    let listed: Vec<(&WrittenPartition, f64)> = sides()
        .flat_map(|side| &side.partitions)
        .filter_map(|partition| Some((partition, rate(partition)?)))
        .collect();
    let count = sides()
        .filter_map(|side| positive(side.partitions_written))
        .sum::<f64>();
    let count = count.max(listed.len() as f64);
    let whole = match positive(hot.bytes_per_second) {
        Some(_) => sides().filter_map(|side| positive(side.bytes_per_second)).sum(),
        None => sides()
            .filter_map(|side| positive(side.records_per_second))
            .sum::<f64>(),
    };
    let all = whole.max(listed.iter().map(|(_, rate)| rate).sum());
    let (of_topic, of_topic_count) = of_its_topic(hot, listed.iter().copied(), all, count);
    is_hot(rate(hot)?, of_topic, of_topic_count)?;
    Some(Hot {
        partition: hot,
        share: is_hot(rate(hot)?, all, count)?,
        of: "bytes",
        is_doubtful: false,
    })
}

/// Under a backlog the batches of even partitions are all full; where the largest are and the mean
/// is far below, few partitions get most of the records.
fn has_uneven_batches(reading: &Reading<'_>) -> bool {
    let largest = inference::largest_batch(reading.snapshot);
    let is_uneven = ratio(reading.batch_bytes, largest).is_some_and(|share| share <= UNEVEN);
    let in_request = ratio(reading.request_bytes, reading.batch_bytes).unwrap_or(1.0);
    let knows_partitions = reading
        .snapshot
        .brokers
        .iter()
        .any(|side| !side.partitions.is_empty());
    reading.backlog == Backlog::Hard
        && is_uneven
        && in_request >= 1.5
        && reading.compression_rate >= 0.97
        && !knows_partitions
}

fn of_uneven(reading: &Reading<'_>, numbers: impl Into<UsedNumbers>) -> Found {
    let text = format!(
        "Some partitions' batches are full while most hold far less ({} on average): a few keys seem to get most of the records.",
        bytes(reading.batch_bytes.unwrap_or(0.0))
    );
    Found::verdict(
        numbers,
        Verdict::Skew,
        confidence(reading, Verdict::Skew, true),
        text.clone(),
    )
    .finding(FindingId::B2, text)
    .recommend(larger_than_largest(reading).or_else(|| second_producer(reading)))
    .missing("the bytes of each partition: the broker's numbers have them")
    .refusals(refusals::of_memory(reading))
}

fn of_key(reading: &Reading<'_>, numbers: impl Into<UsedNumbers>, hot: Hot<'_>) -> Found {
    let text = format!(
        "One partition, {}-{}, gets {} of the {}: its batches queue, and the memory they hold stops the others.",
        hot.partition.topic,
        hot.partition.partition,
        percent(hot.share),
        hot.of
    );
    let is_filled = reading.backlog == Backlog::Hard;
    let change = larger_batches(reading)
        .or_else(|| is_filled.then(|| larger_than_largest(reading)).flatten())
        .or_else(|| second_producer(reading));
    let found = Found::verdict(
        numbers,
        Verdict::Skew,
        confidence(reading, Verdict::Skew, hot.is_doubtful),
        text.clone(),
    )
    .finding(FindingId::B2, text)
    .recommend(change)
    .refuse(
        PARTITIONS,
        "records with one key go to one partition, however many there are",
    )
    .refusals(refusals::of_pipe(reading));
    match hot.is_doubtful {
        true => found.missing("how much of it is this client's: others write to the topic, and its brokers do not count by client"),
        false => found,
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::{Confidence, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, ClusterSide, WrittenPartition};

    #[test]
    fn a_hot_key_needs_larger_batches_and_no_partitions() {
        let row = Row {
            records: 2_000.0,
            requests: 120.0,
            request_bytes: 8_200.0,
            batch: 3_600.0,
            latency: 41.0,
            queue: Some(6_000.0),
            buffer_wait: Some(0.5),
            partitions: 6.0,
            ..ROW
        };
        let mut snapshot = row.snapshot();
        // Most batches are of the other partitions, and hold one record.
        let own = snapshot.producer.as_mut().unwrap();
        (own.batch_bytes, own.batch_bytes_max) = (Some(2_100.0), Some(4_060.0));
        let partition = |partition, bytes| WrittenPartition {
            topic: "orders".to_owned(),
            partition,
            bytes_per_second: Some(bytes),
            batch_bytes: Some(if bytes > 800_000.0 { 4_040.0 } else { 1_000.0 }),
            ..WrittenPartition::default()
        };
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            round_trip_ms: Some(40.0),
            total_micros: Some(300.0),
            requests_per_second: Some(120.0),
            partitions: vec![partition(3, 900_000.0), partition(0, 25_000.0)],
            partitions_written: Some(6.0),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Skew, "{diagnosis:#?}");
        assert!(diagnosis.summary.contains("orders-3"), "{}", diagnosis.summary);
        assert_eq!(diagnosis.recommendation.unwrap().set, "batch.size=16384");
        assert!(
            diagnosis
                .refused
                .iter()
                .any(|refusal| refusal.set == "partitions")
        );
        // Where brokers do not count partitions, batches of a backlog tell as much.
        let mut unseen = snapshot.clone();
        unseen.brokers[0].partitions.clear();
        let own = unseen.producer.as_mut().unwrap();
        own.request_bytes = Some(8_200.0);
        let diagnosis = examine(&unseen);
        assert_eq!(diagnosis.verdict, Verdict::Skew, "{diagnosis:#?}");
        assert_eq!(diagnosis.recommendation.unwrap().set, "batch.size=16384");
        // Nor where the cluster's ends of logs tell the records of each.
        let of_records = |partition, rate| WrittenPartition {
            topic: "orders".to_owned(),
            partition,
            records_per_second: Some(rate),
            ..WrittenPartition::default()
        };
        let mut by_ends = snapshot.clone();
        by_ends.brokers[0].partitions.clear();
        by_ends.brokers[0].partitions_written = None;
        // Batches that are all as large as each other tell nothing.
        by_ends.producer.as_mut().unwrap().batch_bytes = Some(3_000.0);
        assert_ne!(examine(&by_ends).verdict, Verdict::Skew);
        by_ends.cluster = Some(ClusterSide {
            partitions: vec![of_records(3, 1_300.0), of_records(0, 150.0)],
            partitions_written: Some(6.0),
            records_per_second: Some(2_000.0),
            is_alone: true,
            ..ClusterSide::default()
        });
        let alone = examine(&by_ends);
        assert_eq!(alone.verdict, Verdict::Skew, "{alone:#?}");
        assert!(
            alone.summary.contains("orders-3, gets 65 % of the records"),
            "{}",
            alone.summary
        );
        assert_eq!(alone.recommendation.unwrap().set, "batch.size=16384");
        by_ends.cluster.as_mut().unwrap().is_alone = false;
        let shared = examine(&by_ends);
        assert_eq!(
            (shared.verdict, shared.confidence),
            (Verdict::Skew, Confidence::Low)
        );
        assert!(shared.missing.iter().any(|words| words.contains("others write")));
        by_ends.cluster.as_mut().unwrap().partitions[0] = of_records(3, 400.0);
        assert_ne!(examine(&by_ends).verdict, Verdict::Skew);
        // Even partitions are none.
        snapshot.brokers[0].partitions = (0..6).map(|id| partition(id, 160_000.0)).collect();
        assert_ne!(examine(&snapshot).verdict, Verdict::Skew);
    }
    /// One topic with one partition, beside small ones.
    #[test]
    fn the_only_partition_of_a_busy_topic_is_no_hot_key() {
        let row = Row {
            records: 2_000.0,
            requests: 120.0,
            request_bytes: 8_200.0,
            batch: 4_040.0,
            latency: 41.0,
            queue: Some(6_000.0),
            buffer_wait: Some(0.5),
            partitions: 4.0,
            ..ROW
        };
        let written = |topic: &str, partition, rate| WrittenPartition {
            topic: topic.to_owned(),
            partition,
            bytes_per_second: Some(rate),
            records_per_second: Some(rate / 500.0),
            ..WrittenPartition::default()
        };
        let seen = |by_cluster: bool, others: [&str; 3]| {
            let mut snapshot = row.snapshot();
            let mut partitions = vec![written("orders", 0, 950_000.0)];
            let small = others.into_iter().zip(1..);
            partitions.extend(small.map(|(topic, id)| written(topic, id, 16_000.0)));
            if by_cluster {
                snapshot.cluster = Some(ClusterSide {
                    partitions,
                    partitions_written: Some(4.0),
                    records_per_second: Some(2_000.0),
                    is_alone: true,
                    ..ClusterSide::default()
                });
                return examine(&snapshot);
            }
            snapshot.brokers = vec![BrokerSide {
                node_id: Some(1),
                round_trip_ms: Some(40.0),
                total_micros: Some(300.0),
                requests_per_second: Some(120.0),
                partitions,
                partitions_written: Some(4.0),
                ..BrokerSide::default()
            }];
            examine(&snapshot)
        };
        for by_cluster in [false, true] {
            let alone = seen(by_cluster, ["audit", "audit", "dlq"]);
            assert_ne!(alone.verdict, Verdict::Skew, "{alone:#?}");
            let refuses = |set: &str| alone.refused.iter().any(|refusal| refusal.set == set);
            assert!(!refuses("partitions"), "{:?}", alone.refused);
            let keyed = seen(by_cluster, ["orders", "orders", "dlq"]);
            assert_eq!(keyed.verdict, Verdict::Skew, "{keyed:#?}");
        }
    }
}
