//! SASL behind TLS: a handshake on its own thread, then authentication on an event loop, with the
//! principal of SASL.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ottla_broker::Broker;
use ottla_broker::broker::{Additions, TemporaryDirectory};
use ottla_core::tenant::TenantKind;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use rustls::{AlertDescription, ClientConfig, HandshakeKind};
use serde_json::Value;
use support::sasl::{self, Scram, api_versions, authenticate, handshake, metadata, plain};
use support::tls::{Authority, Signed, TlsClient};
use support::{Client, receive_from};

const PASSWORD: &str = "wonderland";
const JAAS: (&str, &str) = (
    "listener.name.sasl_ssl.plain.sasl.jaas.config",
    "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=\"wonderland\";",
);
const VERSIONS: [&[&rustls::SupportedProtocolVersion]; 2] =
    [&[&rustls::version::TLS12], &[&rustls::version::TLS13]];

/// A broker with an open listener and one with TLS and SASL.
struct Secured {
    broker: Broker,
    authority: Authority,
    _stores: TemporaryDirectory,
}

impl Secured {
    fn start(more: &[(&str, &str)]) -> Secured {
        let authority = Authority::named("authority");
        let directory = TemporaryDirectory::create().unwrap();
        let stores = authority.write_stores(directory.path());
        let own = [
            ("listeners", "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"),
            ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"),
            ("connection.failed.authentication.delay.ms", "10"),
            JAAS,
        ];
        let stores: Vec<(&str, &str)> = stores.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let user = |mechanism| format!("{mechanism}=[name=alice,password={PASSWORD}]");
        let additions = Additions {
            add_scram: ["SCRAM-SHA-256", "SCRAM-SHA-512"].map(user).into(),
            ..Additions::default()
        };
        let lines = [&own, &stores[..], more].concat();
        Secured {
            broker: Broker::start_temporary_with(&lines, additions).unwrap(),
            authority,
            _stores: directory,
        }
    }

    fn address(&self) -> SocketAddr {
        self.broker.address_of("SASL_SSL").unwrap()
    }

    fn config(&self, identity: Option<&Signed>) -> Arc<ClientConfig> {
        self.authority.client_config(rustls::ALL_VERSIONS, identity)
    }

    fn connect(&self) -> TlsClient {
        TlsClient::connect(self.address(), &self.config(None))
    }

    /// Users with connections, and how many.
    fn users(&self) -> Vec<(String, usize)> {
        let known = self.broker.node().tenants.known();
        let users = known.iter().filter(|tenant| tenant.name.kind == TenantKind::User);
        users
            .map(|tenant| (tenant.name.name.to_string(), tenant.connections))
            .collect()
    }
}

/// Authenticates by PLAIN, everything in one packet; returns the session's length.
fn log_in(client: &mut TlsClient) -> i64 {
    let token = plain("alice", PASSWORD);
    client.send(&[handshake("PLAIN", 1, 1), authenticate(&token, 2)].concat());
    receive(client, ApiKey::SaslHandshake, 1, 1);
    let outcome = sasl::outcome(&mut client.stream, 2);
    assert_eq!(outcome.code, ErrorCode::None);
    outcome.session_ms
}

fn receive(client: &mut TlsClient, api_key: ApiKey, version: i16, correlation_id: i32) -> Vec<u8> {
    receive_from(&mut client.stream, api_key, version, correlation_id).unwrap()
}

fn check_served(client: &mut TlsClient) {
    client.send(&metadata(100));
    assert_eq!(sasl::throttle_ms(&mut client.stream, 100), 0);
}

