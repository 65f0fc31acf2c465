//! The machine against clients that follow the rules, and others.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ottla_wire::random::Random;

use super::keys::ScramHash;
use super::*;
use crate::random::SecretSeed;
use crate::request::ConnectionContext;
use crate::tenant::TenantId;

const SHA_256: SaslMechanism = SaslMechanism::ScramSha256;
const SHA_512: SaslMechanism = SaslMechanism::ScramSha512;
/// The mechanisms with passwords.
const BY_PASSWORD: [SaslMechanism; 3] = [SaslMechanism::Plain, SHA_256, SHA_512];
const PASSWORD: &str = "wonderland";
const SALT: &[u8] = b"0123456789abcdefghijklmno";

/// What the machine is given, owned.
struct World {
    settings: SaslSettings,
    credentials: BTreeMap<ScramKey, ScramCredential>,
    secrets: SaslSecrets,
    token_keys: TokenKeys,
}

impl World {
    /// Users alice and bob, for all mechanisms.
    fn new() -> World {
        World::with_sessions(None)
    }

    fn with_sessions(session_ms: Option<u64>) -> World {
        let users = [("alice", PASSWORD), ("bob", "builder")];
        let mechanisms = BY_PASSWORD.map(|mechanism| MechanismSettings {
            mechanism,
            session_ms,
            users: match mechanism {
                SaslMechanism::Plain => users
                    .map(|(user, password)| (Arc::from(user), Secret::new(password)))
                    .into(),
                _ => BTreeMap::new(),
            },
            oauth: None,
        });
        let mut credentials = BTreeMap::new();
        for mechanism in [SHA_256, SHA_512] {
            for (user, password) in users {
                let keys = ScramHash::of(mechanism).stored_keys(&salted(mechanism, password, SALT, 4_096));
                let credential = ScramCredential {
                    salt: SALT.into(),
                    stored_key: keys.stored_key,
                    server_key: keys.server_key,
                    iterations: 4_096,
                };
                credentials.insert(key(mechanism, user), credential);
            }
        }
        World {
            settings: SaslSettings {
                mechanisms: mechanisms.into(),
                request_bytes_max: 524_288,
            },
            secrets: SaslSecrets {
                nonces: Nonces::new(SecretSeed([7; 4]), "test"),
                decoys: Decoys::new(b"decoys", &credentials),
            },
            token_keys: TokenKeys::default(),
            credentials,
        }
    }

    fn context(&self, now_ms: u64) -> SaslContext<'_> {
        SaslContext {
            settings: &self.settings,
            credentials: &self.credentials,
            secrets: &self.secrets,
            token_keys: &self.token_keys,
            now: Moment::from_micros(now_ms * 1_000),
            wall_clock: Timestamp(now_ms as i64),
        }
    }
}

fn key(mechanism: SaslMechanism, user: &str) -> ScramKey {
    ScramKey {
        mechanism: mechanism.scram_code().unwrap(),
        user: user.into(),
    }
}

fn salted(mechanism: SaslMechanism, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
    let algorithm = match mechanism {
        SHA_512 => pbkdf2::PBKDF2_HMAC_SHA512,
        _ => pbkdf2::PBKDF2_HMAC_SHA256,
    };
    let mut salted = vec![0; ScramHash::of(mechanism).key_bytes()];
    let iterations = NonZeroU32::new(iterations).unwrap();
    pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
    salted
}

/// A connection: the machine, and its clock.
struct Peer<'a> {
    world: &'a World,
    server: SaslServer,
    now_ms: u64,
    /// The last answer.
    reply: Vec<u8>,
}

