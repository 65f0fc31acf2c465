//! What is promised at all, who is who, and how much is kept.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::ledger::{DECIDED_MAX, FOLLOWED_MAX};
use super::*;

#[test]
fn a_promise_without_its_client_is_forgotten_after_a_week() {
    let mut world = World::new(larger_batches as Doctor);
    world.run(45, &[SLOW]).close(&SLOW);
    world.now_ms += 6 * 86_400_000;
    world.look();
    assert_eq!(world.row().score, Score::Open);
    world.now_ms += 86_400_000;
    world.look();
    assert!(world.promises().promises.is_empty());
    // What only one examination recommended goes as soon as the client may be displaced.
    world.run(15, &[SLOW]).close(&SLOW).run(105, &[]);
    assert_eq!(world.ledger.followed_count(), 1);
    world.run(15, &[]);
    assert_eq!(world.ledger.followed_count(), 0);
}

/// Another recommendation at every examination.
fn undecided(snapshot: &Snapshot) -> Diagnosis {
    let heard_ms = snapshot.telemetry.heard_ms.unwrap() - BEGIN_MS;
    let is_even = ((heard_ms + 5_000) / LOOK_MS) % 2 == 0;
    let set = if is_even {
        "batch.size=16384"
    } else {
        "linger.ms=10"
    };
    Diagnosis {
        recommendation: advice(set, records(snapshot, 3_900.0, 4_500.0)),
        ..diagnosis(snapshot, Verdict::SenderRate, "it depends")
    }
}

#[test]
fn a_recommendation_that_changes_promises_nothing() {
    let mut world = World::new(undecided as Doctor);
    world.run(90, &[SLOW]);
    assert!(world.promises().promises.is_empty());
    let mut once = World::new(larger_batches as Doctor);
    once.run(15, &[SLOW]);
    assert!(once.promises().promises.is_empty());
    // Without another push a second examination says what the first said.
    once.look();
    assert!(once.promises().promises.is_empty());
    once.run(15, &[SLOW]);
    assert_eq!(once.promises().promises.len(), 1);
}

#[test]
fn a_range_that_cannot_fail_is_no_promise() {
    let of = |now, low, high| promise("records_per_second", "records/s", now, low, high);
    let now = Some(100.0);
    for promise in [
        of(now, f64::NAN, 200.0),
        of(now, 150.0, f64::INFINITY),
        of(now, 100.0, 100.0),
        of(now, 90.0, 200.0),
        of(now, 200.0, 150.0),
        of(Some(f64::NAN), 150.0, 200.0),
        of(None, 0.0, 0.0),
    ] {
        assert!(!range::can_fail(&promise), "{promise:?}");
    }
    assert!(range::can_fail(&of(now, 150.0, 200.0)));
    assert!(range::can_fail(&of(now, 0.0, 50.0)));
}

#[test]
fn a_figure_that_no_window_shows_is_not_promised_about() {
    fn unmeasured(snapshot: &Snapshot) -> Diagnosis {
        let promise = promise("happiness", "", Some(1.0), 2.0, 3.0);
        Diagnosis {
            recommendation: advice("batch.size=16384", promise),
            ..diagnosis(snapshot, Verdict::SenderRate, "it is sad")
        }
    }
    let mut world = World::new(unmeasured as Doctor);
    world.run(60, &[SLOW]);
    assert!(world.promises().promises.is_empty());
}

