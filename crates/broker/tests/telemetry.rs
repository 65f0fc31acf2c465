//! Client metrics over a socket: the subscription a client gets, what it may push, and who receives
//! it (KIP-714).

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::sync::{Arc, Condvar, Mutex};

use ottla_broker::{Additions, Broker, Page, PageBody};
use ottla_core::telemetry::receiver::{ClientTelemetryReceiver, Malformed, Pushed};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_wire::messages::fetch::FetchRequest;
use ottla_wire::messages::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use ottla_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use ottla_wire::messages::list_config_resources::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataResponse};
use ottla_wire::messages::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};
use ottla_wire::primitives::{Reader, Uuid};
use ottla_wire::records::compression::{Codec, Compression, compress};
use support::http::get;
use support::{Client, frame};

const CLIENT_METRICS: i8 = 16;
const SET: i8 = 0;
const DELETE: i8 = 1;
const NO_OTTLA_DEFAULT: (&str, &str) = ("ottla.telemetry.default.interval.ms", "0");

/// Keeps what is pushed; payloads that begin with `bad` are malformed; `hold` blocks it.
#[derive(Default)]
struct Receiver {
    pushes: Mutex<Vec<(Pushed, Vec<u8>)>>,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Receiver {
    fn hold(&self, is_held: bool) {
        *self.is_held.lock().unwrap() = is_held;
        self.released.notify_all();
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        self.pushes
            .lock()
            .unwrap()
            .iter()
            .map(|(_, payload)| payload.clone())
            .collect()
    }
}

impl ClientTelemetryReceiver for Receiver {
    fn receive(&self, from: &Pushed, payload: &[u8]) -> Result<(), Malformed> {
        let held = self.is_held.lock().unwrap();
        drop(self.released.wait_while(held, |is_held| *is_held).unwrap());
        assert!(payload != b"panic", "on purpose");
        if payload.starts_with(b"bad") {
            return Err(Malformed("it says so".to_owned()));
        }
        self.pushes.lock().unwrap().push((from.clone(), payload.to_vec()));
        Ok(())
    }
}

/// A broker with a receiver, and one connection to it.
struct Fixture {
    broker: Broker,
    receiver: Arc<Receiver>,
    client: Client,
    correlation_id: i32,
}

impl Fixture {
    fn start(properties: &[(&str, &str)]) -> Fixture {
        let receiver = Arc::new(Receiver::default());
        let additions = Additions {
            telemetry: Some(receiver.clone()),
            ..Additions::default()
        };
        let broker = Broker::start_temporary_with(properties, additions).unwrap();
        Fixture {
            client: Client::connect(broker.address()),
            broker,
            receiver,
            correlation_id: 0,
        }
    }

    fn ask(&mut self, api_key: ApiKey, version: i16, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.correlation_id += 1;
        self.client
            .send(&frame(api_key, version, self.correlation_id, body));
        self.client.receive(api_key, version, self.correlation_id)
    }

    fn subscription(&mut self, id: Uuid) -> Granted {
        let request = GetTelemetrySubscriptionsRequest {
            client_instance_id: id,
        };
        let body = self.ask(ApiKey::GetTelemetrySubscriptions, 0, |bytes| {
            request.encode(bytes, 0)
        });
        let response = GetTelemetrySubscriptionsResponse::decode(&mut Reader::new(&body), 0).unwrap();
        Granted {
            error: ErrorCode::from_i16(response.error_code).unwrap(),
            id: response.client_instance_id,
            subscription_id: response.subscription_id,
            codecs: response.accepted_compression_types,
            interval_ms: response.push_interval_ms,
            bytes_max: response.telemetry_max_bytes,
            is_delta: response.delta_temporality,
            metrics: response
                .requested_metrics
                .into_iter()
                .map(str::to_owned)
                .collect(),
        }
    }

    fn push_frame(&mut self, granted: &Granted, codec: Codec, payload: &[u8]) -> Vec<u8> {
        self.correlation_id += 1;
        frame(ApiKey::PushTelemetry, 0, self.correlation_id, |bytes| {
            PushTelemetryRequest {
                client_instance_id: granted.id,
                subscription_id: granted.subscription_id,
                terminating: false,
                compression_type: codec.id() as i8,
                metrics: payload,
            }
            .encode(bytes, 0)
        })
    }