/// The connection ends by a close_notify, without another byte.
fn check_ended(client: &mut TlsClient) {
    assert_eq!(client.stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn every_mechanism_authenticates_in_both_versions_of_tls() {
    let secured = Secured::start(&[]);
    for versions in VERSIONS {
        let config = secured.authority.client_config(versions, None);
        let mut client = TlsClient::connect(secured.address(), &config);
        log_in(&mut client);
        check_served(&mut client);
        assert_eq!(client.stream.conn.protocol_version(), Some(versions[0].version));
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let mut scram = Scram::new(mechanism, "alice", PASSWORD);
            let mut client = TlsClient::connect(secured.address(), &config);
            client.send(&api_versions(1));
            receive(&mut client, ApiKey::ApiVersions, 3, 1);
            client.send(&handshake(mechanism, 1, 2));
            receive(&mut client, ApiKey::SaslHandshake, 1, 2);
            client.send(&authenticate(&scram.first(), 3));
            let challenge = sasl::outcome(&mut client.stream, 3).token;
            client.send(&authenticate(&scram.last(&challenge), 4));
            let outcome = sasl::outcome(&mut client.stream, 4);
            assert_eq!(outcome.code, ErrorCode::None, "{:?}", outcome.message);
            assert!(scram.is_broker_proved(&outcome.token), "{mechanism}");
            check_served(&mut client);
        }
    }
}

#[test]
fn what_a_connection_speaks_is_told_with_its_requests() {
    let secured = Secured::start(&[("ottla.admin.listener", "127.0.0.1:0")]);
    let mut client = secured.connect();
    log_in(&mut client);
    check_served(&mut client);
    let mut open = Client::connect(secured.broker.address());
    open.send(&metadata(1));
    open.receive(ApiKey::Metadata, 9, 1);
    let spoken = |principal: &str| -> Option<Value> {
        let page = support::http::get(&secured.broker, "/debug/requests");
        let page: Value = serde_json::from_str(&page).unwrap();
        let slowest = page["slowest_of_last_minute"].as_array().unwrap();
        // Requests before the authentication are of no user either.
        let is_it = |request: &&Value| request["principal"] == principal && request["api"] == "Metadata";
        slowest.iter().find(is_it).map(|request| request["tls"].clone())
    };
    // A request is counted after its answer was sent.
    support::net::until("both requests are told", || {
        spoken("User:alice").is_some() && spoken("User:ANONYMOUS").is_some()
    });
    assert_eq!(spoken("User:alice").unwrap(), "TLSv1.3 TLS_AES_256_GCM_SHA384");
    assert_eq!(spoken("User:ANONYMOUS"), Some(Value::Null));
}

#[test]
fn requests_behind_the_token_in_one_packet_are_served() {
    let secured = Secured::start(&[]);
    let mut client = secured.connect();
    let token = plain("alice", PASSWORD);
    let requests = [
        api_versions(1),
        handshake("PLAIN", 1, 2),
        authenticate(&token, 3),
        metadata(4),
        api_versions(5),
    ];
    client.send(&requests.concat());
    receive(&mut client, ApiKey::ApiVersions, 3, 1);
    receive(&mut client, ApiKey::SaslHandshake, 1, 2);
    assert_eq!(sasl::outcome(&mut client.stream, 3).code, ErrorCode::None);
    sasl::throttle_ms(&mut client.stream, 4);
    receive(&mut client, ApiKey::ApiVersions, 3, 5);
}

#[test]
fn a_wrong_password_is_told_before_the_stream_ends() {
    let secured = Secured::start(&[]);
    let mut client = secured.connect();
    let token = plain("alice", "looking-glass");
    client.send(&[handshake("PLAIN", 1, 1), authenticate(&token, 2), metadata(3)].concat());
    receive(&mut client, ApiKey::SaslHandshake, 1, 1);
    let outcome = sasl::outcome(&mut client.stream, 2);
    assert_eq!(outcome.code, ErrorCode::SaslAuthenticationFailed);
    assert_eq!(
        outcome.message.as_deref(),
        Some("Authentication failed: Invalid username or password")
    );
    check_ended(&mut client);
    assert!(secured.users().is_empty());
}

#[test]
fn tls_alone_authenticates_no_client_even_with_a_certificate() {
    let required = [("listener.name.sasl_ssl.ssl.client.auth", "required")];
    let secured = Secured::start(&required);
    let carol = secured.authority.sign("carol", |_| {});
    let mut client = TlsClient::connect(secured.address(), &secured.config(Some(&carol)));
    client.send(&metadata(1));
    check_ended(&mut client);
}

#[test]
fn with_client_certificates_the_principal_is_still_that_of_sasl() {
    let required = [("listener.name.sasl_ssl.ssl.client.auth", "required")];
    let secured = Secured::start(&required);
    let carol = secured.authority.sign("carol", |_| {});
    let config = secured.config(Some(&carol));
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut client = TlsClient::connect(secured.address(), &config);
        log_in(&mut client);
        check_served(&mut client);
        assert_eq!(client.stream.conn.handshake_kind(), Some(kind));
        assert_eq!(secured.users(), [("alice".to_owned(), 1)]);
        drop(client);
        support::net::until("alice is gone", || {
            secured.users().iter().all(|(_, count)| *count == 0)
        });
    }
    assert_eq!(secured.connect().alert(), AlertDescription::CertificateRequired);
    let stranger = Authority::named("stranger").sign("carol", |_| {});
    let mut client = TlsClient::connect(secured.address(), &secured.config(Some(&stranger)));
    assert_eq!(client.alert(), AlertDescription::UnknownCA);
}

