//! Every form of case, and every fixture: what is read must agree with what the fixture states.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::super::history::{Collector, PushedFrom};
use super::super::sample_push::{Sample, delta, gauge, payload};
use super::super::snapshot::{Codec, Library, Origin, Producer, Role};
use super::*;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/doctor")
}

fn text_of(name: &str) -> String {
    let path = folder().join(format!("{name}.json"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn one(name: &str) -> Snapshot {
    let mut snapshots = read(&text_of(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(snapshots.len(), 1, "{name}");
    snapshots.remove(0)
}

fn producer(name: &str) -> Producer {
    one(name)
        .producer
        .unwrap_or_else(|| panic!("{name} is no producer"))
}

fn all() -> BTreeMap<String, Value> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let cases = files.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (
            name,
            serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap(),
        )
    });
    cases.collect()
}

fn is_near(found: f64, expected: f64, share: f64) -> bool {
    (found / expected - 1.0).abs() <= share
}

#[test]
fn every_fixture_is_one_client_with_numbers() {
    let cases = all();
    assert!(cases.len() >= 20);
    for (name, case) in &cases {
        let snapshot = one(name);
        assert!(!snapshot.client.client_id.is_empty(), "{name}");
        let is_consumer = name.starts_with('C');
        assert_eq!(snapshot.client.role == Role::Consumer, is_consumer, "{name}");
        if case.get("metrics").is_some() {
            assert_eq!(
                (snapshot.producer.is_none(), snapshot.consumer.is_some()),
                (is_consumer, is_consumer),
                "{name}"
            );
            assert_eq!(
                (snapshot.client.library, snapshot.telemetry.pushes),
                (Library::Java, None),
                "{name}"
            );
            assert!(
                (10.0..80.0).contains(&snapshot.seconds),
                "{name}: {} s",
                snapshot.seconds
            );
            let [broker] = &snapshot.brokers[..] else {
                panic!("{name}: one broker")
            };
            assert!(broker.is_rounded_to_ms && broker.is_of_all_clients, "{name}");
        }
    }
}

#[test]
fn bytes_per_second_are_requests_times_their_size() {
    // F1, both sides within 5 %.
    for (name, case) in all()
        .iter()
        .filter(|(name, case)| !name.starts_with('C') && case.get("metrics").is_some())
    {
        let producer = producer(name);
        assert!(case["metrics"].is_object());
        let product = producer.requests_per_second.unwrap() * producer.request_bytes.unwrap();
        assert!(
            is_near(producer.bytes_per_second.unwrap(), product, 0.05),
            "{name}"
        );
    }
}

#[test]
fn what_the_client_counted_is_what_the_application_saw() {
    for (name, case) in all() {
        let measured = match (&case["app"]["send_calls_per_s"], &case["summary"][0]) {
            (Value::Number(rate), _) => rate.as_f64(),
            (_, Value::String(line)) => line
                .split(" sent, ")
                .nth(1)
                .and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok()),
            _ => None,
        };
        // Where sends outran the sender, or the rate changed while measuring, the two counted
        // different records.
        let is_steady =
            !["B11_quota", "B6_slow_callback_busy", "B9_contention_4thr_1part"].contains(&name.as_str());
        if let Some(measured) = measured.filter(|_| is_steady) {
            let found = producer(&name).records_per_second.unwrap();
            assert!(
                is_near(found, measured, 0.10),
                "{name}: {found} against {measured}"
            );
        }
    }
}

#[test]
fn client_and_broker_agree_on_requests() {
    for (name, case) in all() {
        let is_steady = case.get("metrics").is_some()
            && !name.starts_with('C')
            // The request rate differed between the run and the broker's shorter window.
            && !["B11_quota", "B6_slow_callback_busy", "B9_contention_4thr_1part", "P2_defaults", "B16_broker_recompress"]
                .contains(&name.as_str());
        if is_steady {
            let snapshot = one(&name);
            let (client, broker) = (
                snapshot.producer.unwrap().requests_per_second,
                snapshot.brokers[0].requests_per_second,
            );
            assert!(
                is_near(client.unwrap(), broker.unwrap(), 0.08),
                "{name}: {client:?} against {broker:?}"
            );
        }
    }
}

#[test]
fn the_kontur_analogue_has_its_numbers() {
    let snapshot = one("B1_kontur_I_16k");
    let producer = snapshot.producer.as_ref().unwrap();
    // U = R * L / 1000 / M.
    let use_of_pipe = producer.requests_per_second.unwrap() * producer.request_ms.unwrap() / 5_000.0;
    assert!((use_of_pipe - 0.98).abs() < 0.02, "{use_of_pipe}");
    assert!((producer.buffer_wait.unwrap() - 0.85).abs() < 0.01);
    assert!((producer.io_wait.unwrap() - 0.768).abs() < 0.01);
    assert_eq!(producer.metadata_wait, Some(0.0), "the initial wait is over");
    assert_eq!(
        (producer.in_flight, producer.buffer_bytes),
        (Some(5.0), Some(33_554_432.0))
    );
    let nodes: Vec<i32> = producer.nodes.iter().map(|node| node.node_id).collect();
    assert_eq!(nodes, [1]);
    assert!(
        producer.without_sample.is_empty(),
        "{:?}",
        producer.without_sample
    );
    let settings = &snapshot.settings;
    assert_eq!(
        settings.batch_bytes.map(|set| (set.value, set.origin)),
        Some((16_384.0, Origin::Stated))
    );
    assert_eq!(settings.compression.map(|set| set.value), Some(Codec::Lz4));
    assert_eq!(settings.in_flight, None);
    assert_eq!(snapshot.network.round_trip_ms, Some(10.0));
    let application = snapshot.application;
    assert_eq!(
        (application.threads, application.offered_records_per_second),
        (Some(1.0), Some(100_000.0))
    );
    assert!((application.send_micros.unwrap() - 15.3).abs() < 0.1);
    assert!((application.acknowledged_ms.unwrap() - 1_799.0).abs() < 1.0);
    assert_eq!(
        snapshot.client.instance_id.as_deref(),
        Some("gh9iEIsoShWE9tZBfaNr1Q")
    );
    assert_eq!(
        (snapshot.brokers[0].node_id, snapshot.brokers[0].network_threads),
        (Some(1), Some(3.0))
    );
    assert!(snapshot.telemetry.has_subscription && !snapshot.telemetry.is_silent);
}

#[test]
fn a_young_clients_rates_are_totals_over_its_life() {
    // Its own gauge says 161,741 records/s: the divisor is more than a whole window.
    let snapshot = one("P2_defaults");
    assert!((snapshot.seconds - 13.6).abs() < 0.1);
    assert!(is_near(
        snapshot.producer.unwrap().records_per_second.unwrap(),
        515_578.0,
        0.01
    ));
    // Older than its windows: the gauge is right, and covers the same time as the averages.
    assert_eq!(
        producer("P6_buffer_exhaustion")
            .requests_per_second
            .map(|rate| (rate * 1000.0).round()),
        Some(45_821.0)
    );
}

#[test]
fn a_client_that_did_not_push_is_silent_and_still_read() {
    for name in [
        "P4_one_inflight_rtt20",
        "P6_buffer_exhaustion",
        "B13_interdc_window100k",
    ] {
        let snapshot = one(name);
        assert!(
            snapshot.telemetry.is_silent && snapshot.telemetry.pushes.is_none(),
            "{name}"
        );
        assert_eq!(snapshot.settings.in_flight.unwrap().value, 1.0);
    }
    let failing = one("P6_buffer_exhaustion");
    assert_eq!(failing.application.buffer_errors, Some(3_190.0));
    assert_eq!(failing.producer.as_ref().unwrap().exhausted, Some(3_190.0));
    assert_eq!(failing.settings.buffer_bytes.unwrap().value, 262_144.0);
    assert!((failing.application.acknowledged_ms.unwrap() - 347.48).abs() < 0.01);
    // Nothing was acknowledged within the measured time: its zeros are not latencies.
    let slow = one("B13_interdc_window100k");
    assert_eq!(
        (slow.application.acknowledged_ms, slow.application.callback_micros),
        (None, None)
    );
    assert_eq!(
        (slow.network.window_bytes, slow.network.round_trip_ms),
        (Some(102_400.0), Some(72.0))
    );
}

#[test]
fn brokers_times_are_those_of_the_client_s_requests() {
    let snapshot = one("B16_broker_recompress");
    let broker = &snapshot.brokers[0];
    assert!((broker.local_micros.unwrap() - 116_378.0).abs() < 1.0);
    assert!((broker.conversion_micros.unwrap() - 114_350.0).abs() < 1.0);
    assert!((broker.requests_per_second.unwrap() - 8.377).abs() < 0.001);
    assert_eq!(snapshot.settings.topic_compression.unwrap().value, Codec::Gzip);
    let throttled = one("B11_quota");
    assert!((throttled.brokers[0].throttle_ms.unwrap() - 191.8).abs() < 0.1);
    assert!((throttled.producer.unwrap().throttle_ms.unwrap() - 21.1).abs() < 0.1);
    // Percentiles that decay over minutes and maxima since the broker's start are not about this
    // window and are not read (rule 9).
    let idle = one("C3_idle");
    assert!((idle.brokers[0].total_micros.unwrap() - 501_958.0).abs() < 1.0);
}

#[test]
fn a_consumers_lag_has_a_slope_from_one_look() {
    let snapshot = one("C1_slow_consumer");
    let consumer = snapshot.consumer.unwrap();
    assert!((consumer.poll_idle_share.unwrap() - 0.0274).abs() < 0.001);
    assert_eq!(consumer.lag_max, Some(1_483_526.0));
    assert_eq!(consumer.partitions.len(), 3);
    let sum = |part: fn(&super::super::snapshot::ConsumedPartition) -> Option<f64>| {
        consumer
            .partitions
            .iter()
            .map(|partition| part(partition).unwrap())
            .sum::<f64>()
    };
    // The application consumed 1,863 records/s and nothing was produced.
    assert!(is_near(
        sum(|partition| partition.consumed_per_second),
        1_863.0,
        0.1
    ));
    assert!(is_near(sum(|partition| partition.lag_slope), -1_863.0, 0.1));
    assert!(sum(|partition| partition.produced_per_second) < 10.0);
    assert_eq!(
        (consumer.rebalances, consumer.failed_rebalances),
        (Some(0.0), Some(0.0))
    );
    assert_eq!(snapshot.client.group_id.as_deref(), Some("g1"));
    let idle = one("C3_idle").consumer.unwrap();
    assert_eq!((idle.poll_idle_share, idle.lag_max), (Some(1.0), Some(0.0)));
    assert!((idle.fetch_ms.unwrap() - 504.6).abs() < 0.1);
}

#[test]
fn librdkafkas_pushes_are_read_as_librdkafkas() {
    let snapshot = one("X1_librdkafka_2_16_linger5");
    assert_eq!(snapshot.client.library, Library::Librdkafka);
    assert_eq!(snapshot.client.software_version.as_deref(), Some("2.16.0"));
    let telemetry = snapshot.telemetry;
    assert_eq!(
        (
            telemetry.pushes,
            telemetry.empty_pushes,
            telemetry.push_interval_ms
        ),
        (Some(4), 0, Some(5_000.0))
    );
    let producer = snapshot.producer.unwrap();
    assert_eq!(
        (producer.queue_ms, producer.throttle_ms, producer.requests),
        (None, None, None)
    );
    assert_eq!(producer.request_ms_max, Some(90.0));
    let request_ms = producer.request_ms.unwrap();
    assert!((0.56..1.64).contains(&request_ms), "{request_ms}");
    assert_eq!(producer.nodes.len(), 1);
    assert!((snapshot.seconds - 17.0).abs() < 0.1, "{}", snapshot.seconds);
}

#[test]
fn empty_pushes_of_franz_go_are_counted() {
    let snapshot = one("X3_franz_go_1_21_5_star");
    assert_eq!(
        (snapshot.client.library, &snapshot.producer),
        (Library::FranzGo, &None)
    );
    let telemetry = snapshot.telemetry;
    assert_eq!((telemetry.pushes, telemetry.empty_pushes), (Some(4), 4));
}

#[test]
fn the_expected_verdict_is_not_read() {
    for (name, mut case) in all() {
        let text = case.to_string();
        case["expected"] = json!("PROCESSING");
        case["verdict"] = json!({"verdict": "QUOTA"});
        assert_eq!(read(&case.to_string()), read(&text), "{name}");
        let exported = serde_json::to_string(&read(&text).unwrap()).unwrap();
        if let Some(expected) = case["expected"].as_str() {
            assert!(!exported.contains(expected), "{name}");
        }
    }
}

/// The payload that was recorded as this push.
fn payload_of(push: &Value) -> Vec<u8> {
    let samples: Vec<Sample> = push["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| {
            let name = metric["name"]
                .as_str()
                .unwrap()
                .trim_start_matches("org.apache.kafka.");
            let value = metric["v"].as_f64().unwrap_or(f64::NAN);
            let sample = match metric["type"].as_str().unwrap().starts_with("sum") {
                true => delta(name, value),
                false => gauge(name, value),
            };
            let attributes = metric["attrs"].as_object().unwrap();
            attributes.iter().fold(sample, |sample, (key, value)| {
                sample.with(key, value.as_str().unwrap())
            })
        })
        .collect();
    let end_ms = push["ts"].as_f64().unwrap();
    let resource = push["metrics"][0]["res"].as_object().unwrap();
    let resource: Vec<(&str, &str)> = resource
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap()))
        .collect();
    payload(
        end_ms - push["interval_s"].as_f64().unwrap() * 1000.0,
        end_ms,
        &resource,
        &samples,
    )
}