    fn push(&mut self, granted: &Granted, codec: Codec, payload: &[u8]) -> ErrorCode {
        let frame = self.push_frame(granted, codec, payload);
        self.client.send(&frame);
        self.pushed(self.correlation_id)
    }

    fn pushed(&mut self, correlation_id: i32) -> ErrorCode {
        let body = self.client.receive(ApiKey::PushTelemetry, 0, correlation_id);
        let response = PushTelemetryResponse::decode(&mut Reader::new(&body), 0).unwrap();
        ErrorCode::from_i16(response.error_code).unwrap()
    }

    /// Pushes from an unknown instance: neither throttled nor refused for what others did.
    fn push_of_a_fresh_instance(&mut self, number: u8, codec: Codec, payload: &[u8]) -> ErrorCode {
        let granted = self.subscription(Uuid([number; 16]));
        self.push(&granted, codec, payload)
    }

    fn alter(&mut self, name: &str, operations: &[(&str, i8, Option<&str>)]) -> (ErrorCode, String) {
        let configs = operations.iter().map(|(name, operation, value)| AlterableConfig {
            name,
            config_operation: *operation,
            value: *value,
        });
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: CLIENT_METRICS,
                resource_name: name,
                configs: configs.collect(),
            }],
            validate_only: false,
        };
        let body = self.ask(ApiKey::IncrementalAlterConfigs, 1, |bytes| {
            request.encode(bytes, 1)
        });
        let response = IncrementalAlterConfigsResponse::decode(&mut Reader::new(&body), 1).unwrap();
        let result = &response.responses[0];
        let code = ErrorCode::from_i16(result.error_code).unwrap();
        (code, result.error_message.unwrap_or_default().to_owned())
    }

    fn subscription_names(&mut self) -> Vec<String> {
        let request = ListConfigResourcesRequest::default();
        let body = self.ask(ApiKey::ListConfigResources, 0, |bytes| request.encode(bytes, 0));
        let response = ListConfigResourcesResponse::decode(&mut Reader::new(&body), 0).unwrap();
        let names = response
            .config_resources
            .iter()
            .map(|resource| resource.resource_name);
        names.map(str::to_owned).collect()
    }

    fn announced(&mut self) -> Vec<i16> {
        let request = ApiVersionsRequest {
            client_software_name: "a-client",
            client_software_version: "1.2.3",
        };
        let body = self.ask(ApiKey::ApiVersions, 3, |bytes| request.encode(bytes, 3));
        let response = ApiVersionsResponse::decode(&mut Reader::new(&body), 3).unwrap();
        response.api_keys.iter().map(|api| api.api_key).collect()
    }
}

#[derive(Debug)]
struct Granted {
    error: ErrorCode,
    id: Uuid,
    subscription_id: i32,
    codecs: Vec<i8>,
    interval_ms: i32,
    bytes_max: i32,
    is_delta: bool,
    metrics: Vec<String>,
}

#[test]
fn a_client_gets_a_subscription_and_its_pushes_arrive_with_its_name() {
    let mut fixture = Fixture::start(&[]);
    assert!(fixture.announced().contains(&71) && fixture.announced().contains(&72));
    let granted = fixture.subscription(Uuid::ZERO);
    assert_eq!(granted.error, ErrorCode::None);
    assert!(!granted.id.is_zero());
    assert_eq!(granted.codecs, [4, 3, 1, 2]);
    assert_eq!((granted.interval_ms, granted.bytes_max), (10_000, 1_048_576));
    assert!(granted.is_delta);
    for prefix in [
        "org.apache.kafka.app.info.",
        "org.apache.kafka.consumer.",
        "org.apache.kafka.producer.",
    ] {
        assert!(
            granted.metrics.iter().any(|metric| metric == prefix),
            "{:?}",
            granted.metrics
        );
    }
    assert_eq!(fixture.push(&granted, Codec::None, b"metrics"), ErrorCode::None);
    let (from, payload) = fixture.receiver.pushes.lock().unwrap()[0].clone();
    assert_eq!(payload, b"metrics");
    assert_eq!((&*from.client_id, from.instance_id), ("test", granted.id));
    assert_eq!(from.software_name.as_deref(), Some("a-client"));
    assert_eq!(from.software_version.as_deref(), Some("1.2.3"));
    assert_eq!(
        (&*from.principal, &*from.listener_name),
        ("User:ANONYMOUS", "PLAINTEXT")
    );
    assert_eq!(from.port, fixture.client.socket.local_addr().unwrap().port());
    assert_eq!((from.push_interval_ms, from.is_terminating), (10_000, false));
}

