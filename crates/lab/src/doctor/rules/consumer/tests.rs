//! What the sources report about consumers, what was measured here, and the yes and no of every
//! test.

use super::samples::*;
use super::*;
use crate::doctor::diagnosis::FindingId;
use crate::doctor::snapshot::{BrokerSide, Earlier, Library, Neighbour, Settings, Telemetry};
use crate::formulas::tables::within;

#[test]
fn slow_work_is_reported() {
    let mut snapshot = of(slow_work());
    snapshot.settings.max_poll_interval_ms = stated(300_000.0);
    // Most of the broker's time is spent on sending: the consumer does not read what it requested.
    snapshot.brokers = vec![BrokerSide {
        requests_per_second: Some(0.165),
        local_micros: Some(3_333.0),
        remote_micros: Some(0.0),
        send_micros: Some(118_667.0),
        is_rounded_to_ms: true,
        ..BrokerSide::default()
    }];
    let diagnosis = check(&snapshot, Verdict::Processing);
    assert!(has(&diagnosis, FindingId::C1));
    let work = diagnosis
        .evidence
        .iter()
        .find(|line| line.name == "work")
        .unwrap();
    within(work.result, 0.5, 5.0);
    for set in ["more partitions", "fetch.max.bytes", "max.partition.fetch.bytes"] {
        refuses(&diagnosis, set);
    }
    let promise = diagnosis.recommendation.unwrap().promise;
    // 4.1 million records are caught up in ten minutes at 3.8 times the rate; there are three
    // partitions.
    within(promise.high, 3.0 * 1_863.0, 0.1);
    within(promise.low, 2.7 * 1_863.0, 0.1);
}

#[test]
fn a_reading_without_slopes_says_the_same_of_slow_work() {
    let consumer = Consumer {
        partitions: Vec::new(),
        lag_max: Some(1_498_706.0),
        ..slow_work()
    };
    let diagnosis = check(&of(consumer), Verdict::Processing);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("how much is produced"))
    );
}

#[test]
fn full_speed_is_catching_up() {
    let diagnosis = check(&of(full_speed()), Verdict::CatchingUp);
    assert_eq!(diagnosis.confidence, Confidence::Low);
    let shrinking = Consumer {
        partitions: partitions(&[(700_000.0, -92_000.0, 92_000.0); 3]),
        ..full_speed()
    };
    let diagnosis = check(&of(shrinking), Verdict::CatchingUp);
    let line = diagnosis
        .evidence
        .iter()
        .find(|line| line.name == "catch_up")
        .unwrap();
    within(line.result, 2_100_000.0 / 276_000.0, 0.1);
}

/// Processing takes 4 ms a record; the brokers' view of the lag came in for some partitions only.
#[test]
fn a_lag_whose_course_is_not_known_does_not_shrink() {
    let mut consumer = Consumer {
        records_per_second: Some(237.0),
        poll_idle_share: Some(0.35),
        fetch_ms: Some(40.0),
        fetches_per_second: Some(6.0),
        ..full_speed()
    };
    let lags = |slope: Option<f64>| {
        let mut lags = partitions(&[(1_360.0, 0.0, 79.0); 3]);
        for partition in &mut lags {
            partition.lag_slope = slope;
            partition.produced_per_second = slope.map(|slope| 79.0 + slope);
        }
        lags
    };
    consumer.partitions = lags(None);
    let diagnosis = check(&of(consumer.clone()), Verdict::NotEnoughData);
    assert!(
        diagnosis.summary.contains("the course of the lag"),
        "{}",
        diagnosis.summary
    );
    consumer.partitions = lags(Some(54.0));
    check(&of(consumer.clone()), Verdict::Processing);
    consumer.partitions = lags(Some(-54.0));
    check(&of(consumer), Verdict::CatchingUp);
}

#[test]
fn full_speed_that_is_not_enough_is_the_consumer() {
    let falling_behind = Consumer {
        partitions: partitions(&[(700_000.0, 30_000.0, 92_000.0); 3]),
        ..full_speed()
    };
    let diagnosis = check(&of(falling_behind), Verdict::Processing);
    assert_eq!(diagnosis.confidence, Confidence::Low);
}

