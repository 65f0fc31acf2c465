//! `/metrics`, read after requests whose effect is known exactly.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::collections::BTreeSet;

use ottla_broker::Broker;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_wire::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::http::{ask, get};
use support::{Client, frame};

/// The time of every record: 1 s after 1970.
const RECORD_MS: i64 = 1_000;

fn broker() -> (Broker, Client) {
    let broker = Broker::start_temporary(&[
        ("ottla.admin.listener", "127.0.0.1:0"),
        ("offsets.topic.num.partitions", "1"),
    ])
    .unwrap();
    let client = Client::connect(broker.address());
    (broker, client)
}

fn create_topics<'a>(client: &mut Client, names: &[&'a str]) {
    let topic = |name: &&'a str| CreatableTopic {
        name,
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: names.iter().map(topic).collect(),
        ..Default::default()
    };
    client.send(&frame(ApiKey::CreateTopics, 5, 1, |bytes| {
        request.encode(bytes, 5)
    }));
    client.receive(ApiKey::CreateTopics, 5, 1);
}

fn batch(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for value in values {
        builder.append(RECORD_MS, None, Some(value), &[]);
    }
    builder.finish()
}

fn produce(client: &mut Client, topic: &str, records: &[u8]) -> ErrorCode {
    let partition = PartitionProduceData {
        index: 0,
        records: Some(records),
    };
    let topic = TopicProduceData {
        name: topic,
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..Default::default()
    };
    client.send(&frame(ApiKey::Produce, 9, 2, |bytes| request.encode(bytes, 9)));
    let body = client.receive(ApiKey::Produce, 9, 2);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    let code = response.responses[0].partition_responses[0].error_code;
    ErrorCode::from_i16(code).unwrap()
}

