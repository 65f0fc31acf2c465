//! Tests 3, 4, 10 and 11 of consumers: lag, the one partition that falls behind, retention,
//! catching up.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::super::super::snapshot::ConsumedPartition;
use super::fetches;
use super::found::{Found, known, promise};
use super::reading::{Reading, sane};
use super::work::IDLE_LOW;
use crate::formulas::consumer::{age_growth, catch_up_seconds, seconds_until_loss};
use crate::numbers::{duration, number, percent};

/// Polls that wait for more than this share of time wait for records.
pub const IDLE_HIGH: f64 = 0.8;

/// The ratio of a partition's lag to the mean of the others from which it counts as the one that
/// falls behind: between partitions that are read in turn, one chunk after another, the lag varies
/// by less.
const LAG_APART: f64 = 3.0;

/// A partition read at less than this share of the rate at which records arrive is stuck.
const STUCK_SHARE: f64 = 0.01;

/// consumer 3 Does it keep up?
///
/// Lag is the distance between the end of a partition and the position of its reader. It is small
/// where it is less than one second of records, or two waits of a fetch. A consumer that has little
/// time left and falls behind does not keep up, however small the lag still is; for one that waits
/// for fetch.min.bytes the answer says so.
///
/// - Numbers: lag of all partitions, its slope, records per second consumed and produced, idle
///   share of polls; where no lag is known, fetches that return empty after their full wait.
/// - Thresholds: lag of at most 1 s of records, or 2 * fetch.max.wait.ms.
/// - Says: "KEEPS_UP: no lag, polls wait 100 % of the time".
/// - Source: measured here (an idle consumer's fetches take 504 ms: fetch.max.wait.ms and the round
///   trip).
pub fn keeps_up(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("lag", reading.lag, "records"),
        known("slope", reading.lag_slope, "records/s"),
        known("consumed", reading.consumed, "records/s"),
        known("produced", reading.produced, "records/s"),
        known("idle", reading.idle, ""),
    ]
    .join(", ");
    match reading.is_lag_small() {
        Some(false) => Found::nothing(numbers, "no: it is behind"),
        Some(true) if is_falling_behind(reading) => Found::nothing(
            numbers,
            "hardly: the lag is small, but it grows and there is no time left",
        ),
        Some(true) if fetches::is_held_back(reading) => Found::nothing(
            numbers,
            "in number; but fetches wait for fetch.min.bytes (test 6)",
        ),
        Some(true) => keeping_up(reading, numbers, Confidence::High),
        None => keeps_up_unseen(reading, numbers),
    }
}

fn is_falling_behind(reading: &Reading<'_>) -> bool {
    reading.is_growing() == Some(true) && reading.idle.is_some_and(|idle| idle < IDLE_LOW)
}

/// Judges without a known lag: only fetches that return empty after their full wait show that there
/// is none.
fn keeps_up_unseen(reading: &Reading<'_>, numbers: String) -> Found {
    let waits_in_vain = reading.is_fetch_waiting() == Some(true)
        && reading.idle.is_some_and(|idle| idle > IDLE_HIGH)
        && reading.min_bytes.0 <= 1.0;
    if waits_in_vain {
        keeping_up(reading, numbers, Confidence::Medium)
            .missing("the group's lag: that its fetches wait in vain is taken for none")
    } else {
        Found::nothing(numbers, "the lag is not known").missing("the lag of its partitions")
    }
}

