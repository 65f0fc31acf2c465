//! Splits end-to-end latency into stages: where a record's time is spent between its due time and
//! its arrival.
//!
//! On Ottla there are five, from the broker's own times of the batch that holds the record;
//! elsewhere as many as the clients can tell apart.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::broker_log::BrokerLog;
use crate::load::clock::now_nanos;
use crate::load::outcome::{ReceivedRecord, RecordPlace, SentRecord};
use crate::numbers::count;
use crate::report::{StageMeans, Stages};

/// The percentiles for which means are given.
const PERCENTILES: [f64; 4] = [50.0, 95.0, 99.0, 99.9];

/// The records around the median: from this percentile to 100 minus it.
const MEDIAN_FROM: f64 = 45.0;

/// If the broker shares our clock, its times are off by at most this much: the time between reading
/// the clock on two threads of a busy machine.
const CLOCK_STEP_NANOS: u64 = 1_000_000;

/// At most this share of records may have times that contradict each other by more than that; above
/// it, the clocks are considered different.
const CONTRADICTIONS_MAX: f64 = 0.01;

/// - produce: from the due time to the last byte of its request at the broker (queue, batch,
///   network).
/// - publish: until its batch is in the log.
/// - commit: until consumers may see it.
/// - catch-up: until it leaves the broker in the answer to a fetch.
/// - fetch: until the application has it.
const FIVE: [&str; 5] = ["produce", "publish", "commit", "catch-up", "fetch"];

/// The ends of one record's stages; the first is its due time. One more than there are names.
type Ends = Vec<u64>;

/// The five stages, for records whose batch the broker recorded. Falls back to [`of_clients`] if
/// the broker's clock is not ours.
pub fn of_ottla(sent: &[SentRecord], received: &[ReceivedRecord], log: &BrokerLog) -> Stages {
    let of_record = |record: &ReceivedRecord| -> Option<Ends> {
        let batch = log.batch(&record.place)?;
        Some(vec![
            record.due_nanos,
            batch.received_nanos,
            batch.appended_nanos,
            batch.visible_nanos?,
            batch.fetched_nanos?,
            record.received_nanos,
        ])
    };
    let matched: Vec<Ends> = received.iter().filter_map(of_record).collect();
    let contradictory = matched.iter().filter(|ends| contradicts(ends)).count();
    if contradictory as f64 > matched.len() as f64 * CONTRADICTIONS_MAX {
        let mut stages = of_clients(sent, received);
        stages.notes.insert(
            0,
            format!(
                "the broker's times of {} of {} records lie outside of the clients': it has another clock, \
                 so its stages cannot be told apart",
                count(contradictory as u64),
                count(matched.len() as u64)
            ),
        );
        return stages;
    }
    if matched.is_empty() {
        let mut stages = of_clients(sent, received);
        stages
            .notes
            .insert(0, "the broker wrote down no batch of a sampled record".into());
        return stages;
    }
    let mut notes = vec![format!(
        "{} of {} sampled records matched with the broker's times of their batch",
        matched.len(),
        received.len()
    )];
    if log.one_of > 1 {
        notes.push(format!(
            "the broker kept the times of one batch in {}",
            log.one_of
        ));
    }
    means(&FIVE, matched, notes)
}

/// The stages that the clients' times show: until the acknowledgement, and from there to the
/// consumer. With `message.timestamp.type=LogAppendTime` on a broker of this machine the append is
/// a separate stage, to the millisecond.
pub fn of_clients(sent: &[SentRecord], received: &[ReceivedRecord]) -> Stages {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    of_clients_at(sent, received, wall.as_nanos() as i128 - i128::from(now_nanos()))
}

/// - `wall_ahead_nanos`: how far the wall clock is ahead of the clock that stamps use.
fn of_clients_at(sent: &[SentRecord], received: &[ReceivedRecord], wall_ahead_nanos: i128) -> Stages {
    let acknowledged: HashMap<&RecordPlace, &SentRecord> =
        sent.iter().map(|record| (&record.place, record)).collect();
    let of_record = |record: &ReceivedRecord| -> Option<Ends> {
        let acknowledged_nanos = acknowledged.get(&record.place)?.acknowledged_nanos;
        Some(vec![record.due_nanos, acknowledged_nanos, record.received_nanos])
    };
    let matched: Vec<Ends> = received.iter().filter_map(of_record).collect();
    if matched.is_empty() {
        let whole = received
            .iter()
            .map(|record| vec![record.due_nanos, record.received_nanos]);
        let note = match received.is_empty() {
            true => "no record was sampled",
            false => {
                "no sampled record has an acknowledgement with an offset (acks=0 has none): all stages in one"
            }
        };
        return means(
            &["produce + publish + commit + catch-up + fetch"],
            whole.collect(),
            vec![note.into()],
        );
    }
    if let Some(stages) = with_append_times(&acknowledged, received, wall_ahead_nanos) {
        return stages;
    }
    let early = matched.iter().filter(|ends| ends[1] > ends[2]).count();
    let mut notes = vec![
        format!(
            "{} of {} sampled records matched with their acknowledgement",
            matched.len(),
            received.len()
        ),
        "publish and commit are the broker's own and not seen from outside; produce + publish + commit ends with the \
         acknowledgement at the producer and so contains its way back"
            .into(),
    ];
    if early > 0 {
        notes.push(format!(
            "{} records were at the consumer before their acknowledgement was at the producer: for those the second \
             stage is 0",
            count(early as u64)
        ));
    }
    means(
        &["produce + publish + commit", "catch-up + fetch"],
        matched,
        notes,
    )
}

