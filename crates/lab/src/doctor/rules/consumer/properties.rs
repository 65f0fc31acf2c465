//! What holds for every consumer, whatever its numbers are.

use proptest::prelude::*;

use super::samples::{full_speed, idle, of, slow_work, starved};
use super::*;
use crate::doctor::snapshot::{BrokerSide, ConsumedPartition, Library, Neighbour, Origin, Setting, Settings};

fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-3.0..9.0_f64).prop_map(|exponent| 10.0_f64.powf(exponent)),
        2 => 0.0..1.0_f64,
        1 => Just(0.0),
        1 => prop_oneof![
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(-1.0),
            Just(f64::MAX),
            Just(f64::MIN_POSITIVE)
        ],
    ]
}

fn number() -> impl Strategy<Value = Option<f64>> {
    prop::option::weighted(0.8, anything())
}

prop_compose! {
    fn any_partition()(
        numbers in prop::collection::vec(number(), 5),
        partition in 0..4,
        is_own_gauge in any::<bool>(),
    ) -> ConsumedPartition {
        ConsumedPartition {
            topic: String::from("t"),
            partition,
            lag: numbers[0],
            lag_slope: numbers[1],
            consumed_per_second: numbers[2],
            produced_per_second: numbers[3],
            lag_ms: numbers[4],
            is_own_gauge,
        }
    }
}

prop_compose! {
    fn any_consumer()(
        numbers in prop::collection::vec(number(), 24),
        partitions in prop::collection::vec(any_partition(), 0..4),
        is_expelled in any::<bool>(),
        connections_per_second in prop::option::weighted(0.1, number()),
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
            expelled: is_expelled.then(|| String::from("other")).into_iter().collect(),
            without_sample: Vec::new(),
            partitions_pushed: None,
            commit_wait: numbers[22],
            rejoined: numbers[23],
            connections_per_second: connections_per_second.flatten(),
        }
    }
}

prop_compose! {
    fn any_broker()(
        numbers in prop::collection::vec(number(), 20),
        flags in any::<[bool; 2]>(),
    ) -> BrokerSide {
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
            back_to_back_share: numbers[16],
            quota_bytes_per_second: numbers[17],
            quota_request_share: numbers[18],
            round_trip_ms: numbers[19],
            is_rounded_to_ms: flags[0],
            is_of_all_clients: flags[1],
            ..BrokerSide::default()
        }
    }
}

fn stated(values: &[Option<f64>]) -> Settings {
    let setting = |index: usize| {
        let value = values[index]?;
        Some(Setting {
            value,
            origin: if index.is_multiple_of(2) {
                Origin::Stated
            } else {
                Origin::Seen
            },
        })
    };
    Settings {
        fetch_max_wait_ms: setting(0),
        fetch_min_bytes: setting(1),
        fetch_max_bytes: setting(2),
        max_partition_fetch_bytes: setting(3),
        max_poll_interval_ms: setting(4),
        receive_buffer_bytes: setting(5),
        session_timeout_ms: setting(6),
        retention_ms: setting(7),
        ..Settings::default()
    }
}

prop_compose! {
    fn any_snapshot()(
        consumer in prop::option::weighted(0.95, any_consumer()),
        brokers in prop::collection::vec(any_broker(), 0..3),
        settings in prop::collection::vec(number(), 8),
        (seconds, round_trip, bandwidth, share) in (number(), number(), number(), number()),
        library in prop_oneof![
            Just(Library::Java),
            Just(Library::Librdkafka),
            Just(Library::FranzGo),
            Just(Library::Unknown)
        ],
        pushes in prop::option::of(0_u32..4),
    ) -> Snapshot {
        let mut snapshot = of(Consumer::default());
        snapshot.client.library = library;
        snapshot.telemetry.pushes = pushes;
        snapshot.consumer = consumer;
        snapshot.brokers = brokers;
        snapshot.seconds = seconds.unwrap_or(60.0);
        snapshot.network.round_trip_ms = round_trip;
        snapshot.network.bandwidth_bytes_per_second = bandwidth;
        snapshot.neighbours = vec![Neighbour {
            time_share: share.unwrap_or(0.5),
            time_share_before: round_trip,
            victim_growth: seconds,
            ..Neighbour::default()
        }];
        snapshot.settings = stated(&settings);
        snapshot
    }
}