fn keeping_up(reading: &Reading<'_>, numbers: String, confidence: Confidence) -> Found {
    let lag = match reading.lag {
        Some(lag) if lag > 0.0 => format!("a lag of {} records only", number(lag)),
        Some(_) => String::from("no lag"),
        None => String::from("fetches wait for records in vain"),
    };
    let time = match reading.idle {
        Some(idle) => format!(", polls wait {} of the time", percent(idle)),
        None => String::new(),
    };
    let mut found = Found::verdict(
        numbers,
        Verdict::KeepsUp,
        confidence,
        format!("it keeps up: {lag}{time}"),
    );
    if let (Some(idle), Some(consumed)) = (reading.idle, reading.consumed)
        && idle < 1.0
        && consumed > 0.0
    {
        let headroom = 1.0 / (1.0 - idle);
        let text = format!(
            "its application could work on {} times as many records",
            number(headroom)
        );
        found = found.finding(FindingId::O2, text).evidence([Evidence::new(
            "F29",
            "headroom",
            "1 / (1 - idle)",
            headroom,
            "times",
        )
        .measured("idle", idle, "")]);
    } else {
        found = found.finding(FindingId::O2, "nothing is wrong");
    }
    if reading.is_fetch_waiting() == Some(true) && reading.consumed.unwrap_or(0.0) <= 0.0 {
        found = found.note(format!(
            "fetches take {} ms because there is nothing to fetch: fetch.max.wait.ms is {}",
            number(reading.fetch_ms.unwrap_or(0.0)),
            number(reading.wait_ms.0)
        ));
    }
    found
        .refuse(
            "fetch.max.wait.ms",
            "a wait for records that are not there costs nobody anything",
        )
        .refuse("more consumers", "there is nothing that they would read")
}

/// consumer 4 Is it one partition?
///
/// A partition that falls behind alone has more records than the others (a hot key), slower
/// records, or a record on which the application fails repeatedly: then its position does not move.
///
/// - Numbers: lag of every partition, its slope, records per second consumed and produced.
/// - Thresholds: the lag of one partition grows or stays constant, the others' do not, and it is
///   three times the mean of the others; stuck means read at less than 1 % of the rate at which
///   records arrive, or not at all.
/// - Says: "SKEW: only orders-7 falls behind: 1200 records/s come to it, 5 times the mean of the
///   others".
/// - Source: user report "lag grows although consumers were added".
pub fn skew(reading: &Reading<'_>) -> Found {
    let partitions = &reading.consumer.partitions;
    let numbers = partitions_in_words(partitions);
    let Some((one, is_measured)) = only_one_behind(reading) else {
        return Found::nothing(numbers, "no");
    };
    let name = format!("{}-{}", one.topic, one.partition);
    let lag = sane(one.lag).unwrap_or(0.0);
    let others: Vec<&ConsumedPartition> = partitions
        .iter()
        .filter(|other| !std::ptr::eq(*other, one))
        .collect();
    let mean = |of: fn(&ConsumedPartition) -> Option<f64>| {
        let known: Vec<f64> = others.iter().filter_map(|other| sane(of(other))).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let (own, mean_produced) = (
        sane(one.produced_per_second),
        mean(|other| other.produced_per_second),
    );
    let is_stuck = is_stuck(one);
    let why = if is_stuck {
        String::from(
            "its position does not move: a record on which the application fails again and again is likely",
        )
    } else {
        match own
            .zip(mean_produced)
            .filter(|(own, mean)| *mean > 0.0 && *own > 0.0)
        {
            Some((own, mean)) => format!(
                "{} records/s come to it, {} times the mean of the others",
                number(own),
                number(own / mean)
            ),
            None => String::from("how many records come to it is not known"),
        }
    };
    let summary = format!("only {name} is behind, by {} records: {why}", number(lag));
    let confidence = if is_measured {
        Confidence::High
    } else {
        Confidence::Low
    };
    let mut found = Found::verdict(numbers, Verdict::Skew, confidence, summary.clone())
        .finding(FindingId::B2, summary)
        .recommend(Some(level(one, &name, is_stuck, own.zip(mean_produced))))
        .refuse(
            "more consumers",
            "a partition is read by one of them; the others would stay idle",
        )
        .refuse(
            "fetch.max.bytes",
            "the other partitions are read well enough with it",
        );
    if let Some((own, mean)) = own.zip(mean_produced).filter(|(_, mean)| *mean > 0.0) {
        let line = Evidence::new("skew", "skew", "own / mean", own / mean, "times")
            .measured("own", own, "records/s")
            .measured("mean", mean, "records/s");
        found = found.evidence([line]);
    }
    if !is_measured {
        found = found.missing("how the lag of each partition moves: it was read once");
    }
    found
}

/// The only partition that falls behind, and whether its lag was measured over time.
fn only_one_behind<'a>(reading: &'a Reading<'_>) -> Option<(&'a ConsumedPartition, bool)> {
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
            (is_growing && are_flat).then_some((one, true))
        }
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
        let lag = known("lag", sane(partition.lag), "");
        format!("{}-{} {lag}{slope}", partition.topic, partition.partition)
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if partitions.len() > SHOWN {
        text.push_str(&format!(" and {} more", partitions.len() - SHOWN));
    }
    text
}

