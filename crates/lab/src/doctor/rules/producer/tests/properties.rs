//! For any numbers: no panic, nothing infinite, no inverted promise bounds, no promise that cannot
//! fail, no advice that is also refused or set already, and no refusal that rests on a guess.

use proptest::prelude::*;

use super::rows::{ROW, Row};
use crate::doctor::diagnosis::Diagnosis;
use crate::doctor::rules::{engine, examine, inference};
use crate::doctor::snapshot::{BrokerSide, Codec, Library, Origin, Setting, Snapshot};

fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-3.0..9.0_f64).prop_map(|exponent| 10.0_f64.powf(exponent)),
        1 => Just(0.0),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(f64::MAX), Just(f64::MIN_POSITIVE)],
    ]
}

fn maybe() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of(anything())
}

/// A row of the given numbers, in this order.
fn row(numbers: &[f64], options: &[Option<f64>], flags: (Option<i16>, bool, bool, u8)) -> Row {
    let (acks, is_rounded, has_codec, brokers) = flags;
    let shares = options[4].zip(options[5]);
    Row {
        name: "any",
        records: numbers[0],
        offered: numbers[1],
        threads: numbers[2],
        send_micros: numbers[3],
        requests: numbers[4],
        request_bytes: numbers[5],
        batch: numbers[6],
        records_per_request: numbers[7],
        latency: numbers[8],
        queue_max: numbers[9],
        batch_size: numbers[10],
        in_flight: numbers[11],
        send_buffer: numbers[12],
        round_trip: numbers[13],
        window: numbers[14],
        link: numbers[15],
        partitions: numbers[16],
        in_flight_seen: numbers[17],
        broker: is_rounded.then_some((numbers[18], numbers[19], numbers[20])),
        queue: options[0],
        buffer_wait: options[1],
        linger: options[2],
        compression_rate: options[3].unwrap_or(0.0),
        exhausted: options[1].unwrap_or(0.0),
        failed: options[2].unwrap_or(0.0),
        thread: shares.map(|(wait, work)| (wait.fract().abs(), work.fract().abs())),
        acks,
        is_rounded: has_codec,
        brokers: f64::from(brokers),
        codec: has_codec.then_some(Codec::Lz4),
        ..ROW
    }
}

fn check(snapshot: &Snapshot) -> Result<Diagnosis, TestCaseError> {
    let diagnosis = examine(snapshot);
    for line in &diagnosis.evidence {
        prop_assert!(line.result.is_finite(), "{line:?}");
        for symbol in &line.symbols {
            prop_assert!(symbol.value.is_finite(), "{line:?}");
        }
    }
    if let Some(change) = &diagnosis.recommendation {
        let promise = &change.promise;
        prop_assert!(
            promise.low.is_finite() && promise.high.is_finite() && promise.low <= promise.high,
            "{change:?}"
        );
        prop_assert!(promise.now.is_none_or(f64::is_finite), "{change:?}");
        prop_assert!(
            engine::can_fail(promise) || promise.unknown.is_some(),
            "a promise that cannot fail: {change:?}"
        );
        if let (Some(present), Some((name, value))) = (
            inference::present(snapshot, engine::setting_of(&change.set)),
            change.set.split_once('='),
        ) {
            prop_assert!(value.parse() != Ok(present), "{name} is {value} already");
        }
        prop_assert!(!change.next_ceiling.is_empty(), "{change:?}");
        let set = engine::setting_of(&change.set);
        prop_assert!(
            diagnosis
                .refused
                .iter()
                .all(|refusal| refusal.set != set && !engine::is_named(&change.set, &refusal.set)),
            "{set}: {:?}",
            diagnosis.refused
        );
    }
    for words in [&diagnosis.summary]
        .into_iter()
        .chain(&diagnosis.notes)
        .chain(&diagnosis.missing)
    {
        prop_assert!(!words.contains("NaN") && !words.contains("inf "), "{words}");
    }
    prop_assert!(!diagnosis.summary.is_empty());
    prop_assert!(diagnosis.reasoning.len() >= 3);
    Ok(diagnosis)
}

/// What a producer with numbers that fit each other pushes, and what its broker sees.
#[derive(Clone, Debug)]
struct Live {
    row: Row,
    largest: Option<f64>,
    by_broker: BrokerSide,
    has_own: bool,
}

impl Live {
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.row.snapshot();
        if let Some(own) = &mut snapshot.producer {
            own.batch_bytes_max = self.largest;
        }
        if !self.has_own {
            snapshot.producer = None;
            snapshot.telemetry.pushes = Some(0);
        }
        snapshot.brokers = vec![self.by_broker.clone()];
        snapshot
    }
}