impl<'a> Peer<'a> {
    fn new(world: &'a World) -> Peer<'a> {
        Peer {
            world,
            server: SaslServer::default(),
            now_ms: 1_000_000,
            reply: Vec::new(),
        }
    }

    fn ask(&mut self, api_key: ApiKey, api_version: i16, body: &[u8]) -> SaslStep {
        let context = self.world.context(self.now_ms);
        let connection = ConnectionContext {
            connection_id: 1,
            peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peer_port: 1,
            listener_name: "SASL_PLAINTEXT".into(),
            principal: "User:ANONYMOUS".into(),
            identity: Arc::default(),
            permitted: Arc::default(),
            tenant: TenantId(1),
            quota: None,
        };
        let request = Request {
            connection: &connection,
            api_key,
            api_version,
            correlation_id: 1,
            client_id: None,
            body,
            received: context.now,
        };
        self.reply.clear();
        self.server.request(&request, &context, &mut self.reply)
    }

    fn handshake(&mut self, mechanism: &str, version: i16) -> SaslStep {
        let mut body = Vec::new();
        SaslHandshakeRequest { mechanism }.encode(&mut body, version);
        self.ask(ApiKey::SaslHandshake, version, &body)
    }

    fn token(&mut self, token: &[u8]) -> SaslStep {
        if self.server.takes_token() {
            self.reply.clear();
            let context = self.world.context(self.now_ms);
            return self.server.token(token, &context, &mut self.reply);
        }
        let mut body = Vec::new();
        SaslAuthenticateRequest { auth_bytes: token }.encode(&mut body, 2);
        self.ask(ApiKey::SaslAuthenticate, 2, &body)
    }

    /// The last answer to SaslAuthenticate.
    fn answer(&self) -> SaslAuthenticateResponse<'_> {
        SaslAuthenticateResponse::decode(&mut Reader::new(&self.reply), 2).unwrap()
    }

    /// The token in the last answer.
    fn challenge(&self, is_raw: bool) -> String {
        let bytes = if is_raw {
            self.reply.clone()
        } else {
            self.answer().auth_bytes.to_vec()
        };
        String::from_utf8(bytes).unwrap()
    }

    fn begin(&mut self, mechanism: SaslMechanism) {
        assert_eq!(self.handshake(mechanism.name(), 1), SaslStep::Replied);
    }

    /// Goes through a whole exchange after the handshake; returns the last step.
    fn log_in(&mut self, mechanism: SaslMechanism, user: &str, password: &str) -> SaslStep {
        if mechanism == SaslMechanism::Plain {
            return self.token(format!("\0{user}\0{password}").as_bytes());
        }
        let is_raw = self.server.takes_token();
        let bare = format!("n={user},r=fyko+d2lbbFgONRv9qkxdawL");
        assert_eq!(self.token(format!("n,,{bare}").as_bytes()), SaslStep::Replied);
        let last = client_final(mechanism, password, &bare, &self.challenge(is_raw));
        self.token(last.as_bytes())
    }

    /// Both steps.
    fn authenticate(&mut self, mechanism: SaslMechanism, user: &str, password: &str) -> SaslStep {
        self.begin(mechanism);
        self.log_in(mechanism, user, password)
    }
}

fn client_final(mechanism: SaslMechanism, password: &str, bare: &str, server_first: &str) -> String {
    let mut parts = server_first.splitn(3, ',');
    let mut part = |prefix| parts.next().unwrap().strip_prefix(prefix).unwrap().to_owned();
    let (nonce, salt, iterations) = (part("r="), part("s="), part("i="));
    let salt = BASE64.decode(salt).unwrap();
    let salted = salted(mechanism, password, &salt, iterations.parse().unwrap());
    let hash = ScramHash::of(mechanism);
    let client_key = hash.mac(&salted, b"Client Key");
    let without_proof = format!("c=biws,r={nonce}");
    let message = format!("{bare},{server_first},{without_proof}");
    let signature = hash.mac(&hash.stored_keys(&salted).stored_key, message.as_bytes());
    let pairs = client_key.as_ref().iter().zip(signature.as_ref());
    let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
    format!("{without_proof},p={}", BASE64.encode(proof))
}

