//! Client quotas over a socket: set, described, enforced and reported (KIP-219, KIP-546, KIP-599,
//! KIP-612).

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use ottla_broker::Broker;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntityData, AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse, OpData,
};
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataResponse};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::{Client, frame_of};

const TOPIC: &str = "orders";
const CLIENT: (&str, Option<&str>) = ("client-id", Some("limited"));

type Entry<'a> = AlterClientQuotasRequestEntryData<'a>;

/// The parts of an entity and its changes; a change without a value removes the key.
fn entry<'a>(entity: &[(&'a str, Option<&'a str>)], ops: &[(&'a str, Option<f64>)]) -> Entry<'a> {
    AlterClientQuotasRequestEntryData {
        entity: (entity.iter())
            .map(|(entity_type, entity_name)| AlterClientQuotasRequestEntityData {
                entity_type,
                entity_name: *entity_name,
            })
            .collect(),
        ops: (ops.iter())
            .map(|(key, value)| OpData {
                key,
                value: value.unwrap_or_default(),
                remove: value.is_none(),
            })
            .collect(),
    }
}

struct Fixture {
    broker: Broker,
    admin: Client,
}

fn start(properties: &[(&str, &str)]) -> Fixture {
    let broker = Broker::start_temporary(properties).unwrap();
    let admin = Client::connect(broker.address());
    let mut fixture = Fixture { broker, admin };
    let (codes, throttle_ms) = create_topics(&mut fixture.admin, "admin", 7, &[(TOPIC, 1)]);
    assert_eq!((&codes[..], throttle_ms), (&[ErrorCode::None][..], 0));
    fixture
}

impl Fixture {
    fn connect(&self) -> Client {
        Client::connect(self.broker.address())
    }

    /// Sets or removes one quota; returns the error's code and message.
    fn alter(
        &mut self,
        entity: &[(&str, Option<&str>)],
        key: &str,
        value: Option<f64>,
    ) -> (ErrorCode, String) {
        let entity = entity
            .iter()
            .map(|(entity_type, entity_name)| AlterClientQuotasRequestEntityData {
                entity_type,
                entity_name: *entity_name,
            });
        let request = AlterClientQuotasRequest {
            entries: vec![AlterClientQuotasRequestEntryData {
                entity: entity.collect(),
                ops: vec![OpData {
                    key,
                    value: value.unwrap_or_default(),
                    remove: value.is_none(),
                }],
            }],
            validate_only: false,
        };
        let body = ask(&mut self.admin, "admin", ApiKey::AlterClientQuotas, 1, |bytes| {
            request.encode(bytes, 1)
        });
        let response = AlterClientQuotasResponse::decode(&mut Reader::new(&body), 1).unwrap();
        let entry = &response.entries[0];
        let code = ErrorCode::from_i16(entry.error_code).unwrap();
        (code, entry.error_message.unwrap_or_default().to_owned())
    }

    /// Sends many changes in one request; returns the code and message of each.
    fn alter_all(&mut self, entries: Vec<Entry<'_>>) -> Vec<(ErrorCode, String)> {
        let request = AlterClientQuotasRequest {
            entries,
            validate_only: false,
        };
        let body = ask(&mut self.admin, "admin", ApiKey::AlterClientQuotas, 1, |bytes| {
            request.encode(bytes, 1)
        });
        let response = AlterClientQuotasResponse::decode(&mut Reader::new(&body), 1).unwrap();
        let entries = response.entries.iter().map(|entry| {
            let words = entry.error_message.unwrap_or_default().to_owned();
            (ErrorCode::from_i16(entry.error_code).unwrap(), words)
        });
        entries.collect()
    }

    fn set(&mut self, entity: &[(&str, Option<&str>)], key: &str, value: f64) {
        assert_eq!(
            self.alter(entity, key, Some(value)),
            (ErrorCode::None, String::new())
        );
    }

