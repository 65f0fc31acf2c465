//! For any numbers: no panic, nothing infinite, no inverted promise bounds, no advice that is also
//! refused.

use proptest::prelude::*;

use super::rows::{ROW, Row};
use crate::doctor::diagnosis::Diagnosis;
use crate::doctor::rules::examine;
use crate::doctor::snapshot::{Codec, Library, Snapshot};

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
            !promise.assumption.is_empty() && !change.next_ceiling.is_empty(),
            "{change:?}"
        );
        let set = change.set.split('=').next().unwrap_or_default();
        prop_assert!(
            diagnosis.refused.iter().all(|refusal| refusal.set != set),
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

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
}
