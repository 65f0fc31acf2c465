//! A whole broker in this process, driven over its socket with raw bytes.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::Read;

use ottla_broker::admin::records::{self, LookFor, LookFrom};
use ottla_broker::{Broker, StartError};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch::batches;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::http::get;
use support::{Client, frame};

const TOPIC: &str = "orders";

fn create_topic(client: &mut Client) {
    let topic = CreatableTopic {
        name: TOPIC,
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..Default::default()
    };
    client.send(&frame(ApiKey::CreateTopics, 5, 1, |bytes| {
        request.encode(bytes, 5)
    }));
    let body = client.receive(ApiKey::CreateTopics, 5, 1);
    let response = CreateTopicsResponse::decode(&mut Reader::new(&body), 5).unwrap();
    assert_eq!(
        response.topics[0].error_code,
        ErrorCode::None.code(),
        "{:?}",
        response.topics[0].error_message
    );
}

fn batch(values: &[&[u8]]) -> Vec<u8> {
    batch_at(1_000, values)
}

fn batch_at(timestamp: i64, values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for value in values {
        builder.append(timestamp, None, Some(value), &[]);
    }
    builder.finish()
}

fn produce_frame(correlation_id: i32, acks: i16, records: &[u8]) -> Vec<u8> {
    let partition = PartitionProduceData {
        index: 0,
        records: Some(records),
    };
    let topic = TopicProduceData {
        name: TOPIC,
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..Default::default()
    };
    frame(ApiKey::Produce, 9, correlation_id, |bytes| {
        request.encode(bytes, 9)
    })
}

/// The base offset of the produced batch.
fn produced(client: &mut Client, correlation_id: i32) -> i64 {
    let body = client.receive(ApiKey::Produce, 9, correlation_id);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!(
        partition.error_code,
        ErrorCode::None.code(),
        "{:?}",
        partition.error_message
    );
    partition.base_offset
}

fn fetch_frame(correlation_id: i32, fetch_offset: i64, max_wait_ms: i32) -> Vec<u8> {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = FetchTopic {
        topic: TOPIC,
        partitions: vec![partition],
        ..Default::default()
    };
    let request = FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    frame(ApiKey::Fetch, 11, correlation_id, |bytes| {
        request.encode(bytes, 11)
    })
}

/// Offsets of the last record of each batch in the answer.
fn fetched(client: &mut Client, correlation_id: i32) -> Vec<i64> {
    let body = client.receive(ApiKey::Fetch, 11, correlation_id);
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::None.code());
    batches(partition.records.unwrap_or_default())
        .map(|batch| batch.unwrap().header.last_offset())
        .collect()
}

#[test]
fn records_come_back_as_they_were_produced() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    for (id, acks) in [(1, -1), (2, 1), (3, -1)] {
        client.send(&produce_frame(id, acks, &batch(&[b"a", b"b"])));
        assert_eq!(produced(&mut client, id), i64::from(id - 1) * 2);
    }
    client.send(&fetch_frame(9, 0, 0));
    assert_eq!(fetched(&mut client, 9), [1, 3, 5]);
}

#[test]
fn large_batches_leave_through_sendfile_intact() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    let value = vec![42; 700_000];
    let records = batch(&[&value]);
    client.send(&produce_frame(1, -1, &records));
    assert_eq!(produced(&mut client, 1), 0);
    client.send(&fetch_frame(2, 0, 0));
    let body = client.receive(ApiKey::Fetch, 11, 2);
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    let stored = response.responses[0].partitions[0].records.unwrap();
    // Base offset, batch length and leader epoch are set by the broker; the checksum covers what
    // follows.
    assert!(stored.len() == records.len() && stored[16..] == records[16..]);
}