#[track_caller]
fn check_is(step: &SaslStep, principal: &str) {
    assert_eq!(*step, SaslStep::Authenticated(principal.into()));
}

#[track_caller]
fn check_refused(step: &SaslStep, reason: &str) {
    match step {
        SaslStep::Refused(failure) => assert!(failure.reason.contains(reason), "{failure:?}"),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn each_mechanism_authenticates_a_user_that_knows_the_password() {
    let world = World::new();
    for mechanism in BY_PASSWORD {
        let mut peer = Peer::new(&world);
        assert_eq!(peer.ask(ApiKey::ApiVersions, 3, &[]), SaslStep::Serve);
        peer.server.answered_api_versions();
        check_is(&peer.authenticate(mechanism, "alice", PASSWORD), "User:alice");
        let answer = peer.answer();
        assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 0));
        assert_eq!(answer.auth_bytes.starts_with(b"v="), mechanism.is_scram());
        assert!(peer.server.is_authenticated());
        // As an old client does, with tokens that are not requests.
        let mut peer = Peer::new(&world);
        assert_eq!(peer.handshake(mechanism.name(), 0), SaslStep::Replied);
        assert!(peer.server.takes_token());
        check_is(&peer.log_in(mechanism, "alice", PASSWORD), "User:alice");
        assert!(!peer.server.takes_token());
    }
}

#[test]
fn every_version_of_the_requests_is_answered_in_its_own() {
    let world = World::new();
    for version in 0..=2 {
        let mut peer = Peer::new(&world);
        peer.begin(SaslMechanism::Plain);
        let mut body = Vec::new();
        let auth_bytes = b"\0alice\0wonderland";
        SaslAuthenticateRequest { auth_bytes }.encode(&mut body, version);
        check_is(&peer.ask(ApiKey::SaslAuthenticate, version, &body), "User:alice");
        assert!(SaslAuthenticateResponse::decode(&mut Reader::new(&peer.reply), version).is_ok());
    }
    let mut peer = Peer::new(&world);
    peer.begin(SaslMechanism::Plain);
    assert!(matches!(
        peer.ask(ApiKey::SaslAuthenticate, 3, &[]),
        SaslStep::Close(_)
    ));
    assert!(matches!(
        Peer::new(&world).handshake("PLAIN", 1),
        SaslStep::Replied
    ));
    assert!(matches!(
        Peer::new(&world).ask(ApiKey::SaslHandshake, 2, &[]),
        SaslStep::Close(_)
    ));
}

#[test]
fn a_wrong_password_and_an_unknown_user_get_the_same_answers() {
    let world = World::new();
    for mechanism in BY_PASSWORD {
        let fail = |user: &str| {
            let mut peer = Peer::new(&world);
            peer.begin(mechanism);
            let step = peer.log_in(mechanism, user, "wrong");
            assert!(matches!(step, SaslStep::Refused(_)));
            assert_eq!(
                peer.answer().error_code,
                ErrorCode::SaslAuthenticationFailed.code()
            );
            assert!(!peer.server.is_authenticated());
            peer.reply
        };
        assert_eq!(fail("alice"), fail("mallory"), "{mechanism:?}");
    }
    // The operator is told the difference.
    let mut peer = Peer::new(&world);
    check_refused(&peer.authenticate(SHA_256, "alice", "wrong"), "wrong password");
    check_refused(
        &Peer::new(&world).authenticate(SHA_256, "mallory", "x"),
        "unknown user",
    );
}