#[test]
fn an_idle_consumer_keeps_up() {
    let diagnosis = check(&of(idle()), Verdict::KeepsUp);
    assert!(
        diagnosis
            .findings
            .iter()
            .all(|finding| finding.id == FindingId::O2)
    );
    refuses(&diagnosis, "fetch.max.wait.ms");
    assert!(
        diagnosis
            .notes
            .iter()
            .any(|note| note.contains("nothing to fetch"))
    );
}

#[test]
fn partitions_that_are_not_followed_are_counted() {
    let note = |pushed: f64| {
        let consumer = Consumer {
            partitions: partitions(&[(0.0, 0.0, 10.0); 3]),
            partitions_pushed: Some(pushed),
            ..idle()
        };
        let notes = check(&of(consumer), Verdict::KeepsUp).notes;
        notes.into_iter().find(|note| note.contains("followed"))
    };
    let expected = "3 of the 500 partitions that it pushes are followed, those with the largest lag";
    assert_eq!(note(500.0).as_deref(), Some(expected));
    assert_eq!(note(3.0), None);
}

// T10: 25 MB/s with one and with three partitions: one consumer is the limit.
#[test]
fn partitions_that_do_not_matter_mean_the_consumer() {
    let consumer = Consumer {
        records_per_second: Some(250_000.0),
        bytes_per_second: Some(25e6),
        assigned_partitions: Some(3.0),
        group_members: Some(1.0),
        group_partitions: Some(3.0),
        partitions: partitions(&[(1e6, 40_000.0, 83_333.0); 3]),
        ..Consumer::default()
    };
    let mut snapshot = of(consumer);
    snapshot.earlier = vec![Earlier {
        partitions: Some(1.0),
        records_per_second: Some(250_000.0),
        ..Earlier::default()
    }];
    let diagnosis = check(&snapshot, Verdict::Processing);
    refuses(&diagnosis, "more partitions");
    let recommendation = diagnosis.recommendation.unwrap();
    assert!(recommendation.set.contains("consumers"), "{recommendation:?}");
    // T11: three consumers were promised 75 MB/s at most and got 47: the next ceiling was the
    // broker.
    assert!(recommendation.promise.high <= 3.0 * 250_000.0);
}

// A14: 10 MB/s read of 100 MB/s written: it never catches up.
#[test]
fn consumers_slower_than_producers_never_catch_up() {
    let consumer = Consumer {
        records_per_second: Some(10_000.0),
        bytes_per_second: Some(10e6),
        poll_idle_share: Some(0.05),
        assigned_partitions: Some(12.0),
        partitions: partitions(&[(50_000.0, 7_500.0, 833.0); 12]),
        ..Consumer::default()
    };
    let diagnosis = check(&of(consumer), Verdict::Processing);
    assert!(
        diagnosis.evidence.iter().all(|line| line.name != "catch_up"),
        "it has no number"
    );
    let needed = diagnosis
        .evidence
        .iter()
        .find(|line| line.name == "needed")
        .unwrap();
    within(needed.result, 10.0, 0.1);
    let recommendation = diagnosis.recommendation.unwrap();
    assert!(
        recommendation.set.starts_with("10 consumers"),
        "{recommendation:?}"
    );
}