#[test]
fn a_long_poll_ends_when_records_arrive_and_later_requests_wait_their_turn() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut consumer = Client::connect(broker.address());
    create_topic(&mut consumer);
    consumer.send(&fetch_frame(1, 0, 100_000));
    // Served at once but answered behind the fetch, whose wait this produce ends.
    consumer.send(&produce_frame(2, -1, &batch(&[b"a"])));
    assert_eq!(fetched(&mut consumer, 1), [0]);
    assert_eq!(produced(&mut consumer, 2), 0);
}

#[test]
fn a_long_poll_ends_in_time_although_idle_connections_are_never_closed() {
    let broker = Broker::start_temporary(&[("connections.max.idle.ms", "-1")]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    client.send(&fetch_frame(1, 0, 50));
    assert_eq!(fetched(&mut client, 1), Vec::<i64>::new());
}

#[test]
fn acks_zero_has_no_reply() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    client.send(&produce_frame(1, 0, &batch(&[b"a"])));
    client.send(&produce_frame(2, -1, &batch(&[b"b"])));
    assert_eq!(produced(&mut client, 2), 1);
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_with_the_table() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut client = Client::connect(broker.address());
    client.send(&frame(ApiKey::ApiVersions, 99, 7, |bytes| {
        ApiVersionsRequest::default().encode(bytes, 3)
    }));
    let body = client.receive(ApiKey::ApiVersions, 0, 7);
    let response = ApiVersionsResponse::decode(&mut Reader::new(&body), 0).unwrap();
    assert_eq!(response.error_code, ErrorCode::UnsupportedVersion.code());
    assert!(
        response
            .api_keys
            .iter()
            .any(|api| api.api_key == ApiKey::Produce.code())
    );
    // The connection stays open.
    client.send(&frame(ApiKey::ApiVersions, 0, 8, |_| {}));
    client.receive(ApiKey::ApiVersions, 0, 8);
}

#[test]
fn other_unknown_versions_and_apis_close_the_connection() {
    let broker = Broker::start_temporary(&[]).unwrap();
    for (api_key, version) in [
        (ApiKey::Metadata, 99),
        (ApiKey::Produce, 2),
        (ApiKey::Produce, -1),
    ] {
        let mut client = Client::connect(broker.address());
        client.send(&frame(api_key, version, 1, |_| {}));
        assert_eq!(client.closed(), b"", "{api_key} {version}");
    }
}

#[test]
fn malformed_bodies_close_the_connection() {
    let broker = Broker::start_temporary(&[]).unwrap();
    // An array of 2^31 - 1 topics in five bytes, and a truncated body.
    let bodies: [&[u8]; 2] = [&[0x7f, 0xff, 0xff, 0xff, 0], &[0, 0]];
    for body in bodies {
        let mut client = Client::connect(broker.address());
        client.send(&frame(ApiKey::Metadata, 1, 1, |bytes| {
            bytes.extend_from_slice(body)
        }));
        assert_eq!(client.closed(), b"", "{body:?}");
    }
}

#[test]
fn a_directory_is_continued_by_the_next_broker() {
    let directory = ottla_broker::broker::TemporaryDirectory::create().unwrap();
    let path = directory.path().to_str().unwrap();
    for round in 0..3 {
        let broker = Broker::start_temporary(&[("log.dirs", path)]).unwrap();
        let mut client = Client::connect(broker.address());
        if round == 0 {
            create_topic(&mut client);
        }
        client.send(&produce_frame(1, -1, &batch(&[b"a"])));
        assert_eq!(produced(&mut client, 1), round);
    }
}

#[test]
fn event_loops_set_at_run_time_are_started_next_time() {
    let directory = ottla_broker::broker::TemporaryDirectory::create().unwrap();
    let path = directory.path().to_str().unwrap();
    for loops in [1, 3] {
        let broker = Broker::start_temporary(&[
            ("log.dirs", path),
            ("num.network.threads", "1"),
            ("ottla.admin.listener", "127.0.0.1:0"),
        ]);
        let broker = broker.unwrap();
        let tenants = get(&broker, "/tenants");
        assert!(
            tenants.contains(&format!("\"event_loops\":{loops},")),
            "{tenants}"
        );
        let mut client = Client::connect(broker.address());
        let outcome = client.alter_broker("", "num.network.threads", "3");
        assert_eq!(outcome, (0, String::new()));
    }
}

