//! consumer 14: does it stand still before an open transaction?
//!
//! With isolation.level=read_committed a partition is read up to the first record of its oldest
//! open transaction, and no further until that is committed or aborted: what others have written
//! behind it waits too. Its producer may work on it, may have died (the coordinator then aborts at
//! transaction.timeout.ms), or may be unknown to any coordinator (a hanging transaction, which only
//! an operator ends). One that still writes is at work: a job of Flink ends a transaction with each
//! checkpoint. To abort it is advised only where its producer has not written for longer than
//! transaction.timeout.ms lasts by default.
//!
//! - Numbers: the consumer's position and the first offset of the open transaction, how long both
//!   have been the same, records behind it; the transactional id by the broker's coordinators, else
//!   the producer id; when the producer last wrote there.
//! - Thresholds: it has stood at that offset for 30 s, with at least half of its lag in such
//!   partitions; abandoned: nothing was written for 60 s.
//! - Says: "It reads committed records only and stands still in orders-3 before the transaction of
//!   `billing`, whose producer last wrote there 12 min ago."
//! - Source: how Kafka isolates readers (KIP-98, KIP-664).

use super::super::super::diagnosis::{Confidence, Promise, Recommendation, Verdict};
use super::super::super::snapshot::HeldPartition;
use super::found::{Found, known};
use super::reading::Reading;
use crate::numbers::{duration, number};

/// An ordinary transaction is shorter.
const SECONDS_MIN: f64 = 30.0;
const MOST_OF_LAG: f64 = 0.5;
/// The default of `transaction.timeout.ms`, in seconds: a producer that has written nothing for
/// longer is not at work.
const TIMEOUT_SECONDS: f64 = 60.0;

pub fn transaction(reading: &Reading<'_>) -> Found {
    let held: Vec<&HeldPartition> = reading
        .sides()
        .flat_map(|side| &side.held)
        .filter(|held| held.seconds >= SECONDS_MIN && held.lag > 0.0)
        .collect();
    let behind: f64 = held.iter().map(|held| held.lag).sum();
    let worst = held.iter().max_by(|a, b| a.lag.total_cmp(&b.lag));
    let numbers = [
        known("partitions held", Some(held.len() as f64), ""),
        known("records behind it", Some(behind), ""),
        known("lag", reading.lag, "records"),
        known("its first offset", worst.map(|held| held.offset as f64), ""),
        known("its producer id", worst.map(|held| held.producer_id as f64), ""),
    ]
    .join(", ");
    let Some(worst) = worst else {
        return Found::nothing(numbers, "no");
    };
    let whose = owner(worst);
    if reading.lag.is_some_and(|lag| behind < MOST_OF_LAG * lag) {
        return Found::nothing(numbers, format!("in some partitions, before {whose}"));
    }
    let summary = format!(
        "It reads committed records only and stands still in {}-{} before {whose}, whose producer last wrote there {} ago.",
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
        Some(id) => format!("the transaction of `{id}`"),
        None => String::from("a transaction that no coordinator of that broker knows"),
    }
}

fn end(held: &HeldPartition) -> Recommendation {
    let is_abandoned = held.idle_seconds > TIMEOUT_SECONDS;
    let set = match &held.transactional_id {
        Some(id) if !is_abandoned => format!(
            "wait, or let the application of `{id}` commit more often, as by a shorter interval between its checkpoints"
        ),
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
        why: match is_abandoned {
            true => "records behind an open transaction are not committed, whoever wrote them".to_owned(),
            false => "its producer still writes: records are read when the transaction ends".to_owned(),
        },
        promise: Promise {
            figure: "records_per_second".to_owned(),
            unit: "records/s".to_owned(),
            unknown: Some("how fast it reads what has gathered".to_owned()),
            ..Promise::default()
        },
        next_ceiling: "not known before it reads on".to_owned(),
        cost: match is_abandoned {
            true => "the records of an aborted transaction are never read as committed".to_owned(),
            false => "more commits, each of which writes to every partition of its transaction".to_owned(),
        },
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
            diagnosis.summary.ends_with(
                "in orders-1 before the transaction of `billing`, whose producer last wrote there 12 min ago."
            ),
            "{}",
            diagnosis.summary
        );
        let step = diagnosis.reasoning.iter().find(|step| step.rule == "consumer 14");
        let numbers = step.unwrap().numbers.to_string();
        assert!(
            numbers.contains("offset 700") && numbers.contains("id 7"),
            "{numbers}"
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
            diagnosis.summary.contains("no coordinator"),
            "{}",
            diagnosis.summary
        );
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.contains("producer id 7"), "{change:?}");
    }

    /// A job that ends its transaction with each checkpoint, every 60 s.
    #[test]
    fn a_transaction_whose_producer_still_writes_is_not_aborted() {
        let change = |idle_seconds| {
            let mut working = held(55.0);
            working.brokers[0].held[0].idle_seconds = idle_seconds;
            check(&working, Verdict::Transaction).recommendation.unwrap().set
        };
        for idle_seconds in [0.1, 59.0] {
            let set = change(idle_seconds);
            assert!(set.contains("checkpoints") && !set.contains("abort"), "{set}");
        }
        assert!(change(61.0).contains("transactions abort billing"));
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