#[test]
fn without_a_receiver_no_client_is_asked() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut client = Client::connect(broker.address());
    let request = ApiVersionsRequest {
        client_software_name: "a",
        client_software_version: "1",
    };
    client.send(&frame(ApiKey::ApiVersions, 3, 1, |bytes| {
        request.encode(bytes, 3)
    }));
    let body = client.receive(ApiKey::ApiVersions, 3, 1);
    let response = ApiVersionsResponse::decode(&mut Reader::new(&body), 3).unwrap();
    assert!(
        response
            .api_keys
            .iter()
            .all(|api| ![71, 72].contains(&api.api_key))
    );
    let request = GetTelemetrySubscriptionsRequest::default();
    client.send(&frame(ApiKey::GetTelemetrySubscriptions, 0, 2, |bytes| {
        request.encode(bytes, 0)
    }));
    assert!(client.closed().is_empty());
}

#[test]
fn a_clients_own_instance_id_is_echoed_and_kept_until_its_connection_ends() {
    let mut fixture = Fixture::start(&[]);
    let id = Uuid([9; 16]);
    assert_eq!(fixture.subscription(id).id, id);
    let again = fixture.subscription(id);
    assert_eq!((again.error, again.id), (ErrorCode::ThrottlingQuotaExceeded, id));
    assert_eq!(fixture.broker.node().telemetry.instance_count(), 1);
    fixture.client = Client::connect(fixture.broker.address());
    while fixture.broker.node().telemetry.instance_count() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(fixture.subscription(id).error, ErrorCode::None);
}

#[test]
fn payloads_are_decompressed_and_an_unreadable_one_ends_a_clients_telemetry() {
    let mut fixture = Fixture::start(&[]);
    let metrics = b"some metrics, some metrics, some metrics".repeat(100);
    for (number, codec) in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
        .into_iter()
        .enumerate()
    {
        let mut payload = Vec::new();
        compress(Compression { codec, level: None }, &metrics, &mut payload);
        let number = number as u8 + 1;
        assert_eq!(
            fixture.push_of_a_fresh_instance(number, codec, &payload),
            ErrorCode::None,
            "{codec}"
        );
        assert_eq!(fixture.receiver.payloads().last().unwrap(), &metrics, "{codec}");
        payload.truncate(payload.len() / 2);
        if codec != Codec::None {
            let cut = fixture.push_of_a_fresh_instance(number + 10, codec, &payload);
            assert_eq!(cut, ErrorCode::InvalidRecord, "{codec}");
        }
    }
    assert_eq!(
        fixture.push_of_a_fresh_instance(30, Codec::Zstd, b"no frame"),
        ErrorCode::InvalidRecord
    );
    assert_eq!(
        fixture.push_of_a_fresh_instance(31, Codec::None, b"bad"),
        ErrorCode::InvalidRecord
    );
    // A receiver that panics is answered for, too, and survives.
    assert_eq!(
        fixture.push_of_a_fresh_instance(32, Codec::None, b"panic"),
        ErrorCode::InvalidRecord
    );
    // franz-go pushes an empty payload when it has none of the requested metrics.
    assert_eq!(
        fixture.push_of_a_fresh_instance(33, Codec::Zstd, b""),
        ErrorCode::None
    );
    assert_eq!(fixture.receiver.payloads().last().unwrap(), b"");
}

#[test]
fn a_null_payload_is_a_push_without_metrics_and_the_connection_lives() {
    let mut fixture = Fixture::start(&[]);
    let granted = fixture.subscription(Uuid::ZERO);
    let mut push = fixture.push_frame(&granted, Codec::None, b"");
    // The last two bytes are the metrics' compact length, 1 for empty, and the count of tagged
    // fields; 0 is null.
    let length_at = push.len() - 2;
    assert_eq!(push[length_at..], [1, 0]);
    push[length_at] = 0;
    fixture.client.send(&push);
    assert_eq!(fixture.pushed(fixture.correlation_id), ErrorCode::None);
    assert_eq!(fixture.receiver.payloads().last().unwrap(), b"");
    assert!(fixture.announced().contains(&72));
}

