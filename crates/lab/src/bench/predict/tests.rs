//! The predictions against the sources' measurements.

use super::*;
use crate::formulas::tables::{BETWEEN, Between, KONTUR, within};
use crate::formulas::wire::article_broker_ms;
use crate::scenario::{catalog, sweep};

fn scenario(yaml: &str) -> ConcretePoint {
    let scenario = crate::scenario::parse::parse(yaml, "test.yaml").unwrap_or_else(|error| panic!("{error}"));
    sweep::points(&scenario).unwrap().remove(0)
}

/// The article's producer between its data centres.
fn between(row: &Between) -> ConcretePoint {
    scenario(&format!(
        "topics: [{{name: t, partitions: {}}}]
producers:
  - record_bytes: {}
    settings:
      acks: all
      enable.idempotence: false
      linger.ms: 0
      batch.size: 16384
      max.in.flight.requests.per.connection: {}
      send.buffer.bytes: {}
      buffer.memory: 209715200
",
        row.partitions, row.record, row.in_flight, row.send_buffer
    ))
}

fn far() -> Observed {
    Observed {
        brokers: 1,
        round_trip_ms: 73.0,
        broker_ms_per_request: Some(article_broker_ms(0.0)),
        broker_ms_per_mb: article_broker_ms(1e6) - article_broker_ms(0.0),
        ..Observed::default()
    }
}

fn records(prediction: &Prediction) -> Range {
    prediction.figures["records_per_second"]
}

#[test]
fn the_article_s_tables_between_data_centres() {
    for row in BETWEEN {
        let prediction = predict(&between(row), &far()).unwrap();
        let error = records(&prediction).error_percent(row.records_per_second);
        // Accurate to 5 to 15 %, including the range of the doubled buffer and of requests that are
        // not filled.
        assert!(error.abs() <= 15.0, "{row:?}: {prediction:?}: {error:.1} %");
    }
}

#[test]
fn without_answers_the_window_decides_and_not_the_round_trip() {
    let scenario = catalog::find("rtt_by_acks").unwrap();
    let points = sweep::points(&sweep::scaled(&scenario, None)).unwrap();
    for (name, measured, limit) in [
        ("acks=0 10 kB", 1_188.0, "NETWORK_WINDOW"),
        ("acks=1 10 kB", 13.8, "NETWORK_RTT"),
    ] {
        let point = points.iter().find(|point| point.name == name).unwrap();
        let prediction = predict(point, &far()).unwrap();
        assert_eq!(prediction.limit.as_deref(), Some(limit), "{name}");
        let error = records(&prediction).error_percent(measured);
        assert!(error.abs() <= 5.0, "{name}: {prediction:?}");
    }
}

#[test]
fn nearby_without_answers_the_broker_decides_and_not_an_earlier_latency() {
    let scenario = catalog::find("same_datacentre").unwrap();
    let points = sweep::points(&sweep::scaled(&scenario, None)).unwrap();
    let point = points
        .iter()
        .find(|point| point.name.starts_with("acks=0"))
        .unwrap();
    let near = Observed {
        round_trip_ms: 0.02,
        // The latency as measured by a client that waits for no answer.
        earlier: vec![Earlier {
            scenario: point.scenario.clone(),
            figures: [(String::from("request_latency_ms"), 0.001)].into(),
        }],
        ..far()
    };
    let prediction = predict(point, &near).unwrap();
    assert_eq!(prediction.limit.as_deref(), Some("BROKER"));
    within(
        records(&prediction).high,
        1_000.0 / article_broker_ms(200_000.0),
        5.0,
    );
}

#[test]
fn an_earlier_latency_is_scaled_to_the_request_size() {
    let row = |record| Between {
        record,
        in_flight: 1.0,
        partitions: 1.0,
        send_buffer: 1_024_000.0,
        records_per_second: 0.0,
    };
    // The broker under load needed twice its idle time, for requests of 600 kB.
    let latency = 2.0 * article_broker_ms(600_000.0);
    let observed = Observed {
        round_trip_ms: 0.0,
        earlier: vec![Earlier {
            scenario: between(&row(600_000.0)).scenario,
            figures: [
                (String::from("request_latency_ms"), latency),
                (String::from("request_bytes"), 600_000.0),
            ]
            .into(),
        }],
        ..far()
    };
    let high = records(&predict(&between(&row(10_000.0)), &observed).unwrap()).high;
    within(high, 1_000.0 / (2.0 * article_broker_ms(10_000.0)), 5.0);
}

#[test]
fn the_predicted_ranges_are_narrow() {
    // Where one request in flight decides, the range is no wider than the formula's own 15 %.
    for row in BETWEEN
        .iter()
        .filter(|row| row.in_flight == 1.0 && row.partitions == 1.0 && 2.0 * row.record <= row.send_buffer)
    {
        let range = records(&predict(&between(row), &far()).unwrap());
        assert!(range.high <= 1.2 * range.low, "{row:?}: {range:?}");
    }
}

