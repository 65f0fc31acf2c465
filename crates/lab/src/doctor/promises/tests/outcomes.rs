//! Every outcome of a promise, and how it is known that the setting was applied.

use super::super::super::snapshot::{BrokerSide, Codec, Host, Origin, Role, Setting, Settings};
use super::*;

#[test]
fn a_client_that_comes_back_with_the_setting_decides_its_promise() {
    let mut world = World::new(larger_batches as Doctor);
    world.run(45, &[SLOW]);
    let open = world.row();
    assert_eq!((open.score, open.set.as_str()), (Score::Open, "batch.size=16384"));
    assert_eq!((open.before, open.high), (Some(1_600.0), 4_000.0));
    world.close(&SLOW).run(75, &[FAST]);
    let row = world.row();
    assert_eq!(row.score, Score::Kept, "{row:#?}");
    assert_eq!(
        row.applied,
        "a new instance; the largest batch grew from 4,050 to 16,200 bytes"
    );
    assert_eq!(
        row.sentence(),
        "Promised 4,000 records/s by batch.size=16384; measured 3,980: kept."
    );
    assert_eq!(row.instance_before.as_deref(), Some("first"));
    assert_eq!(row.instance_after.as_deref(), Some("second"));
    assert_eq!(
        (row.verdict_before, row.verdict_after),
        (Verdict::SenderRate, Some(Verdict::KeepsUp))
    );
    assert_eq!(world.promises().summary(), "1 promise: 1 kept.");
    let lately = |instance: &str, since_ms| {
        let all = world.promises();
        all.decided_lately("orders", Some(instance), Role::Producer, since_ms)
            .is_some()
    };
    assert!(lately("second", BEGIN_MS) && !lately("first", BEGIN_MS));
    assert!(!lately("second", world.now_ms + 1));
}