/// Numbers of consumers as they are met: they fit together, and every test matches some of them.
fn likely_snapshot() -> impl Strategy<Value = Snapshot> {
    let choice = |values: &[f64]| prop::sample::select(values.to_vec());
    let client = (
        prop::option::of(choice(&[0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 0.99, 1.0])),
        choice(&[1.0, 5.0, 41.0, 130.0, 300.0, 500.0, 800.0, 1_500.0, 5_000.0]),
        choice(&[0.0, 200.0, 16_384.0, 60_000.0, 98_304.0, 1_020_000.0, 2.9e6, 50e6]),
        choice(&[50.0, 1_000.0, 10_000.0]),
        choice(&[0.02, 0.5, 0.95]),
        1..7_usize,
    );
    let lags = (
        choice(&[0.0, 0.2, 3.0, 60.0, 4_000.0]),
        choice(&[-0.6, -0.01, 0.0, 0.01, 0.5, 3.0]),
        choice(&[1.0, 10.0]),
        any::<[bool; 2]>(),
    );
    let broker = (
        choice(&[0.2, 4.0, 40.0, 70.0]),
        choice(&[0.0, 0.1, 0.5, 0.9]),
        choice(&[0.0, 0.1, 0.6]),
        choice(&[0.0, 0.0, 0.0, 30.0]),
        choice(&[0.0, 0.0, 20.0]),
        any::<[bool; 2]>(),
    );
    (client, lags, broker).prop_map(|(client, lags, broker)| {
        let (idle, fetch_ms, fetch_bytes, record, fetch_use, count) = client;
        let (behind, growth, first, [is_own, has_slope]) = lags;
        let (round_trip, waited, local, cold, throttle, [has_broker, is_expelled]) = broker;
        let fetches = 1_000.0 * fetch_use / fetch_ms;
        let consumed = fetches * fetch_bytes / record;
        let share = consumed / count as f64;
        let partitions = (0..count).map(|index| {
            let weight = if index == 0 { first } else { 1.0 };
            let lag = weight * behind * share.max(1.0);
            ConsumedPartition {
                topic: String::from("t"),
                partition: index as i32,
                lag: Some(lag),
                lag_slope: has_slope.then_some(weight * growth * share),
                consumed_per_second: has_slope.then_some(share),
                produced_per_second: has_slope.then_some((share + weight * growth * share).max(0.0)),
                lag_ms: None,
                is_own_gauge: is_own,
            }
        });
        let mut snapshot = of(Consumer {
            records_per_second: Some(consumed),
            bytes_per_second: Some(consumed * record),
            fetches_per_second: Some(fetches),
            fetch_bytes: Some(fetch_bytes),
            fetch_ms: Some(fetch_ms),
            throttle_ms: Some(throttle).filter(|ms| *ms > 0.0),
            poll_idle_share: idle,
            ms_between_polls_max: Some(10.0 * fetch_ms),
            assigned_partitions: Some(count as f64),
            expelled: (is_expelled && first > 1.0)
                .then(|| String::from("other"))
                .into_iter()
                .collect(),
            partitions: partitions.collect(),
            ..Consumer::default()
        });
        snapshot.network.round_trip_ms = Some(round_trip).filter(|_| has_broker);
        if has_broker {
            let micros = |share: f64| Some(1_000.0 * share * (fetch_ms - round_trip).max(0.0));
            snapshot.brokers = vec![BrokerSide {
                requests_per_second: Some(fetches),
                bytes_per_second: Some(consumed * record),
                queue_micros: Some(50.0),
                local_micros: micros((1.0 - waited) * local),
                remote_micros: micros(waited),
                send_micros: micros((1.0 - waited) * (1.0 - local)),
                cold_reads_per_second: Some(cold),
                cold_read_ms: Some(fetch_ms * local).filter(|_| cold > 0.0),
                round_trip_ms: Some(round_trip),
                ..BrokerSide::default()
            }];
        }
        snapshot
    })
}