    /// Sets a configuration for all brokers.
    fn set_broker(&mut self, name: &str, value: &str) {
        assert_eq!(self.admin.alter_broker("", name, value), (0, String::new()));
    }

    /// Returns entities with all names and values, as `type=name` and `key=value`.
    fn describe(&mut self, entity_type: &str) -> Vec<String> {
        const SPECIFIED: i8 = 2;
        let request = DescribeClientQuotasRequest {
            components: vec![ComponentData {
                entity_type,
                match_type: SPECIFIED,
                r#match: None,
            }],
            strict: false,
        };
        let body = ask(
            &mut self.admin,
            "admin",
            ApiKey::DescribeClientQuotas,
            1,
            |bytes| request.encode(bytes, 1),
        );
        let response = DescribeClientQuotasResponse::decode(&mut Reader::new(&body), 1).unwrap();
        assert_eq!(response.error_code, 0);
        let entries = response.entries.unwrap();
        let words = entries.iter().map(|entry| {
            let parts = entry
                .entity
                .iter()
                .map(|part| format!("{}={}", part.entity_type, part.entity_name.unwrap_or("*")));
            let values = entry
                .values
                .iter()
                .map(|value| format!("{}={}", value.key, value.value));
            parts.chain(values).collect::<Vec<_>>().join(" ")
        });
        words.collect()
    }

    fn page(&self, path: &str) -> String {
        support::http::get(&self.broker, path)
    }
}

fn ask(
    client: &mut Client,
    client_id: &str,
    api_key: ApiKey,
    version: i16,
    body: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    client.send(&frame_of(client_id, api_key, version, 1, body));
    client.receive(api_key, version, 1)
}

fn create_topics(
    client: &mut Client,
    client_id: &str,
    version: i16,
    topics: &[(&str, i32)],
) -> (Vec<ErrorCode>, i32) {
    let topics = topics.iter().map(|(name, num_partitions)| CreatableTopic {
        name,
        num_partitions: *num_partitions,
        replication_factor: 1,
        ..Default::default()
    });
    let request = CreateTopicsRequest {
        topics: topics.collect(),
        ..Default::default()
    };
    let body = ask(client, client_id, ApiKey::CreateTopics, version, |bytes| {
        request.encode(bytes, version)
    });
    let response = CreateTopicsResponse::decode(&mut Reader::new(&body), version).unwrap();
    let codes = response
        .topics
        .iter()
        .map(|topic| ErrorCode::from_i16(topic.error_code).unwrap());
    (codes.collect(), response.throttle_time_ms)
}

fn produce_frame(client_id: &str, acks: i16, bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000, None, Some(&vec![7; bytes]), &[]);
    let records = builder.finish();
    let topic = TopicProduceData {
        name: TOPIC,
        partition_data: vec![PartitionProduceData {
            index: 0,
            records: Some(&records),
        }],
        ..Default::default()
    };
    let request = ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..Default::default()
    };
    frame_of(client_id, ApiKey::Produce, 9, 1, |bytes| request.encode(bytes, 9))
}

/// Receives an answer without errors; returns its throttle time.
fn produced(client: &mut Client) -> i32 {
    let body = client.receive(ApiKey::Produce, 9, 1);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    response.throttle_time_ms
}

fn produce(client: &mut Client, client_id: &str, bytes: usize) -> i32 {
    client.send(&produce_frame(client_id, -1, bytes));
    produced(client)
}