// T12: one broker's disk makes fetches slow.
#[test]
fn a_broker_that_reads_its_disk_is_suspected_or_known() {
    let mut snapshot = of(Consumer {
        fetch_ms: Some(130.0),
        ..starved()
    });
    snapshot.brokers = vec![BrokerSide {
        queue_micros: Some(500.0),
        local_micros: Some(90_000.0),
        remote_micros: Some(0.0),
        send_micros: Some(20_000.0),
        ..BrokerSide::default()
    }];
    let diagnosis = check(&snapshot, Verdict::ColdRead);
    assert!(diagnosis.summary.contains("suspected"), "{}", diagnosis.summary);
    assert!(has(&diagnosis, FindingId::C3) && has(&diagnosis, FindingId::B4));
    assert!(diagnosis.refused.is_empty(), "a suspicion refuses nothing");
    snapshot.brokers[0].cold_reads_per_second = Some(10.0);
    snapshot.brokers[0].cold_read_ms = Some(80.0);
    snapshot.brokers[0].requests_per_second = Some(13.5);
    let diagnosis = check(&snapshot, Verdict::ColdRead);
    assert!(!diagnosis.summary.contains("suspected"), "{}", diagnosis.summary);
    refuses(&diagnosis, "more consumers");
    // In a window with its start polls wait for less of the time, and it reads what is stored.
    let mut first = snapshot.clone();
    let own = first.consumer.as_mut().unwrap();
    (own.poll_idle_share, own.partitions[0].lag_slope) = (Some(0.725), Some(-47.0));
    own.fetches_per_second = Some(5.5);
    check(&first, Verdict::ColdRead);
    first.brokers[0].cold_reads_per_second = None;
    assert_ne!(diagnose(&first).verdict, Verdict::ColdRead);
    // Records of the last second are in the page cache; the limit is then the size of a fetch.
    if let Some(consumer) = &mut snapshot.consumer {
        consumer.partitions[0].lag_ms = Some(5_000.0);
    }
    check(&snapshot, Verdict::FetchSize);
}

#[test]
fn full_fetches_across_a_long_round_trip_are_too_small() {
    let mut snapshot = of(starved());
    snapshot.network.round_trip_ms = Some(70.0);
    snapshot.settings.fetch_min_bytes = stated(1.0);
    let diagnosis = check(&snapshot, Verdict::FetchSize);
    let recommendation = diagnosis.recommendation.clone().unwrap();
    assert_eq!(recommendation.set, "max.partition.fetch.bytes=2097152");
    // In the end it reads what is written; until then up to twice as much as now, because two of
    // the 72 ms grow with the size, and the application has time for ten times as many records.
    within(recommendation.promise.low, 0.95 * 16_000.0, 0.1);
    within(recommendation.promise.high, 28_000.0, 0.1);
    refuses(&diagnosis, "fetch.max.wait.ms");
    // The link is full: no fetch size helps, and the lag grows.
    snapshot.network.bandwidth_bytes_per_second = Some(15e6);
    let diagnosis = diagnose(&snapshot);
    assert_ne!(diagnosis.verdict, Verdict::FetchSize);
    refuses(&diagnosis, "max.partition.fetch.bytes");
}

#[test]
fn a_small_limit_over_all_partitions_is_named() {
    let mut snapshot = of(Consumer {
        fetch_bytes: Some(60_000.0),
        assigned_partitions: Some(8.0),
        ..starved()
    });
    snapshot.settings.fetch_max_bytes = stated(65_536.0);
    let diagnosis = check(&snapshot, Verdict::FetchSize);
    assert_eq!(diagnosis.recommendation.unwrap().set, "fetch.max.bytes=52428800");
}

#[test]
fn fetches_that_wait_for_bytes_are_reported() {
    let consumer = Consumer {
        records_per_second: Some(1_000.0),
        bytes_per_second: Some(256_000.0),
        fetches_per_second: Some(2.0),
        fetch_bytes: Some(128_000.0),
        fetch_ms: Some(501.0),
        poll_idle_share: Some(0.97),
        assigned_partitions: Some(1.0),
        partitions: partitions(&[(0.0, 0.0, 1_000.0)]),
        ..Consumer::default()
    };
    let mut snapshot = of(consumer);
    // fetch.min.bytes is at its default: records come in bursts, and the consumer keeps up.
    check(&snapshot, Verdict::KeepsUp);
    snapshot.settings.fetch_min_bytes = stated(1_048_576.0);
    let diagnosis = check(&snapshot, Verdict::FetchWait);
    assert!(has(&diagnosis, FindingId::C2));
    assert_eq!(
        diagnosis.recommendation.as_ref().unwrap().set,
        "fetch.min.bytes=1"
    );
    refuses(&diagnosis, "fetch.max.bytes");
    // A real lag with the default settings: the same verdict, with lower confidence.
    let mut behind = of(Consumer {
        fetch_ms: Some(498.0),
        fetch_bytes: Some(128_000.0),
        ..starved()
    });
    behind.settings = Settings::default();
    let diagnosis = check(&behind, Verdict::FetchWait);
    assert!(diagnosis.confidence < Confidence::High);
}