fn level(
    one: &ConsumedPartition,
    name: &str,
    is_stuck: bool,
    produced: Option<(f64, f64)>,
) -> Recommendation {
    let now = sane(one.consumed_per_second);
    if is_stuck {
        let to = sane(one.produced_per_second).unwrap_or(0.0);
        return Recommendation {
            set: format!("repair or set aside the record at the position of {name}"),
            why: String::from("the application does not get past it; the other partitions are read"),
            promise: promise(
                "records_per_second",
                now,
                (now.unwrap_or(0.0), to.max(now.unwrap_or(0.0))),
                "records/s",
                "of this partition, once the record is out of the way",
            ),
            next_ceiling: String::from("what the application can work on"),
            cost: String::from("the record that is set aside is not worked on in order"),
        };
    }
    let (low, high) = match produced {
        Some((own, mean)) => (own.min(mean), own.max(mean)),
        None => (0.0, now.unwrap_or(0.0)),
    };
    Recommendation {
        set: format!("keys that spread: what comes to {name} over all partitions"),
        why: String::from("one partition is read by one consumer, whatever the others have left"),
        promise: promise(
            "records_per_second_of_the_partition",
            produced.map(|(own, _)| own),
            (low, high),
            "records/s",
            "keys spread evenly: this partition then gets the mean",
        ),
        next_ceiling: String::from("the consumer's own work, then the number of partitions"),
        cost: String::from("records of a key that is split are no longer in one order"),
    }
}

/// consumer 10 Will unread records be deleted?
///
/// Retention deletes by age, whether records were read or not. The age of the record that is read
/// next grows by 1 - consumed / produced seconds per second; when it reaches retention.ms the
/// reader loses records.
///
/// - Numbers: age of the next record of each partition, retention.ms, records per second consumed
///   and produced.
/// - Thresholds: none; reported whenever the age grows.
/// - Says: "will lose data in 3.2 h".
/// - Source: how retention deletes segments.
pub fn retention(reading: &Reading<'_>) -> Found {
    let retention_ms = sane(
        reading
            .snapshot
            .settings
            .retention_ms
            .map(|setting| setting.value),
    );
    let age_ms = reading.age_ms();
    let numbers = [known("age", age_ms, "ms"), known("retention", retention_ms, "ms")].join(", ");
    let (Some(age), Some(retention)) = (age_ms, retention_ms) else {
        return Found::nothing(
            numbers,
            "the age of the next record or the retention is not known",
        );
    };
    if age >= retention && retention > 0.0 {
        let text = format!(
            "records are {} old and the retention is {}: unread records are being deleted",
            duration(age / 1_000.0),
            duration(retention / 1_000.0)
        );
        return Found::nothing(numbers, text.clone()).note(text);
    }
    let soonest = reading
        .consumer
        .partitions
        .iter()
        .filter_map(|partition| {
            let age = sane(partition.lag_ms)?;
            let produced = sane(partition.produced_per_second).filter(|rate| *rate > 0.0)?;
            let growth = age_growth(sane(partition.consumed_per_second)?, produced);
            Some((seconds_until_loss(age, retention, growth), partition, growth))
        })
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|soonest| soonest.0.is_finite());
    let Some((seconds, partition, growth)) = soonest else {
        return Found::nothing(numbers, "no: the age of what is read does not grow");
    };
    let text = format!(
        "will lose data in {} ({}-{})",
        duration(seconds),
        partition.topic,
        partition.partition
    );
    Found::nothing(numbers, text.clone())
        .note(text)
        .evidence([Evidence::new(
            "retention",
            "loss",
            "(retention - age) / 1000 / growth",
            seconds,
            "s",
        )
        .with("retention", retention, "ms", "stated")
        .measured("age", sane(partition.lag_ms).unwrap_or(0.0), "ms")
        .measured("growth", growth, "s/s")])
}