#[test]
fn the_challenge_of_an_unknown_user_looks_like_any_other_and_is_always_the_same() {
    let world = World::new();
    let challenge = |user: &str| {
        let mut peer = Peer::new(&world);
        peer.begin(SHA_256);
        peer.token(format!("n,,n={user},r=abc").as_bytes());
        let text = peer.challenge(false);
        let fields: Vec<String> = text.split(',').map(str::to_owned).collect();
        <[String; 3]>::try_from(fields).unwrap()
    };
    let [known, unknown, again] = ["alice", "mallory", "mallory"].map(challenge);
    assert_eq!(known[0].len(), unknown[0].len());
    assert_ne!(unknown[0], again[0], "a nonce is new each time");
    assert_eq!(unknown[1], again[1]);
    let salt = |field: &str| BASE64.decode(field.strip_prefix("s=").unwrap()).unwrap();
    assert!([25, 26].contains(&salt(&unknown[1]).len()));
    assert_eq!((&*known[2], &*unknown[2]), ("i=4096", "i=4096"));
    // No password fits it.
    let mut peer = Peer::new(&world);
    check_refused(&peer.authenticate(SHA_256, "mallory", PASSWORD), "unknown user");
}

#[test]
fn a_recorded_exchange_cannot_be_replayed() {
    let world = World::new();
    let bare = "n=alice,r=fyko+d2lbbFgONRv9qkxdawL";
    let mut first = Peer::new(&world);
    first.begin(SHA_256);
    first.token(format!("n,,{bare}").as_bytes());
    let recorded = client_final(SHA_256, PASSWORD, bare, &first.challenge(false));
    let mut second = Peer::new(&world);
    second.begin(SHA_256);
    second.token(format!("n,,{bare}").as_bytes());
    check_refused(&second.token(recorded.as_bytes()), "nonce");
    // On its own connection it is good, once.
    check_is(&first.token(recorded.as_bytes()), "User:alice");
    assert_eq!(first.token(recorded.as_bytes()), SaslStep::Serve);
}

#[test]
fn hostile_proofs_are_refused() {
    let world = World::new();
    let attack = |change: &dyn Fn(&str) -> String, reason: &str| {
        let bare = "n=alice,r=abc";
        let mut peer = Peer::new(&world);
        peer.begin(SHA_256);
        peer.token(format!("n,,{bare}").as_bytes());
        let last = client_final(SHA_256, PASSWORD, bare, &peer.challenge(false));
        let step = peer.token(change(&last).as_bytes());
        check_refused(&step, reason);
        // The end: not even the right answer is taken now.
        assert!(matches!(peer.token(last.as_bytes()), SaslStep::Close(_)));
    };
    let proof_of = |proof: &[u8]| {
        let proof = BASE64.encode(proof);
        move |last: &str| format!("{},p={proof}", last.split(",p=").next().unwrap())
    };
    attack(&proof_of(&[0; 32]), "wrong password");
    attack(&proof_of(&[]), "wrong password");
    attack(&proof_of(&[0xff; 64]), "wrong password");
    attack(&|last| last.replace("c=biws", "c=eSws"), "GS2");
    attack(&|last| last.replace("c=biws", "c="), "GS2");
    attack(&|last| last.replace("r=abc", "r=abcd"), "nonce");
    attack(&|last| last.replace("c=biws,", "c=biws,m=x,"), "not at its place");
    attack(&|_| String::new(), "no proof");
}

#[test]
fn a_stored_credential_that_cannot_be_used_authenticates_no_user() {
    let mut world = World::new();
    for (stored_key, server_key, iterations) in [(0, 0, 4_096), (32, 0, 4_096), (64, 64, 4_096), (32, 32, 1)]
    {
        let credential = ScramCredential {
            salt: SALT.into(),
            stored_key: vec![0; stored_key].into(),
            server_key: vec![0; server_key].into(),
            iterations,
        };
        world.credentials.insert(key(SHA_256, "broken"), credential);
        for password in ["", PASSWORD] {
            let mut peer = Peer::new(&world);
            let step = peer.authenticate(SHA_256, "broken", password);
            check_refused(&step, "unknown user, or a credential that cannot be used");
        }
    }
}

