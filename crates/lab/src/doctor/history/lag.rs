//! One truth about a consumer's lag: the brokers' view of its positions and of the log's end; the
//! client's own gauges only where no broker says anything.
//!
//! Java writes a partition's `records-lag` when a poll returns records of it, and counts up to the
//! end that its last fetch saw. A consumer that is too slow has records of every partition at hand
//! and works on one partition for many seconds: all its other gauges are old, and look like no lag.
//! Its positions are right, because every poll moves them; so the rate at which it consumes is its
//! own, and what arrives is the brokers'.
//!
//! Beside Apache Kafka the brokers' view is what the group has committed, and an application may
//! commit as rarely as it likes. So where polls wait for records, a fetch is under way, and the
//! consumer reads as much of a partition as comes, its own gauge is as new as its last fetch: a
//! smaller lag there is the lag.

use super::super::snapshot::{ConsumedPartition, Consumer};

/// Polls that wait for this share of time have handed over all that fetches brought.
const WAITING: f64 = 0.8;
/// Means of polls hide a long one; then no fetch is under way for most of the time.
const FETCHING: f64 = 0.5;
/// What comes and what is read differ by less where they are the same.
const READS_ALL: f64 = 0.9;

/// Takes one broker's view of the partitions that the consumer fetches from it.
pub(super) fn merge(consumer: &mut Consumer, seen: Vec<ConsumedPartition>) {
    if seen.is_empty() {
        return;
    }
    let waits = waits_for_records(consumer);
    let own = &mut consumer.partitions;
    own.sort_by(|one, other| key(one).cmp(&key(other)));
    let known = own.len();
    for partition in seen {
        match own[..known].binary_search_by(|own| key(own).cmp(&key(&partition))) {
            Ok(at) => correct(&mut own[at], partition, waits),
            Err(_) => own.push(partition),
        }
    }
    let lags = own.iter().filter_map(|partition| partition.lag);
    consumer.lag_max = lags.reduce(f64::max).or(consumer.lag_max);
}

fn key(partition: &ConsumedPartition) -> (&str, i32) {
    (&partition.topic, partition.partition)
}

fn waits_for_records(consumer: &Consumer) -> bool {
    let under_way = consumer.fetches_per_second.zip(consumer.fetch_ms);
    consumer.poll_idle_share.is_some_and(|share| share >= WAITING)
        && under_way.is_some_and(|(rate, ms)| rate * ms / 1_000.0 >= FETCHING)
}

/// Whether it reads on in the partition, as much as comes.
fn reads_all(own: &ConsumedPartition, seen: &ConsumedPartition) -> bool {
    let rates = own.consumed_per_second.zip(seen.produced_per_second);
    rates.is_some_and(|(consumed, produced)| consumed > 0.0 && consumed >= READS_ALL * produced)
}

fn correct(own: &mut ConsumedPartition, seen: ConsumedPartition, waits: bool) {
    let Some(lag) = seen.lag else { return };
    if !(waits && own.is_own_gauge && reads_all(own, &seen) && own.lag.is_some_and(|own| own < lag)) {
        own.is_own_gauge = seen.is_own_gauge;
        own.lag = Some(lag);
    }
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

    /// 1,000 records/s, and 20,000 that are not committed yet.
    #[test]
    fn a_client_that_waits_and_reads_all_that_comes_tells_its_lag_itself() {
        let merged = |change: fn(&mut Consumer)| {
            let mut consumer = Consumer {
                partitions: vec![partition(0, 12.0, (990.0, 990.0), true)],
                poll_idle_share: Some(0.93),
                fetches_per_second: Some(79.0),
                fetch_ms: Some(12.0),
                ..Consumer::default()
            };
            change(&mut consumer);
            merge(&mut consumer, vec![partition(0, 20_000.0, (0.0, 1_000.0), false)]);
            consumer.lag_max
        };
        assert_eq!(merged(|_| {}), Some(12.0));
        // It works for long: its gauges are old.
        assert_eq!(merged(|busy| busy.poll_idle_share = Some(0.7)), Some(20_000.0));
        // Its last poll lasts.
        assert_eq!(merged(|busy| busy.fetches_per_second = Some(0.1)), Some(20_000.0));
        // It reads less than what comes, as one before an open transaction.
        let held = |held: &mut Consumer| held.partitions[0].consumed_per_second = Some(0.0);
        assert_eq!(merged(held), Some(20_000.0));
        let slower = |slower: &mut Consumer| slower.partitions[0].consumed_per_second = Some(800.0);
        assert_eq!(merged(slower), Some(20_000.0));
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