#[test]
fn the_article_s_verdicts() {
    let limit = |record, in_flight, send_buffer| {
        let row = Between {
            record,
            in_flight,
            partitions: 1.0,
            send_buffer,
            records_per_second: 0.0,
        };
        predict(&between(&row), &far()).unwrap().limit.unwrap()
    };
    assert_eq!(limit(10_000.0, 1.0, 1_024_000.0), "NETWORK_RTT");
    assert_eq!(limit(600_000.0, 1.0, 102_400.0), "NETWORK_WINDOW");
    assert_eq!(limit(600_000.0, 1.0, 502_400.0), "NETWORK_RTT");
    assert_eq!(limit(100_000.0, 10_000.0, 1_024_000.0), "NETWORK_WINDOW");
    assert_eq!(limit(10_000.0, 1_000.0, 1_024_000.0), "NETWORK_WINDOW");
}

#[test]
fn the_same_data_centre() {
    let near = Observed {
        round_trip_ms: 0.0,
        ..far()
    };
    for (record, measured) in [(600_000.0, 77.0), (200_000.0, 237.0)] {
        let row = Between {
            record,
            in_flight: 1.0,
            partitions: 1.0,
            send_buffer: 1_024_000.0,
            records_per_second: 0.0,
        };
        let prediction = predict(&between(&row), &near).unwrap();
        let error = records(&prediction).error_percent(measured);
        assert!(error.abs() <= 7.5, "{record}: {prediction:?}");
        assert_eq!(prediction.limit.as_deref(), Some("SENDER_RATE"));
    }
}

#[test]
fn four_brokers_carry_four_times_as_much() {
    let row = Between {
        record: 100_000.0,
        in_flight: 1.0,
        partitions: 4.0,
        send_buffer: 1_024_000.0,
        records_per_second: 52.1,
    };
    let observed = Observed { brokers: 4, ..far() };
    let error = records(&predict(&between(&row), &observed).unwrap()).error_percent(row.records_per_second);
    assert!(error.abs() <= 5.0, "{error}");
}

/// The talk's experiment with the reported request latency, and one thread's speed from its `W`.
fn kontur(name: &str, request_ms: f64) -> (Prediction, f64) {
    let row = KONTUR.iter().find(|row| row.name == name).unwrap();
    let scenario = sweep::scaled(&catalog::find("kontur").unwrap(), Some(1.0));
    let mut point = sweep::points(&scenario)
        .unwrap()
        .into_iter()
        .find(|point| point.name == name)
        .unwrap();
    // Three real brokers instead of the link.
    point.scenario.link = None;
    let observed = Observed {
        brokers: 3,
        round_trip_ms: 0.5,
        broker_ms_per_request: Some(request_ms - 0.5),
        calibrated_rate: Some(1e6 / row.send_micros),
        ..Observed::default()
    };
    (predict(&point, &observed).unwrap(), row.records_per_second)
}

#[test]
fn the_talk_s_first_experiments_from_their_own_latencies() {
    for (name, request_ms, limit) in [
        ("I", 9.8, "SENDER_RATE"),
        ("IV", 11.0, "WORKER"),
        ("V", 11.8, "WORKER"),
    ] {
        // Only the part of W that is work: in experiment I the thread waits for memory.
        let (mut prediction, measured) = kontur(name, request_ms);
        if name == "I" {
            prediction.arithmetic.retain(|line| !line.contains("threads"));
        }
        let error = records(&prediction).error_percent(measured);
        assert!(error.abs() <= 15.0, "{name}: {prediction:?}: {error:.1} %");
        if name != "I" {
            assert_eq!(prediction.limit.as_deref(), Some(limit), "{name}");
        }
    }
}

#[test]
fn the_talk_s_producer_keeps_up_where_it_did() {
    for name in ["II", "III"] {
        let (prediction, measured) = kontur(name, 5.0);
        assert_eq!(records(&prediction).error_percent(measured), 0.0, "{name}");
        assert_eq!(
            prediction.limit.as_deref(),
            Some("KEEPS_UP"),
            "{name}: {prediction:?}"
        );
    }
}

#[test]
fn the_talk_s_threads_lie_between_one_and_all_of_them() {
    for name in ["VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV"] {
        let (prediction, measured) = kontur(name, 11.8);
        assert_eq!(
            records(&prediction).error_percent(measured),
            0.0,
            "{name}: {prediction:?}"
        );
    }
}

#[test]
fn the_talk_s_queue_is_bounded_by_memory() {
    let (prediction, _) = kontur("I", 9.8);
    let queue = prediction.figures["queue_ms"];
    assert!(
        queue.high <= 335_544_320.0 / 79_000.0 / 266.0 * 1_000.0,
        "{queue:?}"
    );
}

fn near(broker_ms: f64, round_trip_ms: f64) -> Observed {
    Observed {
        brokers: 1,
        round_trip_ms,
        broker_ms_per_request: Some(broker_ms),
        ..Observed::default()
    }
}