#[test]
fn a_throttled_consumer_has_a_quota() {
    let consumer = Consumer {
        throttle_ms: Some(210.0),
        ..starved()
    };
    let diagnosis = check(&of(consumer), Verdict::Quota);
    assert!(has(&diagnosis, FindingId::Q1));
    // Fetches that are also too small contribute.
    assert!(
        diagnosis
            .findings
            .iter()
            .any(|finding| finding.id == FindingId::C2 && finding.is_contributing)
    );
    // Throttling of other clients does not count.
    let mut snapshot = of(idle());
    snapshot.brokers = vec![BrokerSide {
        throttle_ms: Some(50.0),
        is_of_all_clients: true,
        ..BrokerSide::default()
    }];
    check(&snapshot, Verdict::KeepsUp);
}

#[test]
fn rebalances_come_first() {
    let storm = Consumer {
        rebalances: Some(3.0),
        rebalance_ms_max: Some(4_000.0),
        ms_between_polls_max: Some(310_000.0),
        expelled: vec![String::from("worker-2")],
        throttle_ms: Some(5.0),
        ..slow_work()
    };
    let diagnosis = check(&of(storm), Verdict::Rebalancing);
    assert!(diagnosis.summary.contains("worker-2"), "{}", diagnosis.summary);
    assert!(
        diagnosis
            .recommendation
            .as_ref()
            .unwrap()
            .set
            .contains("max.poll.records")
    );
    let lost = diagnosis
        .evidence
        .iter()
        .find(|line| line.name == "lost")
        .unwrap();
    within(lost.result, 0.2, 0.1);
    assert!(has(&diagnosis, FindingId::C1) && has(&diagnosis, FindingId::Q1));
    // What a group that grows by a member does is no storm.
    for (name, consumer) in [
        (
            "a slow one",
            Consumer {
                rebalance_ms_max: Some(1_500.0),
                ..idle()
            },
        ),
        (
            "one",
            Consumer {
                rebalances: Some(1.0),
                ..idle()
            },
        ),
    ] {
        let diagnosis = diagnose(&of(consumer));
        assert_eq!(diagnosis.verdict, Verdict::KeepsUp, "{name}");
        assert!(diagnosis.recommendation.is_none(), "{name}");
        assert!(
            diagnosis
                .notes
                .iter()
                .any(|note| note.contains("rebalanced once")),
            "{name}: {:?}",
            diagnosis.notes
        );
    }
    for (name, consumer) in [
        (
            "three",
            Consumer {
                rebalances: Some(3.0),
                ..idle()
            },
        ),
        (
            "a long one",
            Consumer {
                rebalances: Some(1.0),
                rebalance_ms_max: Some(4_000.0),
                ..idle()
            },
        ),
        (
            "no heartbeat",
            Consumer {
                heartbeat_gap_s: Some(40.0),
                ..idle()
            },
        ),
    ] {
        assert_eq!(diagnose(&of(consumer)).verdict, Verdict::Rebalancing, "{name}");
    }
    let calm = Consumer {
        rebalances: Some(0.0),
        heartbeat_gap_s: Some(3.0),
        ..idle()
    };
    check(&of(calm), Verdict::KeepsUp);
}

#[test]
fn one_partition_behind_is_skew() {
    let hot = Consumer {
        poll_idle_share: Some(0.1),
        partitions: partitions(&[(90.0, 0.0, 200.0), (400_000.0, 900.0, 300.0), (80.0, -1.0, 200.0)]),
        ..slow_work()
    };
    let diagnosis = check(&of(hot), Verdict::Skew);
    assert!(has(&diagnosis, FindingId::B2));
    assert!(diagnosis.summary.contains("orders-1"), "{}", diagnosis.summary);
    refuses(&diagnosis, "more consumers");
    assert!(diagnosis.recommendation.unwrap().set.contains("keys"));
    let stuck = Consumer {
        partitions: partitions(&[(90.0, 0.0, 200.0), (40_000.0, 210.0, 0.0), (80.0, -1.0, 200.0)]),
        ..idle()
    };
    let diagnosis = check(&of(stuck), Verdict::Skew);
    assert!(
        diagnosis.summary.contains("does not move"),
        "{}",
        diagnosis.summary
    );
    assert!(diagnosis.recommendation.unwrap().set.contains("set aside"));
    // All partitions behind: the application, not a partition.
    check(&of(slow_work()), Verdict::Processing);
}

