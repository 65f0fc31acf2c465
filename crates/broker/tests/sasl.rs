//! Authentication by SASL at the socket: what is served before it, how failure looks, and what an
//! authenticated connection is worth. The exchanges themselves are tested in `ottla_core::sasl`.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use ottla_broker::Broker;
use ottla_core::tenant::TenantKind;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntityData, AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse, OpData,
};
use ottla_wire::messages::api_versions::ApiVersionsResponse;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::metadata::MetadataRequest;
use ottla_wire::messages::sasl_authenticate::SaslAuthenticateResponse;
use ottla_wire::messages::sasl_handshake::SaslHandshakeResponse;
use ottla_wire::primitives::Reader;
use support::sasl::{self, api_versions, metadata};
use support::{Client, frame};

const JAAS: &str = "listener.name.sasl_plaintext.plain.sasl.jaas.config";

fn jaas(password: &str) -> String {
    format!(
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=\"{password}\" user_bob=\"b\";"
    )
}

/// A broker with two listeners: one is open, the other asks for PLAIN.
fn start(properties: &[(&str, &str)]) -> Broker {
    let jaas = jaas("wonderland");
    let own = [
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        ),
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256"),
        ("connection.failed.authentication.delay.ms", "10"),
        (JAAS, jaas.as_str()),
    ];
    Broker::start_temporary(&[&own, properties].concat()).unwrap()
}

fn connect(broker: &Broker) -> Client {
    Client::connect(broker.address_of("SASL_PLAINTEXT").unwrap())
}

fn handshake(version: i16, correlation_id: i32) -> Vec<u8> {
    sasl::handshake("PLAIN", version, correlation_id)
}

fn token(password: &str) -> Vec<u8> {
    sasl::plain("alice", password)
}

fn authenticate(password: &str, correlation_id: i32) -> Vec<u8> {
    sasl::authenticate(&token(password), correlation_id)
}

/// Error code and session lifetime of the answer to SaslAuthenticate.
fn outcome(client: &mut Client, correlation_id: i32) -> (ErrorCode, i64) {
    let outcome = sasl::outcome(&mut client.socket, correlation_id);
    (outcome.code, outcome.session_ms)
}

fn throttle_ms(client: &mut Client, correlation_id: i32) -> i32 {
    sasl::throttle_ms(&mut client.socket, correlation_id)
}

/// Authenticates as alice.
fn log_in(broker: &Broker) -> Client {
    let mut client = connect(broker);
    client.send(&[handshake(1, 1), authenticate("wonderland", 2)].concat());
    client.receive(ApiKey::SaslHandshake, 1, 1);
    assert_eq!(outcome(&mut client, 2).0, ErrorCode::None);
    client
}

fn users(broker: &Broker) -> Vec<(String, usize)> {
    let known = broker.node().tenants.known();
    let users = known.iter().filter(|tenant| tenant.name.kind == TenantKind::User);
    users
        .map(|tenant| (tenant.name.name.to_string(), tenant.connections))
        .collect()
}

#[test]
fn a_client_is_served_once_it_is_authenticated() {
    let broker = start(&[]);
    let mut client = connect(&broker);
    client.send(&api_versions(1));
    let body = client.receive(ApiKey::ApiVersions, 3, 1);
    let answer = ApiVersionsResponse::decode(&mut Reader::new(&body), 3).unwrap();
    assert_eq!(answer.error_code, 0);
    for api_key in [ApiKey::SaslHandshake, ApiKey::SaslAuthenticate, ApiKey::Produce] {
        assert!(
            answer
                .api_keys
                .iter()
                .any(|known| known.api_key == api_key.code())
        );
    }
    client.send(&handshake(1, 2));
    let body = client.receive(ApiKey::SaslHandshake, 1, 2);
    let answer = SaslHandshakeResponse::decode(&mut Reader::new(&body), 1).unwrap();
    assert_eq!(answer.mechanisms, ["PLAIN", "SCRAM-SHA-256"]);
    client.send(&authenticate("wonderland", 3));
    assert_eq!(outcome(&mut client, 3), (ErrorCode::None, 0));
    client.send(&metadata(4));
    assert_eq!(throttle_ms(&mut client, 4), 0);
    assert_eq!(users(&broker), [("alice".to_owned(), 1)]);
    // The open listener is as it was.
    let mut open = Client::connect(broker.address());
    open.send(&metadata(1));
    assert_eq!(throttle_ms(&mut open, 1), 0);
}