#[test]
fn the_general_setting_for_client_certificates_is_not_about_sasl() {
    let secured = Secured::start(&[("ssl.client.auth", "required")]);
    let mut client = secured.connect();
    log_in(&mut client);
    check_served(&mut client);
}

#[test]
fn a_session_over_tls_is_extended_and_ends_without_that() {
    let secured = Secured::start(&[("connections.max.reauth.ms", "1500")]);
    let mut extended = secured.connect();
    assert_eq!(log_in(&mut extended), 1_500);
    let mut ended = secured.connect();
    log_in(&mut ended);
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(log_in(&mut extended), 1_500);
    std::thread::sleep(Duration::from_millis(500));
    ended.send(&metadata(3));
    check_ended(&mut ended);
    check_served(&mut extended);
}

#[test]
fn the_ends_of_authentications_are_counted_by_listener_and_mechanism() {
    let secured = Secured::start(&[
        ("ottla.admin.listener", "127.0.0.1:0"),
        ("connections.max.reauth.ms", "1500"),
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        ),
    ]);
    // By SASL: two that work, one of them twice; a wrong password, and no mechanism at all.
    let mut again = secured.connect();
    log_in(&mut again);
    log_in(&mut secured.connect());
    std::thread::sleep(Duration::from_millis(1_100));
    log_in(&mut again);
    let mut wrong = secured.connect();
    wrong.send(&[handshake("PLAIN", 1, 1), authenticate(&plain("alice", "x"), 2)].concat());
    receive(&mut wrong, ApiKey::SaslHandshake, 1, 1);
    assert_ne!(sasl::outcome(&mut wrong.stream, 2).code, ErrorCode::None);
    let mut strange = secured.connect();
    strange.send(&metadata(1));
    check_ended(&mut strange);
    let mut unknown = secured.connect();
    unknown.send(&handshake("NONE-SUCH\"} 1", 1, 1));
    receive(&mut unknown, ApiKey::SaslHandshake, 1, 1);
    // By TLS: one that works, and plaintext on both listeners; one that leaves has not failed.
    let address = secured.broker.address_of("SSL").unwrap();
    let mut done = TlsClient::connect(address, &secured.config(None));
    check_served(&mut done);
    drop(Client::connect(address));
    for address in [address, secured.address()] {
        let mut client = Client::connect(address);
        client.send(&api_versions(1));
        assert_eq!(client.closed(), b"");
    }
    let page = support::http::get(&secured.broker, "/metrics");
    let counted: Vec<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#') && !line.ends_with(" 0"))
        .filter(|line| line.contains("authentication"))
        .filter(|line| !line.starts_with("ottla_connections_closed_total"))
        .collect();
    let of_kafka = |end: &str, listener: &str, count: usize| {
        format!("kafka_server_socketservermetrics_{end}_total{{listener=\"{listener}\"}} {count}")
    };
    let by = |listener: &str, mechanism: &str, end: &str, count: usize| {
        format!(
            "ottla_authentications_total{{listener=\"{listener}\",mechanism=\"{mechanism}\",end=\"{end}\"}} {count}"
        )
    };
    let (good, bad) = ("successful_authentication", "failed_authentication");
    let good_again = "successful_reauthentication";
    assert_eq!(
        counted,
        [
            of_kafka(good, "SASL_SSL", 2),
            of_kafka(good, "SSL", 1),
            of_kafka(bad, "SASL_SSL", 4),
            of_kafka(bad, "SSL", 1),
            of_kafka(good_again, "SASL_SSL", 1),
            by("SASL_SSL", "TLS", bad, 1),
            by("SASL_SSL", "PLAIN", good, 2),
            by("SASL_SSL", "PLAIN", bad, 1),
            by("SASL_SSL", "PLAIN", good_again, 1),
            by("SASL_SSL", "other", bad, 2),
            by("SSL", "TLS", good, 1),
            by("SSL", "TLS", bad, 1),
        ]
    );
}