#[test]
fn a_directory_in_use_or_not_writable_is_one_clear_error() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let path = broker.node().config().log_directories[0]
        .to_str()
        .unwrap()
        .to_owned();
    let refused = |path: &str| match Broker::start_temporary(&[("log.dirs", path)]) {
        Err(error @ StartError::Node(_)) => error.to_string(),
        Err(error) => panic!("refused for another reason: {error}"),
        Ok(_) => panic!("started in {path}"),
    };
    assert!(refused(&path).contains(&path), "{}", refused(&path));
    assert!(refused("/proc/nowhere").contains("/proc/nowhere"));
}

#[test]
fn a_port_in_use_is_one_clear_error() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let listener = format!("PLAINTEXT://{}", broker.address());
    match Broker::start_temporary(&[("listeners", &listener)]) {
        Err(StartError::Listener {
            listener: named,
            error,
        }) => {
            assert_eq!(named, listener);
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        }
        Err(error) => panic!("refused for another reason: {error}"),
        Ok(_) => panic!("two brokers on one port"),
    }
}

#[test]
fn connections_beyond_the_limit_wait_until_one_is_closed() {
    let broker = Broker::start_temporary(&[("max.connections", "2")]).unwrap();
    let ask = |client: &mut Client, id| {
        client.send(&frame(ApiKey::ApiVersions, 0, id, |_| {}));
    };
    let mut open: Vec<Client> = (0..2).map(|_| Client::connect(broker.address())).collect();
    for client in &mut open {
        ask(client, 1);
        client.receive(ApiKey::ApiVersions, 0, 1);
    }
    let mut third = Client::connect(broker.address());
    ask(&mut third, 1);
    ask(&mut open[0], 2);
    open[0].receive(ApiKey::ApiVersions, 0, 2);
    third.socket.set_nonblocking(true).unwrap();
    assert_eq!(
        third.socket.read(&mut [0]).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
    third.socket.set_nonblocking(false).unwrap();
    open.pop();
    third.receive(ApiKey::ApiVersions, 0, 1);
}

#[test]
fn limits_on_connections_change_at_run_time_and_are_of_a_listener_too() {
    let broker = Broker::start_temporary(&[
        ("listeners", "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"),
        (
            "listener.security.protocol.map",
            "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        ),
        ("inter.broker.listener.name", "INSIDE"),
    ])
    .unwrap();
    let ask = |client: &mut Client, id| client.send(&frame(ApiKey::ApiVersions, 0, id, |_| {}));
    let connect = |listener: &str| {
        let mut client = Client::connect(broker.address_of(listener).unwrap());
        ask(&mut client, 1);
        client
    };
    let mut inside = connect("INSIDE");
    inside.receive(ApiKey::ApiVersions, 0, 1);
    let own = "listener.name.outside.max.connections";
    assert_eq!(inside.alter_broker("", own, "1"), (0, String::new()));
    let mut first = connect("OUTSIDE");
    first.receive(ApiKey::ApiVersions, 0, 1);
    let mut second = connect("OUTSIDE");
    // Another listener has room, and what it answers comes after the second one was looked at.
    connect("INSIDE").receive(ApiKey::ApiVersions, 0, 1);
    second.socket.set_nonblocking(true).unwrap();
    let waits = second.socket.read(&mut [0]).unwrap_err().kind();
    assert_eq!(waits, std::io::ErrorKind::WouldBlock);
    second.socket.set_nonblocking(false).unwrap();
    // After the limit is raised the waiting client is served, although no connection was closed.
    assert_eq!(inside.alter_broker("", own, "2"), (0, String::new()));
    second.receive(ApiKey::ApiVersions, 0, 1);

    let of_address = "max.connections.per.ip.overrides";
    let (code, problem) = inside.alter_broker("", of_address, "example.com:1");
    assert_eq!(code, ErrorCode::InvalidRequest.code());
    assert!(problem.contains("names are not looked up"), "{problem}");
    assert_eq!(
        inside.alter_broker("", of_address, "127.0.0.1:1"),
        (0, String::new())
    );
    assert_eq!(connect("INSIDE").closed(), b"");
    assert_eq!(
        inside.alter_broker("", of_address, "127.0.0.1:100"),
        (0, String::new())
    );
    connect("INSIDE").receive(ApiKey::ApiVersions, 0, 1);
}

#[test]
fn several_brokers_live_in_one_process() {
    let brokers: Vec<Broker> = (0..5).map(|_| Broker::start_temporary(&[]).unwrap()).collect();
    for broker in &brokers {
        let mut client = Client::connect(broker.address());
        create_topic(&mut client);
        client.send(&produce_frame(1, -1, &batch(&[b"a"])));
        assert_eq!(produced(&mut client, 1), 0);
    }
}

#[test]
fn a_look_finds_records_by_offset_time_and_content() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    for number in 0..5 {
        let batch = batch_at(1_000 * (i64::from(number) + 1), &[b"one", b"other"]);
        client.send(&produce_frame(number, -1, &batch));
        produced(&mut client, number);
    }
    let look = |from, wanted: &[u8], records_max| {
        let ask = LookFor {
            topic: TOPIC,
            partition: 0,
            from,
            is_wanted: &|record| record.value.is_some_and(|value| value.ends_with(wanted)),
            records_max,
            field_bytes_max: 3,
        };
        let look = records::look(broker.node(), &ask).unwrap();
        let long = |record: &records::LookedRecord| record.value.as_ref().unwrap().len() > 3;
        assert!(!look.records.iter().any(long), "values are cut");
        let offsets: Vec<i64> = look.records.iter().map(|record| record.offset).collect();
        (offsets, look.looked_at, look.next_offset)
    };
    let tail = |offsets, not_before| LookFrom::Tail { offsets, not_before };
    assert_eq!(look(tail(3, 0), b"", 50), (vec![7, 8, 9], 3, 10));
    assert_eq!(look(tail(3, 9), b"", 50), (vec![9], 1, 10));
    assert_eq!(look(tail(3, 10), b"", 50), (vec![], 0, 10));
    assert_eq!(look(LookFrom::Offset(3), b"", 2), (vec![3, 4], 2, 5));
    assert_eq!(look(LookFrom::Time(2_500), b"", 2), (vec![4, 5], 2, 6));
    assert_eq!(look(LookFrom::Time(5_001), b"", 2), (vec![], 0, 10));
    assert_eq!(
        look(LookFrom::Offset(0), b"other", 50),
        (vec![1, 3, 5, 7, 9], 10, 10)
    );
    assert_eq!(look(LookFrom::Offset(2), b"other", 2), (vec![3, 5], 4, 6));
}

/// The console's page of records reads at most a mebibyte, however large the partition is.
#[test]
fn a_look_reads_a_mebibyte() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    let value = vec![b'x'; 100 * 1024];
    for number in 0..30 {
        client.send(&produce_frame(number, -1, &batch(&[&value])));
        produced(&mut client, number);
    }
    let ask = |field_bytes_max| LookFor {
        topic: TOPIC,
        partition: 0,
        from: LookFrom::Offset(0),
        is_wanted: &|_| true,
        records_max: 1_000,
        field_bytes_max,
    };
    let cut = records::look(broker.node(), &ask(64)).unwrap();
    assert_eq!((cut.records.len(), cut.next_offset), (10, 10));
    assert!(cut.records.iter().all(|record| record.value_bytes == value.len()));
    let whole = records::look(broker.node(), &ask(value.len())).unwrap();
    assert_eq!(whole.records[9].value.as_ref(), Some(&value));
}

