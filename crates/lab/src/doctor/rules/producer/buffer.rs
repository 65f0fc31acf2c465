//! What buffer.memory holds: a batch keeps its memory until its answer, so a buffer that is hardly
//! larger than what is under way leaves nothing to send next.

use crate::doctor::diagnosis::Recommendation;

use super::backlog::comes_in_bursts;
use super::reading::{Reading, positive};
use super::{BUFFER, promise};
use crate::model::constants::FULL;
use crate::numbers::{bytes, number, plain};

/// The share of buffer.memory that batches under way take from which it is the limit: the rest is
/// in pieces that are too small, or in open batches.
const UNDER_WAY: f64 = 0.5;
/// Kafka's default.
const DEFAULT_BYTES: f64 = 33_554_432.0;
const GROWTH: f64 = 4.0;

/// Memory of batches that are under way, in bytes, where it is most of a buffer that is full.
///
/// A batch takes batch.size of memory whatever it holds, and more only for one larger record.
pub(super) fn of_requests(reading: &Reading<'_>) -> Option<f64> {
    let size = reading.settings.buffer_bytes.value;
    let batch = positive(reading.batch_bytes)?;
    let batches = positive(reading.bytes_per_second)? / batch;
    let taken = batch.max(reading.settings.batch_bytes.value);
    let under_way = batches * positive(reading.request_ms)? / 1_000.0 * taken;
    let has_room = reading.used().is_some_and(|used| used < FULL);
    let is_full = reading
        .buffer_free_share
        .is_none_or(|free| free < 1.0 - UNDER_WAY);
    (has_room && is_full && under_way >= UNDER_WAY * size).then_some(under_way)
}

/// In words, why requests that could leave do not.
pub(super) fn sentence(reading: &Reading<'_>, under_way: f64) -> String {
    format!(
        "buffer.memory is {}, and batches under way take {} of it until they are answered",
        bytes(reading.settings.buffer_bytes.value),
        bytes(under_way)
    )
}

pub(super) fn larger(reading: &Reading<'_>) -> Option<Recommendation> {
    let under_way = of_requests(reading)?;
    let next = DEFAULT_BYTES.max(GROWTH * reading.settings.buffer_bytes.value);
    let (promise, next_ceiling) = promise::growth(reading, 1.0)?;
    Some(Recommendation {
        set: format!("{BUFFER}={}", plain(next)),
        why: format!(
            "{}; {} of the requests that may be in flight are",
            sentence(reading, under_way),
            number(reading.used().unwrap_or(0.0))
        ),
        promise,
        next_ceiling,
        cost: "memory of the client, taken only when records wait".to_owned(),
    })
}

/// A memory that takes a burst, whose size no client tells.
pub(super) fn for_bursts(reading: &Reading<'_>) -> Option<Recommendation> {
    if !comes_in_bursts(reading) {
        return None;
    }
    let mut promise = promise::records(reading.records_per_second?, 0.0, 0.0);
    promise.unknown = Some("how large the bursts are".to_owned());
    let next = DEFAULT_BYTES.max(GROWTH * reading.settings.buffer_bytes.value);
    Some(Recommendation {
        set: format!("{BUFFER}={}", plain(next)),
        why: "the client is idle most of the time: memory for a burst lets send() return at once".to_owned(),
        promise,
        next_ceiling: "the largest burst".to_owned(),
        cost: "memory of the client, taken only when records wait".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::BrokerSide;

    /// 64 KiB of memory over 40 ms: four batches, and threads wait for each.
    const SMALL: Row = Row {
        records: 1_500.0,
        requests: 50.0,
        request_bytes: 31_000.0,
        batch: 15_500.0,
        batch_size: 16_384.0,
        latency: 40.5,
        queue: Some(2.0),
        buffer_wait: Some(0.9),
        buffer: 65_536.0,
        partitions: 6.0,
        thread: Some((0.95, 0.01)),
        round_trip: 40.0,
        ..ROW
    };

    #[test]
    fn a_buffer_that_only_holds_what_is_under_way_is_the_limit() {
        let diagnosis = examine(&SMALL.snapshot());
        assert_eq!(diagnosis.verdict, Verdict::SenderRate, "{diagnosis:#?}");
        assert!(
            diagnosis.summary.contains("buffer.memory"),
            "{}",
            diagnosis.summary
        );
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "buffer.memory=33554432");
        assert!(change.promise.low > 1.5 * 1_500.0, "{:?}", change.promise);
        assert!(
            diagnosis
                .refused
                .iter()
                .all(|refusal| refusal.set != "buffer.memory")
        );
    }

    #[test]
    fn a_large_buffer_is_full_of_what_waits() {
        let large = Row {
            buffer: 33_554_432.0,
            queue: Some(8_000.0),
            ..SMALL
        };
        let diagnosis = examine(&large.snapshot());
        let set = diagnosis
            .recommendation
            .map_or(String::new(), |change| change.set);
        assert!(!set.starts_with("buffer.memory"), "{set}");
    }
    /// 80 MB each 15 s on a LAN: the means over a minute are of the time between them too.
    #[test]
    fn bursts_that_fill_the_memory_need_more_of_it() {
        let row = Row {
            records: 5_300.0,
            requests: 65.0,
            request_bytes: 81_900.0,
            batch: 16_000.0,
            latency: 7.7,
            queue: Some(500.0),
            queue_max: 1_500.0,
            buffer_wait: Some(0.07),
            partitions: 5.0,
            thread: Some((0.9, 0.05)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        for round_trip_ms in [None, Some(0.2)] {
            snapshot.brokers = vec![BrokerSide {
                node_id: Some(1),
                requests_per_second: Some(65.0),
                total_micros: Some(900.0),
                round_trip_ms,
                ..BrokerSide::default()
            }];
            let diagnosis = examine(&snapshot);
            assert_eq!(diagnosis.verdict, Verdict::SenderRate, "{diagnosis:#?}");
            assert!(diagnosis.summary.contains("bursts"), "{}", diagnosis.summary);
            let change = diagnosis.recommendation.unwrap();
            assert_eq!(change.set, "buffer.memory=134217728");
            assert!(change.promise.unknown.is_some());
        }
        // Threads that wait most of the time are no burst, and more memory is a longer queue.
        let own = snapshot.producer.as_mut().unwrap();
        own.buffer_wait = Some(0.9);
        let refused = examine(&snapshot).refused;
        assert!(refused.iter().any(|refusal| refusal.set == "buffer.memory"));
    }
}
