//! One truth about a consumer's lag: the brokers' view of its positions and of the log's end; the
//! client's own gauges only where no broker says anything.
//!
//! Java writes a partition's `records-lag` when a poll returns records of it, and counts up to the
//! end that its last fetch saw. A consumer that is too slow has records of every partition at hand
//! and works on one partition for many seconds: all its other gauges are old, and look like no lag.
//! Its positions are right, because every poll moves them; so the rate at which it consumes is its
//! own, and what arrives is the brokers'.

use super::super::snapshot::{ConsumedPartition, Consumer};

/// Takes one broker's view of the partitions that the consumer fetches from it.
pub(super) fn merge(consumer: &mut Consumer, seen: Vec<ConsumedPartition>) {
    if seen.is_empty() {
        return;
    }
    let own = &mut consumer.partitions;
    own.sort_by(|one, other| key(one).cmp(&key(other)));
    let known = own.len();
    for partition in seen {
        match own[..known].binary_search_by(|own| key(own).cmp(&key(&partition))) {
            Ok(at) => correct(&mut own[at], partition),
            Err(_) => own.push(partition),
        }
    }
    let lags = own.iter().filter_map(|partition| partition.lag);
    consumer.lag_max = lags.reduce(f64::max).or(consumer.lag_max);
}

fn key(partition: &ConsumedPartition) -> (&str, i32) {
    (&partition.topic, partition.partition)
}

fn correct(own: &mut ConsumedPartition, seen: ConsumedPartition) {
    let Some(lag) = seen.lag else { return };
    own.is_own_gauge = seen.is_own_gauge;
    own.lag = Some(lag);
    own.lag_ms = seen.lag_ms.or(own.lag_ms);
    own.produced_per_second = seen.produced_per_second;
    own.consumed_per_second = own.consumed_per_second.or(seen.consumed_per_second);
    // A fetch's position jumps by all that the last one brought, the client's own with every poll.
    let slope = own.produced_per_second.zip(own.consumed_per_second);
    own.lag_slope = slope
        .map(|(produced, consumed)| produced - consumed)
        .or(seen.lag_slope);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(index: i32, lag: f64, rates: (f64, f64), is_own_gauge: bool) -> ConsumedPartition {
        ConsumedPartition {
            topic: String::from("t"),
            partition: index,
            lag: Some(lag),
            lag_slope: Some(rates.1 - rates.0),
            consumed_per_second: Some(rates.0),
            produced_per_second: Some(rates.1),
            lag_ms: None,
            is_own_gauge,
        }
    }

    #[test]
    fn the_brokers_lag_replaces_the_clients_gauge_and_the_clients_position_stays() {
        let mut consumer = Consumer {
            partitions: vec![
                partition(2, 5.0, (0.0, 0.0), true),
                partition(0, 90_000.0, (40.0, 0.0), true),
            ],
            lag_max: Some(90_000.0),
            ..Consumer::default()
        };
        let seen = vec![
            partition(0, 80_000.0, (0.0, 100.0), false),
            partition(1, 70_000.0, (0.0, 100.0), false),
        ];
        merge(&mut consumer, seen);
        let [zero, two, one] = &consumer.partitions[..] else {
            panic!("three partitions: {:?}", consumer.partitions)
        };
        assert_eq!((zero.lag, zero.is_own_gauge), (Some(80_000.0), false));
        assert_eq!(zero.consumed_per_second, Some(40.0), "its position is its own");
        assert_eq!(
            (zero.produced_per_second, zero.lag_slope),
            (Some(100.0), Some(60.0))
        );
        assert_eq!((one.partition, one.lag), (1, Some(70_000.0)));
        assert!(two.is_own_gauge, "no broker said anything about it");
        assert_eq!(two.lag, Some(5.0));
        assert_eq!(consumer.lag_max, Some(80_000.0));
    }

    #[test]
    fn a_broker_without_positions_changes_nothing() {
        let mut consumer = Consumer {
            partitions: vec![partition(0, 7.0, (1.0, 1.0), true)],
            lag_max: Some(7.0),
            ..Consumer::default()
        };
        let before = consumer.clone();
        merge(&mut consumer, Vec::new());
        assert_eq!(consumer, before);
    }
}