#[test]
fn partitions_that_are_read_in_turn_are_no_skew() {
    // One is being read, the other waits for its turn.
    let consumer = Consumer {
        partitions: partitions(&[(500_000.0, -1_500.0, 1_863.0), (520_000.0, 300.0, 0.0)]),
        ..slow_work()
    };
    check(&of(consumer), Verdict::Processing);
}

#[test]
fn the_end_of_a_catch_up_is_no_skew() {
    let consumer = Consumer {
        partitions: partitions(&[
            (0.0, -90_000.0, 90_000.0),
            (400_000.0, -90_000.0, 90_000.0),
            (0.0, -90_000.0, 90_000.0),
        ]),
        ..full_speed()
    };
    check(&of(consumer), Verdict::CatchingUp);
    let mut read_once = Consumer {
        partitions: partitions(&[(0.0, 0.0, 0.0), (600_000.0, 0.0, 0.0), (0.0, 0.0, 0.0)]),
        ..full_speed()
    };
    for partition in &mut read_once.partitions {
        partition.lag_slope = None;
        partition.consumed_per_second = None;
        partition.produced_per_second = None;
    }
    check(&of(read_once.clone()), Verdict::CatchingUp);
    // The same remainder while hardly anything is read: it takes longer than the window.
    read_once.records_per_second = Some(50.0);
    read_once.poll_idle_share = Some(0.9);
    check(&of(read_once), Verdict::Skew);
}

#[test]
fn idle_members_are_counted() {
    let spare = Consumer {
        assigned_partitions: Some(0.0),
        group_members: Some(14.0),
        group_partitions: Some(12.0),
        poll_idle_share: Some(1.0),
        ..Consumer::default()
    };
    let diagnosis = check(&of(spare), Verdict::KeepsUp);
    assert!(
        diagnosis.summary.contains("2 of 14 members are idle"),
        "{}",
        diagnosis.summary
    );
    let working = Consumer {
        group_members: Some(14.0),
        group_partitions: Some(12.0),
        ..slow_work()
    };
    let diagnosis = check(&of(working), Verdict::Processing);
    assert!(diagnosis.notes.iter().any(|note| note.contains("2 of 14")));
    refuses(&diagnosis, "more than 12 consumers");
}

#[test]
fn loss_is_foretold() {
    let mut consumer = slow_work();
    for partition in &mut consumer.partitions {
        partition.lag_ms = Some(5.0 * 3_600_000.0);
        partition.produced_per_second = Some(1_240.0);
    }
    let mut snapshot = of(consumer);
    snapshot.settings.retention_ms = stated(6.0 * 3_600_000.0);
    let diagnosis = check(&snapshot, Verdict::Processing);
    // The age grows by half a second per second: one hour left lasts two.
    assert!(
        diagnosis
            .notes
            .iter()
            .any(|note| note.starts_with("will lose data in 2 h")),
        "{:?}",
        diagnosis.notes
    );
    snapshot.settings.retention_ms = stated(3_600_000.0);
    let diagnosis = diagnose(&snapshot);
    assert!(
        diagnosis
            .notes
            .iter()
            .any(|note| note.contains("are being deleted")),
        "{:?}",
        diagnosis.notes
    );
}

#[test]
fn little_evidence_is_no_verdict() {
    let mut snapshot = of(slow_work());
    snapshot.telemetry = Telemetry {
        pushes: Some(1),
        seconds_until_next_push: Some(4.0),
        ..Telemetry::default()
    };
    let diagnosis = check(&snapshot, Verdict::NotEnoughData);
    assert_eq!(diagnosis.summary, "Not enough data yet: 1 push; next push in 4 s");
    snapshot.telemetry.pushes = Some(5);
    check(&snapshot, Verdict::Processing);
    snapshot.telemetry.restarted = true;
    check(&snapshot, Verdict::NotEnoughData);
    // What the broker knows by itself still counts.
    snapshot.brokers = vec![BrokerSide {
        throttle_ms: Some(80.0),
        ..BrokerSide::default()
    }];
    check(&snapshot, Verdict::Quota);
}

