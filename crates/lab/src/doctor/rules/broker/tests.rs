//! What the sources report about brokers: numbers in, findings out.

use super::*;
use crate::doctor::snapshot::Neighbour;
use crate::formulas::tables::within;

/// Milliseconds: queue, local, remote, response queue, send.
fn side(parts: [f64; 5]) -> BrokerSide {
    let [queue, local, remote, response_queue, send] = parts.map(|ms| Some(1_000.0 * ms));
    BrokerSide {
        queue_micros: queue,
        local_micros: local,
        remote_micros: remote,
        response_queue_micros: response_queue,
        send_micros: send,
        ..BrokerSide::default()
    }
}

#[track_caller]
fn check(side: &BrokerSide, expected: Option<FindingId>) -> Option<Judgement> {
    let judged = judge(side, Role::Producer);
    assert_eq!(
        judged.as_ref().map(|judged| judged.finding.id),
        expected,
        "{judged:?}"
    );
    judged
}

#[test]
fn a_wait_for_the_broker_s_own_disk_is_not_a_wait_for_followers() {
    let mut waits = side([0.01, 0.1, 2.1, 0.01, 0.03]);
    check(&waits, Some(FindingId::B5));
    waits.flush_micros = Some(2_100.0);
    let judged = check(&waits, Some(FindingId::B4)).unwrap();
    assert!(
        judged.finding.text.contains("until the log is on the disk"),
        "{judged:?}"
    );
    assert!(
        !format!("{judged:?}").contains("num.replica.fetchers: more"),
        "{judged:?}"
    );
    // A fetch waits for records, whatever producers wait for.
    assert!(judge(&waits, Role::Consumer).is_none_or(|judged| judged.part != Part::Remote));
    waits.flush_micros = Some(500.0);
    check(&waits, Some(FindingId::B5));
}

#[test]
fn the_largest_part_above_its_threshold_names_the_cause() {
    for (name, parts, expected) in [
        (
            "A6, handlers near 100 % busy",
            [40.0, 3.0, 5.0, 0.2, 0.1],
            Some(FindingId::B3),
        ),
        (
            "A8, 800 partitions per broker",
            [1.0, 2.0, 30.0, 0.1, 0.1],
            Some(FindingId::B5),
        ),
        (
            "B16 of the fixtures, D 118",
            [2.0, 115.0, 0.0, 0.5, 0.5],
            Some(FindingId::B4),
        ),
        (
            "L1, 50 to 200 ms",
            [1.0, 1.0, 3.0, 80.0, 15.0],
            Some(FindingId::B6),
        ),
        ("nothing stands out", [2.5, 4.0, 4.0, 1.0, 1.0], None),
        ("no time at all", [0.0; 5], None),
    ] {
        let judged = judge(&side(parts), Role::Producer);
        assert_eq!(judged.map(|judged| judged.finding.id), expected, "{name}");
        assert_eq!(blame(&side(parts)).map(|finding| finding.id), expected, "{name}");
    }
}

#[test]
fn unknown_and_rounded_parts_are_no_evidence() {
    let only_local = BrokerSide {
        local_micros: Some(9_000.0),
        ..BrokerSide::default()
    };
    check(&only_local, None);
    let total = BrokerSide {
        total_micros: Some(9_000.0),
        ..BrokerSide::default()
    };
    check(&total, None);
    // Measured on Apache Kafka: the five parts added up to 0.17 ms of a total of 0.41.
    let rounded = BrokerSide {
        is_rounded_to_ms: true,
        ..side([0.0, 0.17, 0.0, 0.0, 0.0])
    };
    check(&rounded, None);
    let rounded_but_long = BrokerSide {
        is_rounded_to_ms: true,
        ..side([2.0, 115.0, 0.0, 1.0, 0.0])
    };
    check(&rounded_but_long, Some(FindingId::B4));
}

#[test]
fn a_fetch_that_waits_for_records_is_no_fault() {
    let idle = side([0.2, 0.7, 500.7, 0.0, 0.0]);
    check(&idle, Some(FindingId::B5));
    let judged = judge(&idle, Role::Consumer);
    assert_eq!(judged.map(|judged| judged.finding.id), Some(FindingId::B4));
}

// A9: utilisation near 100 %, and Kingman's ratio.
#[test]
fn latency_explodes_with_utilisation() {
    let busy = BrokerSide {
        handler_idle: Some(0.08),
        network_idle: Some(0.5),
        ..side([40.0, 3.0, 5.0, 0.2, 0.1])
    };
    let judged = check(&busy, Some(FindingId::B3)).unwrap();
    let wait = judged.evidence.iter().find(|line| line.formula == "F24").unwrap();
    within(wait.result, 11.5, 0.5);
    // Half of the requests: rho 0.46, so the queue's 40 ms become 40 * 0.852 / 11.5.
    let promise = &judged.recommendation.promise;
    within(promise.high, 48.3 - 40.0 * (1.0 - 0.852 / 11.5), 1.0);
    assert!(promise.low <= promise.high && promise.high < 48.3);
}