#[test]
fn a_mechanism_that_is_not_offered_is_refused_with_the_offered_ones() {
    let mut world = World::new();
    world
        .settings
        .mechanisms
        .retain(|offered| offered.mechanism.is_scram());
    for name in ["PLAIN", "GSSAPI", "OAUTHBEARER", "scram-sha-256", ""] {
        let mut peer = Peer::new(&world);
        let SaslStep::Refused(failure) = peer.handshake(name, 1) else {
            panic!("{name} is not refused")
        };
        assert_eq!((&*failure.mechanism, failure.has_answer), (name, true));
        let answer = SaslHandshakeResponse::decode(&mut Reader::new(&peer.reply), 1).unwrap();
        assert_eq!(answer.error_code, ErrorCode::UnsupportedSaslMechanism.code());
        assert_eq!(answer.mechanisms, ["SCRAM-SHA-256", "SCRAM-SHA-512"]);
        assert!(matches!(peer.handshake("SCRAM-SHA-256", 1), SaslStep::Close(_)));
    }
}

#[test]
fn a_client_that_got_an_error_to_api_versions_may_ask_again() {
    let world = World::new();
    let mut peer = Peer::new(&world);
    for version in [99, 3, 0] {
        assert_eq!(peer.ask(ApiKey::ApiVersions, version, &[]), SaslStep::Serve);
    }
    peer.server.answered_api_versions();
    assert!(matches!(
        peer.ask(ApiKey::ApiVersions, 0, &[]),
        SaslStep::Close(_)
    ));
    assert_eq!(peer.handshake("PLAIN", 1), SaslStep::Replied);
}

/// Every point of an authentication, with the requests that are taken there.
fn states(world: &World) -> Vec<(&'static str, Peer<'_>, Vec<ApiKey>)> {
    let peer = |prepare: &dyn Fn(&mut Peer<'_>)| {
        let mut peer = Peer::new(world);
        prepare(&mut peer);
        peer
    };
    let log_in = |peer: &mut Peer<'_>| check_is(&peer.authenticate(SHA_256, "alice", PASSWORD), "User:alice");
    let first = |peer: &mut Peer<'_>| {
        peer.begin(SHA_256);
        peer.token(b"n,,n=alice,r=abc");
    };
    vec![
        (
            "initial",
            peer(&|_| ()),
            vec![ApiKey::ApiVersions, ApiKey::SaslHandshake],
        ),
        (
            "after ApiVersions",
            peer(&|peer| peer.server.answered_api_versions()),
            vec![ApiKey::SaslHandshake],
        ),
        (
            "after SaslHandshake, PLAIN",
            peer(&|peer| peer.begin(SaslMechanism::Plain)),
            vec![ApiKey::SaslAuthenticate],
        ),
        (
            "after SaslHandshake, SCRAM",
            peer(&|peer| peer.begin(SHA_512)),
            vec![ApiKey::SaslAuthenticate],
        ),
        ("challenged", peer(&first), vec![ApiKey::SaslAuthenticate]),
        (
            "after SaslHandshake version 0",
            peer(&|peer| assert_eq!(peer.handshake("PLAIN", 0), SaslStep::Replied)),
            vec![],
        ),
        (
            "refused",
            peer(&|peer| {
                peer.begin(SaslMechanism::Plain);
                peer.token(b"x");
            }),
            vec![],
        ),
        ("authenticated", peer(&log_in), ApiKey::ALL.to_vec()),
        (
            "authenticating again",
            peer(&|peer| {
                log_in(peer);
                peer.now_ms += 1;
                peer.begin(SHA_256);
            }),
            vec![ApiKey::SaslAuthenticate],
        ),
        (
            "session over",
            peer(&|peer| {
                log_in(peer);
                peer.now_ms += 60_001;
            }),
            vec![ApiKey::SaslHandshake],
        ),
    ]
}