#[test]
fn all_of_it_may_be_sent_at_once() {
    let broker = start(&[]);
    let mut client = connect(&broker);
    let frames = [
        api_versions(1),
        handshake(1, 2),
        authenticate("wonderland", 3),
        metadata(4),
        metadata(5),
    ];
    client.send(&frames.concat());
    client.receive(ApiKey::ApiVersions, 3, 1);
    client.receive(ApiKey::SaslHandshake, 1, 2);
    assert_eq!(outcome(&mut client, 3).0, ErrorCode::None);
    assert_eq!((throttle_ms(&mut client, 4), throttle_ms(&mut client, 5)), (0, 0));
}

#[test]
fn before_authentication_other_requests_close_the_connection_unanswered() {
    let broker = start(&[]);
    for api_key in ApiKey::ALL {
        let request = frame(*api_key, api_key.known_versions().max, 2, |bytes| {
            bytes.extend([0; 32]);
        });
        if !matches!(api_key, ApiKey::ApiVersions | ApiKey::SaslHandshake) {
            let mut client = connect(&broker);
            client.send(&request);
            assert!(client.closed().is_empty(), "{api_key} at first");
        }
        if *api_key != ApiKey::SaslHandshake {
            let mut client = connect(&broker);
            client.send(&[api_versions(1), request.clone()].concat());
            client.receive(ApiKey::ApiVersions, 3, 1);
            assert!(client.closed().is_empty(), "{api_key} after ApiVersions");
        }
        if *api_key != ApiKey::SaslAuthenticate {
            let mut client = connect(&broker);
            client.send(&[handshake(1, 1), request].concat());
            client.receive(ApiKey::SaslHandshake, 1, 1);
            assert!(client.closed().is_empty(), "{api_key} after SaslHandshake");
        }
    }
}

#[test]
fn a_client_with_a_wrong_password_gets_an_answer_and_the_end() {
    let broker = start(&[]);
    let mut client = connect(&broker);
    // What is pipelined behind it is not served.
    client.send(&[handshake(1, 1), authenticate("looking-glass", 2), metadata(3)].concat());
    client.receive(ApiKey::SaslHandshake, 1, 1);
    let body = client.receive(ApiKey::SaslAuthenticate, 2, 2);
    let answer = SaslAuthenticateResponse::decode(&mut Reader::new(&body), 2).unwrap();
    assert_eq!(answer.error_code, ErrorCode::SaslAuthenticationFailed.code());
    assert_eq!(
        answer.error_message,
        Some("Authentication failed: Invalid username or password")
    );
    assert!(client.closed().is_empty());
    assert!(users(&broker).is_empty());
}

#[test]
fn a_client_without_sasl_authenticate_sends_tokens_as_they_are() {
    let raw = |password: &str| {
        let token = token(password);
        [&(token.len() as u32).to_be_bytes()[..], &token].concat()
    };
    let broker = start(&[]);
    let mut client = connect(&broker);
    client.send(&[handshake(0, 1), raw("wonderland"), metadata(2)].concat());
    client.receive(ApiKey::SaslHandshake, 0, 1);
    // PLAIN's answer is an empty token.
    let mut answer = [1; 4];
    client.socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0; 4]);
    assert_eq!(throttle_ms(&mut client, 2), 0);

    let mut client = connect(&broker);
    client.send(&[handshake(0, 1), raw("looking-glass")].concat());
    client.receive(ApiKey::SaslHandshake, 0, 1);
    assert!(client.closed().is_empty(), "a failure has no answer");
}