#[test]
fn a_decompression_bomb_is_refused() {
    let mut fixture = Fixture::start(&[("telemetry.max.bytes", "100000")]);
    for (number, codec) in [Codec::Gzip, Codec::Lz4, Codec::Zstd].into_iter().enumerate() {
        let number = 2 * number as u8 + 1;
        for (add, bytes, expected) in [
            (0, 800_000, ErrorCode::None),
            (1, 800_001, ErrorCode::TelemetryTooLarge),
        ] {
            let mut payload = Vec::new();
            compress(Compression { codec, level: None }, &vec![0; bytes], &mut payload);
            assert!(payload.len() <= 100_000);
            let answer = fixture.push_of_a_fresh_instance(number + add, codec, &payload);
            assert_eq!(answer, expected, "{codec} {bytes}");
        }
    }
    let larger = vec![b'x'; 100_001];
    assert_eq!(
        fixture.push_of_a_fresh_instance(20, Codec::None, &larger),
        ErrorCode::TelemetryTooLarge
    );
}

#[test]
fn a_push_that_is_processed_slowly_delays_no_other_request() {
    let mut fixture = Fixture::start(&[]);
    let granted = fixture.subscription(Uuid::ZERO);
    fixture.receiver.hold(true);
    let push = fixture.push_frame(&granted, Codec::None, b"slow");
    let correlation_id = fixture.correlation_id;
    fixture.client.send(&push);
    let mut other = Client::connect(fixture.broker.address());
    let request = MetadataRequest::default();
    other.send(&frame(ApiKey::Metadata, 12, 1, |bytes| request.encode(bytes, 12)));
    let body = other.receive(ApiKey::Metadata, 12, 1);
    assert!(MetadataResponse::decode(&mut Reader::new(&body), 12).is_ok());
    assert!(fixture.receiver.payloads().is_empty());
    fixture.receiver.hold(false);
    assert_eq!(fixture.pushed(correlation_id), ErrorCode::None);
}

#[test]
fn subscriptions_are_configurations_and_reach_clients_at_once() {
    let mut fixture = Fixture::start(&[NO_OTTLA_DEFAULT]);
    let nothing = fixture.subscription(Uuid::ZERO);
    assert_eq!((nothing.metrics.len(), nothing.interval_ms), (0, 300_000));
    let all = [("metrics", SET, Some("*")), ("interval.ms", SET, Some("1000"))];
    assert_eq!(fixture.alter("everything", &all).0, ErrorCode::None);
    let mine = [
        ("metrics", SET, Some("org.apache.kafka.producer.")),
        ("match", SET, Some("client_id=nobody")),
    ];
    assert_eq!(fixture.alter("somebody", &mine).0, ErrorCode::None);
    assert_eq!(fixture.subscription_names(), ["everything", "somebody"]);
    let granted = fixture.subscription(nothing.id);
    assert_eq!((granted.error, granted.interval_ms), (ErrorCode::None, 1000));
    assert_eq!(
        granted.metrics,
        [""],
        "every client takes the empty prefix for everything"
    );
    assert_ne!(granted.subscription_id, nothing.subscription_id);
    assert_eq!(
        fixture.push(&nothing, Codec::None, b"old"),
        ErrorCode::UnknownSubscriptionId
    );
    let gone = [("metrics", DELETE, None), ("interval.ms", DELETE, None)];
    assert_eq!(fixture.alter("everything", &gone).0, ErrorCode::None);
    assert_eq!(fixture.subscription_names(), ["somebody"]);
    assert_eq!(fixture.subscription(nothing.id).metrics.len(), 0);
}

/// Java asks on a connection that it never produces on.
#[test]
fn a_connection_that_only_asked_is_known_with_its_instance_and_interval() {
    let mut fixture = Fixture::start(&[]);
    let granted = fixture.subscription(Uuid::ZERO);
    let is_known = |fixture: &Fixture| {
        let connections = fixture.broker.activity().read().connections;
        connections.iter().any(|one| {
            let identity = &one.who.identity;
            let interval_ms = identity.push_interval_ms().map(|ms| ms as i32);
            identity.instance_id() == Some(granted.id) && interval_ms == Some(granted.interval_ms)
        })
    };
    while !is_known(&fixture) {
        std::thread::yield_now();
    }
}