/// Fetches; returns record bytes, throttle time and session id.
fn fetch(client: &mut Client, client_id: &str, session: (i32, i32)) -> (usize, i32, i32) {
    let topic = FetchTopic {
        topic: TOPIC,
        partitions: vec![FetchPartition {
            partition: 0,
            fetch_offset: 0,
            partition_max_bytes: 10 << 20,
            ..Default::default()
        }],
        ..Default::default()
    };
    let request = FetchRequest {
        max_wait_ms: 60_000,
        min_bytes: 10 << 20,
        max_bytes: 50 << 20,
        session_id: session.0,
        session_epoch: session.1,
        topics: vec![topic],
        ..Default::default()
    };
    let body = ask(client, client_id, ApiKey::Fetch, 11, |bytes| {
        request.encode(bytes, 11)
    });
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let bytes = partitions
        .map(|partition| partition.records.map_or(0, <[u8]>::len))
        .sum();
    (bytes, response.throttle_time_ms, response.session_id)
}

fn metadata(client: &mut Client, client_id: &str) -> i32 {
    let request = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let body = ask(client, client_id, ApiKey::Metadata, 9, |bytes| {
        request.encode(bytes, 9)
    });
    MetadataResponse::decode(&mut Reader::new(&body), 9)
        .unwrap()
        .throttle_time_ms
}

#[test]
fn quotas_are_set_described_and_removed() {
    let mut fixture = start(&[]);
    let both = [("user", Some("alice")), ("client-id", None)];
    fixture.set(&both, "producer_byte_rate", 1024.0);
    fixture.set(&both, "request_percentage", 12.5);
    fixture.set(&[("ip", Some("10.0.0.1"))], "connection_creation_rate", 5.0);
    assert_eq!(
        fixture.describe("user"),
        ["client-id=* user=alice producer_byte_rate=1024 request_percentage=12.5"]
    );
    assert_eq!(fixture.describe("ip"), ["ip=10.0.0.1 connection_creation_rate=5"]);
    let removed = (ErrorCode::None, String::new());
    assert_eq!(fixture.alter(&both, "producer_byte_rate", None), removed);
    assert_eq!(
        fixture.alter(&both, "producer_byte_rate", None),
        removed,
        "removing is idempotent"
    );
    assert_eq!(
        fixture.describe("client-id"),
        ["client-id=* user=alice request_percentage=12.5"]
    );
    let mut check = |entity: &[(&str, Option<&str>)], key, value, expected: &str| {
        let (code, message) = fixture.alter(entity, key, Some(value));
        assert_eq!(code, ErrorCode::InvalidRequest, "{key}={value}: {message}");
        assert!(message.contains(expected), "{message}");
    };
    check(&[CLIENT], "producer_byte_rate", 0.0, "greater than 0");
    check(&[CLIENT], "producer_byte_rate", -1.0, "greater than 0");
    check(&[CLIENT], "producer_byte_rate", f64::NAN, "must be a number");
    check(&[CLIENT], "producer_byte_rate", 0.5, "Long");
    check(
        &[CLIENT],
        "producer_byterate",
        5.0,
        "did you mean producer_byte_rate?",
    );
    check(
        &[("ip", Some("here"))],
        "connection_creation_rate",
        5.0,
        "not a valid IP",
    );
    check(&[("group", None)], "request_percentage", 5.0, "group");
    assert_eq!(
        fixture.describe("client-id").len(),
        1,
        "none of these was accepted"
    );
}

