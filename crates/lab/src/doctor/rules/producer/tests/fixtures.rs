//! The raw cases, read by the file reader: each with its expected verdict, and again without any
//! numbers of the network.

use crate::doctor::diagnosis::{Diagnosis, FindingId, Verdict};
use crate::doctor::replay::fixture;
use crate::doctor::rules::examine;
use crate::doctor::snapshot::{Network, Snapshot};

fn read(name: &str) -> Snapshot {
    let path = format!("{}/fixtures/doctor/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut clients = fixture::read(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(clients.len(), 1, "{path}");
    clients.remove(0)
}

fn told(diagnosis: &Diagnosis) -> String {
    serde_json::to_string_pretty(diagnosis).unwrap()
}

/// File, verdict, findings, verdict without the network's numbers.
const CASES: &[(&str, Verdict, &[FindingId], Verdict)] = {
    use FindingId as F;
    use Verdict::*;
    &[
        ("P1_tiny_batches", SenderRate, &[F::N2], SenderRate),
        ("P2_defaults", SenderRate, &[F::N2], SenderRate),
        ("P4_one_inflight_rtt20", NetworkRtt, &[F::N4], NetworkRtt),
        ("P6_buffer_exhaustion", NetworkRtt, &[F::N4, F::E1], NetworkRtt),
        ("P7_bandwidth_none", NetworkBandwidth, &[F::N6], SenderRate),
        ("B1_kontur_I_16k", SenderRate, &[F::N2], SenderRate),
        ("B2_kontur_II_32k", KeepsUp, &[F::O2], KeepsUp),
        ("B3_kontur_III_64k", KeepsUp, &[F::O2], KeepsUp),
        ("B5_healthy", KeepsUp, &[F::O2], KeepsUp),
        ("B6_slow_callback_busy", SenderThread, &[F::N1], SenderThread),
        ("B8_sync_send", Synchronous, &[F::O1], Synchronous),
        ("B9_contention_4thr_1part", SenderRate, &[F::N2], SenderRate),
        ("B11_quota", Quota, &[F::Q1], Quota),
        // One 600 kB request at a time: without the round trip, six trips through a window cannot
        // be told from a long path.
        ("B13_interdc_window100k", NetworkWindow, &[F::N5], SenderRate),
        ("B16_broker_recompress", Broker, &[F::B7], Broker),
        ("B18_linger0_many_small", SmallRequests, &[F::B1], SmallRequests),
        ("X1_librdkafka_2_16_linger5", NotEnoughData, &[], NotEnoughData),
        ("X3_franz_go_1_21_5_star", NotEnoughData, &[], NotEnoughData),
    ]
};

#[test]
fn every_case_has_its_verdict() {
    let mut wrong = Vec::new();
    for (name, verdict, findings, without) in CASES {
        let mut snapshot = read(name);
        let diagnosis = examine(&snapshot);
        let lacks = findings
            .iter()
            .any(|id| diagnosis.findings.iter().all(|found| found.id != *id));
        if diagnosis.verdict != *verdict || lacks {
            wrong.push(format!("{name}: {}", told(&diagnosis)));
        }
        snapshot.network = Network::default();
        let diagnosis = examine(&snapshot);
        if diagnosis.verdict != *without {
            wrong.push(format!("{name} without the network: {}", told(&diagnosis)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a live collector knows about the same clients: no settings, no application, no network.
#[test]
fn telemetry_alone_gives_these_verdicts() {
    use Verdict::*;
    let mut wrong = Vec::new();
    for (name, verdicts) in [
        ("P1_tiny_batches", &[SenderRate][..]),
        ("P2_defaults", &[SenderRate]),
        ("P4_one_inflight_rtt20", &[NetworkRtt]),
        ("B1_kontur_I_16k", &[SenderRate]),
        ("B2_kontur_II_32k", &[SenderRate]),
        ("B3_kontur_III_64k", &[Application, KeepsUp]),
        ("B5_healthy", &[KeepsUp]),
        ("B6_slow_callback_busy", &[SenderThread]),
        ("B8_sync_send", &[Synchronous]),
        ("B9_contention_4thr_1part", &[SenderRate]),
        ("B11_quota", &[Quota]),
        ("B16_broker_recompress", &[Broker]),
        ("B18_linger0_many_small", &[SmallRequests]),
    ] {
        let known = read(name);
        let snapshot = Snapshot {
            settings: Default::default(),
            application: Default::default(),
            network: Default::default(),
            ..known
        };
        let diagnosis = examine(&snapshot);
        if !verdicts.contains(&diagnosis.verdict) {
            wrong.push(format!("{name}: {}", told(&diagnosis)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