/// No other request may reach a decoder before its sender is authenticated: each closes the
/// connection, without an answer.
#[test]
fn at_every_point_each_api_is_taken_or_closes_the_connection() {
    let world = World::with_sessions(Some(60_000));
    for api_key in ApiKey::ALL {
        let versions = api_key.known_versions();
        for version in versions.min..=versions.max + 1 {
            for (point, mut peer, taken) in states(&world) {
                let was_authenticated = peer.server.is_authenticated();
                let step = peer.ask(*api_key, version, &[0; 64]);
                let what = format!("{point}: {api_key} version {version}: {step:?}");
                if !taken.contains(api_key) {
                    assert!(matches!(step, SaslStep::Close(_)), "{what}");
                }
                match &step {
                    SaslStep::Serve => assert!(
                        point == "authenticated" || (point, *api_key) == ("initial", ApiKey::ApiVersions),
                        "{what}"
                    ),
                    SaslStep::Close(_) => assert!(peer.reply.is_empty(), "{what}"),
                    SaslStep::Authenticated(_) => panic!("{what}"),
                    SaslStep::Replied | SaslStep::Refused(_) => {}
                }
                assert_eq!(peer.server.is_authenticated(), was_authenticated, "{what}");
            }
        }
    }
}

#[test]
fn only_matters_of_authentication_concern_the_machine_once_it_is_done() {
    let world = World::with_sessions(Some(60_000));
    let endless = World::new();
    let at = |ms: u64| Moment::from_micros(ms * 1_000);
    let mut peer = Peer::new(&world);
    assert!(peer.server.concerns(ApiKey::Produce, at(0)));
    peer.authenticate(SHA_256, "alice", PASSWORD);
    let now = peer.now_ms;
    assert!(peer.server.concerns(ApiKey::SaslHandshake, at(now)));
    assert!(!peer.server.concerns(ApiKey::SaslAuthenticate, at(now)));
    assert!(!peer.server.concerns(ApiKey::Produce, at(now + 60_000)));
    assert!(peer.server.concerns(ApiKey::Produce, at(now + 60_001)));
    let mut peer = Peer::new(&endless);
    peer.authenticate(SHA_256, "alice", PASSWORD);
    for api_key in ApiKey::ALL {
        assert!(
            !peer.server.concerns(*api_key, at(now + 1_000_000_000)),
            "{api_key}"
        );
    }
}

#[test]
fn a_session_is_extended_by_its_own_user_with_its_own_mechanism() {
    let world = World::with_sessions(Some(60_000));
    for mechanism in BY_PASSWORD {
        let mut peer = Peer::new(&world);
        check_is(&peer.authenticate(mechanism, "alice", PASSWORD), "User:alice");
        assert_eq!(peer.answer().session_lifetime_ms, 60_000);
        for _ in 0..3 {
            peer.now_ms += 50_000;
            assert_eq!(peer.ask(ApiKey::Produce, 9, &[]), SaslStep::Serve);
            check_is(&peer.authenticate(mechanism, "alice", PASSWORD), "User:alice");
            assert_eq!(peer.answer().session_lifetime_ms, 60_000);
        }
        // Also when it is over already.
        peer.now_ms += 1_000_000;
        check_is(&peer.authenticate(mechanism, "alice", PASSWORD), "User:alice");
        assert_eq!(peer.ask(ApiKey::Produce, 9, &[]), SaslStep::Serve);
        peer.now_ms += 60_001;
        assert!(matches!(peer.ask(ApiKey::Produce, 9, &[]), SaslStep::Close(_)));
    }
}

#[test]
fn a_session_is_not_taken_over_by_another_user_or_mechanism() {
    let world = World::with_sessions(Some(60_000));
    let again = |mechanism, user, password: &str| {
        let mut peer = Peer::new(&world);
        peer.authenticate(SHA_256, "alice", PASSWORD);
        peer.now_ms += 2_000;
        peer.begin(mechanism);
        let step = match mechanism {
            SaslMechanism::ScramSha512 => peer.token(format!("n,,n={user},r=abc").as_bytes()),
            _ => peer.log_in(mechanism, user, password),
        };
        let told = peer.answer().error_message.unwrap().to_owned();
        (step, told)
    };
    let (step, told) = again(SHA_256, "bob", "builder");
    check_refused(&step, "another user than before");
    assert!(told.contains("cannot change its principal"), "{told}");
    check_refused(
        &again(SHA_512, "alice", PASSWORD).0,
        "another mechanism than before",
    );
    check_refused(
        &again(SaslMechanism::Plain, "alice", PASSWORD).0,
        "another mechanism than before",
    );
    let (step, told) = again(SHA_256, "alice", "wrong");
    check_refused(&step, "wrong password");
    assert!(
        told.contains("during re-authentication due to invalid credentials"),
        "{told}"
    );
}