#[test]
fn values_that_are_no_quota_are_refused_by_name_and_not_stored() {
    let mut fixture = start(&[]);
    for (value, expected) in [
        (f64::NAN, "must be a number, not NaN"),
        (f64::INFINITY, "must be a number, not inf"),
        (f64::NEG_INFINITY, "must be a number, not -inf"),
        (-0.0, "must be greater than 0"),
        (f64::MIN, "must be greater than 0"),
        (5e-324, "must be a Long value"),
        (1e308, "must be at most"),
        (f64::MAX, "must be at most"),
    ] {
        let (code, words) = fixture.alter(&[CLIENT], "producer_byte_rate", Some(value));
        assert_eq!(code, ErrorCode::InvalidRequest, "{value}: {words}");
        assert!(
            words.contains("producer_byte_rate") && words.contains(expected),
            "{value}: {words}"
        );
    }
    assert!(fixture.describe("client-id").is_empty());
    // The largest possible values: limits that are never reached, and nothing overflows.
    fixture.set(&[CLIENT], "request_percentage", f64::MAX);
    fixture.set(&[CLIENT], "producer_byte_rate", 9e18);
    fixture.set(&[CLIENT], "consumer_byte_rate", 9e18);
    let mut limited = fixture.connect();
    assert_eq!(produce(&mut limited, "limited", 100_000), 0);
    assert_eq!(metadata(&mut limited, "limited"), 0);
    // The smallest possible value: throttled for a second at a time, and free as soon as it is
    // removed.
    fixture.set(&[CLIENT], "request_percentage", 5e-324);
    assert!((0..=1_000).contains(&metadata(&mut limited, "limited")));
    fixture.alter(&[CLIENT], "request_percentage", None);
    metadata(&mut limited, "limited");
    assert_eq!(metadata(&mut limited, "limited"), 0);
}

#[test]
fn entities_that_contradict_themselves_are_refused_one_by_one() {
    const RATE: &str = "producer_byte_rate";
    let mut fixture = start(&[]);
    let set = [(RATE, Some(5.0))];
    let name = "n".repeat(20_000);
    let entries = vec![
        entry(&[("user", Some("a")), ("user", None)], &set),
        entry(&[("client-id", Some("a")), ("client-id", Some("a"))], &set),
        entry(&[], &set),
        entry(&[("user", Some("twice"))], &set),
        entry(&[("user", Some("twice"))], &[(RATE, None)]),
        entry(&[("user", Some("keys"))], &[(RATE, Some(1.0)), (RATE, Some(2.0))]),
        entry(&[("user", Some("keys2"))], &[(RATE, Some(1.0)), (RATE, None)]),
        entry(
            &[("ip", None), ("user", None)],
            &[("connection_creation_rate", Some(1.0))],
        ),
        entry(&[("user", Some(""))], &set),
        entry(
            &[("user", Some("half"))],
            &[(RATE, Some(1.0)), ("nonsense", Some(1.0))],
        ),
        entry(&[("user", Some(&name))], &set),
        entry(&[("user", Some("good"))], &set),
    ];
    let results = fixture.alter_all(entries);
    let expected = [
        "duplicate entity entry user",
        "duplicate entity entry client-id",
        "empty client quota entity",
        "duplicate entity user=twice",
        "duplicate entity user=twice",
        "Duplicate quota key producer_byte_rate",
        "Duplicate quota key producer_byte_rate",
        "ip goes neither",
        "Empty user not supported",
        "Invalid configuration key nonsense",
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert_eq!(result.0, ErrorCode::InvalidRequest, "{result:?}");
        assert!(result.1.contains(expected), "{result:?}");
    }
    assert_eq!(results[11], (ErrorCode::None, String::new()));
    let described = fixture.describe("user");
    assert!(
        described
            .iter()
            .any(|line| line == "user=good producer_byte_rate=5")
    );
    assert!(
        !described
            .iter()
            .any(|line| line.contains("twice") || line.contains("keys") || line.contains("half"))
    );
}