#[test]
fn the_gaps_of_clients_that_push_little_are_listed() {
    // librdkafka: polls and fetches, no lag.
    let librdkafka = |idle: f64, fetch_ms: f64| {
        let mut snapshot = of(Consumer {
            poll_idle_share: Some(idle),
            fetch_ms: Some(fetch_ms),
            assigned_partitions: Some(3.0),
            ..Consumer::default()
        });
        snapshot.client.library = Library::Librdkafka;
        snapshot
    };
    let diagnosis = check(&librdkafka(0.99, 503.0), Verdict::KeepsUp);
    assert_eq!(diagnosis.confidence, Confidence::Medium);
    let diagnosis = check(&librdkafka(0.05, 20.0), Verdict::Processing);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("at most 13 metrics"))
    );
    assert!(diagnosis.missing.iter().any(|words| words.contains("the lag")));
    let diagnosis = check(&librdkafka(0.9, 20.0), Verdict::NotEnoughData);
    assert!(diagnosis.summary.contains("lag"), "{}", diagnosis.summary);
    // franz-go: connections and latencies of nodes.
    let mut snapshot = of(Consumer::default());
    snapshot.client.library = Library::FranzGo;
    let diagnosis = check(&snapshot, Verdict::NotEnoughData);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("cannot be seen"))
    );
    // Nothing at all.
    snapshot.consumer = None;
    let diagnosis = check(&snapshot, Verdict::NotEnoughData);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("does not push metrics"))
    );
}

#[test]
fn the_broker_s_group_lag_stands_in_for_the_client_s() {
    let mut snapshot = of(Consumer {
        fetch_ms: Some(20.0),
        fetches_per_second: Some(0.5),
        records_per_second: Some(900.0),
        partitions: partitions(&[(80_000.0, 200.0, 450.0); 2]),
        ..Consumer::default()
    });
    snapshot.client.library = Library::Librdkafka;
    // There are records, and the consumer requests them 1 % of the time.
    let diagnosis = check(&snapshot, Verdict::Processing);
    assert_eq!(diagnosis.confidence, Confidence::Low);
}

// A client that never pushes, in a group whose lag the brokers know.
#[test]
fn a_silent_consumer_is_judged_by_its_brokers() {
    let mut snapshot = of(Consumer {
        partitions: partitions(&[(80_000.0, 200.0, 450.0); 2]),
        ..Consumer::default()
    });
    snapshot.telemetry.pushes = Some(0);
    snapshot.brokers = vec![BrokerSide {
        requests_per_second: Some(0.5),
        queue_micros: Some(100.0),
        local_micros: Some(2_000.0),
        send_micros: Some(3_000.0),
        ..BrokerSide::default()
    }];
    let diagnosis = check(&snapshot, Verdict::Processing);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("does not push metrics"))
    );
    // Seen once, as of a client that read everything at once and ended.
    let mut once = snapshot.clone();
    for partition in &mut once.consumer.as_mut().unwrap().partitions {
        partition.lag_slope = None;
    }
    check(&once, Verdict::NotEnoughData);
    for partition in &mut snapshot.consumer.as_mut().unwrap().partitions {
        partition.lag = Some(3.0);
        partition.lag_slope = Some(0.0);
    }
    check(&snapshot, Verdict::KeepsUp);
    snapshot.consumer = None;
    check(&snapshot, Verdict::NotEnoughData);
}

#[test]
fn a_noisy_neighbour_contributes() {
    let mut snapshot = of(idle());
    snapshot.neighbours = vec![Neighbour {
        client_id: String::from("X"),
        time_share: 0.41,
        time_share_before: Some(0.06),
        victim_growth: Some(3.0),
        ..Neighbour::default()
    }];
    let diagnosis = check(&snapshot, Verdict::KeepsUp);
    assert!(
        diagnosis
            .findings
            .iter()
            .any(|finding| finding.id == FindingId::T1 && finding.is_contributing)
    );
}

