//! OAUTHBEARER with tokens that the test itself signs.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use super::jwk::JsonWebKeys;
use super::web_token::{self, Fault};
use super::*;
use crate::config::OauthSettings;
use crate::random::SecretSeed;
use crate::request::ConnectionContext;
use crate::tenant::TenantId;

const NOW: i64 = 1_700_000_000;

/// An identity provider with a key of each kind.
struct Provider {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
}

impl Provider {
    fn new() -> Provider {
        Provider {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            ec: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
        }
    }

    fn rsa_modulus(&self) -> String {
        // RSAPublicKey (RFC 8017, A.1.1): a sequence of two numbers, each with its head.
        BASE64.encode(&self.rsa.public_key().as_ref()[9..9 + 256])
    }

    fn published(&self) -> Value {
        let point = self.ec.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|field| BASE64.encode(field));
        json!({"keys": [
            {"kty": "oct", "kid": "symmetric", "k": "AAAA"},
            {"kty": "RSA", "kid": "rsa", "use": "sig", "n": self.rsa_modulus(), "e": "AQAB"},
            {"kty": "EC", "kid": "ec", "crv": "P-256", "x": x, "y": y},
            {"kty": "RSA", "kid": "secret", "use": "enc", "n": self.rsa_modulus(), "e": "AQAB"},
        ]})
    }

    fn keys(&self) -> JsonWebKeys {
        JsonWebKeys::parse(&self.published().to_string()).unwrap()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = [header, claims]
            .map(|part| BASE64.encode(part.to_string()))
            .join(".");
        let random = SystemRandom::new();
        let rsa = |padding: &'static dyn aws_lc_rs::signature::RsaEncoding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa
                .sign(padding, &random, signed.as_bytes(), &mut signature)
                .unwrap();
            signature
        };
        let signature = match header["alg"].as_str() {
            Some("RS256") => rsa(&RSA_PKCS1_SHA256),
            Some("PS256") => rsa(&RSA_PSS_SHA256),
            Some("ES256") => self
                .ec
                .sign(&random, signed.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
            _ => Vec::new(),
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "RS256", "kid": "rsa"}), claims)
    }
}

fn settings() -> OauthSettings {
    OauthSettings {
        keys_url: "file:///keys".into(),
        refresh_ms: 1,
        retry_ms: (1, 1),
        audiences: vec!["kafka".to_owned(), "ottla".to_owned()],
        issuer: Some("https://issuer.example".to_owned()),
        subject_claim: "sub".to_owned(),
        scope_claim: "scope".to_owned(),
        skew_seconds: 30,
    }
}