fn fetch(client: &mut Client, topic: &str, fetch_offset: i64) -> (ErrorCode, usize) {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = FetchTopic {
        topic,
        partitions: vec![partition],
        ..Default::default()
    };
    let request = FetchRequest {
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    client.send(&frame(ApiKey::Fetch, 11, 3, |bytes| request.encode(bytes, 11)));
    let body = client.receive(ApiKey::Fetch, 11, 3);
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    let partition = &response.responses[0].partitions[0];
    let code = ErrorCode::from_i16(partition.error_code).unwrap();
    (code, partition.records.unwrap_or_default().len())
}

fn delete(client: &mut Client, topic: &str) {
    let request = DeleteTopicsRequest {
        topic_names: vec![topic],
        timeout_ms: 30_000,
        ..Default::default()
    };
    client.send(&frame(ApiKey::DeleteTopics, 4, 4, |bytes| {
        request.encode(bytes, 4)
    }));
    let body = client.receive(ApiKey::DeleteTopics, 4, 4);
    let response = DeleteTopicsResponse::decode(&mut Reader::new(&body), 4).unwrap();
    assert_eq!(response.responses[0].error_code, ErrorCode::None.code());
}

/// The group's coordinator is this broker; asking for it creates the offsets topic.
#[track_caller]
fn check(page: &str, lines: &[String]) {
    for line in lines {
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
}

/// The lines of Kafka's counters: of one topic, or the totals.
fn traffic(topic: Option<&str>, values: [usize; 7]) -> Vec<String> {
    let names = [
        "messagesin",
        "bytesin",
        "bytesout",
        "totalproducerequests",
        "failedproducerequests",
        "totalfetchrequests",
        "failedfetchrequests",
    ];
    let label = topic.map_or(String::new(), |topic| format!("{{topic=\"{topic}\"}}"));
    let line =
        |(name, value): (&str, usize)| format!("kafka_server_brokertopicmetrics_{name}_total{label} {value}");
    names.into_iter().zip(values).map(line).collect()
}

#[test]
fn produces_and_fetches_move_the_counters_of_their_topic_exactly() {
    let (broker, mut client) = broker();
    create_topics(&mut client, &["orders", "other"]);
    let records = batch(&[b"a", b"b", b"c"]);
    let mut damaged = records.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(produce(&mut client, "orders", &records), ErrorCode::None);
    assert_eq!(produce(&mut client, "orders", &records), ErrorCode::None);
    assert_eq!(
        produce(&mut client, "orders", &damaged),
        ErrorCode::CorruptMessage
    );
    assert_eq!(produce(&mut client, "other", &records), ErrorCode::None);
    let both = 2 * records.len();
    assert_eq!(fetch(&mut client, "orders", 0), (ErrorCode::None, both));
    assert_eq!(fetch(&mut client, "orders", 6), (ErrorCode::None, 0));
    assert_eq!(fetch(&mut client, "orders", 99), (ErrorCode::OffsetOutOfRange, 0));
    let page = get(&broker, "/metrics");
    check(&page, &traffic(Some("orders"), [6, both, both, 3, 1, 3, 1]));
    let third = records.len();
    check(&page, &traffic(Some("other"), [3, third, 0, 1, 0, 0, 0]));
    let totals = traffic(None, [9, both + third, both, 4, 1, 3, 1]);
    check(&page, &totals);
    // A counter that falls would look like a restart, and its sum like a burst.
    delete(&mut client, "orders");
    let page = get(&broker, "/metrics");
    check(&page, &totals);
    assert!(!page.contains("topic=\"orders\""), "{page}");
}

#[test]
fn lag_is_exact_in_records_and_in_time_without_members() {
    let (broker, mut client) = broker();
    create_topics(&mut client, &["orders"]);
    client.find_coordinator("g");
    let records = batch(&[b"a", b"b", b"c"]);
    assert_eq!(produce(&mut client, "orders", &records), ErrorCode::None);
    client.commit("g", "orders", 1);
    let page = get(&broker, "/metrics");
    let partition = "topic=\"orders\",partition=\"0\"}";
    check(
        &page,
        &[
            format!("kafka_consumergroup_current_offset{{consumergroup=\"g\",{partition} 1"),
            format!("kafka_consumergroup_lag{{consumergroup=\"g\",{partition} 2"),
            "kafka_consumergroup_lag_sum{consumergroup=\"g\",topic=\"orders\"} 2".to_owned(),
            "kafka_consumergroup_members{consumergroup=\"g\"} 0".to_owned(),
            format!("kafka_topic_partition_current_offset{{{partition} 3"),
            "ottla_consumergroup_offsets_without_metrics 0".to_owned(),
        ],
    );
    // The record at offset 1 is of 1970.
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let age = seconds(&page);
    let record_s = RECORD_MS as f64 / 1e3;
    assert!(age > 1.6e9 && age <= now_s - record_s, "{age}");
    client.commit("g", "orders", 3);
    let page = get(&broker, "/metrics");
    assert_eq!(seconds(&page), 0.0);
    check(
        &page,
        &[format!(
            "kafka_consumergroup_lag{{consumergroup=\"g\",{partition} 0"
        )],
    );
    let page = get(&broker, "/metrics?names=kminion");
    let of_group = "kminion_kafka_consumer_group";
    check(
        &page,
        &[
            format!("{of_group}_offset_commits_total{{group_id=\"g\"}} 2"),
            format!("{of_group}_empty_members{{group_id=\"g\"}} 0"),
        ],
    );
    assert!(
        !page.contains("\nkminion_kafka_consumer_group_topic_members{"),
        "{page}"
    );
}

fn seconds(page: &str) -> f64 {
    let name = "kafka_consumergroup_group_lag_seconds{";
    let line = page.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn other_names_are_given_on_request_and_no_family_twice() {
    let (broker, mut client) = broker();
    create_topics(&mut client, &["orders"]);
    let records = batch(&[b"a"]);
    assert_eq!(produce(&mut client, "orders", &records), ErrorCode::None);
    let mut damaged = records.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(
        produce(&mut client, "orders", &damaged),
        ErrorCode::CorruptMessage
    );
    // A request is recorded after its reply was sent.
    assert_eq!(fetch(&mut client, "orders", 1), (ErrorCode::None, 0));
    let has = |names: &str, line: &str| {
        let page = get(&broker, &format!("/metrics{names}"));
        page.lines().any(|found| found == line)
    };
    for (names, line) in [
        (
            "?names=confluent",
            "kafka_server_brokertopicmetrics_messagesinpersec{topic=\"orders\"} 1",
        ),
        (
            "?names=confluent",
            "kafka_network_requestmetrics_errorspersec{request=\"Produce\",error=\"CORRUPT_MESSAGE\"} 1",
        ),
        (
            "?names=confluent",
            "kafka_network_requestmetrics_requestspersec{request=\"Produce\",version=\"9\"} 2",
        ),
        (
            "?names=reporter",
            "kafka_server_brokertopicmetrics_messagesinpersec_total{topic=\"orders\"} 1",
        ),
        (
            "?names=kminion",
            "kminion_kafka_topic_high_water_mark_sum{topic_name=\"orders\"} 1",
        ),
    ] {
        assert!(has(names, line), "{line}");
        assert!(!has("", line), "{line}");
    }
    let page = get(&broker, "/metrics?names=confluent,reporter,kminion");
    let mut families = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        assert!(families.insert(line), "{line} is there twice");
    }
    let mut series = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, _) = line.rsplit_once(' ').unwrap();
        assert!(series.insert(name), "{name} is there twice");
    }
    let address = broker.admin_address().unwrap();
    let request = format!("GET /metrics?names=jmx HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let refused = ask(address, request.as_bytes());
    assert_eq!(refused.status, 400, "{refused:?}");
}