#[test]
fn plaintext_on_a_listener_with_tls_and_sasl_gets_no_byte() {
    let secured = Secured::start(&[]);
    for first in [api_versions(1), handshake("PLAIN", 1, 1), vec![0, 0, 0, 1]] {
        let mut client = Client::connect(secured.address());
        client.send(&first);
        assert_eq!(client.closed(), b"");
    }
}

#[test]
fn one_time_limit_covers_the_handshake_and_authentication() {
    let secured = Secured::start(&[("ottla.authentication.timeout.ms", "4000")]);
    // Most of the limit passes before the handshake.
    let late = Client::connect(secured.address());
    std::thread::sleep(Duration::from_millis(3_000));
    let mut fresh = secured.connect();
    let mut late = TlsClient::over(late.socket, &secured.config(None));
    for client in [&mut fresh, &mut late] {
        client.send(&handshake("PLAIN", 1, 1));
        receive(client, ApiKey::SaslHandshake, 1, 1);
    }
    // It is closed while one that connected later is not.
    check_ended(&mut late);
    fresh.send(&authenticate(&plain("alice", PASSWORD), 2));
    assert_eq!(sasl::outcome(&mut fresh.stream, 2).code, ErrorCode::None);
}

#[test]
fn a_client_that_does_not_finish_its_hello_in_time_is_closed_without_an_answer() {
    let secured = Secured::start(&[
        ("ottla.authentication.timeout.ms", "300"),
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        ),
    ]);
    for listener in ["SASL_SSL", "SSL"] {
        let address = secured.broker.address_of(listener).unwrap();
        let mut silent = Client::connect(address);
        let mut half = Client::connect(address);
        half.send(&[0x16, 3, 1, 2, 0, 1, 0]);
        assert_eq!((silent.closed(), half.closed()), (vec![], vec![]), "{listener}");
    }
    // Once the handshake is done, a listener without SASL waits for its client.
    let config = secured.config(None);
    let mut done = TlsClient::connect(secured.broker.address_of("SSL").unwrap(), &config);
    check_served(&mut done);
    std::thread::sleep(Duration::from_millis(500));
    check_served(&mut done);
}

#[test]
fn a_large_request_before_authentication_ends_the_connection() {
    let secured = Secured::start(&[("sasl.server.max.receive.size", "1000")]);
    let mut client = secured.connect();
    client.send(&1_001u32.to_be_bytes());
    check_ended(&mut client);
    let mut client = secured.connect();
    log_in(&mut client);
    let padded = support::frame(ApiKey::ApiVersions, 0, 3, |bytes| bytes.extend([0; 5_000]));
    client.send(&padded);
    receive(&mut client, ApiKey::ApiVersions, 0, 3);
}

#[test]
fn a_client_that_leaves_between_handshake_and_authentication_leaves_nothing() {
    let secured = Secured::start(&[]);
    for step in 0..3 {
        let mut client = secured.connect();
        match step {
            0 => client.stream.flush().unwrap(),
            1 => client.send(&handshake("PLAIN", 1, 1)),
            _ => {
                // In the middle of a token.
                let token = authenticate(&plain("alice", PASSWORD), 2);
                client.send(&[handshake("PLAIN", 1, 1), token[..10].to_vec()].concat());
            }
        }
        drop(client);
    }
    let mut client = secured.connect();
    log_in(&mut client);
    check_served(&mut client);
    assert_eq!(secured.users(), [("alice".to_owned(), 1)]);
}

#[test]
fn silent_clients_of_one_address_leave_room_for_others() {
    // Ten may be on their way through authentication, and five of one address.
    let secured = Secured::start(&[("max.connections", "100")]);
    let flood = || Client::connect_from([127, 0, 0, 2], secured.address());
    let silent: Vec<Client> = (0..5).map(|_| flood()).collect();
    assert_eq!(flood().closed(), b"");
    // Those that are authenticated do not count.
    let mut many: Vec<TlsClient> = (0..12)
        .map(|_| {
            let mut client = secured.connect();
            log_in(&mut client);
            client
        })
        .collect();
    many.iter_mut().for_each(check_served);
    assert_eq!(flood().closed(), b"");
    drop(silent);
    // The accepting thread learns of an end when the handshake thread does.
    support::net::until("the address is admitted again", || {
        let mut client = flood();
        client
            .socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        matches!(client.socket.read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
}
