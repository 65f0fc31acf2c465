//! consumer 4: is it one partition?
//!
//! A partition that falls behind alone has more records than the others (a hot key), or a record on
//! which the application fails repeatedly: then its position does not move. Nor does it where the
//! application has paused the partition, which no number here tells apart. A busy consumer whose
//! partitions all get about as many records is not skewed, whatever their lags are at the moment:
//! it hands over one partition's records after another's. Nor is one that could carry the largest
//! partition if others took the rest: that is a matter of its work (test 5). The lags must be the
//! broker's, or gauges that every partition wrote within the window.
//!
//! - Numbers: lag of every partition, its slope, records per second consumed and produced.
//! - Thresholds: the lag of one partition grows or stays constant, the others' do not (or more
//!   comes to it than the consumer works on in all), and it is three times the mean of the others;
//!   twice as many records come to it as to the mean of the others; stuck means read at less than 1
//!   % of the rate at which records arrive, or not at all.
//! - Says: "Only orders-7 falls behind: 5 times as many records come to it as to the others."
//! - Source: user report "lag grows although consumers were added"; a consumer of six even
//!   partitions that works 4 ms on each record.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::super::super::snapshot::ConsumedPartition;
use super::fetch_size::fetch_size;
use super::found::{Found, known, promise};
use super::reading::{Reading, sane};
use crate::numbers::number;

/// The ratio of a partition's lag to the mean of the others from which it counts as the one that
/// falls behind: between partitions that are read in turn, one chunk after another, the lag varies
/// by less.
const LAG_APART: f64 = 3.0;

/// A partition to which this many times as many records come as to the others is a hot one.
const HOT: f64 = 2.0;

/// Polls that wait for less than this share of time: it works more than it waits.
const BUSY: f64 = 0.5;

/// Lags that were read once are compared only over a window of this length.
const READ_ONCE_SECONDS_MIN: f64 = 30.0;

/// A partition read at less than this share of the rate at which records arrive is stuck.
const STUCK_SHARE: f64 = 0.01;

pub fn skew(reading: &Reading<'_>) -> Found {
    let numbers = partitions_in_words(&reading.consumer.partitions);
    let Some(behind) = Behind::of(reading) else {
        return Found::nothing(numbers, "no");
    };
    if reading.is_lag_stale {
        return Found::nothing(numbers, "not known: the client's own gauges are old").missing(
            "the lag of its partitions by the broker, or the group's committed offsets and the log's end",
        );
    }
    if let Some(why) = behind.is_another_limit(reading) {
        return Found::nothing(numbers, why);
    }
    let summary = behind.summary();
    let confidence = match (behind.is_measured, reading.do_rates_disagree()) {
        (true, false) if !behind.is_stuck => Confidence::High,
        (true, _) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    let mut found = Found::verdict(numbers, Verdict::Skew, confidence, summary.clone())
        .finding(FindingId::B2, summary)
        .recommend(Some(behind.level()))
        .refuse(
            "more consumers",
            "a partition is read by one of them; this one would stay as it is",
        );
    if let (Some(own), Some(mean)) = (behind.produced, behind.mean_produced)
        && mean > 0.0
    {
        let line = Evidence::new("skew", "skew", "own / mean", own / mean, "times")
            .measured("own", own, "records/s")
            .measured("mean", mean, "records/s");
        found = found.evidence([line]);
    }
    if !behind.is_measured {
        found = found.missing("how the lag of each partition moves: it was read once");
    }
    found
}

/// The only partition that falls behind.
struct Behind<'a> {
    one: &'a ConsumedPartition,
    name: String,
    lag: f64,
    is_stuck: bool,
    /// Records per second that come to it, and to the others in the mean.
    produced: Option<f64>,
    mean_produced: Option<f64>,
    /// Partitions of the consumer.
    count: f64,
    /// Its lag was measured over time.
    is_measured: bool,
}