#[test]
fn a_client_that_is_asked_for_nothing_is_known() {
    let mut fixture = Fixture::start(&[NO_OTTLA_DEFAULT]);
    assert!(!fixture.broker.activity().read().asks_for_metrics, "nobody is");
    let of_others = [
        ("metrics", SET, Some("*")),
        ("match", SET, Some("client_id=other")),
    ];
    assert_eq!(fixture.alter("others", &of_others).0, ErrorCode::None);
    for (is_unasked, matching) in [(true, None), (false, Some("client_id=test"))] {
        if let Some(matching) = matching {
            let own = [("metrics", SET, Some("*")), ("match", SET, Some(matching))];
            assert_eq!(fixture.alter("own", &own).0, ErrorCode::None);
        }
        fixture.subscription(Uuid([7; 16]));
        let fetch = FetchRequest {
            session_epoch: -1,
            ..Default::default()
        };
        fixture.ask(ApiKey::Fetch, 11, |bytes| fetch.encode(bytes, 11));
        let reading = loop {
            let reading = fixture.broker.activity().read();
            if !reading.connections.is_empty() {
                break reading;
            }
        };
        assert!(reading.asks_for_metrics, "somebody is");
        assert_eq!(reading.connections[0].who.identity.is_unasked(), is_unasked);
    }
}

#[test]
fn subscriptions_are_refused_as_kafka_refuses_them() {
    let mut fixture = Fixture::start(&[]);
    for (name, key, value, code, message) in [
        (
            "",
            "metrics",
            "a.",
            ErrorCode::InvalidRequest,
            "Default client metrics resources are not allowed.",
        ),
        (
            "s",
            "metric",
            "a.",
            ErrorCode::InvalidRequest,
            "Unknown client metrics configuration: metric",
        ),
        (
            "s",
            "interval.ms",
            "10",
            ErrorCode::InvalidRequest,
            "Invalid value 10 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            "s",
            "interval.ms",
            "x",
            ErrorCode::InvalidConfig,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        (
            "s",
            "match",
            "client_id",
            ErrorCode::InvalidConfig,
            "Illegal client matching pattern: client_id",
        ),
    ] {
        let answer = fixture.alter(name, &[(key, SET, Some(value))]);
        assert_eq!(answer, (code, message.to_owned()), "{name} {key}={value}");
    }
    assert!(fixture.subscription_names().is_empty());
}

#[test]
fn metrics_count_pushes_in_total_and_pages_of_the_program_are_served() {
    let receiver = Arc::new(Receiver::default());
    let page = Page {
        path: "/added",
        render: Arc::new(|| PageBody {
            content_type: "application/json",
            text: "{}".to_owned(),
        }),
    };
    let additions = Additions {
        telemetry: Some(receiver.clone()),
        pages: vec![page],
        ..Additions::default()
    };
    let properties = [("ottla.admin.listener", "127.0.0.1:0")];
    let broker = Broker::start_temporary_with(&properties, additions).unwrap();
    let mut fixture = Fixture {
        client: Client::connect(broker.address()),
        broker,
        receiver,
        correlation_id: 0,
    };
    for number in 1..=50 {
        assert_eq!(
            fixture.push_of_a_fresh_instance(number, Codec::None, b"12345"),
            ErrorCode::None
        );
    }
    let granted = fixture.subscription(Uuid([60; 16]));
    fixture.push(&granted, Codec::None, b"1");
    assert_eq!(
        fixture.push(&granted, Codec::None, b"2"),
        ErrorCode::ThrottlingQuotaExceeded
    );
    let metrics = get(&fixture.broker, "/metrics");
    for line in [
        "ottla_telemetry_pushes_total 51",
        "ottla_telemetry_payload_bytes_total 251",
        "ottla_telemetry_refused_total{error=\"THROTTLING_QUOTA_EXCEEDED\"} 1",
        "ottla_telemetry_refused_total{error=\"INVALID_RECORD\"} 0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "no {line} in {metrics}"
        );
    }
    let lines = metrics.lines().filter(|line| line.starts_with("ottla_telemetry"));
    assert!(lines.count() < 20, "telemetry is counted in total");
    assert!(get(&fixture.broker, "/added").ends_with("{}"));
}