#[test]
fn a_large_request_before_authentication_closes_the_connection() {
    // Not because it takes too long.
    let broker = start(&[
        ("sasl.server.max.receive.size", "1000"),
        ("ottla.authentication.timeout.ms", "1000000"),
    ]);
    let mut client = connect(&broker);
    client.send(&1_001u32.to_be_bytes());
    assert!(client.closed().is_empty());
    // Afterwards it is nothing special.
    let mut client = log_in(&broker);
    let padded = frame(ApiKey::Metadata, 9, 3, |bytes| {
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            ..Default::default()
        };
        request.encode(bytes, 9);
        bytes.extend([0; 5_000]);
    });
    client.send(&padded);
    assert_eq!(throttle_ms(&mut client, 3), 0);
}

#[test]
fn while_a_refusal_is_delayed_nothing_is_read() {
    let broker = start(&[("connection.failed.authentication.delay.ms", "2000")]);
    let mut client = connect(&broker);
    client.send(&[handshake(1, 1), authenticate("looking-glass", 2)].concat());
    client.receive(ApiKey::SaslHandshake, 1, 1);
    client.socket.set_nonblocking(true).unwrap();
    let megabyte = vec![0; 1 << 20];
    let mut taken = 0;
    loop {
        match client.socket.write(&megabyte) {
            Ok(written) => taken += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("after {taken} bytes: {error}"),
        }
        assert!(taken < 256 << 20, "more than the kernel buffers");
    }
    assert!(users(&broker).is_empty());
    // Then it is closed, however much there is to read.
    client.socket.set_nonblocking(false).unwrap();
    client.closed();
}

#[test]
fn a_client_that_does_not_authenticate_in_time_is_closed() {
    let broker = start(&[("ottla.authentication.timeout.ms", "300")]);
    let mut silent = connect(&broker);
    let mut halfway = connect(&broker);
    halfway.send(&handshake(1, 1));
    let mut done = log_in(&broker);
    assert!(silent.closed().is_empty());
    halfway.receive(ApiKey::SaslHandshake, 1, 1);
    assert!(halfway.closed().is_empty());
    std::thread::sleep(Duration::from_millis(400));
    done.send(&metadata(3));
    assert_eq!(throttle_ms(&mut done, 3), 0);
}

#[test]
fn quotas_of_a_user_apply_to_its_connections() {
    let broker = start(&[]);
    let mut admin = Client::connect(broker.address());
    let entry = AlterClientQuotasRequestEntryData {
        entity: vec![AlterClientQuotasRequestEntityData {
            entity_type: "user",
            entity_name: Some("alice"),
        }],
        ops: vec![OpData {
            key: "request_percentage",
            value: 0.0001,
            remove: false,
        }],
    };
    let request = AlterClientQuotasRequest {
        entries: vec![entry],
        validate_only: false,
    };
    admin.send(&frame(ApiKey::AlterClientQuotas, 1, 1, |bytes| {
        request.encode(bytes, 1);
    }));
    let body = admin.receive(ApiKey::AlterClientQuotas, 1, 1);
    let answer = AlterClientQuotasResponse::decode(&mut Reader::new(&body), 1).unwrap();
    assert_eq!(answer.entries[0].error_code, 0);
    let mut alice = log_in(&broker);
    let mut is_throttled = false;
    for correlation_id in 3..40 {
        alice.send(&metadata(correlation_id));
        if throttle_ms(&mut alice, correlation_id) > 0 {
            is_throttled = true;
            break;
        }
    }
    assert!(is_throttled);
    for correlation_id in 2..40 {
        admin.send(&metadata(correlation_id));
        assert_eq!(throttle_ms(&mut admin, correlation_id), 0);
    }
}