impl<'a> Behind<'a> {
    fn of(reading: &Reading<'a>) -> Option<Behind<'a>> {
        let (one, is_measured) = only_one_behind(reading)?;
        let partitions = &reading.consumer.partitions;
        let others: Vec<f64> = partitions
            .iter()
            .filter(|other| !std::ptr::eq(*other, one))
            .filter_map(|other| sane(other.produced_per_second))
            .collect();
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        Some(Behind {
            one,
            name: format!("{}-{}", one.topic, one.partition),
            lag: sane(one.lag).unwrap_or(0.0),
            is_stuck: is_stuck(one),
            produced: sane(one.produced_per_second),
            mean_produced: sane(Some(mean)),
            count: partitions.len() as f64,
            is_measured,
        })
    }

    /// How many times as many records come to it as to the others.
    fn heat(&self) -> Option<f64> {
        let (own, mean) = (self.produced?, self.mean_produced?);
        (own > 0.0 && mean > 0.0)
            .then(|| own / mean)
            .filter(|heat| heat.is_finite())
    }

    /// Why it is not the partition that limits the consumer.
    fn is_another_limit(&self, reading: &Reading<'_>) -> Option<&'static str> {
        if self.is_stuck {
            return None;
        }
        let is_busy = reading.idle.is_some_and(|idle| idle < BUSY);
        if is_busy && self.heat().is_some_and(|heat| heat < HOT) {
            return Some("no: about as many records come to the others, and the consumer is busy");
        }
        // What it works on in all, it could work on of this partition.
        let could_carry = self
            .produced
            .zip(reading.consumed)
            .is_some_and(|(own, all)| own < 0.9 * all);
        if is_busy && could_carry && self.mean_produced.is_some() {
            return Some("no: the consumer is busy, and alone with this partition it would keep up");
        }
        let is_size = |(_, confidence)| confidence > Confidence::Low;
        (fetch_size(reading).verdict.is_some_and(is_size)).then_some("no: its fetches are full (test 9)")
    }

    fn summary(&self) -> String {
        if self.is_stuck {
            return format!(
                "{} is stuck, {} records behind: its position does not move, as where the application fails on one record again and \
                 again, or has paused it.",
                self.name,
                number(self.lag)
            );
        }
        match self.heat().filter(|heat| *heat >= HOT) {
            Some(heat) => format!(
                "Only {} falls behind: {} times as many records come to it as to the others.",
                self.name,
                number(heat)
            ),
            None => format!(
                "Only {} falls behind, by {} records: the others are read to their ends.",
                self.name,
                number(self.lag)
            ),
        }
    }

    fn level(&self) -> Recommendation {
        let now = sane(self.one.consumed_per_second);
        if self.is_stuck {
            return Recommendation {
                set: format!(
                    "repair or set aside the record at the position of {}, or resume() the partition",
                    self.name
                ),
                why: String::from(
                    "the application does not get past it, or does not ask for it; the other partitions are read",
                ),
                promise: match self.produced.filter(|rate| *rate > 0.0) {
                    Some(rate) => promise(
                        "records_per_second_of_the_partition",
                        now,
                        (rate, 2.0 * rate),
                        "records/s",
                        "what is written to it, and more while it catches up",
                    ),
                    None => unknown(now, "how many records come to it"),
                },
                next_ceiling: String::from("what the application can work on"),
                cost: String::from("the record that is set aside is not worked on in order"),
            };
        }
        Recommendation {
            set: format!(
                "keys that spread: what comes to {} over all partitions",
                self.name
            ),
            why: String::from("one partition is read by one consumer, whatever the others have left"),
            promise: match (
                self.produced,
                self.mean_produced.filter(|_| self.heat().is_some()),
            ) {
                (Some(own), Some(mean)) => {
                    let even = (own + mean * (self.count - 1.0)) / self.count;
                    promise(
                        "records_per_second_of_the_partition",
                        Some(own),
                        (0.85 * even, 1.15 * even),
                        "records/s",
                        "keys spread evenly: every partition gets as much",
                    )
                }
                _ => unknown(now, "how many records come to it and to the others"),
            },
            next_ceiling: String::from("the consumer's own work, then the number of partitions"),
            cost: String::from("records of a key that is split are no longer in one order"),
        }
    }
}

fn unknown(now: Option<f64>, what: &str) -> super::super::super::diagnosis::Promise {
    let same = now.unwrap_or(0.0);
    promise(
        "records_per_second_of_the_partition",
        now,
        (same, same),
        "records/s",
        what,
    )
}

/// The only partition that falls behind, and whether its lag was measured over time.
fn only_one_behind<'a>(reading: &Reading<'a>) -> Option<(&'a ConsumedPartition, bool)> {
    let partitions = &reading.consumer.partitions;
    if partitions.len() < 2 {
        return None;
    }
    let lags: Vec<f64> = partitions
        .iter()
        .map(|partition| sane(partition.lag))
        .collect::<Option<_>>()?;
    let total: f64 = lags.iter().sum();
    let rate = |partition: &ConsumedPartition| {
        let known = [partition.consumed_per_second, partition.produced_per_second];
        known
            .into_iter()
            .filter_map(sane)
            .reduce(f64::max)
            .unwrap_or_else(|| reading.consumed.unwrap_or(0.0) / partitions.len() as f64)
    };
    let (index, largest) = lags
        .iter()
        .copied()
        .enumerate()
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    let one = &partitions[index];
    let mean_of_others = (total - largest) / (partitions.len() - 1) as f64;
    if reading.is_small(largest, rate(one)) || largest < LAG_APART * mean_of_others {
        return None;
    }
    let others = || partitions.iter().enumerate().filter(|(other, _)| *other != index);
    let slopes: Option<Vec<f64>> = partitions
        .iter()
        .map(|partition| partition.lag_slope.filter(|slope| slope.is_finite()))
        .collect();
    match slopes {
        Some(slopes) => {
            let noise = |partition: &ConsumedPartition| 0.05 * rate(partition);
            let is_growing = slopes[index] > noise(one) || (slopes[index] >= 0.0 && is_stuck(one));
            let are_flat = others().all(|(other, partition)| {
                slopes[other] <= noise(partition) || reading.is_small(lags[other], rate(partition))
            });
            (is_growing && (are_flat || is_too_much_alone(reading, one))).then_some((one, true))
        }
        // A consumer that has just begun has rates of seconds only.
        None if reading.snapshot.seconds < READ_ONCE_SECONDS_MIN => None,
        // Read once: the others are at their ends, and what remains here takes longer than the rest
        // of a catch-up would.
        None => {
            let are_done = others().all(|(other, partition)| reading.is_small(lags[other], rate(partition)));
            let seconds = largest
                / reading
                    .consumed
                    .filter(|rate| *rate > 0.0)
                    .unwrap_or(f64::MIN_POSITIVE);
            (are_done && seconds > reading.snapshot.seconds.max(reading.lag_small_seconds()))
                .then_some((one, false))
        }
    }
}

/// Whether more comes to this partition than the consumer works on in all, and far more than to the
/// others: any member that reads it falls behind, and while it does the others wait for their turn.
fn is_too_much_alone(reading: &Reading<'_>, one: &ConsumedPartition) -> bool {
    let partitions = &reading.consumer.partitions;
    let produced: Option<f64> = partitions
        .iter()
        .map(|partition| sane(partition.produced_per_second))
        .sum();
    let (Some(own), Some(all), Some(consumed)) = (sane(one.produced_per_second), produced, reading.consumed)
    else {
        return false;
    };
    let mean_of_others = (all - own) / (partitions.len() - 1) as f64;
    reading.idle.is_some_and(|idle| idle < BUSY) && own >= HOT * mean_of_others && own >= consumed
}

fn is_stuck(partition: &ConsumedPartition) -> bool {
    match (
        sane(partition.consumed_per_second),
        sane(partition.produced_per_second),
    ) {
        (Some(consumed), Some(produced)) if produced > 0.0 => consumed < STUCK_SHARE * produced,
        (Some(consumed), _) => consumed <= 0.0 && sane(partition.lag).unwrap_or(0.0) > 0.0,
        _ => false,
    }
}

fn partitions_in_words(partitions: &[ConsumedPartition]) -> String {
    // The furthest behind first, at most one screenful.
    const SHOWN: usize = 6;
    if partitions.is_empty() {
        return String::from("no partition is known");
    }
    let mut sorted: Vec<&ConsumedPartition> = partitions.iter().collect();
    sorted.sort_by(|one, other| {
        sane(other.lag)
            .unwrap_or(-1.0)
            .total_cmp(&sane(one.lag).unwrap_or(-1.0))
    });
    let shown = sorted.iter().take(SHOWN).map(|partition| {
        let slope = match partition.lag_slope.filter(|slope| slope.is_finite()) {
            Some(slope) => format!(" ({:+.0}/s)", slope),
            None => String::new(),
        };
        let own = if partition.is_own_gauge {
            " by its own gauge"
        } else {
            ""
        };
        let lag = known("lag", sane(partition.lag), "");
        format!("{}-{} {lag}{own}{slope}", partition.topic, partition.partition)
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if partitions.len() > SHOWN {
        text.push_str(&format!(" and {} more", partitions.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, of, partitions, refuses, slow_work};
    use super::*;
    use crate::doctor::snapshot::Consumer;

    /// Lag, its slope, consumed per second, of a busy consumer.
    fn busy(numbers: &[(f64, f64, f64)]) -> Consumer {
        Consumer {
            records_per_second: Some(numbers.iter().map(|one| one.2).sum()),
            poll_idle_share: Some(0.01),
            assigned_partitions: Some(numbers.len() as f64),
            partitions: partitions(numbers),
            ..slow_work()
        }
    }

    // Six even partitions, 4 ms of work on each record: the turn has come to some partitions more
    // often than to others.
    #[test]
    fn a_slow_consumer_of_even_partitions_is_not_skewed() {
        let even = busy(&[
            (400.0, -20.0, 120.0),
            (5_600.0, 90.0, 10.0),
            (500.0, -20.0, 120.0),
            (300.0, 100.0, 0.0),
            (200.0, 100.0, 0.0),
            (600.0, 100.0, 0.0),
        ]);
        check(&of(even), Verdict::Processing);
    }

    #[test]
    fn more_than_the_consumer_can_do_for_one_partition_is_skew_whatever_the_others_do() {
        let hot = busy(&[
            (9_000.0, 270.0, 210.0),
            (300.0, 10.0, 10.0),
            (200.0, 5.0, 15.0),
            (250.0, 5.0, 15.0),
        ]);
        let diagnosis = check(&of(hot), Verdict::Skew);
        assert_eq!(
            diagnosis.summary,
            "Only orders-0 falls behind: 24 times as many records come to it as to the others."
        );
        refuses(&diagnosis, "more consumers");
        let promise = diagnosis.recommendation.unwrap().promise;
        // 540 records/s come to four partitions.
        assert!(promise.low < 135.0 && 135.0 < promise.high, "{promise:?}");
        // A consumer that could carry it alone needs help with the others, not other keys.
        let warm = busy(&[
            (9_000.0, 40.0, 160.0),
            (100.0, 0.0, 50.0),
            (100.0, 0.0, 50.0),
            (100.0, 0.0, 40.0),
        ]);
        check(&of(warm), Verdict::Processing);
    }

    #[test]
    fn a_partition_that_does_not_move_may_be_paused() {
        let consumer = busy(&[(90.0, 0.0, 200.0), (40_000.0, 210.0, 0.0), (80.0, -1.0, 200.0)]);
        let snapshot = of(consumer);
        let diagnosis = check(&snapshot, Verdict::Skew);
        assert!(
            diagnosis.summary.ends_with("or has paused it."),
            "{}",
            diagnosis.summary
        );
        assert!(diagnosis.recommendation.unwrap().set.contains("resume()"));
        let found = skew(&Reading::of(&snapshot, snapshot.consumer.as_ref().unwrap()));
        let confidence = found.verdict.map(|(_, confidence)| confidence);
        assert_eq!(confidence, Some(Confidence::Medium));
    }

    // The gauges of a Java consumer that works on one partition's records for many seconds.
    #[test]
    fn old_gauges_name_no_partition() {
        let mut stale = busy(&[(7_000.0, 120.0, 100.0), (3.0, 0.0, 0.0), (2.0, 0.0, 0.0)]);
        for partition in &mut stale.partitions {
            partition.is_own_gauge = true;
        }
        let diagnosis = check(&of(stale), Verdict::Processing);
        assert!(diagnosis.confidence < Confidence::High);
    }
}