#[test]
fn threads_that_wait_were_measured() {
    let synchronous = |linger_ms: u32| {
        scenario(&format!(
            "topics: [{{name: t}}]\nproducers: [{{synchronous: true, settings: {{linger.ms: {linger_ms}}}}}]\n"
        ))
    };
    for (linger_ms, measured) in [(5, 57.3), (0, 79.3)] {
        let prediction = predict(&synchronous(linger_ms), &near(2.1, 10.0)).unwrap();
        assert_eq!(
            records(&prediction).error_percent(measured),
            0.0,
            "{prediction:?}"
        );
        assert_eq!(prediction.limit.as_deref(), Some("SYNCHRONOUS"));
    }
}

#[test]
fn a_linger_is_half_of_the_latency_it_costs() {
    let point = scenario(
        "topics: [{name: t}]\nproducers: [{rate: 500, settings: {linger.ms: 100, batch.size: 65536}}]\n",
    );
    let prediction = predict(&point, &near(3.0, 0.1)).unwrap();
    // 55.9 ms by the application's clock.
    let error = prediction.figures["sender_latency_ms"].error_percent(55.9);
    assert!(error.abs() <= 5.0, "{prediction:?}");
    // A record that is alone in its batch waits for the whole linger.
    let point = scenario("topics: [{name: t}]\nproducers: [{rate: 2, settings: {linger.ms: 100}}]\n");
    let alone = predict(&point, &near(3.0, 0.1)).unwrap().figures["sender_latency_ms"];
    within(alone.low, 0.94 * 103.1, 0.1);
}

#[test]
fn a_slow_link_is_named() {
    // 9,555 records/s of 500 bytes were measured through 5 MB/s.
    let point = scenario(
        "topics: [{name: t}]\nproducers: [{record_bytes: 500, settings: {linger.ms: 0}}]\nlink: {bytes_per_second: 5000000}\n",
    );
    let prediction = predict(&point, &near(0.2, 0.1)).unwrap();
    assert_eq!(prediction.limit.as_deref(), Some("NETWORK_BANDWIDTH"));
    assert_eq!(records(&prediction).error_percent(9_555.0), 0.0, "{prediction:?}");
    let queue = prediction.figures["queue_ms"];
    // 32 MiB at 5 MB/s, or half of the run where that is shorter.
    assert!(queue.high <= 7_300.0 && queue.low > 6_000.0, "{queue:?}");
}

#[test]
fn unknown_numbers_are_not_predicted() {
    let unknown = Observed {
        brokers: 1,
        round_trip_ms: 0.05,
        ..Observed::default()
    };
    let point = scenario("topics: [{name: t}]\nproducers: [{settings: {linger.ms: 0}}]\n");
    assert!(predict(&point, &unknown).is_none());
    let readers = scenario("topics: [{name: t, prefilled_records: 10}]\nconsumers: [{name: readers}]\n");
    assert!(predict(&readers, &unknown).is_none());
}

#[test]
fn an_earlier_point_gives_the_latency_under_load() {
    let point = scenario(
        "topics: [{name: t}]\nproducers: [{record_bytes: 256, contents: random, settings: {batch.size: 16384}}]\n",
    );
    let earlier = Earlier {
        scenario: point.scenario.clone(),
        figures: BTreeMap::from([(String::from("request_latency_ms"), 13.5)]),
    };
    let observed = Observed {
        brokers: 1,
        round_trip_ms: 0.1,
        broker_ms_per_request: Some(0.2),
        earlier: vec![earlier],
        ..Observed::default()
    };
    // 1000 / 13.5 * 5 * 61 records.
    within(records(&predict(&point, &observed).unwrap()).high, 22_593.0, 0.1);
}

#[test]
fn latency_explodes_towards_capacity() {
    let at = |rate: &str| {
        scenario(&format!(
            "topics: [{{name: t}}]\nproducers: [{{{rate}settings: {{linger.ms: 0}}}}]\n"
        ))
    };
    let earlier = |rate: &str, figures: &[(&str, f64)]| Earlier {
        scenario: at(rate).scenario,
        figures: figures
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect(),
    };
    let mut observed = near(0.2, 0.1);
    observed.earlier = vec![
        earlier("", &[("records_per_second", 100_000.0)]),
        earlier("rate: 50000, ", &[("latency_p99_ms", 4.0)]),
    ];
    let latency = |rate: &str| {
        predict(&at(rate), &observed)
            .unwrap()
            .figures
            .get("latency_p99_ms")
            .copied()
    };
    // rho 0.5 -> 0.9: five times the time in the system.
    within(latency("rate: 90000, ").unwrap().high, 20.0, 0.1);
    assert_eq!(
        latency("rate: 110000, "),
        None,
        "no formula predicts the latency of an endless queue"
    );
}

#[test]
fn groups_together_are_their_rates() {
    let point = scenario("topics: [{name: t}]\nproducers: [{name: a, rate: 100}, {name: b, rate: 20}]\n");
    assert_eq!(
        records(&predict(&point, &Observed::default()).unwrap()),
        Range::exactly(120.0)
    );
}
