//! What the error of a failed record says about the log: written, not written, or unknown.

use ottla_sim::brokers::{Brokers, Mishaps};
use ottla_sim::network::Troubles;
use ottla_sim::producing::{Producing, Report, Scenario};

const SEED: u64 = 11;
const RECORD_COUNT: u64 = 50;

/// Fifty records from one thread to one broker; the faults last until every record has an outcome.
fn produce(settings: &[(&'static str, &str)], scenario: Scenario, mishaps: Mishaps) -> Report {
    let mut all = vec![
        ("request.timeout.ms", "200"),
        ("delivery.timeout.ms", "1000"),
        ("batch.size", "200"),
    ];
    all.extend(settings);
    let scenario = Scenario {
        settings: all
            .into_iter()
            .map(|(key, value)| (key, value.to_owned()))
            .collect(),
        ..scenario
    };
    Producing::new(SEED, scenario, Brokers::new(SEED, 1, 1, mishaps)).run()
}

fn scenario() -> Scenario {
    Scenario {
        settings: Vec::new(),
        thread_count: 1,
        troubles: Troubles::NONE,
        record_count: RECORD_COUNT,
        pause_micros: 1_000,
        value_bytes_max: 20,
        changes_producer_id: false,
        refused_records: u64::MAX,
        close_within_ms: Some(60_000),
        may_refuse: false,
    }
}

/// `(written, maybe written, not written)`
fn counts(report: &Report) -> (u64, u64, u64) {
    (report.acknowledged, report.maybe_written, report.not_written)
}

#[test]
fn a_request_that_was_sent_and_not_answered_may_have_been_written() {
    let mishaps = Mishaps {
        produce_hangs: 1,
        ..Mishaps::NONE
    };
    // Without retries, so that every batch is sent once.
    let settings = [("enable.idempotence", "false"), ("retries", "0")];
    let lost = Scenario {
        may_refuse: true,
        ..scenario()
    };
    let report = produce(&settings, lost, mishaps);
    assert_eq!(counts(&report), (0, RECORD_COUNT, 0));
}

#[test]
fn a_delivery_timeout_is_retriable_only_for_batches_that_were_never_sent() {
    let mishaps = Mishaps {
        produce_hangs: 1,
        ..Mishaps::NONE
    };
    // The first batch of an idempotent producer goes alone; those behind it are never sent.
    let report = produce(&[], scenario(), mishaps);
    let (written, maybe_written, not_written) = counts(&report);
    assert_eq!(written, 0);
    assert!(maybe_written > 0 && not_written > 0, "{report:?}");
}

#[test]
fn a_record_that_was_never_sent_is_not_written() {
    // Without a producer id no batch of an idempotent producer is sent.
    let mishaps = Mishaps {
        init_producer_id_fails: 1,
        ..Mishaps::NONE
    };
    let report = produce(&[], scenario(), mishaps);
    assert_eq!(counts(&report), (0, 0, RECORD_COUNT));
}

#[test]
fn a_record_that_the_broker_refuses_is_not_written() {
    let refused = Scenario {
        refused_records: 1,
        may_refuse: true,
        ..scenario()
    };
    let report = produce(&[], refused, Mishaps::NONE);
    assert_eq!(counts(&report), (0, 0, RECORD_COUNT));
}

#[test]
fn a_duplicate_sequence_number_says_that_the_record_is_written() {
    let mishaps = Mishaps {
        refuses_duplicates: 1,
        ..Mishaps::NONE
    };
    let answers_lost = Scenario {
        troubles: Troubles {
            break_before_answer: 3,
            ..Troubles::NONE
        },
        ..scenario()
    };
    let report = produce(&[("delivery.timeout.ms", "60000")], answers_lost, mishaps);
    assert!(report.played.refused_duplicates > 0, "{report:?}");
    assert_eq!(counts(&report), (RECORD_COUNT, 0, 0));
}