#[test]
fn the_admin_address_reports_where_the_time_went() {
    let broker = Broker::start_temporary(&[("ottla.admin.listener", "127.0.0.1:0")]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    client.send(&produce_frame(1, -1, &batch(&[b"a", b"b", b"c"])));
    produced(&mut client, 1);
    // A request is recorded after its reply was sent.
    client.send(&fetch_frame(2, 0, 0));
    fetched(&mut client, 2);
    let metrics = get(&broker, "/metrics");
    for line in [
        "kafka_server_brokertopicmetrics_messagesin_total 3",
        "kafka_network_requestmetrics_requests_total{request=\"Produce\"} 1",
        "kafka_network_requestmetrics_totaltimems_count{request=\"Produce\"} 1",
        "ottla_client_requests_total{client_id=\"test\",api=\"Produce\"} 1",
        "kafka_log_log_logendoffset{topic=\"orders\",partition=\"0\"} 3",
        "kafka_server_socketservermetrics_connection_count{listener=\"PLAINTEXT\"} 1",
        "ottla_tenant_records_total{kind=\"client-id\",tenant=\"test\"} 3",
        "ottla_tenant_records_total{kind=\"rest\",tenant=\"other\"} 0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} is not in {metrics}"
        );
    }
    let idle = "kafka_network_socketserver_networkprocessoravgidle_percent ";
    let idle: f64 = metrics
        .lines()
        .find_map(|line| line.strip_prefix(idle))
        .unwrap()
        .parse()
        .unwrap();
    assert!((0.0..=1.0).contains(&idle), "{idle}");
    let requests = get(&broker, "/debug/requests");
    let document: serde_json::Value = serde_json::from_str(&requests).unwrap();
    let slowest = document["slowest_of_last_minute"].as_array().unwrap();
    let produce = slowest
        .iter()
        .find(|request| request["api"] == "Produce")
        .unwrap();
    assert_eq!(produce["client_id"], "test");
    assert_eq!(produce["principal"], "User:ANONYMOUS");
    let stages = produce["stages"].as_object().unwrap();
    let sum: u64 = stages.values().map(|micros| micros.as_u64().unwrap()).sum();
    assert_eq!(Some(sum), produce["total"].as_u64());
    get(&broker, "/health");
    get(&broker, "/ready");
}

