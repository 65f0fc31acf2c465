//! consumer 14: does it stand still before an open transaction?
//!
//! With isolation.level=read_committed a partition is read up to the first record of its oldest
//! open transaction, and no further until that is committed or aborted: what others have written
//! behind it waits too. Its producer may work on it, may have died (the coordinator then aborts at
//! transaction.timeout.ms), or may be unknown to any coordinator (a hanging transaction, which only
//! an operator ends).
//!
//! - Numbers: the consumer's position and the first offset of the open transaction, how long both
//!   have been the same, records behind it; the transactional id by the broker's coordinators, else
//!   the producer id; when the producer last wrote there.
//! - Thresholds: it has stood at that offset for 30 s, with at least half of its lag in such
//!   partitions.
//! - Says: "It reads committed records only and stands still at offset 700 of orders-3: the
//!   transaction of `billing` (producer id 7) is not ended, and its producer last wrote there 12
//!   min ago."
//! - Source: how Kafka isolates readers (KIP-98, KIP-664).

use super::super::super::diagnosis::{Confidence, Promise, Recommendation, Verdict};
use super::super::super::snapshot::HeldPartition;
use super::found::{Found, known};
use super::reading::Reading;
use crate::numbers::{duration, number};

/// An ordinary transaction is shorter.
const SECONDS_MIN: f64 = 30.0;
const MOST_OF_LAG: f64 = 0.5;

pub fn transaction(reading: &Reading<'_>) -> Found {
    let held: Vec<&HeldPartition> = reading
        .sides()
        .flat_map(|side| &side.held)
        .filter(|held| held.seconds >= SECONDS_MIN && held.lag > 0.0)
        .collect();
    let behind: f64 = held.iter().map(|held| held.lag).sum();
    let numbers = [
        known("partitions held", Some(held.len() as f64), ""),
        known("records behind it", Some(behind), ""),
        known("lag", reading.lag, "records"),
    ]
    .join(", ");
    let worst = held.iter().max_by(|a, b| a.lag.total_cmp(&b.lag));
    let Some(worst) = worst else {
        return Found::nothing(numbers, "no");
    };
    let whose = owner(worst);
    if reading.lag.is_some_and(|lag| behind < MOST_OF_LAG * lag) {
        return Found::nothing(numbers, format!("in some partitions, before {whose}"));
    }
    let summary = format!(
        "It reads committed records only and stands still at offset {} of {}-{}: {whose} is not ended, and its producer last wrote there {} ago.",
        worst.offset,
        worst.topic,
        worst.partition,
        duration(worst.idle_seconds)
    );
    let found = Found::verdict(numbers, Verdict::Transaction, Confidence::High, summary)
        .recommend(Some(end(worst)))
        .refuse(
            "more consumers",
            "whoever reads the partition stands before the same transaction",
        )
        .refuse(
            "max.partition.fetch.bytes",
            "there is nothing to fetch before the transaction ends",
        );
    match held.len() {
        1 => found,
        count => found.note(format!(
            "{} of its partitions stand still before an open transaction",
            number(count as f64)
        )),
    }
}

fn owner(held: &HeldPartition) -> String {
    match &held.transactional_id {
        Some(id) => format!("the transaction of `{id}` (producer id {})", held.producer_id),
        None => format!(
            "a transaction of producer id {}, which no coordinator of that broker knows,",
            held.producer_id
        ),
    }
}

fn end(held: &HeldPartition) -> Recommendation {
    let set = match &held.transactional_id {
        Some(id) => format!(
            "let the application of `{id}` commit or abort, or end it for it: ottla transactions abort {id}"
        ),
        None => format!(
            "find the transaction: ottla transactions list --hanging; end it if producer id {} is gone",
            held.producer_id
        ),
    };
    Recommendation {
        set,
        why: "records behind an open transaction are not committed, whoever wrote them".to_owned(),
        promise: Promise {
            figure: "records_per_second".to_owned(),
            unit: "records/s".to_owned(),
            unknown: Some("how fast it reads what has gathered".to_owned()),
            ..Promise::default()
        },
        next_ceiling: "not known before it reads on".to_owned(),
        cost: "the records of an aborted transaction are never read as committed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, idle, of, partitions, refuses};
    use super::*;
    use crate::doctor::snapshot::{BrokerSide, Consumer, Snapshot};

    /// A reader of committed records that waits for the producer of another team.
    fn held(seconds: f64) -> Snapshot {
        let mut snapshot = of(Consumer {
            partitions: partitions(&[(0.0, 0.0, 0.0), (24_000.0, 400.0, 0.0)]),
            lag_max: Some(24_000.0),
            ..idle()
        });
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(2.0),
            held: vec![HeldPartition {
                topic: "orders".to_owned(),
                partition: 1,
                offset: 700,
                lag: 24_000.0,
                seconds,
                transactional_id: Some("billing".to_owned()),
                producer_id: 7,
                idle_seconds: 720.0,
            }],
            ..BrokerSide::default()
        }];
        snapshot
    }

    #[test]
    fn a_consumer_that_stands_still_before_a_transaction_is_told_whose_it_is() {
        let diagnosis = check(&held(60.0), Verdict::Transaction);
        assert!(
            diagnosis.summary.contains("`billing` (producer id 7)"),
            "{}",
            diagnosis.summary
        );
        assert!(
            diagnosis.summary.contains("offset 700 of orders-1"),
            "{}",
            diagnosis.summary
        );
        refuses(&diagnosis, "more consumers");
        let change = diagnosis.recommendation.unwrap();
        assert!(
            change.set.ends_with("ottla transactions abort billing"),
            "{change:?}"
        );
        let mut unknown = held(60.0);
        unknown.brokers[0].held[0].transactional_id = None;
        let diagnosis = check(&unknown, Verdict::Transaction);
        assert!(
            diagnosis.summary.contains("producer id 7"),
            "{}",
            diagnosis.summary
        );
    }

    #[test]
    fn a_client_that_pushes_nothing_is_told_too() {
        let mut silent = held(60.0);
        silent.telemetry.pushes = Some(0);
        silent.consumer = None;
        check(&silent, Verdict::Transaction);
    }

    #[test]
    fn an_ordinary_transaction_holds_nobody() {
        assert_ne!(super::super::diagnose(&held(12.0)).verdict, Verdict::Transaction);
        // Most of the lag is elsewhere: the consumer has another fault.
        let mut other = held(60.0);
        other.brokers[0].held[0].lag = 90.0;
        assert_ne!(super::super::diagnose(&other).verdict, Verdict::Transaction);
    }
}
