//! The metrics of a producer and a consumer after a known amount of work.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::Consumer;
use ottla_client::metrics::{ClientMetrics, Metric};
use ottla_client::producer::{Producer, Record};

const NOTHING_HANGS_LONGER: Duration = Duration::from_secs(60);
const THREADS: usize = 3;
const RECORDS_PER_THREAD: usize = 2000;
const RECORDS: f64 = (THREADS * RECORDS_PER_THREAD) as f64;

fn value(metrics: &ClientMetrics, group: &str, name: &str, tag: Option<(&str, &str)>) -> f64 {
    let snapshot = metrics.snapshot();
    let mut found = snapshot.iter().filter(|metric| {
        let is_tagged = match tag {
            Some((key, wanted)) => metric.tag(key) == Some(wanted),
            None => metric.tags.len() == 1,
        };
        metric.group == group && metric.name == name && is_tagged
    });
    found
        .next()
        .and_then(Metric::number)
        .unwrap_or_else(|| panic!("no {group} {name} {tag:?}"))
}

fn produce(producer: &Producer) {
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..RECORDS_PER_THREAD {
                    let record = Record {
                        topic: "t",
                        value: Some(&[7; 100]),
                        ..Record::default()
                    };
                    producer
                        .send_with(&record, |result| assert!(result.is_ok(), "{result:?}"))
                        .unwrap();
                }
            });
        }
    });
    producer.flush().unwrap();
}

#[test]
fn the_numbers_of_a_producer_and_a_consumer_are_those_of_their_work() {
    let broker = Broker::start_temporary(&[("group.initial.rebalance.delay.ms", "0")]).unwrap();
    let config = || Config::new().set("bootstrap.servers", broker.address());
    let admin = Admin::new(&config()).unwrap();
    let created = admin
        .create_topics(vec![NewTopic::new("t").partitions(2)])
        .wait()
        .unwrap();
    assert!(created["t"].is_ok());

    let producer = Producer::new(&config().set("linger.ms", 5)).unwrap();
    produce(&producer);
    let metrics = producer.metrics();
    let client = |name| value(metrics, "producer-metrics", name, None);
    assert_eq!(client("record-send-total"), RECORDS);
    assert_eq!(
        (client("record-error-total"), client("record-retry-total")),
        (0.0, 0.0)
    );
    // A flush ends with the last completion, slightly before the sender thread has finished.
    let started = std::time::Instant::now();
    while client("requests-in-flight") > 0.0
        || client("buffer-available-bytes") < client("buffer-total-bytes")
    {
        assert!(started.elapsed() < NOTHING_HANGS_LONGER);
        std::thread::yield_now();
    }
    assert_eq!(client("waiting-threads"), 0.0);
    assert!(
        client("request-latency-avg") > 0.0 && client("request-latency-max") >= client("request-latency-avg")
    );
    assert!(client("record-queue-time-max") >= client("record-queue-time-avg"));
    // 61 bytes of batch header; a record of 100 bytes takes a few more.
    assert!(client("batch-size-avg") > 161.0 && client("record-size-max") > 100.0);
    assert!(
        (client("compression-rate-avg") - 1.0).abs() < 0.2,
        "{}",
        client("compression-rate-avg")
    );
    assert!(client("flush-time-ns-total") > 0.0 && client("connection-count") >= 1.0);

    let topic = |name| value(metrics, "producer-topic-metrics", name, Some(("topic", "t")));
    assert_eq!(topic("record-send-total"), RECORDS);
    assert!(topic("byte-total") > RECORDS * 100.0);
    let node = |name| {
        value(
            metrics,
            "producer-node-metrics",
            name,
            Some(("node-id", "node-1")),
        )
    };
    assert!(node("outgoing-byte-total") > topic("byte-total"));
    assert!(node("request-latency-avg") > 0.0);

    let own = |name| value(metrics, "ottla-producer-metrics", name, None);
    assert_eq!(own("sending-threads"), THREADS as f64);
    // Sends are sampled: each thread's last few may not be counted yet.
    assert!(
        own("send-total") <= RECORDS && own("send-total") > RECORDS * 0.9,
        "{}",
        own("send-total")
    );
    assert!(own("send-time-avg") > 0.0 && own("send-time-max") >= own("send-time-avg"));
    assert!(own("callback-time-avg") >= 0.0 && own("batch-fill-time-max") >= own("batch-fill-time-avg"));

    consume(&config());
}

fn consume(config: &Config) {
    let config = config
        .clone()
        .set("group.id", "g")
        .set("auto.offset.reset", "earliest");
    let mut consumer = Consumer::new(&config).unwrap();
    consumer.subscribe(["t"]).unwrap();
    let started = std::time::Instant::now();
    let mut read = 0;
    while (read as f64) < RECORDS {
        assert!(started.elapsed() < NOTHING_HANGS_LONGER, "{read} records");
        read += consumer.poll(Duration::from_millis(100)).unwrap().len();
    }
    consumer.commit_sync().unwrap();
    consumer.poll(Duration::ZERO).unwrap();
    let metrics = consumer.metrics().clone();
    let fetch = |name| value(&metrics, "consumer-fetch-manager-metrics", name, None);
    assert_eq!(fetch("records-consumed-total"), RECORDS);
    assert!(fetch("bytes-consumed-total") > RECORDS * 100.0);
    assert!(fetch("fetch-total") >= 1.0 && fetch("fetch-latency-max") > 0.0);
    let group = |name| value(&metrics, "consumer-coordinator-metrics", name, None);
    assert_eq!(group("assigned-partitions"), 2.0);
    assert!(group("rebalance-total") >= 1.0 && group("join-total") >= 1.0 && group("commit-total") >= 1.0);
    assert!(group("last-rebalance-seconds-ago") >= 0.0);
    let lag = value(
        &metrics,
        "consumer-fetch-manager-metrics",
        "records-lag",
        Some(("partition", "0")),
    );
    assert_eq!(lag, 0.0);
    assert!(value(&metrics, "consumer-metrics", "commit-sync-time-ns-total", None) > 0.0);
    let text = metrics.prometheus();
    assert!(text.contains("kafka_consumer_consumer_fetch_manager_metrics_records_consumed_total{client_id="));
    consumer.close(NOTHING_HANGS_LONGER).unwrap();
}