#[test]
fn a_request_with_a_hundred_thousand_entries_is_answered_harmlessly() {
    const RATE: &str = "producer_byte_rate";
    let mut fixture = start(&[]);
    let names: Vec<String> = (0..100_000).map(|number| format!("c{number}")).collect();
    let of_all = |value: f64| -> Vec<Entry<'_>> {
        let entries = names.iter();
        entries
            .map(|name| entry(&[("client-id", Some(name.as_str()))], &[(RATE, Some(value))]))
            .collect()
    };
    let refused = fixture.alter_all(of_all(f64::NAN));
    assert_eq!(refused.len(), names.len());
    assert!(
        refused
            .iter()
            .all(|(code, words)| *code == ErrorCode::InvalidRequest && words.contains("NaN"))
    );
    assert!(fixture.describe("client-id").is_empty());
    let same: Vec<_> = (0..100_000)
        .map(|_| entry(&[CLIENT], &[(RATE, Some(1.0))]))
        .collect();
    assert!(
        fixture
            .alter_all(same)
            .iter()
            .all(|(_, words)| words.contains("duplicate entity"))
    );
    let results = fixture.alter_all(of_all(1e9));
    let (code, words) = results[0].clone();
    assert!(results.iter().all(|result| *result == results[0]));
    assert_eq!(code, ErrorCode::PolicyViolation, "{words}");
    assert!(words.contains("10000"), "{words}");
    assert!(fixture.describe("client-id").is_empty());
    // As many as one request may contain, and the broker goes on.
    let results = fixture.alter_all(of_all(1e9).drain(..10_000).collect());
    assert!(results.iter().all(|(code, _)| *code == ErrorCode::None));
    assert_eq!(fixture.describe("client-id").len(), 10_000);
    assert_eq!(produce(&mut fixture.connect(), "c7", 1_000), 0);
}