fn claims() -> Value {
    json!({
        "sub": "alice", "iss": "https://issuer.example", "aud": "kafka",
        "iat": NOW - 10, "exp": NOW + 600, "scope": "a b",
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

#[test]
fn tokens_of_every_algorithm_are_verified_by_the_published_keys() {
    let provider = Provider::new();
    for (algorithm, key) in [("RS256", "rsa"), ("PS256", "rsa"), ("ES256", "ec")] {
        for header in [json!({"alg": algorithm, "kid": key}), json!({"alg": algorithm})] {
            let token = provider.sign(&header, &claims());
            let found = web_token::verify(&token, &provider.keys(), &settings(), NOW).unwrap();
            assert_eq!((&*found.user, found.expires), ("alice", NOW + 600), "{header}");
        }
    }
}

#[test]
fn a_token_that_no_private_key_has_signed_is_refused() {
    let provider = Provider::new();
    let check = |token: &str, reason: &str| {
        let fault = web_token::verify(token, &provider.keys(), &settings(), NOW).unwrap_err();
        assert!(fault.reason().contains(reason), "{token}: {fault:?}");
    };
    let stranger = Provider::new();
    check(&stranger.token(&claims()), "signature is wrong");
    let is_ec = json!({"alg": "ES256", "kid": "ec"});
    check(&stranger.sign(&is_ec, &claims()), "signature is wrong");
    // Not signed, or with a public key as if it were a shared secret.
    for algorithm in ["none", "None", "HS256", "HS512", "RS257", ""] {
        let header = json!({"alg": algorithm, "kid": "rsa"});
        check(&provider.sign(&header, &claims()), "not signed with");
    }
    check(&provider.sign(&json!({"kid": "rsa"}), &claims()), "no algorithm");
    let critical = json!({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": false});
    check(&provider.sign(&critical, &claims()), "critical");
    // A key of another kind, for another use, or unknown; a path is a name like any other.
    for key in ["ec", "secret", "symmetric", "../../etc/passwd", ""] {
        let header = json!({"alg": "RS256", "kid": key});
        let fault = web_token::verify(
            &provider.sign(&header, &claims()),
            &provider.keys(),
            &settings(),
            NOW,
        );
        assert_eq!(fault, Err(Fault::UnknownKey), "{key}");
    }
    let numbered = json!({"alg": "RS256", "kid": 7});
    check(&provider.sign(&numbered, &claims()), "key id");
    // Any change of a valid one.
    let token = provider.token(&claims());
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        let result = web_token::verify(&changed, &provider.keys(), &settings(), NOW);
        assert!(result.is_err(), "{changed}");
    }
    for broken in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        &token[1..],
        &format!("{token}.x"),
        &format!("{token}="),
    ] {
        assert!(
            web_token::verify(broken, &provider.keys(), &settings(), NOW).is_err(),
            "{broken}"
        );
    }
    check(&"a".repeat(70_000), "64 KiB");
}

#[test]
fn the_claims_decide_when_and_for_whom_a_token_counts() {
    let provider = Provider::new();
    let verify = |claims: &Value| {
        web_token::verify(&provider.token(claims), &provider.keys(), &settings(), NOW)
            .map_err(|fault| fault.reason())
    };
    let check = |name: &str, value: Value, reason: &str| {
        let result = verify(&with(name, value.clone()));
        assert!(
            result.as_ref().is_err_and(|found| found.contains(reason)),
            "{name} {value}: {result:?}"
        );
    };
    let fits =
        |name: &str, value: Value| assert!(verify(&with(name, value.clone())).is_ok(), "{name} {value}");
    fits("exp", json!(NOW - 29));
    check("exp", json!(NOW - 30), "expired");
    check("exp", Value::Null, "when it expires");
    check("exp", json!("soon"), "no number");
    check("exp", json!(-1), "no number");
    check("exp", json!(1e300), "no number");
    fits("exp", json!(NOW as f64 + 0.5));
    fits("nbf", json!(NOW + 30));
    check("nbf", json!(NOW + 31), "not valid yet");
    check("iat", Value::Null, "issued");
    check("iss", Value::Null, "issuer");
    check("iss", json!("https://issuer.example/"), "issuer");
    check("aud", Value::Null, "audience");
    check("aud", json!("other"), "audience");
    check("aud", json!(["other"]), "audience");
    fits("aud", json!(["other", "ottla"]));
    fits("scope", Value::Null);
    fits("scope", json!(["a", "b"]));
    check("scope", json!(1), "scope");
    check("scope", json!([1]), "scope");
    for missing in [Value::Null, json!(""), json!("  "), json!(1), json!(["alice"])] {
        check("sub", missing, "names no user");
    }
    let own = OauthSettings {
        subject_claim: "email".to_owned(),
        audiences: Vec::new(),
        issuer: None,
        ..settings()
    };
    let claims = json!({"email": "a@b.c", "iat": NOW, "exp": NOW + 1});
    let found = web_token::verify(&provider.token(&claims), &provider.keys(), &own, NOW).unwrap();
    assert_eq!(found.user, "a@b.c");
}

#[test]
fn what_is_no_key_set_is_refused_by_its_reader() {
    let problem = |text: &str| JsonWebKeys::parse(text).unwrap_err();
    assert!(problem("<html>").contains("not JSON"));
    assert!(problem("{}").contains("no list of keys"));
    assert!(problem("{\"keys\": []}").contains("no key"));
    let symmetric = json!({"keys": [{"kty": "oct", "k": "AAAA"}]}).to_string();
    assert!(problem(&symmetric).contains("among 1"));
    let point = json!({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}).to_string();
    assert!(problem(&point).contains("among 1"));
    assert!(problem(&"[".repeat(100_000)).contains("not JSON"));
    let provider = Provider::new();
    assert_eq!(provider.keys().len(), 2);
}

/// A connection, and the keys that its broker knows.
struct Peer {
    server: SaslServer,
    settings: SaslSettings,
    secrets: SaslSecrets,
    token_keys: TokenKeys,
    credentials: BTreeMap<ScramKey, ScramCredential>,
    now_ms: u64,
    reply: Vec<u8>,
}

impl Peer {
    fn new(provider: &Provider) -> Peer {
        let offered = MechanismSettings {
            mechanism: SaslMechanism::OauthBearer,
            session_ms: None,
            users: BTreeMap::new(),
            oauth: Some(settings()),
        };
        let token_keys = TokenKeys::default();
        token_keys.put(&"file:///keys".into(), provider.keys());
        let mut peer = Peer {
            server: SaslServer::default(),
            settings: SaslSettings {
                mechanisms: vec![offered],
                request_bytes_max: 524_288,
            },
            secrets: SaslSecrets {
                nonces: Nonces::new(SecretSeed([7; 4]), "test"),
                decoys: Decoys::new(b"decoys", &BTreeMap::new()),
            },
            token_keys,
            credentials: BTreeMap::new(),
            now_ms: NOW as u64 * 1_000,
            reply: Vec::new(),
        };
        peer.begin();
        peer
    }

    fn begin(&mut self) {
        let mut body = Vec::new();
        let mechanism = "OAUTHBEARER";
        SaslHandshakeRequest { mechanism }.encode(&mut body, 1);
        assert_eq!(self.ask(ApiKey::SaslHandshake, 1, &body), SaslStep::Replied);
    }

    fn ask(&mut self, api_key: ApiKey, api_version: i16, body: &[u8]) -> SaslStep {
        let connection = ConnectionContext {
            connection_id: 1,
            peer_address: std::net::Ipv4Addr::LOCALHOST.into(),
            peer_port: 1,
            listener_name: "SASL_SSL".into(),
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
            received: Moment::from_micros(self.now_ms * 1_000),
        };
        let context = SaslContext {
            settings: &self.settings,
            credentials: &self.credentials,
            secrets: &self.secrets,
            token_keys: &self.token_keys,
            now: request.received,
            wall_clock: Timestamp(self.now_ms as i64),
        };
        self.reply.clear();
        self.server.request(&request, &context, &mut self.reply)
    }

    fn send(&mut self, message: &[u8]) -> SaslStep {
        let mut body = Vec::new();
        let auth_bytes = message;
        SaslAuthenticateRequest { auth_bytes }.encode(&mut body, 2);
        self.ask(ApiKey::SaslAuthenticate, 2, &body)
    }

    fn answer(&self) -> SaslAuthenticateResponse<'_> {
        SaslAuthenticateResponse::decode(&mut Reader::new(&self.reply), 2).unwrap()
    }
}

fn message(token: &str) -> Vec<u8> {
    format!("n,,\x01auth=Bearer {token}\x01\x01").into_bytes()
}

#[test]
fn a_valid_token_authenticates_for_as_long_as_it_counts() {
    let provider = Provider::new();
    let mut peer = Peer::new(&provider);
    let token = provider.token(&claims());
    assert_eq!(
        peer.send(&message(&token)),
        SaslStep::Authenticated("User:alice".into())
    );
    assert_eq!(peer.answer().session_lifetime_ms, 600_000);
    // Again before its end, by a newer token, which may be cut by connections.max.reauth.ms.
    peer.settings.mechanisms[0].session_ms = Some(1_000);
    peer.now_ms += 500_000;
    peer.begin();
    let newer = provider.token(&with("exp", json!(NOW + 1_100)));
    assert_eq!(
        peer.send(&message(&newer)),
        SaslStep::Authenticated("User:alice".into())
    );
    assert_eq!(peer.answer().session_lifetime_ms, 1_000);
    peer.now_ms += 1_001;
    assert!(matches!(peer.ask(ApiKey::Metadata, 9, &[]), SaslStep::Close(_)));
    // Not by another user's.
    let mut peer = Peer::new(&provider);
    peer.send(&message(&token));
    peer.now_ms += 2_000;
    peer.begin();
    let bob = provider.token(&with("sub", json!("bob")));
    assert!(matches!(peer.send(&message(&bob)), SaslStep::Refused(_)));
}

#[test]
fn a_client_with_an_invalid_token_is_told_and_then_refused() {
    let provider = Provider::new();
    let expired = provider.token(&with("exp", json!(NOW - 100)));
    for last in [&b"\x01"[..], b"", &message(&provider.token(&claims()))] {
        let mut peer = Peer::new(&provider);
        assert_eq!(peer.send(&message(&expired)), SaslStep::Replied);
        assert_eq!(peer.answer().error_code, 0);
        assert_eq!(peer.answer().auth_bytes, b"{\"status\":\"invalid_token\"}");
        let SaslStep::Refused(failure) = peer.send(last) else {
            panic!("not refused")
        };
        assert_eq!(failure.reason, "the token has expired");
        assert_eq!(
            peer.answer().error_code,
            ErrorCode::SaslAuthenticationFailed.code()
        );
    }
}

#[test]
fn a_token_with_an_unknown_key_makes_the_keys_be_fetched() {
    let provider = Provider::new();
    let mut peer = Peer::new(&provider);
    peer.send(&message(&provider.token(&with("exp", json!(1)))));
    assert_eq!(peer.token_keys.missed(), 0);
    let mut peer = Peer::new(&provider);
    let unknown = json!({"alg": "RS256", "kid": "new"});
    peer.send(&message(&provider.sign(&unknown, &claims())));
    assert_eq!(peer.token_keys.missed(), 1);
    let mut peer = Peer::new(&provider);
    peer.token_keys = TokenKeys::default();
    peer.send(&message(&provider.token(&claims())));
    let SaslStep::Refused(failure) = peer.send(b"\x01") else {
        panic!("not refused")
    };
    assert!(failure.reason.contains("not known yet"));
}

#[test]
fn messages_follow_the_grammar() {
    let provider = Provider::new();
    let token = provider.token(&claims());
    let send = |text: &str| Peer::new(&provider).send(text.as_bytes());
    for right in [
        format!("n,a=alice,\x01auth=Bearer {token}\x01\x01"),
        format!("n,,\x01auth=bearer  {token} \x01\x01"),
        format!("n,,\x01host=h\x01auth=Bearer {token}\x01traceId=a=b\x01\x01"),
    ] {
        assert_eq!(
            send(&right),
            SaslStep::Authenticated("User:alice".into()),
            "{right:?}"
        );
    }
    for wrong in [
        String::new(),
        token.clone(),
        format!("y,,\x01auth=Bearer {token}\x01\x01"),
        format!("n,\x01auth=Bearer {token}\x01\x01"),
        format!("n,b=alice,\x01auth=Bearer {token}\x01\x01"),
        format!("n,a=bob,\x01auth=Bearer {token}\x01\x01"),
        format!("n,a=,\x01auth=Bearer {token}\x01\x01"),
        format!("n,,auth=Bearer {token}\x01\x01"),
        format!("n,,\x01auth=Bearer {token}\x01"),
        format!("n,,\x01auth=Bearer {token}"),
        format!("n,,\x01auth=Basic {token}\x01\x01"),
        format!("n,,\x01auth={token}\x01\x01"),
        format!("n,,\x01auth=Bearer {token}\x01auth=Bearer {token}\x01\x01"),
        format!("n,,\x01auth=Bearer {token}\x01novalue\x01\x01"),
        format!("n,,\x01auth=Bearer {token}\x01=x\x01\x01"),
        "n,,\x01\x01".to_owned(),
        "n,,\x01".to_owned(),
        format!("n,,\x01auth=Bearer {}\x01\x01", "a".repeat(90_000)),
    ] {
        assert!(matches!(send(&wrong), SaslStep::Refused(_)), "{wrong:?}");
    }
    assert!(matches!(
        Peer::new(&provider).send(b"n,,\x01auth=Bearer \xff\x01\x01"),
        SaslStep::Refused(_)
    ));
}