fn live() -> impl Strategy<Value = Live> {
    let log = |low: f64, high: f64| (low.ln()..high.ln()).prop_map(f64::exp);
    let sizes = (log(50.0, 5_000.0), log(300.0, 300_000.0), 1..6_u8, 0.3..1.0_f64);
    let times = (
        log(0.1, 90.0),
        log(0.05, 60.0),
        1.0..4.0_f64,
        0.05..1.05_f64,
        1..7_u8,
    );
    let queue = (
        log(0.1, 20_000.0),
        proptest::option::of(0.0..1.0_f64),
        0.0..1.0_f64,
        0.0..1.0_f64,
    );
    let others = (
        any::<bool>(),
        any::<bool>(),
        0.0..1.0_f64,
        proptest::option::of(Just(Codec::Zstd)),
    );
    (sizes, times, queue, others).prop_map(|(sizes, times, queue, others)| {
        let (record, batch, partitions, even) = sizes;
        let (trip_ms, broker_ms, trips, used, allowed) = times;
        let (has_own, has_largest, back_to_back, codec) = others;
        let batch = batch.max(record);
        let latency = trips * trip_ms + broker_ms;
        let requests = used * f64::from(allowed) * 1_000.0 / latency;
        let request_bytes = batch * f64::from(partitions);
        let records = requests * request_bytes / record;
        let row = Row {
            name: "live",
            records,
            requests,
            request_bytes,
            batch,
            records_per_request: request_bytes / record,
            latency,
            queue: Some(queue.0),
            queue_max: 2.0 * queue.0,
            buffer_wait: queue.1,
            thread: Some((queue.2, (1.0 - queue.2) * queue.3)),
            partitions: f64::from(partitions),
            codec,
            ..ROW
        };
        let by_broker = BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(requests),
            records_per_second: Some(records),
            bytes_per_second: Some(requests * request_bytes),
            request_bytes: Some(request_bytes),
            records_per_request: Some(request_bytes / record),
            batch_bytes: Some(batch),
            batch_bytes_max: has_largest.then_some(batch / even),
            local_micros: Some(1_000.0 * broker_ms),
            round_trip_ms: Some(trip_ms),
            gap_ms: Some(trip_ms),
            back_to_back_share: Some(back_to_back),
            has_overlap: Some(allowed > 1),
            ..BrokerSide::default()
        };
        let largest = has_largest.then_some(batch / even);
        Live {
            row,
            largest,
            by_broker,
            has_own,
        }
    })
}

fn stated(value: f64) -> Option<Setting<f64>> {
    Some(Setting {
        value,
        origin: Origin::Stated,
    })
}

/// The same client with a setting stated in every way that its numbers allow.
fn told(live: &Live, name: &str) -> Vec<Snapshot> {
    let snapshot = live.snapshot();
    let largest = live.largest.unwrap_or(live.row.batch).max(live.row.batch);
    let under_way = (live.row.requests * live.row.latency / 1_000.0).ceil().max(1.0);
    let values = match name {
        "batch.size" => vec![largest, 1.1 * largest, 2.0 * largest, 1e6_f64.max(largest)],
        "linger.ms" => vec![
            0.0,
            5.0_f64.min(live.row.queue.unwrap_or(5.0)),
            live.row.queue.unwrap_or(5.0).floor(),
        ],
        "max.in.flight.requests.per.connection" => vec![under_way, 2.0 * under_way, 100.0],
        "send.buffer.bytes" => vec![16_384.0, 131_072.0, 1_048_576.0],
        _ => Vec::new(),
    };
    values
        .into_iter()
        .map(|value| {
            let mut told = snapshot.clone();
            match name {
                "batch.size" => told.settings.batch_bytes = stated(value),
                "linger.ms" => told.settings.linger_ms = stated(value),
                "send.buffer.bytes" => told.settings.send_buffer_bytes = stated(value),
                _ => told.settings.in_flight = stated(value),
            }
            told
        })
        .collect()
}

proptest! {
    #![proptest_config(crate::doctor::rules::cases(1_000))]

    #[test]
    fn any_numbers_make_a_diagnosis(
        numbers in proptest::collection::vec(anything(), 21),
        options in proptest::collection::vec(maybe(), 6),
        flags in (proptest::option::of(-1_i16..=1), any::<bool>(), any::<bool>(), 1..4_u8),
        library in prop_oneof![Just(Library::Java), Just(Library::Librdkafka), Just(Library::FranzGo), Just(Library::Unknown)], pushes in proptest::option::of(0_u32..4),
    ) {
        let mut snapshot = row(&numbers, &options, flags).snapshot();
        snapshot.client.library = library;
        snapshot.telemetry.pushes = pushes;
        check(&snapshot)?;
    }

    /// One percent more or less, away from thresholds, changes no verdict.
    #[test]
    fn a_little_noise_changes_no_verdict(index in 0..super::own::stable().len(), noise in proptest::collection::vec(0.99..1.01_f64, 6)) {
        let row = super::own::stable()[index];
        let shaken = Row {
            records: row.records * noise[0],
            requests: row.requests * noise[1],
            request_bytes: row.request_bytes * noise[2],
            latency: row.latency * noise[3],
            queue: row.queue.map(|queue| queue * noise[4]),
            batch: row.batch * noise[5],
            ..row
        };
        prop_assert_eq!(check(&row.snapshot())?.verdict, check(&shaken.snapshot())?.verdict, "{}", row.name);
    }

    /// What is refused while a setting is not known is recommended for no value that it may have.
    #[test]
    fn no_refusal_rests_on_a_guess(live in live()) {
        let diagnosis = check(&live.snapshot())?;
        for refusal in &diagnosis.refused {
            for snapshot in told(&live, &refusal.set) {
                let change = check(&snapshot)?.recommendation.map(|change| change.set).unwrap_or_default();
                prop_assert!(
                    engine::setting_of(&change) != refusal.set,
                    "{refusal:?} of {:?} ({}), but {change} with {:?}",
                    diagnosis.verdict,
                    diagnosis.summary,
                    snapshot.settings
                );
            }
        }
    }
}