#[test]
fn clients_that_share_an_id_are_told_apart_by_their_address() {
    let mut world = World::new(larger_batches as Doctor);
    let slow = |instance_id, host| Client {
        instance_id,
        host,
        ..SLOW
    };
    let fast = |instance_id, host| Client {
        instance_id,
        host,
        ..FAST
    };
    let (one, other) = (slow("a1", "10.0.0.1"), slow("b1", "10.0.0.2"));
    world.run(45, &[one.clone(), other.clone()]);
    assert_eq!(world.promises().promises.len(), 2);
    world.close(&one).run(75, &[fast("a2", "10.0.0.1"), other]);
    let scores: BTreeMap<_, _> = world
        .promises()
        .promises
        .into_iter()
        .map(|row| (row.host.unwrap(), row.score))
        .collect();
    assert_eq!(
        scores,
        [("10.0.0.1".into(), Score::Kept), ("10.0.0.2".into(), Score::Open)].into()
    );
    // On one address nothing tells them apart.
    let mut world = World::new(larger_batches as Doctor);
    world.run(90, &[slow("a", "10.0.0.1"), slow("b", "10.0.0.1")]);
    assert!(world.promises().promises.is_empty());
}

#[test]
fn an_instance_that_died_is_still_there_until_it_expires() {
    let mut world = World::new(larger_batches as Doctor);
    // No terminating push: for a minute both are listed, on one address.
    world.run(45, &[SLOW]).run(45, &[FAST]);
    assert_eq!(world.row().score, Score::Open);
    world.run(90, &[FAST]);
    assert_eq!(world.row().score, Score::Kept);
}

/// A snapshot of one of many clients, as the collector makes them.
fn one_of_many(index: usize, instance: usize, batch_max: f64) -> Snapshot {
    Snapshot {
        client: snapshot::Client {
            client_id: format!("client-{index}-{}", "x".repeat(300)),
            instance_id: Some(format!("{index}-{instance}")),
            principal: Some("y".repeat(300)),
            address: Some(format!("10.0.0.1:{index}")),
            ..snapshot::Client::default()
        },
        seconds: 60.0,
        producer: Some(snapshot::Producer {
            records_per_second: Some(1_600.0),
            batch_bytes: Some(batch_max),
            batch_bytes_max: Some(batch_max),
            queue_ms: Some(2_000.0),
            ..snapshot::Producer::default()
        }),
        ..Snapshot::default()
    }
}

#[test]
fn ten_thousand_clients_stay_within_the_ledger_s_bounds() {
    let mut ledger = Ledger::default();
    let mut look = |at_s: i64, range: std::ops::Range<usize>, instance, batch_max| {
        let sightings = range.map(|index| {
            let mut snapshot = one_of_many(index, instance, batch_max);
            snapshot.telemetry.heard_ms = Some(at_s);
            Sighting::of(&snapshot, &larger_batches(&snapshot))
        });
        let at_ms = BEGIN_MS + at_s * 1_000;
        ledger.look(at_ms, &sightings.collect::<Vec<_>>());
        assert!(ledger.followed_count() <= FOLLOWED_MAX);
        ledger.document(at_ms)
    };
    for at_s in [0, 15, 30] {
        let document = look(at_s, 0..10_000, 1, 4_000.0);
        assert_eq!(document.left_out, 10_000 - FOLLOWED_MAX as u64);
    }
    let open = look(45, 0..10_000, 1, 4_000.0);
    assert_eq!(open.promises.len(), FOLLOWED_MAX);
    assert!(open.promises.iter().all(|row| row.client_id.len() <= 255));
    // Those that are gone make room for others, and only they do.
    let present: Vec<&str> = open.promises.iter().map(|row| row.client_id.as_str()).collect();
    look(200, 10_000..10_010, 1, 4_000.0);
    let mixed = look(215, 10_000..10_010, 1, 4_000.0);
    let is_present = |row: &&Row| present.contains(&row.client_id.as_str());
    assert_eq!(
        mixed.promises.iter().filter(is_present).count(),
        FOLLOWED_MAX - 10
    );
    // All of them come back: the latest decided promises stay.
    let mut last = Promises::default();
    for at_s in [300, 315, 330, 345, 375, 390] {
        last = look(at_s, 0..10_010, 2, 16_000.0);
    }
    let decided = last.promises.iter().filter(|row| row.score.is_decided()).count();
    assert_eq!((decided, last.promises.len()), (DECIDED_MAX, DECIDED_MAX));
    assert_eq!(last.kept + last.not_kept + last.not_tested, FOLLOWED_MAX as u64);
}

