//! SASL, between ApiVersions and everything else.

use ottla_wire::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_wire::messages::sasl_handshake::SaslHandshakeResponse;

use super::world::*;
use crate::config::{Password, SaslMechanism, SaslSettings};

/// A connected world that authenticates, at the SaslHandshake.
fn at_the_handshake() -> (World, Seen) {
    let mut config = client_config(address(9));
    config.security.sasl = Some(SaslSettings {
        mechanism: SaslMechanism::Plain,
        username: "me".into(),
        password: Password::new("secret"),
        oauth: None,
    });
    let mut world = World::with(Interest::Nodes, config);
    world.turn();
    let connection = world.to(9);
    world.opening.remove(&connection);
    world.tell(Event::Connected { connection });
    let request = world.take(ApiKey::ApiVersions);
    let ranges = [
        (ApiKey::Metadata, 0, 13),
        (ApiKey::SaslHandshake, 0, 1),
        (ApiKey::SaslAuthenticate, 0, 2),
    ];
    world.answer_versions(&request, &ranges);
    let handshake = world.take(ApiKey::SaslHandshake);
    assert_eq!(
        (handshake.api_version, &handshake.body[..]),
        (1, &b"\0\x05PLAIN"[..])
    );
    assert_eq!(
        world.cluster.readiness(world.now, NodeId(-1)),
        Readiness::Connecting
    );
    (world, handshake)
}

fn answer_handshake(world: &mut World, handshake: &Seen, error_code: i16) {
    let response = SaslHandshakeResponse {
        error_code,
        mechanisms: vec!["SCRAM-SHA-256", "GSSAPI"],
    };
    world.answer(handshake, |body, version| response.encode(body, version));
}

fn answer_authenticate(world: &mut World, session_lifetime_ms: i64) {
    let request = world.take(ApiKey::SaslAuthenticate);
    assert_eq!(request.api_version, 2);
    let asked = SaslAuthenticateRequest::decode(&mut Reader::new(&request.body), 2).unwrap();
    assert_eq!(asked.auth_bytes, b"\0me\0secret");
    let response = SaslAuthenticateResponse {
        session_lifetime_ms,
        ..Default::default()
    };
    world.answer(&request, |body, version| response.encode(body, version));
}

#[test]
fn nothing_else_is_sent_before_the_client_is_authenticated() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, 0);
    assert_eq!(world.seen.len(), 1);
    answer_authenticate(&mut world, 0);
    world.answer_metadata(Vec::new());
    assert_eq!(world.cluster.snapshot().version, 1);
}

#[test]
fn a_session_is_renewed_on_its_connection_before_it_ends() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, 0);
    answer_authenticate(&mut world, 10_000);
    let metadata = world.take(ApiKey::Metadata);
    let bootstrap = NodeId(-1);
    assert_eq!(world.cluster.readiness(world.now, bootstrap), Readiness::Ready);
    world.now = world.now.after_ms(9_600);
    assert_eq!(
        world.cluster.readiness(world.now, bootstrap),
        Readiness::Connecting
    );
    world.turn();
    // The pending answer comes first, because the broker handles requests in order.
    let renewed = world.take(ApiKey::SaslHandshake);
    assert_eq!(renewed.connection, handshake.connection);
    let empty = MetadataResponse::default();
    world.answer(&metadata, |body, version| empty.encode(body, version));
    answer_handshake(&mut world, &renewed, 0);
    answer_authenticate(&mut world, 10_000);
    assert_eq!(world.cluster.readiness(world.now, bootstrap), Readiness::Ready);
    assert_eq!(world.attempts.len(), 1);
}

#[test]
fn a_refused_mechanism_names_those_that_the_broker_accepts() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, ErrorCode::UnsupportedSaslMechanism.code());
    let error = world.metadata.wait_for_topic("t", 60_000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "authentication with broker:9: the broker does not accept PLAIN; it accepts SCRAM-SHA-256, GSSAPI"
    );
    assert!(error.is_fatal());
}

#[test]
fn a_wrong_password_gives_the_brokers_text_and_is_retried_with_backoff() {
    let (mut world, handshake) = at_the_handshake();
    answer_handshake(&mut world, &handshake, 0);
    let request = world.take(ApiKey::SaslAuthenticate);
    let response = SaslAuthenticateResponse {
        error_code: ErrorCode::SaslAuthenticationFailed.code(),
        error_message: Some("Authentication failed: Invalid username or password"),
        ..Default::default()
    };
    world.answer(&request, |body, version| response.encode(body, version));
    let Readiness::Impossible(error) = world.cluster.readiness(world.now, NodeId(-1)) else {
        panic!("possible");
    };
    assert_eq!(
        error.to_string(),
        "authentication with broker:9: Authentication failed: Invalid username or password"
    );
    assert!(world.connections.is_empty());
    assert!(world.cluster.next_deadline().unwrap() >= world.now.after_ms(40));
}
