//! Scenarios with noisy neighbours: floods of raw requests beside clients, and topics read from
//! disk.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::sync::Arc;

use ottla_broker::Broker;
use ottla_lab::bench::measure::{self, Setting};
use ottla_lab::bench::target::Access;
use ottla_lab::report::Measurement;
use ottla_lab::scenario::parse::parse;

fn measure(text: &str) -> Measurement {
    let broker = Broker::start_temporary(&[]).unwrap();
    let access = Access {
        bootstrap: broker.address().to_string(),
        is_embedded: true,
        ..Access::default()
    };
    let setting = Setting {
        access: &access,
        label: "neighbours",
        stop: &Arc::default(),
        calibration: &[],
        brokers: 1,
        on_tick: &|_, _| (),
    };
    let scenario = parse(text, "test.yaml").unwrap_or_else(|error| panic!("{error}"));
    measure::run(&scenario, &setting).unwrap()
}

#[test]
fn floods_storms_and_bursts_are_answered_beside_a_victim_that_loses_nothing() {
    let measured = measure(
        "
topics: [{name: steady}, {name: noise, partitions: 2}]
producers: [{name: victim, topics: [steady], rate: 200}]
consumers: [{name: readers, topics: [steady]}]
requests:
  - {name: flood, topics: [noise], connections: 4, in_flight: 3}
  - {name: storm, topics: [noise], api: api-versions, connections: 5, reconnect: true, client_ids: 1000}
  - {name: burst, topics: [noise], api: metadata, connections: 4, in_flight: 5, rate: 100, burst_every_ms: 200}
warmup_seconds: 0
duration_seconds: 1
",
    );
    for group in &measured.requests {
        assert!(group.records > 0, "{}: {:?}", group.name, group.error_kinds);
        assert_eq!(group.errors, 0, "{}: {:?}", group.name, group.error_kinds);
    }
    let names: Vec<&str> = measured
        .requests
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    assert_eq!(names, ["flood", "storm", "burst"]);
    let opened = |group: usize| measured.requests[group].metrics["connections-opened"];
    assert_eq!(opened(0), 4.0);
    assert!(opened(1) >= measured.requests[1].records as f64);
    assert!(measured.requests[2].latency.is_some() && measured.requests[0].latency.is_none());
    assert!(measured.integrity.acknowledged > 0);
    assert_eq!((measured.integrity.lost, measured.integrity.failed), (0, 0));
}

#[test]
fn a_lagging_consumer_reads_from_disk_what_was_dropped_from_the_page_cache() {
    let measured = measure(
        "
topics: [{name: steady}, {name: old, partitions: 2, prefilled_records: 5000, cold: true}]
producers: [{name: victim, topics: [steady], rate: 200}]
consumers:
  - {name: readers, topics: [steady]}
  - {name: laggard, topics: [old], from_beginning: true, rate: 1000}
warmup_seconds: 0
duration_seconds: 1
",
    );
    let told = |word: &str| {
        measured
            .verdict
            .caveats
            .iter()
            .any(|caveat| caveat.contains(word))
    };
    assert!(told("old is cold: "), "{:?}", measured.verdict);
    let reasons = &measured.verdict.reasons;
    assert!(
        !reasons.iter().any(|reason| reason.contains("is not cold")),
        "{reasons:?}"
    );
    let laggard = measured
        .consumers
        .iter()
        .find(|group| group.name == "laggard")
        .unwrap();
    assert!(laggard.records > 0, "{laggard:?}");
    assert_eq!(measured.integrity.lost, 0);
    if laggard.records == 5_000 {
        assert!(
            told("laggard: had read all 5,000 records"),
            "{:?}",
            measured.verdict
        );
    }
}