#[test]
fn more_than_promised_is_kept_and_said() {
    let mut world = World::new(larger_batches as Doctor);
    let faster = Client {
        rate: 5_000.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(75, &[faster]);
    assert_eq!(world.row().score, Score::Exceeded);
    assert!(
        world
            .row()
            .sentence()
            .ends_with("measured 5,000: kept, and more.")
    );
}

#[test]
fn a_promise_that_fails_says_what_limits_the_client_now() {
    let mut world = World::new(larger_batches as Doctor);
    let limited = Client {
        rate: 2_100.0,
        queue_ms: 900.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[limited]);
    let row = world.row();
    assert_eq!(
        row.sentence(),
        "Promised 4,000 records/s by batch.size=16384; measured 2,100: not kept, because \
         NETWORK_WINDOW: 64 KiB fill the window."
    );
    assert_eq!(world.promises().summary(), "1 promise: 1 not kept.");
}

#[test]
fn a_latency_that_the_promise_assumed_unchanged_is_a_reason() {
    let mut world = World::new(larger_batches as Doctor);
    let slower = Client {
        rate: 2_100.0,
        queue_ms: 900.0,
        request_ms: 82.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[slower]);
    let because = world.row().because;
    assert!(
        because.starts_with(
            "a request takes 82 ms, 41 when it was promised, and the promise assumed that unchanged; NETWORK_WINDOW"
        ),
        "{because}"
    );
}

#[test]
fn a_machine_without_a_processor_left_is_a_reason() {
    let mut world = World::new(larger_batches as Doctor);
    let limited = Client {
        rate: 2_100.0,
        queue_ms: 900.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW);
    world.observed = Some(seen(BrokerSide {
        host: Some(Host {
            used: Some(0.99),
            waiting: Some(0.6),
            ..Host::default()
        }),
        ..BrokerSide::default()
    }));
    world.run(150, &[limited]);
    let row = world.row();
    assert_eq!(row.score, Score::NotKept);
    assert!(
        row.because
            .starts_with("the machine has no processor left (99 % used, 60 % of the time"),
        "{}",
        row.because
    );
}

/// What a broker saw of the client "orders".
fn seen(broker: BrokerSide) -> Observed {
    Observed {
        client: snapshot::Client {
            client_id: "orders".into(),
            principal: Some("User:alice".into()),
            address: Some("10.0.0.1:5000".into()),
            ..snapshot::Client::default()
        },
        seconds: 60.0,
        broker,
        ..Observed::default()
    }
}

#[test]
fn a_client_that_offers_less_tests_nothing() {
    let mut world = World::new(larger_batches as Doctor);
    let idle = Client {
        rate: 1_200.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[idle]);
    let row = world.row();
    assert_eq!(row.score, Score::NotTested);
    assert_eq!(
        row.because,
        "the client offers less than promised, and nothing limits it: KEEPS_UP: it sends all that it is given"
    );
    assert_eq!(world.promises().summary(), "1 promise: 1 not tested.");
}

#[test]
fn another_value_of_the_setting_tests_nothing() {
    let mut world = World::new(larger_batches as Doctor);
    let larger = Client {
        batch_max: 65_000.0,
        batch_mean: 60_000.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[larger]);
    let row = world.row();
    assert_eq!(row.score, Score::NotTested);
    assert!(
        row.because.starts_with("another value was set"),
        "{}",
        row.because
    );
}

#[test]
fn a_restart_without_the_setting_keeps_the_promise_open() {
    let mut world = World::new(larger_batches as Doctor);
    let again = Client {
        instance_id: "unchanged",
        ..SLOW
    };
    world
        .run(45, &[SLOW])
        .close(&SLOW)
        .run(150, std::slice::from_ref(&again));
    let row = world.row();
    assert_eq!(
        (row.score, row.instance_before.as_deref()),
        (Score::Open, Some("unchanged"))
    );
    world.close(&again).run(75, &[FAST]);
    assert_eq!(world.row().score, Score::Kept);
}

#[test]
fn a_slow_start_does_not_break_a_promise() {
    let mut world = World::new(larger_batches as Doctor);
    let starting = Client {
        rate: 500.0,
        queue_ms: 900.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(30, &[starting]);
    assert_eq!(world.row().score, Score::Measuring);
    world.run(90, &[FAST]);
    assert_eq!(world.row().score, Score::Kept);
}

#[test]
fn a_good_first_push_is_not_yet_a_kept_promise() {
    let mut world = World::new(larger_batches as Doctor);
    world.run(45, &[SLOW]).close(&SLOW).run(30, &[FAST]);
    assert_eq!(world.row().score, Score::Measuring);
}

#[test]
fn a_restart_of_the_same_instance_is_a_return() {
    let mut world = World::new(larger_batches as Doctor);
    let begin = |client: Client, started_ms| Client {
        instance_id: "always",
        started_ms: Some(started_ms),
        ..client
    };
    world
        .run(45, &[begin(SLOW, 1_000.0)])
        .run(90, &[begin(FAST, 2_000.0)]);
    let row = world.row();
    assert_eq!(row.score, Score::Kept, "{row:#?}");
    assert!(row.applied.starts_with("a new instance; "), "{}", row.applied);
}

#[test]
fn larger_batches_of_the_same_instance_are_another_load() {
    let mut world = World::new(larger_batches as Doctor);
    let busier = Client {
        instance_id: SLOW.instance_id,
        ..FAST
    };
    world.run(45, &[SLOW]).run(150, &[busier]);
    assert_eq!(world.row().score, Score::Open);
}

/// Recommends a codec that its broker can see.
fn another_codec(snapshot: &Snapshot) -> Diagnosis {
    match snapshot.settings.compression.map(|codec| codec.value) {
        Some(Codec::Zstd) => diagnosis(snapshot, Verdict::KeepsUp, "it keeps up"),
        _ => Diagnosis {
            recommendation: advice("compression.type=zstd", records(snapshot, 3_900.0, 4_500.0)),
            ..diagnosis(snapshot, Verdict::NetworkBandwidth, "the link is full")
        },
    }
}

#[test]
fn a_setting_that_the_broker_reads_needs_no_other_proof() {
    let mut world = World::new(another_codec as Doctor);
    let codec = |value| Observed {
        settings: Settings {
            compression: Some(Setting {
                value,
                origin: Origin::Seen,
            }),
            ..Settings::default()
        },
        ..seen(BrokerSide::default())
    };
    world.observed = Some(codec(Codec::None));
    world.run(45, &[SLOW]).close(&SLOW);
    world.observed = Some(codec(Codec::Zstd));
    let same_sizes = Client {
        instance_id: "second",
        rate: 4_000.0,
        ..SLOW
    };
    world.run(90, &[same_sizes]);
    let row = world.row();
    assert_eq!(
        (row.score, row.applied.as_str()),
        (Score::Kept, "the broker saw compression.type=zstd")
    );
}

#[test]
fn a_setting_that_the_client_has_already_is_not_promised_about() {
    fn the_same_again(snapshot: &Snapshot) -> Diagnosis {
        Diagnosis {
            recommendation: advice("compression.type=zstd", records(snapshot, 3_900.0, 4_500.0)),
            ..diagnosis(snapshot, Verdict::NetworkBandwidth, "the link is full")
        }
    }
    let mut world = World::new(the_same_again as Doctor);
    world.observed = Some(Observed {
        settings: Settings {
            compression: Some(Setting {
                value: Codec::Zstd,
                origin: Origin::Seen,
            }),
            ..Settings::default()
        },
        ..seen(BrokerSide::default())
    });
    world.run(60, &[SLOW]);
    assert!(world.promises().promises.is_empty());
}

#[test]
fn a_setting_that_the_broker_reads_as_before_was_not_applied() {
    let mut world = World::new(another_codec as Doctor);
    world.observed = Some(Observed {
        settings: Settings {
            compression: Some(Setting {
                value: Codec::None,
                origin: Origin::Seen,
            }),
            ..Settings::default()
        },
        ..seen(BrokerSide::default())
    });
    let faster = Client {
        instance_id: "second",
        rate: 4_000.0,
        ..SLOW
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[faster]);
    assert_eq!(world.row().score, Score::Open);
}

/// Recommends linger.ms by the rate, so that the recommendation goes when the rate is reached.
fn longer_linger(snapshot: &Snapshot) -> Diagnosis {
    match rate_of(snapshot) < 3_000.0 {
        true => Diagnosis {
            recommendation: advice("linger.ms=10", records(snapshot, 3_900.0, 4_500.0)),
            ..diagnosis(snapshot, Verdict::SenderRate, "batches are small")
        },
        false => diagnosis(snapshot, Verdict::KeepsUp, "it keeps up"),
    }
}

#[test]
fn a_setting_that_nothing_shows_is_not_counted() {
    let mut world = World::new(longer_linger as Doctor);
    let faster = Client {
        instance_id: "second",
        rate: 4_000.0,
        ..SLOW
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[faster]);
    let row = world.row();
    assert_eq!((row.score, row.applied.as_str()), (Score::Unknown, ""));
    let all = world.promises();
    assert_eq!(
        (all.kept, all.not_kept, all.not_tested, all.unknown),
        (0, 0, 0, 1)
    );
    assert_eq!(
        all.summary(),
        "No promise has been decided; 1 not counted: nothing shows whether the setting was applied."
    );
}

#[test]
fn a_new_instance_that_is_recommended_the_same_again_did_not_follow() {
    let mut world = World::new(longer_linger as Doctor);
    let again = Client {
        instance_id: "second",
        ..SLOW
    };
    world
        .run(45, &[SLOW])
        .close(&SLOW)
        .run(150, std::slice::from_ref(&again));
    assert_eq!(world.row().score, Score::Open);
    let fuller = Client {
        instance_id: "third",
        rate: 4_000.0,
        batch_mean: 9_000.0,
        ..SLOW
    };
    world.close(&again).run(90, &[fuller]);
    assert_eq!(world.row().score, Score::Kept);
}

#[test]
fn a_new_instance_shows_a_setting_by_another_figure_than_the_promised_one() {
    let mut world = World::new(longer_linger as Doctor);
    let fuller = Client {
        instance_id: "second",
        rate: 4_000.0,
        batch_mean: 9_000.0,
        ..SLOW
    };
    world.run(45, &[SLOW]).close(&SLOW).run(90, &[fuller]);
    let row = world.row();
    assert_eq!(
        row.applied,
        "a new instance; a batch (bytes) went from 4,000 to 9,000"
    );
    assert_eq!(row.score, Score::Kept);
}

/// Promises a latency by the queue.
fn shorter_queue(snapshot: &Snapshot) -> Diagnosis {
    let own = snapshot.producer.as_ref().unwrap();
    let now = own.queue_ms.unwrap() + own.request_ms.unwrap();
    let latency = promise("sender_latency_ms", "ms", Some(now), 43.0, 56.0);
    match own.batch_bytes_max.unwrap() < 4_100.0 {
        true => Diagnosis {
            recommendation: advice("batch.size=16384", latency),
            ..diagnosis(snapshot, Verdict::SenderRate, "batches are full")
        },
        false => diagnosis(snapshot, Verdict::KeepsUp, "it keeps up"),
    }
}

#[test]
fn a_latency_is_kept_from_above_and_only_under_the_same_load() {
    let outcome = |after: Client| {
        let mut world = World::new(shorter_queue as Doctor);
        world.run(45, &[SLOW]).close(&SLOW).run(150, &[after]);
        let row = world.row();
        (row.score, row.because)
    };
    let with = |rate, queue_ms| Client {
        rate,
        queue_ms,
        ..FAST
    };
    assert_eq!(outcome(with(1_600.0, 5.0)).0, Score::Kept);
    assert_eq!(outcome(with(1_600.0, 0.0)).0, Score::Kept);
    assert_eq!(outcome(with(1_600.0, 100.0)).0, Score::NotKept);
    let (score, because) = outcome(with(800.0, 5.0));
    assert_eq!(score, Score::NotTested);
    assert_eq!(
        because,
        "the client carries 800 records/s, 1,600 when it was promised"
    );
    let (score, because) = outcome(with(4_000.0, 100.0));
    assert_eq!(score, Score::NotTested);
    assert!(because.contains("carries 4,000 records/s"), "{because}");
    // More records at the promised latency are no excuse and need none.
    assert_eq!(outcome(with(4_000.0, 5.0)).0, Score::Kept);
}

#[test]
fn the_collector_keeps_the_score_of_what_its_own_rules_promise() {
    let mut world = World::new(None);
    // Full batches of 16 KiB, five requests in flight over 41 ms all the time.
    let full = Client {
        rate: 19_500.0,
        batch_max: 16_380.0,
        batch_mean: 16_300.0,
        ..SLOW
    };
    world.run(60, std::slice::from_ref(&full));
    let open = world.row();
    let change = change::Change::parse(&open.set).unwrap();
    assert_eq!((change.key.as_str(), open.score), ("batch.size", Score::Open));
    let after = Client {
        rate: open.high,
        batch_max: 0.99 * change.number().unwrap(),
        batch_mean: 0.7 * change.number().unwrap(),
        ..FAST
    };
    world.close(&full).run(90, &[after]);
    let row = world.row();
    assert_eq!(row.score, Score::Kept, "{row:#?}");
}