#[test]
fn a_producer_over_its_quota_is_answered_at_once_and_then_not_read() {
    let mut fixture = start(&[]);
    fixture.set(&[CLIENT], "producer_byte_rate", 100_000.0);
    let (mut limited, mut other) = (fixture.connect(), fixture.connect());
    let began = Instant::now();
    assert_eq!(
        produce(&mut limited, "limited", 10_000),
        0,
        "a second's worth is free"
    );
    let throttle_ms = produce(&mut limited, "limited", 150_000);
    assert!((500..=650).contains(&throttle_ms), "{throttle_ms}");
    assert_eq!(produce(&mut other, "other", 150_000), 0);
    produce(&mut limited, "limited", 1);
    // Less cannot be blamed on a clock: 160,000 bytes at 100,000 a second, the first second of them
    // free.
    assert!(
        began.elapsed() >= Duration::from_millis(600),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_muted_connection_buffers_nothing_and_goes_on_when_its_quota_is_removed() {
    let mut fixture = start(&[]);
    fixture.set(&[CLIENT], "producer_byte_rate", 1.0);
    let mut limited = fixture.connect();
    assert!(produce(&mut limited, "limited", 1_000_000) > 900_000_000);
    // Fill all buffers in between; the broker reads none of it.
    limited.socket.set_nonblocking(true).unwrap();
    let request = produce_frame("limited", -1, 100_000);
    let mut stream = request.iter().copied().cycle();
    let chunk: Vec<u8> = stream.by_ref().take(request.len() * 10).collect();
    let mut sent = 0;
    let mut full = 0;
    while full < 50 {
        match limited.socket.write(&chunk[sent % request.len()..]) {
            Ok(bytes) => (sent, full) = (sent + bytes, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                full += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        assert!(sent < 64 << 20, "the broker keeps reading");
    }
    assert_eq!(
        limited.socket.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    limited.socket.set_nonblocking(false).unwrap();
    fixture.alter(&[CLIENT], "producer_byte_rate", None);
    let whole = sent / request.len();
    assert!(whole > 0);
    for _ in 0..whole {
        assert_eq!(produced(&mut limited), 0);
    }
}

#[test]
fn acks_zero_is_throttled_without_an_answer() {
    let mut fixture = start(&[]);
    fixture.set(&[CLIENT], "producer_byte_rate", 100_000.0);
    let mut limited = fixture.connect();
    let began = Instant::now();
    limited.send(&produce_frame("limited", 0, 200_000));
    metadata(&mut limited, "limited");
    assert!(
        began.elapsed() >= Duration::from_millis(1_000),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_fetch_waits_for_what_others_of_its_quota_have_taken() {
    let mut fixture = start(&[]);
    let mut admin = fixture.connect();
    for _ in 0..4 {
        produce(&mut admin, "admin", 100_000);
    }
    fixture.set(&[CLIENT], "consumer_byte_rate", 150_000.0);
    let (mut first, mut second) = (fixture.connect(), fixture.connect());
    // 10 MiB are requested; one second's worth is available.
    let (bytes, throttle_ms, session_id) = fetch(&mut first, "limited", (0, -1));
    assert!((100_000..=150_000).contains(&bytes), "{bytes}");
    assert_eq!((throttle_ms, session_id), (0, 0));
    let (bytes, throttle_ms, _) = fetch(&mut first, "limited", (0, -1));
    assert!(
        (100_000..=150_000).contains(&bytes) && throttle_ms > 0,
        "{bytes} {throttle_ms}"
    );
    // A client that comes now on another connection is throttled, gets no session, and its data
    // later.
    let (bytes, throttle_ms, session_id) = fetch(&mut second, "limited", (0, 0));
    assert_eq!((bytes, session_id), (0, 0));
    assert!(throttle_ms > 0);
    let (bytes, _, session_id) = fetch(&mut second, "limited", (0, 0));
    assert!(bytes >= 100_000 && session_id != 0, "{bytes} {session_id}");
    fixture.alter(&[CLIENT], "consumer_byte_rate", None);
    assert_eq!(fixture.broker.node().fetch_sessions.count(), 1);
}

#[test]
fn request_time_is_limited_for_every_api() {
    let mut fixture = start(&[("ottla.admin.listener", "127.0.0.1:0")]);
    // One microsecond of a loop per second.
    fixture.set(&[CLIENT], "request_percentage", 0.0001);
    let mut limited = fixture.connect();
    metadata(&mut limited, "limited");
    let began = Instant::now();
    let told: Vec<i32> = (0..3).map(|_| metadata(&mut limited, "limited")).collect();
    assert!(told.iter().all(|ms| (1..=1_000).contains(ms)), "{told:?}");
    assert!(
        began.elapsed() >= Duration::from_millis((told[0] + told[1]) as u64),
        "{told:?}"
    );
    let metrics = fixture.page("/metrics");
    let throttles =
        "ottla_quota_throttles_total{user=\"ANONYMOUS\",client_id=\"limited\",quota=\"request_percentage\"} ";
    let (_, count) = metrics.split_once(throttles).unwrap();
    assert!(count.starts_with(['3', '4']), "{metrics}");
    for name in [
        "produce_byte_rate",
        "fetch_throttle_time",
        "request_request_time",
        "controllermutation_mutation_rate",
    ] {
        assert!(
            metrics.contains(&format!(
                "kafka_server_{name}{{user=\"ANONYMOUS\",client_id=\"limited\"}} "
            )),
            "{name}"
        );
    }
    let page = fixture.page("/quotas");
    assert!(
        page.contains("\"client_id\": \"limited\"") && page.contains("\"limit\": 0.0001"),
        "{page}"
    );
    assert!(page.contains("\"set_for\": \"client-id limited\""), "{page}");
    let page: serde_json::Value = serde_json::from_str(&fixture.page("/tenants")).unwrap();
    let tenants = page["tenants"].as_array().unwrap();
    let limited = tenants.iter().find(|tenant| tenant["name"] == "limited").unwrap();
    let quota = &limited["quotas"][0];
    assert_eq!(
        (&quota["quota"], &quota["set_for"]),
        (&"request_percentage".into(), &"client-id limited".into())
    );
    assert_eq!((&quota["limit"], &quota["clients"]), (&0.0001.into(), &1.into()));
    assert!(
        quota["throttles"].as_u64() >= Some(3) && quota["throttle_ms"].as_u64() > Some(0),
        "{limited}"
    );
    let others: Vec<_> = tenants
        .iter()
        .filter(|tenant| tenant["name"] != "limited")
        .collect();
    assert!(
        others
            .iter()
            .all(|tenant| tenant["quotas"] == serde_json::json!([])),
        "{page}"
    );
}

#[test]
fn changes_of_the_metadata_are_limited() {
    let mut fixture = start(&[]);
    // Eleven partitions are free: a burst of eleven windows.
    fixture.set(
        &[("user", Some("ANONYMOUS")), CLIENT],
        "controller_mutation_rate",
        1.0,
    );
    let mut limited = fixture.connect();
    let (codes, throttle_ms) = create_topics(&mut limited, "limited", 7, &[("a", 12), ("b", 1), ("../c", 1)]);
    let expected = [
        ErrorCode::None,
        ErrorCode::ThrottlingQuotaExceeded,
        ErrorCode::InvalidTopicException,
    ];
    assert_eq!(codes, expected);
    assert!((1..=2_000).contains(&throttle_ms), "{throttle_ms}");
    let (codes, throttle_ms) = create_topics(&mut limited, "limited", 5, &[("d", 30)]);
    assert_eq!(
        codes,
        [ErrorCode::None],
        "older versions are served and wait afterwards"
    );
    assert!(throttle_ms > 1_000, "{throttle_ms}");
    let (codes, throttle_ms) = create_topics(&mut fixture.admin, "admin", 7, &[("e", 50)]);
    assert_eq!((&codes[..], throttle_ms), (&[ErrorCode::None][..], 0));
}

#[test]
fn an_address_opens_connections_at_its_rate() {
    let mut fixture = start(&[]);
    fixture.set(&[("ip", None)], "connection_creation_rate", 2.0);
    let began = Instant::now();
    let mut clients: Vec<Client> = (0..30).map(|_| fixture.connect()).collect();
    let request = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let frame = frame_of("anybody", ApiKey::Metadata, 9, 1, |bytes| {
        request.encode(bytes, 9)
    });
    // A refused one is closed without a byte, gracefully or by reset.
    let is_served = |client: &mut Client| {
        let sent = client.socket.write_all(&frame).is_ok();
        sent && client.socket.read_exact(&mut [0; 4]).is_ok()
    };
    let served = clients
        .iter_mut()
        .filter_map(|client| is_served(client).then_some(()))
        .count();
    let allowed = 2.0 + 2.0 * began.elapsed().as_secs_f64();
    assert!(
        served >= 2 && served as f64 <= allowed,
        "{served} served, {allowed} allowed"
    );
    fixture.alter(&[("ip", None)], "connection_creation_rate", None);
    for _ in 0..20 {
        metadata(&mut fixture.connect(), "anybody");
    }
}

#[test]
fn a_dry_run_only_counts() {
    let mut fixture = start(&[
        ("ottla.quota.dry.run", "true"),
        ("ottla.admin.listener", "127.0.0.1:0"),
    ]);
    fixture.set(&[CLIENT], "producer_byte_rate", 1.0);
    fixture.set(&[("ip", None)], "connection_creation_rate", 1.0);
    for _ in 0..6 {
        assert_eq!(produce(&mut fixture.connect(), "limited", 100_000), 0);
    }
    let metrics = fixture.page("/metrics");
    let line = "ottla_quota_throttles_total{user=\"ANONYMOUS\",client_id=\"limited\",quota=\"producer_byte_rate\"} 6";
    assert!(metrics.contains(line), "{metrics}");
    assert!(
        !metrics.contains("ottla_quota_connections_throttled_total 0"),
        "{metrics}"
    );
    fixture.alter(&[("ip", None)], "connection_creation_rate", None);
    let mut limited = fixture.connect();
    fixture.set_broker("ottla.quota.dry.run", "false");
    assert!(
        produce(&mut limited, "limited", 100_000) > 1_000,
        "set for all brokers at run time"
    );
    fixture.set_broker("ottla.quota.dry.run", "true");
    assert_eq!(
        produce(&mut limited, "limited", 100_000),
        0,
        "a throttled client is free again"
    );
}