#[test]
fn counts_that_begin_again_are_a_restart_although_the_id_stays() {
    let mut ledger = Ledger::default();
    let mut look = |at_s: i64, batch_max, restarted| {
        let mut snapshot = one_of_many(1, 1, batch_max);
        snapshot.telemetry.restarted = restarted;
        snapshot.telemetry.heard_ms = Some(at_s);
        let mut diagnosis = larger_batches(&snapshot);
        if restarted {
            // Rule S0: a window with a restart is no evidence.
            diagnosis.verdict = Verdict::NotEnoughData;
        }
        let at_ms = BEGIN_MS + at_s * 1_000;
        ledger.look(at_ms, &[Sighting::of(&snapshot, &diagnosis)]);
        let rows = ledger.document(at_ms).promises;
        rows.first().map_or_else(String::new, |row| row.applied.clone())
    };
    let mut applied = String::new();
    for (at_s, batch_max, restarted) in [
        (0, 4_000.0, false),
        (15, 4_000.0, false),
        (30, 4_000.0, false),
        (45, 16_000.0, true),
        (60, 16_000.0, false),
    ] {
        applied = look(at_s, batch_max, restarted);
    }
    assert!(applied.starts_with("a new instance; "), "{applied:?}");
}

#[test]
fn a_name_that_hundreds_of_machines_share_takes_a_bounded_part_of_the_ledger() {
    let mut ledger = Ledger::default();
    for at_s in [0, 15] {
        let sightings = (0..500).map(|index| {
            let mut snapshot = one_of_many(index, 1, 4_000.0);
            snapshot.client.client_id = "producer-1".into();
            snapshot.telemetry.heard_ms = Some(at_s);
            snapshot.client.address = Some(format!("10.0.{}.{}", index / 250, index % 250));
            Sighting::of(&snapshot, &larger_batches(&snapshot))
        });
        ledger.look(BEGIN_MS + at_s * 1_000, &sightings.collect::<Vec<_>>());
    }
    let document = ledger.document(BEGIN_MS);
    assert_eq!((document.promises.len(), document.left_out), (64, 436));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever clients do, a promise is decided once, and every decision is counted once.
    #[test]
    fn no_promise_is_decided_twice(
        phases in prop::collection::vec((0..4_usize, 0..3_usize, any::<bool>(), 1..12_i64), 1..14)
    ) {
        const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];
        let mut world = World::new(larger_batches as Doctor);
        let mut decided: BTreeMap<(i64, String), Row> = BTreeMap::new();
        for (instance, kind, closes, looks) in phases {
            let kinds = [SLOW, FAST, Client { rate: 1_200.0, queue_ms: 900.0, ..FAST }];
            let client = Client { instance_id: INSTANCES[instance], ..kinds[kind].clone() };
            for _ in 0..looks {
                world.run(15, std::slice::from_ref(&client));
                let all = world.promises();
                for row in all.promises.iter().filter(|row| row.score.is_decided()) {
                    let key = (row.promised_ms, row.client_id.clone());
                    let known = decided.entry(key).or_insert_with(|| row.clone());
                    prop_assert_eq!(&*known, row);
                }
                let counted = all.kept + all.not_kept + all.not_tested + all.unknown;
                prop_assert_eq!(counted, decided.len() as u64);
                let open = all.promises.iter().filter(|row| !row.score.is_decided());
                for row in open {
                    prop_assert!(!decided.contains_key(&(row.promised_ms, row.client_id.clone())));
                }
            }
            if closes {
                world.close(&client);
            }
        }
    }
}

#[test]
fn examinations_that_nobody_asked_for_take_a_hundredth_of_a_processor() {
    use std::time::Duration;
    assert_eq!(pause_after(Duration::from_millis(20)), LOOK_EVERY);
    assert_eq!(pause_after(Duration::from_secs(1)), Duration::from_secs(100));
}