fn likely_settings() -> impl Strategy<Value = Vec<Option<f64>>> {
    let choice = |values: &[f64]| prop::sample::select(values.to_vec()).prop_map(Some);
    (
        choice(&[100.0, 500.0, 1_500.0, 5_000.0]),
        choice(&[1.0, 100_000.0, 1_048_576.0]),
        choice(&[65_536.0, 1_048_576.0, 52_428_800.0]),
        choice(&[16_384.0, 65_536.0, 1_048_576.0, 4_194_304.0]),
        choice(&[6_000.0, 300_000.0]),
        choice(&[-1.0, 16_384.0, 65_536.0, 1_048_576.0]),
        choice(&[6_000.0, 45_000.0]),
        choice(&[3_600_000.0]),
    )
        .prop_map(|all| vec![all.0, all.1, all.2, all.3, all.4, all.5, all.6, all.7])
}

/// The name and the number of `fetch.min.bytes=1`.
fn advised(diagnosis: &Diagnosis) -> Option<(&str, Option<f64>)> {
    let set = &diagnosis.recommendation.as_ref()?.set;
    let (name, value) = set.split_once('=').unwrap_or((set, ""));
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    Some((name, digits.parse().ok()))
}

fn present(settings: &Settings, name: &str) -> Option<f64> {
    let setting = match name {
        "fetch.min.bytes" => settings.fetch_min_bytes,
        "fetch.max.wait.ms" => settings.fetch_max_wait_ms,
        "fetch.max.bytes" => settings.fetch_max_bytes,
        "max.partition.fetch.bytes" => settings.max_partition_fetch_bytes,
        "max.poll.interval.ms" => settings.max_poll_interval_ms,
        "receive.buffer.bytes" => settings.receive_buffer_bytes,
        _ => None,
    };
    setting.map(|setting| setting.value)
}

/// Numbers in a sentence; those of names such as `t-1` do not count.
fn numbers_in(sentence: &str) -> usize {
    sentence
        .split_whitespace()
        .filter(|word| {
            word.trim_start_matches('(')
                .starts_with(|c: char| c.is_ascii_digit())
        })
        .count()
}

fn check(snapshot: &Snapshot) -> Result<Diagnosis, TestCaseError> {
    let diagnosis = diagnose(snapshot);
    for line in &diagnosis.evidence {
        prop_assert!(line.result.is_finite(), "{line:?}");
        prop_assert!(
            line.symbols.iter().all(|symbol| symbol.value.is_finite()),
            "{line:?}"
        );
    }
    if matches!(diagnosis.verdict, Verdict::NotEnoughData) {
        prop_assert!(diagnosis.refused.is_empty(), "{:?}", diagnosis.refused);
    }
    if matches!(diagnosis.verdict, Verdict::NotEnoughData | Verdict::KeepsUp) {
        prop_assert!(
            diagnosis.recommendation.is_none(),
            "{:?}",
            diagnosis.recommendation
        );
    }
    if let Some(change) = &diagnosis.recommendation {
        let promise = &change.promise;
        prop_assert!(
            promise.low.is_finite() && promise.high.is_finite() && promise.low <= promise.high,
            "{change:?}"
        );
        prop_assert!(promise.now.is_none_or(f64::is_finite), "{change:?}");
        prop_assert!(
            !promise.assumption.is_empty() && !change.next_ceiling.is_empty(),
            "{change:?}"
        );
    }
    if let Some((name, value)) = advised(&diagnosis) {
        prop_assert!(
            diagnosis.refused.iter().all(|refusal| refusal.set != name),
            "{name}: {:?}",
            diagnosis.refused
        );
        let now = present(&snapshot.settings, name);
        prop_assert!(value.is_none() || value != now, "{name} is {now:?} already");
    }
    let words = diagnosis.missing.iter().chain(&diagnosis.notes);
    for words in words.chain([&diagnosis.summary]) {
        prop_assert!(!words.contains("NaN") && !words.contains("inf "), "{words}");
    }
    prop_assert!(!diagnosis.summary.is_empty());
    prop_assert!(numbers_in(&diagnosis.summary) <= 2, "{}", diagnosis.summary);
    Ok(diagnosis)
}