#[test]
fn a_session_ends_unless_it_is_extended() {
    let broker = start(&[("connections.max.reauth.ms", "1500")]);
    let mut extended = connect(&broker);
    extended.send(&[handshake(1, 1), authenticate("wonderland", 2)].concat());
    extended.receive(ApiKey::SaslHandshake, 1, 1);
    assert_eq!(outcome(&mut extended, 2), (ErrorCode::None, 1_500));
    let mut ended = log_in(&broker);
    std::thread::sleep(Duration::from_millis(1_100));
    extended.send(
        &[
            metadata(3),
            handshake(1, 4),
            authenticate("wonderland", 5),
            metadata(6),
        ]
        .concat(),
    );
    throttle_ms(&mut extended, 3);
    extended.receive(ApiKey::SaslHandshake, 1, 4);
    assert_eq!(outcome(&mut extended, 5), (ErrorCode::None, 1_500));
    throttle_ms(&mut extended, 6);
    std::thread::sleep(Duration::from_millis(500));
    ended.send(&metadata(3));
    assert!(ended.closed().is_empty());
    extended.send(&metadata(7));
    throttle_ms(&mut extended, 7);
}

/// KIP-368: the end of a session counts for the next request; an answer that is due still comes.
#[test]
fn a_session_that_ends_while_a_fetch_waits_ends_with_the_next_request() {
    let broker = start(&[("connections.max.reauth.ms", "1000")]);
    let mut admin = Client::connect(broker.address());
    let create = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "t",
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    admin.send(&frame(ApiKey::CreateTopics, 5, 1, |bytes| {
        create.encode(bytes, 5)
    }));
    admin.receive(ApiKey::CreateTopics, 5, 1);
    let fetch = FetchRequest {
        replica_id: -1,
        max_wait_ms: 1_500,
        min_bytes: 1,
        max_bytes: 1_000,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: "t",
            partitions: vec![FetchPartition {
                partition_max_bytes: 1_000,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut client = log_in(&broker);
    client.send(&frame(ApiKey::Fetch, 11, 3, |bytes| fetch.encode(bytes, 11)));
    let body = client.receive(ApiKey::Fetch, 11, 3);
    let answer = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    assert_eq!(answer.responses[0].partitions[0].error_code, 0);
    client.send(&metadata(4));
    assert!(client.closed().is_empty());
}

#[test]
fn without_sasl_its_requests_are_out_of_place() {
    let broker = start(&[]);
    let mut open = Client::connect(broker.address());
    let mut authenticated = log_in(&broker);
    for client in [&mut open, &mut authenticated] {
        client.send(&[handshake(1, 10), authenticate("wonderland", 11), metadata(12)].concat());
        let body = client.receive(ApiKey::SaslHandshake, 1, 10);
        let answer = SaslHandshakeResponse::decode(&mut Reader::new(&body), 1).unwrap();
        assert_eq!(answer.error_code, ErrorCode::IllegalSaslState.code());
        assert_eq!(answer.mechanisms, [""; 0]);
        assert_eq!(outcome(client, 11).0, ErrorCode::IllegalSaslState);
        throttle_ms(client, 12);
    }
}

#[test]
fn users_of_plain_change_at_run_time_and_connections_stay() {
    let broker = start(&[]);
    let mut before = log_in(&broker);
    let mut admin = Client::connect(broker.address());
    let jaas = jaas("looking-glass");
    assert_eq!(admin.alter_broker("1", JAAS, &jaas), (0, String::new()));
    for (password, expected) in [
        ("wonderland", ErrorCode::SaslAuthenticationFailed),
        ("looking-glass", ErrorCode::None),
    ] {
        let mut client = connect(&broker);
        client.send(&[handshake(1, 1), authenticate(password, 2)].concat());
        client.receive(ApiKey::SaslHandshake, 1, 1);
        assert_eq!(outcome(&mut client, 2).0, expected, "{password}");
    }
    before.send(&metadata(3));
    throttle_ms(&mut before, 3);
}