#[test]
fn a_push_reads_the_same_from_its_bytes_and_from_its_record() {
    let mut count = 0;
    for (name, case) in all() {
        let push = &case["last_push"];
        if !push.is_object() {
            continue;
        }
        count += 1;
        let written = read(&json!({ "pushes": [push] }).to_string()).unwrap();
        let collector = Collector::default();
        let from = PushedFrom {
            client_id: push["client_id"].as_str().unwrap(),
            instance_id: push["instance"].as_str().unwrap(),
            principal: push["principal"].as_str(),
            address: push["addr"].as_str(),
            push_interval_ms: push["pushIntervalMs"].as_f64(),
            ..PushedFrom::default()
        };
        let at_ms = push["ts"].as_i64().unwrap();
        collector.push(from, &payload_of(push), at_ms).unwrap();
        let mut pushed = collector.snapshots(at_ms);
        assert_eq!(pushed[0].client.library, Library::Java, "{name}");
        assert!(pushed[0].seconds > 4.9, "{name}");
        pushed[0].telemetry.seconds_until_next_push = None;
        assert_eq!(rounded(&pushed), rounded(&written), "{name}");
    }
    assert!(count >= 12, "{count}");
}

/// As JSON, with six digits of each number: nanoseconds since 1970 exceed a double's precision.
fn rounded(snapshots: &[Snapshot]) -> Value {
    fn round(value: &mut Value) {
        match value {
            Value::Number(number) => {
                let digits = format!("{:.5e}", number.as_f64().unwrap());
                *value = Value::String(digits);
            }
            Value::Array(all) => all.iter_mut().for_each(round),
            Value::Object(all) => all.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(snapshots).unwrap();
    round(&mut value);
    value
}

#[test]
fn exported_snapshots_come_back_as_they_were() {
    for name in ["B1_kontur_I_16k", "C3_idle", "X1_librdkafka_2_16_linger5"] {
        let snapshots = read(&text_of(name)).unwrap();
        let exported = serde_json::to_string_pretty(&snapshots).unwrap();
        assert_eq!(rounded(&read(&exported).unwrap()), rounded(&snapshots), "{name}");
        let single = serde_json::to_string(&snapshots[0]).unwrap();
        assert_eq!(rounded(&read(&single).unwrap()), rounded(&snapshots), "{name}");
    }
    assert_eq!(read("[]"), Ok(vec![]));
}

#[test]
fn what_is_missing_may_be_missing() {
    let bare = json!({"metrics": {"producer-metrics:request-latency-avg": 3.0}});
    let snapshot = &read(&bare.to_string()).unwrap()[0];
    assert_eq!(snapshot.producer.as_ref().unwrap().request_ms, Some(3.0));
    let more = json!({
        "name": "n", "future": [1, 2], "settings": {"no.such.setting": {"a": 1}, "acks": "all", "linger.ms": "5", "bench.rate": -1},
        "network": null, "app": null, "errors": null, "broker": null, "last_push": null, "summary": [],
        "metrics": {"producer-metrics:request-total": 10, "no metric at all": 3, "producer-metrics:batch-size-avg": "NaN"},
    });
    let snapshot = &read(&more.to_string()).unwrap()[0];
    assert_eq!(
        (
            snapshot.settings.acks.unwrap().value,
            snapshot.settings.linger_ms.unwrap().value
        ),
        (-1, 5.0)
    );
    assert_eq!(
        (
            snapshot.client.client_id.as_str(),
            snapshot.application.offered_records_per_second
        ),
        ("n", None)
    );
    let producer = snapshot.producer.as_ref().unwrap();
    assert_eq!(
        (producer.batch_bytes, &producer.without_sample[..]),
        (None, &["producer.batch.size.avg".to_owned()][..])
    );
}

#[test]
fn several_brokers_are_read_in_either_form() {
    let broker = |n: i64| json!({"window_s": 10.0, "TotalTimeMs:request.Produce": {"n": n, "avg": 2.5}});
    let metrics = json!({"producer-node-metrics:request-total:{node-id=node-1}": 10, "producer-node-metrics:request-total:{node-id=node-2}": 20});
    for brokers in [
        json!([broker(10), broker(20)]),
        json!({"1": broker(10), "node-2": broker(20)}),
    ] {
        let case = json!({"metrics": metrics, "broker": brokers});
        let snapshot = &read(&case.to_string()).unwrap()[0];
        let rates: Vec<_> = snapshot
            .brokers
            .iter()
            .map(|side| side.requests_per_second)
            .collect();
        assert_eq!(rates, [Some(1.0), Some(2.0)]);
        assert_eq!(snapshot.producer.as_ref().unwrap().nodes.len(), 2);
        if brokers.is_object() {
            let ids: Vec<_> = snapshot.brokers.iter().map(|side| side.node_id).collect();
            assert_eq!(ids, [Some(1), Some(2)]);
        }
    }
}

#[test]
fn each_broker_may_have_a_key_of_its_own() {
    let broker =
        |n: i64| json!({"window_s": 10.0, "TotalTimeMs:request.FetchConsumer": {"n": n, "avg": 2.5}});
    let case = json!({"broker_1": broker(10), "broker_2": broker(20), "broker_count": 2, "kind": "cons"});
    let snapshot = &read(&case.to_string()).unwrap()[0];
    let sides: Vec<_> = snapshot
        .brokers
        .iter()
        .map(|side| (side.node_id, side.requests_per_second))
        .collect();
    assert_eq!(sides, [(Some(1), Some(1.0)), (Some(2), Some(2.0))]);
    assert_eq!(snapshot.client.role, Role::Consumer);
}

#[test]
fn a_case_of_a_broker_alone_is_a_silent_client() {
    let case = json!({"name": "n", "pushes_received": 0, "broker": {"window_s": 30.0, "TotalTimeMs:request.Produce": {"n": 60, "avg": 1.0}}});
    let snapshot = &read(&case.to_string()).unwrap()[0];
    assert_eq!(
        (
            snapshot.telemetry.pushes,
            snapshot.telemetry.is_silent,
            snapshot.seconds
        ),
        (Some(0), true, 30.0)
    );
    assert_eq!(
        (snapshot.brokers[0].requests_per_second, &snapshot.producer),
        (Some(2.0), &None)
    );
}

const PRINTED: &str = "\
5000 records sent, 999.8 records/sec (0.95 MB/sec), 2.0 ms avg latency, 200.0 ms max latency.
100000 records sent, 2000.000000 records/sec (1.91 MB/sec), 3.40 ms avg latency, 201.00 ms max latency, 3 ms 50th, 5 ms 95th, 9 ms 99th, 40 ms 99.9th.

Metric Name                                                                           Value
app-info:commit-id:{client-id=perf-producer-client}                                 : 3e4e8e1f2c4e
app-info:start-time-ms:{client-id=perf-producer-client}                             : 1795220622379
app-info:version:{client-id=perf-producer-client}                                   : 4.3.0
kafka-metrics-count:count:{client-id=perf-producer-client}                          : 110.000
producer-metrics:record-send-total:{client-id=perf-producer-client}                 : 100000.000
producer-metrics:record-send-rate:{client-id=perf-producer-client}                  : 1650.000
producer-metrics:request-latency-avg:{client-id=perf-producer-client}               : 1.100
producer-metrics:reauthentication-latency-avg:{client-id=perf-producer-client}      : NaN
producer-metrics:record-queue-time-avg:{client-id=perf-producer-client}             : NaN
producer-node-metrics:request-total:{client-id=perf-producer-client, node-id=node-1} : 9000.000
";

#[test]
fn printed_metrics_become_rates_by_the_summary() {
    let snapshots = read(PRINTED).unwrap();
    let [snapshot] = &snapshots[..] else {
        panic!("{snapshots:?}")
    };
    assert_eq!(
        (snapshot.seconds, snapshot.client.client_id.as_str()),
        (50.0, "perf-producer-client")
    );
    assert_eq!(snapshot.client.software_version.as_deref(), Some("4.3.0"));
    let producer = snapshot.producer.as_ref().unwrap();
    assert_eq!(producer.records_per_second, Some(2_000.0));
    assert_eq!((producer.request_ms, producer.queue_ms), (Some(1.1), None));
    assert_eq!(producer.nodes[0].requests_per_second, Some(180.0));
    assert_eq!(
        (snapshot.application.threads, snapshot.application.acknowledged_ms),
        (Some(1.0), Some(3.4))
    );
    assert_eq!(snapshot.telemetry.pushes, None);
}

#[test]
fn the_output_of_ottlas_own_tool_is_recognised() {
    let text = format!(
        "{PRINTED}{}",
        "ottla-producer-metrics:send-time-avg:{client-id=perf-producer-client} : 0.012\n\
         ottla-producer-metrics:sending-threads:{client-id=perf-producer-client} : 1.000\n"
    );
    let snapshot = &read(&text).unwrap()[0];
    assert_eq!(snapshot.client.library, Library::Ottla);
    assert!((snapshot.application.send_micros.unwrap() - 12.0).abs() < 1e-6);
    let json = json!({"tool": "produce", "records": 100, "seconds": 50.0, "throughput": 2000.0, "metrics": {
        "producer-metrics:record-send-total:{client-id=p}": 100_000.0,
        "app-info:version:{client-id=p}": "0.1.0",
    }});
    let snapshot = &read(&json.to_string()).unwrap()[0];
    assert_eq!(
        snapshot.producer.as_ref().unwrap().records_per_second,
        Some(2_000.0)
    );
    assert_eq!(
        (
            snapshot.client.client_id.as_str(),
            snapshot.client.software_version.as_deref()
        ),
        ("p", Some("0.1.0"))
    );
}

#[test]
fn several_printed_clients_are_told_apart() {
    let text = "producer-metrics:request-latency-avg:{client-id=a} : 1.0\nconsumer-metrics:request-total:{client-id=b} : 7.0\n\
                consumer-fetch-manager-metrics:fetch-latency-avg:{client-id=b} : 5.0\n";
    let snapshots = read(text).unwrap();
    let clients: Vec<_> = snapshots
        .iter()
        .map(|snapshot| (snapshot.client.client_id.as_str(), snapshot.client.role))
        .collect();
    assert_eq!(clients, [("a", Role::Producer), ("b", Role::Consumer)]);
}

#[test]
fn the_consumers_summary_gives_the_length_of_the_run_too() {
    let line = "2026-11-21 12:00:00:000, 2026-11-21 12:00:10:000, 95.36, 9.5, 100000, 10000.0, 300, 9700, 9.8, 10309.2";
    let summary = print_metrics::Summary::parse(line).unwrap();
    assert_eq!((summary.seconds, summary.latency_ms), (Some(10.0), None));
}

#[test]
fn errors_name_the_line_or_the_field() {
    let message = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(message("  \n"), "the file is empty");
    assert!(
        message("hello\nworld").starts_with("no case: not JSON"),
        "{}",
        message("hello\nworld")
    );
    assert!(
        message("{\n\"a\": ,\n}").starts_with("line 2: "),
        "{}",
        message("{\n\"a\": ,\n}")
    );
    assert!(message("{}").starts_with("no case: "));
    assert_eq!(
        message("{\"settings\": 3, \"metrics\": {}}"),
        "settings: an object is expected, not a number"
    );
    assert_eq!(
        message("{\"settings\": {\"batch.size\": \"big\"}, \"metrics\": {\"producer-metrics:io-ratio\": 1}}"),
        "settings.batch.size: a number is expected, not \"big\""
    );
    assert_eq!(
        message("{\"metrics\": {\"producer-metrics:request-total\": []}}"),
        "metrics.producer-metrics:request-total: a number is expected, not a list"
    );
    assert!(message("{\"version\": 1, \"clients\": []}").starts_with("clients: these are verdicts"));
    assert_eq!(
        message("x\nproducer-metrics:request-total:{client-id=a} : many"),
        "line 2: org.apache.kafka.producer.request.total: a number is expected, not \"many\""
    );
    assert!(message("[{\"client\": {},\n \"seconds\": \"long\"}]").starts_with("line 2: "));
    assert!(message("[3]").starts_with("a case is an object"));
}

#[test]
fn python_s_nan_is_understood() {
    let text = "{\"name\": \"a NaN \\\" NaN\", \"metrics\": {\"producer-metrics:request-latency-avg\": NaN, \"producer-metrics:batch-size-avg\": -Infinity, \"producer-metrics:request-total\": 4}}";
    let snapshot = &read(text).unwrap()[0];
    assert_eq!(snapshot.client.client_id, "a NaN \" NaN");
    assert_eq!(snapshot.producer.as_ref().unwrap().without_sample.len(), 2);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[\\[{]?[\\PC\n]{0,80}") {
        let _ = read(&text);
    }

    #[test]
    fn no_damaged_fixture_makes_it_panic(cut in 0usize..11_000, place in 0usize..11_000, byte in proptest::prelude::any::<u8>()) {
        let mut bytes = text_of("B13_interdc_window100k").into_bytes();
        let place = place % bytes.len();
        bytes[place] = byte;
        bytes.truncate(cut.max(1));
        let _ = read(&String::from_utf8_lossy(&bytes));
    }
}