/// consumer 11 Is it catching up?
///
/// The last test: the consumer is behind, no test names a reason, and the lag shrinks, or records
/// flow as fast as fetches deliver them. Java sends NaN as its idle ratio when polls follow each
/// other within a millisecond; that is no evidence of idling.
///
/// - Numbers: lag, its slope, records per second; time until the lag is gone: lag / (consumed -
///   produced) (F29).
/// - Thresholds: a lag that shrinks; where its trend is not known, records that flow while fetches
///   are under way a fifth of the time.
/// - Says: "CATCHING_UP: 4.1 million records behind, gone in 15 s at 276000 records/s".
/// - Source: measured here (276,000 records/s, NaN, fetches of 2.9 MB in 28 ms).
pub fn catching_up(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("lag", reading.lag, "records"),
        known("slope", reading.lag_slope, "records/s"),
        known("consumed", reading.consumed, "records/s"),
        known("fetches under way", reading.fetch_use, ""),
    ]
    .join(", ");
    let (Some(lag), Some(false)) = (reading.lag, reading.is_lag_small()) else {
        return Found::nothing(numbers, "it is not known to be behind");
    };
    let flows = reading.consumed.is_some_and(|rate| rate > 0.0);
    let confidence = match (reading.is_shrinking(), flows) {
        (Some(true), true) if reading.produced.is_some() => Confidence::High,
        (Some(true), _) => Confidence::Medium,
        // The lag's trend is not known, but the consumer processes records as fast as they arrive.
        (None, true) => Confidence::Low,
        (Some(false), _) | (None, false) => {
            return Found::nothing(numbers, "no: the lag does not shrink");
        }
    };
    let consumed = reading
        .consumed
        .unwrap_or_else(|| -reading.lag_slope.unwrap_or(0.0));
    let produced = reading
        .produced
        .or_else(|| reading.lag_slope.map(|slope| (consumed + slope).max(0.0)));
    let seconds = catch_up_seconds(lag, consumed, produced.unwrap_or(0.0));
    let mut summary = format!("it catches up: {} records behind", number(lag));
    if seconds.is_finite() {
        summary.push_str(&format!(
            ", gone in {} at {} records/s",
            duration(seconds),
            number(consumed)
        ));
        if produced.is_none() {
            summary.push_str(" if nothing is written meanwhile");
        }
    }
    let line = Evidence::new("F29", "catch_up", "lag / (consumed - produced)", seconds, "s")
        .measured("lag", lag, "records")
        .measured("consumed", consumed, "records/s")
        .with(
            "produced",
            produced.unwrap_or(0.0),
            "records/s",
            if produced.is_some() { "measured" } else { "assumed" },
        );
    let mut found = Found::verdict(numbers, Verdict::CatchingUp, confidence, summary)
        .evidence([line])
        .evidence(fetches::ceiling(reading))
        .refuse(
            "fetch sizes",
            "no sign that fetches keep it back: polls are not seen to wait for them",
        );
    if produced.is_none() {
        found = found.missing("how much is produced: without it the time is the least possible");
    }
    if reading.idle.is_none() {
        found = found.missing("the idle share of polls: no sample, as at high poll rates");
    }
    found
}