// A10: min.insync.replicas changed nothing. A11: RF is a decision about lost records.
#[test]
fn what_does_not_help_replication_is_refused() {
    let judged = check(&side([1.0, 2.0, 30.0, 0.1, 0.1]), Some(FindingId::B5)).unwrap();
    for set in ["min.insync.replicas", "acks=1", "replication.factor"] {
        assert!(judged.refused.iter().any(|refusal| refusal.set == set), "{set}");
    }
    assert!(judged.recommendation.set.contains("num.replica.fetchers"));
    assert!(judged.recommendation.set.contains("fewer partitions"));
    within(judged.recommendation.promise.low, 3.2, 1.0);
}

#[test]
fn a_slow_follower_is_named() {
    let named = BrokerSide {
        slowest_follower: Some(String::from("broker 3")),
        ..side([1.0, 2.0, 30.0, 0.1, 0.1])
    };
    let judged = check(&named, Some(FindingId::B5)).unwrap();
    assert!(
        judged.finding.text.contains("broker 3"),
        "{}",
        judged.finding.text
    );
    assert!(judged.missing.is_empty());
}

// A12: the broker that validates and re-compresses.
#[test]
fn more_handlers_do_not_help_a_slow_log() {
    let judged = check(&side([2.0, 115.0, 0.0, 0.5, 0.5]), Some(FindingId::B4)).unwrap();
    assert!(judged.finding.text.contains("compressed again"));
    assert!(
        judged
            .refused
            .iter()
            .any(|refusal| refusal.set == "num.io.threads")
    );
}

// A15: many idle clients that send at the same time: short spikes, a low mean.
#[test]
fn bursts_are_told_from_load() {
    let bursts = BrokerSide {
        handler_idle: Some(0.9),
        cpu_use: Some(0.2),
        ..side([5.0, 2.0, 0.0, 0.1, 0.1])
    };
    let judged = check(&bursts, Some(FindingId::B3)).unwrap();
    assert!(judged.finding.text.contains("bursts"), "{}", judged.finding.text);
    assert!(judged.recommendation.set.contains("linger.ms"));
    // On a small machine handlers look idle while the processor is fully used.
    let full = BrokerSide {
        cpu_use: Some(0.97),
        ..bursts
    };
    let judged = check(&full, Some(FindingId::B3)).unwrap();
    assert!(!judged.finding.text.contains("bursts"), "{}", judged.finding.text);
}

// L1 and L2: a fetch from cold pages inside the network thread; 60 reads/s of 50 ms on 3 threads.
#[test]
fn cold_reads_block_network_threads() {
    let cold = BrokerSide {
        cold_reads_per_second: Some(60.0),
        cold_read_ms: Some(50.0),
        network_threads: Some(3.0),
        network_idle: Some(0.02),
        handler_idle: Some(0.8),
        ..side([1.0, 1.0, 3.0, 80.0, 15.0])
    };
    let judged = check(&cold, Some(FindingId::B6)).unwrap();
    let blocked = judged.evidence.iter().find(|line| line.formula == "F26").unwrap();
    assert_eq!(blocked.result, 1.0);
    assert!(
        !judged.finding.text.contains("suspected"),
        "{}",
        judged.finding.text
    );
    assert!(judged.recommendation.set.contains("cold reads elsewhere"));
    // Not measured: only suspected.
    let suspected = BrokerSide {
        cold_reads_per_second: None,
        ..cold.clone()
    };
    let judged = check(&suspected, Some(FindingId::B6)).unwrap();
    assert!(judged.finding.text.contains("suspected"));
    assert_eq!(judged.missing.len(), 1);
    // From the page cache the same reads cost nothing.
    let hot = BrokerSide {
        cold_read_ms: Some(0.1),
        ..cold
    };
    within(cold_line(&hot).unwrap().result, 0.002, 0.1);
}

// An idle Ottla: most of 13 microseconds are spent on sending, which explains nothing.
#[test]
fn the_largest_part_of_a_tiny_total_is_no_cause() {
    check(&side([0.001, 0.003, 0.0, 0.004, 0.005]), None);
}

// L4: all parts of D jump together, for all clients at once.
#[test]
fn a_pause_stretches_every_part() {
    let paused = |parts: [f64; 5], share: f64| Snapshot {
        brokers: vec![side(parts)],
        neighbours: vec![Neighbour {
            time_share: share,
            time_share_before: Some(0.1),
            victim_growth: Some(8.0),
            ..Neighbour::default()
        }],
        ..Snapshot::default()
    };
    let even = [25.0, 40.0, 40.0, 10.0, 10.0];
    assert!(pause(&paused(even, 0.1)).unwrap().contains("paused"));
    // Another client grew, so that is the cause; likewise if one part dominates.
    assert_eq!(pause(&paused(even, 0.5)), None);
    assert_eq!(pause(&paused([1.0, 90.0, 1.0, 1.0, 1.0], 0.1)), None);
}

// T12: broker 22's processor, disk and memory are shared with other programs.
#[test]
fn the_slowest_of_several_brokers_is_judged() {
    let slow = BrokerSide {
        node_id: Some(22),
        ..side([5.0, 60.0, 0.0, 2.0, 1.0])
    };
    let fast = side([0.2, 1.0, 0.0, 0.1, 0.1]);
    let judged = judge_all(&[fast, slow], Role::Consumer).unwrap();
    assert_eq!(judged.finding.id, FindingId::B4);
    assert!(
        judged.finding.text.contains("broker 22's 68 ms"),
        "{}",
        judged.finding.text
    );
    assert!(judged.recommendation.set.contains("no other programs"));
}
