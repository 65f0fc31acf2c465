//! What holds for every consumer, whatever its numbers are.

use proptest::prelude::*;

use super::samples::of;
use super::*;
use crate::doctor::snapshot::{BrokerSide, ConsumedPartition, Neighbour, Origin, Setting, Settings};

fn number() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        Just(Some(0.0)),
        Just(Some(f64::NAN)),
        Just(Some(f64::INFINITY)),
        Just(Some(-1.0)),
        (0.0..1.0).prop_map(Some),
        (0.0..1e4).prop_map(Some),
        (0.0..1e12).prop_map(Some),
        Just(Some(f64::MAX)),
        Just(Some(f64::MIN_POSITIVE)),
    ]
}

prop_compose! {
    fn any_partition()(numbers in prop::collection::vec(number(), 5), partition in 0..4) -> ConsumedPartition {
        ConsumedPartition {
            topic: String::from("t"),
            partition,
            lag: numbers[0],
            lag_slope: numbers[1],
            consumed_per_second: numbers[2],
            produced_per_second: numbers[3],
            lag_ms: numbers[4],
            is_own_gauge: false,
        }
    }
}

prop_compose! {
    fn any_consumer()(
        numbers in prop::collection::vec(number(), 22),
        partitions in prop::collection::vec(any_partition(), 0..4),
    ) -> Consumer {
        Consumer {
            records_per_second: numbers[0],
            bytes_per_second: numbers[1],
            fetches_per_second: numbers[2],
            fetch_bytes: numbers[3],
            fetch_ms: numbers[4],
            fetch_ms_max: numbers[5],
            throttle_ms: numbers[6],
            throttle_ms_max: numbers[7],
            poll_idle_share: numbers[8],
            ms_between_polls: numbers[9],
            ms_between_polls_max: numbers[10],
            lag_max: numbers[11],
            assigned_partitions: numbers[12],
            rebalances: numbers[13],
            rebalance_ms: numbers[14],
            rebalance_ms_max: numbers[15],
            failed_rebalances: numbers[16],
            heartbeat_gap_s: numbers[17],
            commit_ms: numbers[18],
            commits_per_second: numbers[19],
            group_members: numbers[20],
            group_partitions: numbers[21],
            partitions,
            expelled: Vec::new(),
            without_sample: Vec::new(),
        }
    }
}

prop_compose! {
    fn any_broker()(numbers in prop::collection::vec(number(), 16), flags in any::<[bool; 2]>()) -> BrokerSide {
        BrokerSide {
            requests_per_second: numbers[0],
            bytes_per_second: numbers[1],
            queue_micros: numbers[2],
            local_micros: numbers[3],
            remote_micros: numbers[4],
            response_queue_micros: numbers[5],
            send_micros: numbers[6],
            total_micros: numbers[7],
            throttle_ms: numbers[8],
            handler_idle: numbers[9],
            network_idle: numbers[10],
            cpu_use: numbers[11],
            cold_reads_per_second: numbers[12],
            cold_read_ms: numbers[13],
            cold_bytes_per_second: numbers[14],
            network_threads: numbers[15],
            is_rounded_to_ms: flags[0],
            is_of_all_clients: flags[1],
            ..BrokerSide::default()
        }
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_every_number_is_one(
        consumer in prop::option::of(any_consumer()),
        brokers in prop::collection::vec(any_broker(), 0..3),
        settings in prop::collection::vec(number(), 6),
        (seconds, round_trip, share) in (number(), number(), number()),
    ) {
        let setting = |index: usize| settings[index].map(|value| Setting { value, origin: Origin::Stated });
        let mut snapshot = of(Consumer::default());
        snapshot.consumer = consumer;
        snapshot.brokers = brokers;
        snapshot.seconds = seconds.unwrap_or(60.0);
        snapshot.network.round_trip_ms = round_trip;
        snapshot.neighbours = vec![Neighbour {
            time_share: share.unwrap_or(0.5),
            time_share_before: round_trip,
            victim_growth: seconds,
            ..Neighbour::default()
        }];
        snapshot.settings = Settings {
            fetch_max_wait_ms: setting(0),
            fetch_min_bytes: setting(1),
            fetch_max_bytes: setting(2),
            max_partition_fetch_bytes: setting(3),
            max_poll_interval_ms: setting(4),
            retention_ms: setting(5),
            ..Settings::default()
        };
        let diagnosis = diagnose(&snapshot);
        for line in &diagnosis.evidence {
            prop_assert!(line.result.is_finite(), "{line:?}");
            prop_assert!(line.symbols.iter().all(|symbol| symbol.value.is_finite()), "{line:?}");
        }
        if let Some(recommendation) = &diagnosis.recommendation {
            let promise = &recommendation.promise;
            prop_assert!(promise.low.is_finite() && promise.high.is_finite(), "{promise:?}");
            prop_assert!(promise.low <= promise.high, "{promise:?}");
        }
        // NaN and infinity become null, which is read back as absent.
        let text = serde_json::to_string(&diagnosis).unwrap();
        let read: Diagnosis = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.verdict, diagnosis.verdict);
    }
}