#[test]
fn the_admin_address_reports_the_cost_of_each_client() {
    let broker = Broker::start_temporary(&[("ottla.admin.listener", "127.0.0.1:0")]).unwrap();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client);
    let produce = produce_frame(1, -1, &batch(&[b"a", b"b", b"c"]));
    client.send(&produce);
    produced(&mut client, 1);
    client.send(&fetch_frame(2, 0, 0));
    fetched(&mut client, 2);
    let page = get(&broker, "/tenants");
    let document: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!(document["version"], 1);
    assert_eq!(
        document["key"],
        serde_json::json!(["user", "client-id", "address"])
    );
    let tenants = document["tenants"].as_array().unwrap();
    let named = |kind: &str, name: &str| {
        let is_it = |tenant: &&serde_json::Value| tenant["kind"] == kind && tenant["name"] == name;
        tenants
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no {kind} {name} in {page}"))
    };
    let test = named("client-id", "test");
    assert_eq!(test["connections"], 1);
    let total = |sum: &str| test["total"][sum].as_u64().unwrap();
    assert_eq!(total("records"), 3);
    assert!((2..=3).contains(&total("requests")), "{page}");
    assert!(total("bytes_in") >= produce.len() as u64 - 4, "{page}");
    assert!(total("handling_micros") > 0 && total("bytes_out") > 0, "{page}");
    assert_eq!((total("inflicted_micros"), total("cold_bytes")), (0, 0));
    assert_eq!(test["window"]["records"], 3);
}
