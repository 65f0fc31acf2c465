//! Requests that end at max.request.size although batches of more partitions wait: larger batches
//! would only be fewer.

use crate::doctor::diagnosis::Recommendation;
use crate::doctor::snapshot::Origin;

use super::super::inference::{MAX_REQUEST_BYTES, power_above};
use super::reading::{Reading, positive};
use super::{MAX_REQUEST, promise};
use crate::numbers::{bytes, plain};

pub(super) fn larger(reading: &Reading<'_>) -> Option<Recommendation> {
    let limit = reading.settings.max_request_bytes;
    let side = &reading.hottest()?.broker.as_ref()?.side;
    let wanted = positive(side.partitions_written)? * positive(reading.batch_bytes)?;
    if limit.origin != Origin::Inferred {
        return None;
    }
    let next = MAX_REQUEST_BYTES.max(power_above(wanted));
    let (promise, next_ceiling) = promise::growth(reading, wanted / limit.value)?;
    Some(Recommendation {
        set: format!("{MAX_REQUEST}={}", plain(next)),
        why: format!(
            "every request ends at {}, and one batch of each partition is {}",
            bytes(limit.value),
            bytes(wanted)
        ),
        promise,
        next_ceiling,
        cost: "a lost connection repeats more; message.max.bytes bounds batches, so brokers need no change"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::Snapshot;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row, stated};
    use crate::doctor::snapshot::{BrokerSide, WrittenPartition};

    /// max.request.size=40000 with twelve even partitions across 40 ms.
    fn small() -> Snapshot {
        let row = Row {
            records: 3_900.0,
            requests: 122.0,
            request_bytes: 32_600.0,
            batch: 16_300.0,
            batch_size: 16_384.0,
            latency: 41.0,
            queue: Some(5_000.0),
            buffer_wait: Some(0.6),
            partitions: 12.0,
            thread: Some((0.9, 0.05)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(122.0),
            bytes_per_second: Some(122.0 * 32_600.0),
            total_micros: Some(400.0),
            round_trip_ms: Some(40.1),
            request_bytes_max: Some(32_700.0),
            partitions_written: Some(12.0),
            partitions: vec![WrittenPartition {
                bytes_per_second: Some(122.0 * 32_600.0 / 12.0),
                ..WrittenPartition::default()
            }],
            ..BrokerSide::default()
        }];
        snapshot
    }

    fn set(snapshot: &Snapshot) -> String {
        let change = examine(snapshot).recommendation;
        change.map_or(String::new(), |change| change.set)
    }

    #[test]
    fn requests_that_end_at_one_size_with_records_of_more_partitions_waiting_are_capped() {
        assert_eq!(
            set(&small()),
            "max.request.size=1048576",
            "{:#?}",
            examine(&small())
        );
        // Measured: 4,493 of 20,926, because the default window was full.
        let unknown = |snapshot: &Snapshot| examine(snapshot).recommendation.unwrap().promise.unknown;
        assert!(unknown(&small()).is_some_and(|words| words.contains("send.buffer.bytes")));
        let mut known = small();
        known.settings.send_buffer_bytes = stated(4_194_304.0);
        assert_eq!(unknown(&known), None);
        let changes: [fn(&mut BrokerSide); 3] = [
            // Sometimes a request is larger.
            |side| side.request_bytes_max = Some(98_000.0),
            // It holds one batch of each.
            |side| side.partitions_written = Some(2.0),
            // Only some partitions have a backlog.
            |side| side.partitions[0].bytes_per_second = Some(1_000_000.0),
        ];
        for change in changes {
            let mut other = small();
            change(&mut other.brokers[0]);
            assert!(set(&other).starts_with("batch.size="), "{}", set(&other));
        }
    }
}