proptest! {
    #![proptest_config(crate::doctor::rules::cases(2_000))]

    #[test]
    fn any_numbers_make_a_diagnosis(snapshot in any_snapshot()) {
        let diagnosis = check(&snapshot)?;
        // NaN and infinity become null, which is read back as absent.
        let text = serde_json::to_string(&diagnosis).unwrap();
        let read: Diagnosis = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.verdict, diagnosis.verdict);
    }

    #[test]
    fn likely_numbers_make_a_diagnosis(
        snapshot in likely_snapshot(),
        settings in likely_settings(),
        known in prop::collection::vec(any::<bool>(), 8),
    ) {
        let some: Vec<Option<f64>> = settings
            .into_iter()
            .zip(known)
            .map(|(value, is_known)| value.filter(|_| is_known))
            .collect();
        check(&Snapshot { settings: stated(&some), ..snapshot })?;
    }

    /// What is refused while a setting is only assumed is never advised once it is known.
    #[test]
    fn no_refusal_rests_on_a_guess(
        snapshot in prop_oneof![1 => any_snapshot(), 4 => likely_snapshot()],
        values in prop_oneof![
            1 => prop::collection::vec(anything().prop_map(Some), 8),
            4 => likely_settings()
        ],
    ) {
        let assumed = Snapshot { settings: Settings::default(), ..snapshot };
        let guessed = diagnose(&assumed);
        for only in 0..values.len() {
            let one: Vec<Option<f64>> = (0..values.len())
                .map(|index| values[index].filter(|_| index == only))
                .collect();
            let known = diagnose(&Snapshot { settings: stated(&one), ..assumed.clone() });
            if let Some((name, _)) = advised(&known) {
                prop_assert!(
                    guessed.refused.iter().all(|refusal| refusal.set != name),
                    "{name} was refused by {:?}, and is advised by {:?}: {:?}",
                    guessed.verdict,
                    known.verdict,
                    known.recommendation
                );
            }
        }
    }

    /// One percent more or less, away from thresholds, changes no verdict.
    #[test]
    fn a_little_noise_changes_no_verdict(
        index in 0..4_usize,
        noise in prop::collection::vec(0.99..1.01_f64, 6),
    ) {
        let consumer = [slow_work, full_speed, idle, starved][index]();
        let mut snapshot = of(consumer.clone());
        snapshot.network.round_trip_ms = Some(40.0);
        let shaken = |value: Option<f64>, at: usize| value.map(|value| value * noise[at]);
        let mut other = snapshot.clone();
        other.consumer = Some(Consumer {
            records_per_second: shaken(consumer.records_per_second, 0),
            bytes_per_second: shaken(consumer.bytes_per_second, 1),
            fetches_per_second: shaken(consumer.fetches_per_second, 2),
            fetch_bytes: shaken(consumer.fetch_bytes, 3),
            fetch_ms: shaken(consumer.fetch_ms, 4),
            poll_idle_share: shaken(consumer.poll_idle_share, 5).map(|share| share.min(1.0)),
            ..consumer
        });
        prop_assert_eq!(check(&snapshot)?.verdict, check(&other)?.verdict);
    }
}