#[test]
fn high_confidence_needs_both_sides() {
    let mut snapshot = of(slow_work());
    assert_eq!(diagnose(&snapshot).confidence, Confidence::Medium);
    snapshot.brokers = vec![BrokerSide {
        bytes_per_second: Some(480_000.0),
        ..BrokerSide::default()
    }];
    assert_eq!(diagnose(&snapshot).confidence, Confidence::High);
}

#[test]
fn every_test_leaves_a_step() {
    let diagnosis = diagnose(&of(slow_work()));
    let rules: Vec<&str> = diagnosis.reasoning.iter().map(|step| &*step.rule).collect();
    let mut expected: Vec<String> = (0..=13).map(|number| format!("consumer {number}")).collect();
    expected.insert(5, "host".to_owned());
    expected.insert(4, "consumer 14".to_owned());
    expected.insert(1, "access".to_owned());
    expected.insert(2, "connections".to_owned());
    assert_eq!(rules, expected);
    assert!(
        diagnosis
            .reasoning
            .iter()
            .all(|step| !step.answer.is_empty() && !step.numbers.to_string().is_empty())
    );
}

fn fixture(name: &str) -> Snapshot {
    let path = format!("{}/fixtures/doctor/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut snapshots = crate::doctor::replay::fixture::read(&text).unwrap();
    assert_eq!(snapshots.len(), 1);
    snapshots.remove(0)
}

// C1 and C3 as they were measured, through the file reader.
#[test]
fn fixtures_of_consumers() {
    let slow = check(&fixture("C1_slow_consumer"), Verdict::Processing);
    let work = slow.evidence.iter().find(|line| line.name == "work").unwrap();
    // The application's own work was 0.5 ms.
    within(work.result, 0.5, 6.0);
    refuses(&slow, "max.partition.fetch.bytes");
    let idle = check(&fixture("C3_idle"), Verdict::KeepsUp);
    assert!(idle.recommendation.is_none());
}

// The same as snapshots and back: an exported case gets the same verdict.
#[test]
fn an_exported_case_gets_the_same_verdict() {
    let snapshot = fixture("C1_slow_consumer");
    let text = serde_json::to_string(&snapshot).unwrap();
    let read: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(diagnose(&read).verdict, Verdict::Processing);
}

/// Measured: commits across 40 ms after each record, asked while its first poll of 500 records
/// lasts; and 2 ms of work on a record after short polls at the start. Both were told that their
/// receive window is too small.
#[test]
fn polls_do_not_wait_where_no_fetch_is_under_way_for_records_that_are_there() {
    let mut snapshot = of(Consumer {
        records_per_second: Some(0.0),
        bytes_per_second: Some(0.0),
        fetches_per_second: Some(0.051),
        fetch_bytes: Some(283_140.0),
        fetch_ms: Some(441.0),
        poll_idle_share: Some(1.0),
        ms_between_polls_max: Some(651.0),
        assigned_partitions: Some(1.0),
        partitions: partitions(&[(3_208.0, 200.0, 0.0)]),
        ..Consumer::default()
    });
    snapshot.network.round_trip_ms = Some(40.2);
    check(&snapshot, Verdict::Processing);
    let mut snapshot = of(Consumer {
        records_per_second: Some(382.0),
        bytes_per_second: Some(52_207.0),
        fetches_per_second: Some(0.107),
        fetch_bytes: Some(479_050.0),
        fetch_ms: Some(159.0),
        poll_idle_share: Some(0.579),
        ms_between_polls_max: Some(2_000.0),
        assigned_partitions: Some(2.0),
        partitions: partitions(&[(5_906.0, 55.0, 191.0), (4_491.0, 160.0, 191.0)]),
        ..Consumer::default()
    });
    snapshot.network.round_trip_ms = Some(0.016);
    check(&snapshot, Verdict::Processing);
    // Paused partitions are not fetched at all.
    let consumer = snapshot.consumer.as_mut().unwrap();
    (consumer.fetches_per_second, consumer.fetch_ms) = (Some(0.0), None);
    (consumer.records_per_second, consumer.poll_idle_share) = (Some(0.0), Some(1.0));
    assert_ne!(diagnose(&snapshot).verdict, Verdict::Processing);
}
