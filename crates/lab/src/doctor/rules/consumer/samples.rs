//! Readings of consumers that the tests of several verdicts begin with.

use super::diagnose;
use crate::doctor::diagnosis::{Diagnosis, FindingId, Verdict};
use crate::doctor::snapshot::{ConsumedPartition, Consumer, Library, Origin, Role, Setting, Snapshot};

pub fn stated(value: f64) -> Option<Setting<f64>> {
    Some(Setting {
        value,
        origin: Origin::Stated,
    })
}

pub fn of(consumer: Consumer) -> Snapshot {
    let mut snapshot = Snapshot {
        seconds: 60.0,
        consumer: Some(consumer),
        ..Snapshot::default()
    };
    snapshot.client.client_id = String::from("reader");
    snapshot.client.library = Library::Java;
    snapshot.client.role = Role::Consumer;
    snapshot
}

/// Lag, its slope, consumed per second.
pub fn partitions(of: &[(f64, f64, f64)]) -> Vec<ConsumedPartition> {
    let each = of
        .iter()
        .enumerate()
        .map(|(partition, (lag, slope, consumed))| ConsumedPartition {
            topic: String::from("orders"),
            partition: partition as i32,
            lag: Some(*lag),
            lag_slope: Some(*slope),
            consumed_per_second: Some(*consumed),
            produced_per_second: Some((consumed + slope).max(0.0)),
            lag_ms: None,
            is_own_gauge: false,
        });
    each.collect()
}

#[track_caller]
pub fn check(snapshot: &Snapshot, expected: Verdict) -> Diagnosis {
    let diagnosis = diagnose(snapshot);
    assert_eq!(diagnosis.verdict, expected, "{diagnosis:#?}");
    diagnosis
}

pub fn has(diagnosis: &Diagnosis, id: FindingId) -> bool {
    diagnosis.findings.iter().any(|finding| finding.id == id)
}

#[track_caller]
pub fn refuses(diagnosis: &Diagnosis, set: &str) {
    assert!(
        diagnosis.refused.iter().any(|refusal| refusal.set.contains(set)),
        "{set} is not refused: {:#?}",
        diagnosis.refused
    );
}

/// Measured here, C1: 0.5 ms of work on a record, a topic without producers; Java's ratio of
/// 0.0267.
pub fn slow_work() -> Consumer {
    Consumer {
        records_per_second: Some(1_863.0),
        bytes_per_second: Some(476_935.0),
        fetches_per_second: Some(0.155),
        fetch_bytes: Some(3_115_054.0),
        fetch_ms: Some(104.75),
        poll_idle_share: Some(0.0267 / (1.0 - 0.0267)),
        ms_between_polls: Some(253.0),
        assigned_partitions: Some(3.0),
        rebalances: Some(0.0),
        partitions: partitions(&[
            (1_169_883.0, -620.0, 620.0),
            (1_471_275.0, -620.0, 620.0),
            (1_483_526.0, -620.0, 620.0),
        ]),
        ..Consumer::default()
    }
}

/// Measured here, C2 and C4: full speed through an old topic.
pub fn full_speed() -> Consumer {
    Consumer {
        records_per_second: Some(276_000.0),
        bytes_per_second: Some(73e6),
        fetches_per_second: Some(25.0),
        fetch_bytes: Some(2_900_000.0),
        fetch_ms: Some(28.0),
        poll_idle_share: None,
        ms_between_polls: Some(0.4),
        assigned_partitions: Some(3.0),
        lag_max: Some(2_000_000.0),
        without_sample: vec![String::from("org.apache.kafka.consumer.poll.idle.ratio.avg")],
        ..Consumer::default()
    }
}

/// Measured here, C3: nothing to read.
pub fn idle() -> Consumer {
    Consumer {
        records_per_second: Some(0.0),
        bytes_per_second: Some(0.0),
        fetches_per_second: Some(1.98),
        fetch_bytes: Some(0.0),
        fetch_ms: Some(504.6),
        poll_idle_share: Some(1.0),
        ms_between_polls: Some(206.0),
        lag_max: Some(0.0),
        assigned_partitions: Some(2.0),
        partitions: partitions(&[(0.0, 0.0, 0.0), (0.0, 0.0, 0.0)]),
        ..Consumer::default()
    }
}

/// Polls that wait, and a lag that grows.
pub fn starved() -> Consumer {
    Consumer {
        records_per_second: Some(14_000.0),
        bytes_per_second: Some(14e6),
        fetches_per_second: Some(13.5),
        fetch_bytes: Some(1_020_000.0),
        fetch_ms: Some(72.0),
        poll_idle_share: Some(0.9),
        assigned_partitions: Some(1.0),
        partitions: partitions(&[(900_000.0, 2_000.0, 14_000.0)]),
        ..Consumer::default()
    }
}