/// Three stages if all records have the time of their append; `None` if they do not, or the clock
/// is another one.
fn with_append_times(
    acknowledged: &HashMap<&RecordPlace, &SentRecord>,
    received: &[ReceivedRecord],
    wall_ahead_nanos: i128,
) -> Option<Stages> {
    let of_record = |record: &ReceivedRecord| -> Option<Option<Ends>> {
        let Some(sent) = acknowledged.get(&record.place) else {
            return Some(None);
        };
        // In the middle of the millisecond that the timestamp denotes.
        let wall_nanos = i128::from(record.log_append_ms?) * 1_000_000 + 500_000;
        let appended_nanos = u64::try_from(wall_nanos - wall_ahead_nanos).ok()?;
        let ends = vec![
            record.due_nanos,
            appended_nanos,
            sent.acknowledged_nanos,
            record.received_nanos,
        ];
        Some(Some(ends))
    };
    let all: Vec<Option<Ends>> = received.iter().map(of_record).collect::<Option<_>>()?;
    let matched: Vec<Ends> = all.into_iter().flatten().collect();
    // Checks the append only: an acknowledgement may arrive after the record.
    let contradictory = matched
        .iter()
        .filter(|ends| contradicts(&[ends[0], ends[1], ends[3]]));
    if contradictory.count() as f64 > matched.len() as f64 * CONTRADICTIONS_MAX {
        return None;
    }
    let notes = vec![
        format!(
            "{} of {} sampled records matched with their acknowledgement",
            matched.len(),
            received.len()
        ),
        "the append is known to a millisecond, from the record's LogAppendTime; commit ends with the acknowledgement at the \
         producer and so contains its way back"
            .into(),
    ];
    Some(means(
        &["produce + publish", "commit", "catch-up + fetch"],
        matched,
        notes,
    ))
}

/// Whether the ends are out of order by more than clock readings explain.
fn contradicts(ends: &[u64]) -> bool {
    let last = ends[ends.len() - 1];
    ends.iter()
        .any(|end| *end + CLOCK_STEP_NANOS < ends[0] || *end > last + CLOCK_STEP_NANOS)
}

fn means(names: &[&str], mut records: Vec<Ends>, notes: Vec<String>) -> Stages {
    records.iter_mut().for_each(put_in_order);
    records.sort_by_key(|ends| ends[names.len()] - ends[0]);
    let of_percentile = |percentile: &f64| {
        let slice = records_of(*percentile, &records)?;
        Some(mean_of(*percentile, names.len(), slice))
    };
    Stages {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        slowest: PERCENTILES.iter().filter_map(of_percentile).collect(),
        notes,
    }
}

/// Makes stages end in order, and not after the record arrived: times taken simultaneously by two
/// threads may be slightly out of order.
fn put_in_order(ends: &mut Ends) {
    let last = ends[ends.len() - 1].max(ends[0]);
    let mut earliest = ends[0];
    for end in ends.iter_mut() {
        *end = (*end).clamp(earliest, last);
        earliest = *end;
    }
}

/// The records at or above a percentile; for the median those around it. `None`: too few records
/// for one to lie above it.
fn records_of(percentile: f64, ascending: &[Ends]) -> Option<&[Ends]> {
    let count = ascending.len();
    let place = |percentile: f64| (count as f64 * percentile / 100.0).floor() as usize;
    let range = match percentile {
        50.0 => place(MEDIAN_FROM)..(place(100.0 - MEDIAN_FROM) + 1).min(count),
        _ => place(percentile)..count,
    };
    // 99.9 of 500 records would be the slowest one under another name.
    let is_enough = count as f64 * (100.0 - percentile) / 100.0 >= 1.0;
    (is_enough && !range.is_empty()).then(|| &ascending[range])
}

fn mean_of(percentile: f64, stage_count: usize, records: &[Ends]) -> StageMeans {
    let mean_ms = |nanos: u128| nanos as f64 / records.len() as f64 / 1e6;
    let sum = |stage: usize| -> u128 {
        let stages = records
            .iter()
            .map(|ends| u128::from(ends[stage + 1] - ends[stage]));
        stages.sum()
    };
    let sums: Vec<u128> = (0..stage_count).map(sum).collect();
    StageMeans {
        percentile,
        end_to_end_ms: mean_ms(sums.iter().sum()),
        means_ms: sums.into_iter().map(mean_ms).collect(),
    }
}

#[cfg(test)]
mod tests;