#[test]
fn a_connection_authenticates_again_at_most_once_per_second() {
    let world = World::with_sessions(Some(60_000));
    let mut peer = Peer::new(&world);
    peer.authenticate(SHA_256, "alice", PASSWORD);
    peer.authenticate(SHA_256, "alice", PASSWORD);
    peer.now_ms += 999;
    // The handler answers ILLEGAL_SASL_STATE.
    assert_eq!(peer.handshake("SCRAM-SHA-256", 1), SaslStep::Serve);
    peer.now_ms += 1;
    assert_eq!(peer.handshake("SCRAM-SHA-256", 1), SaslStep::Replied);
}

#[test]
fn a_mechanism_that_is_withdrawn_during_an_exchange_authenticates_no_user() {
    let world = World::new();
    let mut without = World::new();
    without
        .settings
        .mechanisms
        .retain(|offered| offered.mechanism.is_scram());
    let mut peer = Peer::new(&world);
    peer.begin(SaslMechanism::Plain);
    peer.world = &without;
    check_refused(&peer.token(b"\0alice\0wonderland"), "no longer offered");
}

/// Any messages in any order: nothing panics, and only proof of a password authenticates.
#[test]
fn random_messages_authenticate_no_user() {
    let world = World::with_sessions(Some(60_000));
    let mut random = Random::new(4);
    let mut refusals = BTreeSet::new();
    for _ in 0..20_000 {
        let mut peer = Peer::new(&world);
        for _ in 0..6 {
            let token = random_token(&mut random);
            let step = match random.below(8) {
                0 => {
                    let mechanism = BY_PASSWORD[random.below(3) as usize];
                    peer.handshake(mechanism.name(), random.below(2) as i16)
                }
                1 => peer.ask(ApiKey::ApiVersions, random.below(5) as i16, &token),
                2 => peer.ask(ApiKey::SaslAuthenticate, random.below(3) as i16, &token),
                3 => peer.ask(ApiKey::SaslHandshake, random.below(2) as i16, &token),
                _ => peer.token(&token),
            };
            match step {
                SaslStep::Authenticated(principal) => panic!("{principal}"),
                SaslStep::Refused(failure) => {
                    refusals.insert(failure.reason);
                }
                _ => {}
            }
        }
    }
    // It came through to the proof.
    assert!(
        refusals.contains("wrong password") && refusals.len() > 10,
        "{refusals:?}"
    );
}

/// A mutated message of either kind.
fn random_token(random: &mut Random) -> Vec<u8> {
    let proof = BASE64.encode([7; 32]);
    let texts = [
        "n,,n=alice,r=abc".to_owned(),
        "n,,n=mallory,r=abc".to_owned(),
        "\0alice\0xyzzyxyzzy".to_owned(),
        "\0mallory\0wonderland".to_owned(),
        format!("c=biws,r=abc,p={proof}"),
    ];
    let mut token = texts[random.below(texts.len() as u64) as usize]
        .clone()
        .into_bytes();
    for _ in 0..random.below(3) {
        let at = random.below(token.len() as u64) as usize;
        match random.below(4) {
            0 => token[at] = random.below(256) as u8,
            1 => token.truncate(at + 1),
            2 => token.insert(at, b",=\0p"[random.below(4) as usize]),
            _ => {}
        }
    }
    token
}
