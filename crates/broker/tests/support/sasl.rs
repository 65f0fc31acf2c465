//! Requests of SASL as frames, and what their answers say.

use std::io::Read;
use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::api_versions::ApiVersionsRequest;
use ottla_wire::messages::metadata::{MetadataRequest, MetadataResponse};
use ottla_wire::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_wire::messages::sasl_handshake::SaslHandshakeRequest;
use ottla_wire::primitives::Reader;

use super::{frame, receive_from};

pub fn api_versions(correlation_id: i32) -> Vec<u8> {
    let request = ApiVersionsRequest {
        client_software_name: "test",
        client_software_version: "1",
    };
    frame(ApiKey::ApiVersions, 3, correlation_id, |bytes| {
        request.encode(bytes, 3)
    })
}

pub fn handshake(mechanism: &str, version: i16, correlation_id: i32) -> Vec<u8> {
    let request = SaslHandshakeRequest { mechanism };
    frame(ApiKey::SaslHandshake, version, correlation_id, |bytes| {
        request.encode(bytes, version);
    })
}

pub fn authenticate(token: &[u8], correlation_id: i32) -> Vec<u8> {
    let request = SaslAuthenticateRequest { auth_bytes: token };
    frame(ApiKey::SaslAuthenticate, 2, correlation_id, |bytes| {
        request.encode(bytes, 2);
    })
}

/// The message of PLAIN.
pub fn plain(user: &str, password: &str) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

pub fn metadata(correlation_id: i32) -> Vec<u8> {
    let request = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    frame(ApiKey::Metadata, 9, correlation_id, |bytes| {
        request.encode(bytes, 9)
    })
}

/// What a broker says to SaslAuthenticate.
pub struct Outcome {
    pub code: ErrorCode,
    pub message: Option<String>,
    pub token: Vec<u8>,
    pub session_ms: i64,
}

pub fn outcome(stream: &mut impl Read, correlation_id: i32) -> Outcome {
    let body = receive_from(stream, ApiKey::SaslAuthenticate, 2, correlation_id).unwrap();
    let answer = SaslAuthenticateResponse::decode(&mut Reader::new(&body), 2).unwrap();
    Outcome {
        code: ErrorCode::from_i16(answer.error_code).unwrap(),
        message: answer.error_message.map(str::to_owned),
        token: answer.auth_bytes.to_vec(),
        session_ms: answer.session_lifetime_ms,
    }
}

/// Throttle time of an answer to [`metadata`].
pub fn throttle_ms(stream: &mut impl Read, correlation_id: i32) -> i32 {
    let body = receive_from(stream, ApiKey::Metadata, 9, correlation_id).unwrap();
    let answer = MetadataResponse::decode(&mut Reader::new(&body), 9).unwrap();
    assert_eq!(answer.brokers.len(), 1);
    answer.throttle_time_ms
}

/// The client's side of SCRAM (RFC 5802), written from the RFC for this test alone.
pub struct Scram {
    pub mechanism: &'static str,
    user: &'static str,
    password: &'static str,
    /// Of the broker, computed from the password.
    signature: Option<String>,
}

const NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";

impl Scram {
    pub fn new(mechanism: &'static str, user: &'static str, password: &'static str) -> Scram {
        Scram {
            mechanism,
            user,
            password,
            signature: None,
        }
    }

    fn bare(&self) -> String {
        format!("n={},r={NONCE}", self.user)
    }

    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.bare()).into_bytes()
    }

    pub fn last(&mut self, server_first: &[u8]) -> Vec<u8> {
        let server_first = std::str::from_utf8(server_first).unwrap();
        let fields: Vec<&str> = server_first.split(',').collect();
        let [nonce, salt, iterations] = fields[..] else {
            panic!("not a server-first: {server_first}");
        };
        assert!(nonce.starts_with(&format!("r={NONCE}")) && nonce.len() > NONCE.len() + 20);
        let salt = BASE64.decode(salt.strip_prefix("s=").unwrap()).unwrap();
        let iterations = iterations.strip_prefix("i=").unwrap().parse().unwrap();
        let (hmac, digest, pbkdf2) = match self.mechanism {
            "SCRAM-SHA-256" => (hmac::HMAC_SHA256, &digest::SHA256, pbkdf2::PBKDF2_HMAC_SHA256),
            _ => (hmac::HMAC_SHA512, &digest::SHA512, pbkdf2::PBKDF2_HMAC_SHA512),
        };
        let sign = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac, key), text.as_bytes());
        let mut salted = vec![0; digest.output_len()];
        let iterations = NonZeroU32::new(iterations).unwrap();
        pbkdf2::derive(pbkdf2, iterations, &salt, self.password.as_bytes(), &mut salted);
        let client_key = sign(&salted, "Client Key");
        let stored_key = digest::digest(digest, client_key.as_ref());
        let without_proof = format!("c=biws,{nonce}");
        let message = format!("{},{server_first},{without_proof}", self.bare());
        let mask = sign(stored_key.as_ref(), &message);
        let pairs = client_key.as_ref().iter().zip(mask.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, mask)| key ^ mask).collect();
        let server_key = sign(&salted, "Server Key");
        let signature = sign(server_key.as_ref(), &message);
        self.signature = Some(format!("v={}", BASE64.encode(signature)));
        format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes()
    }

    /// Whether the broker has proved to know the user's keys.
    pub fn is_broker_proved(&self, server_final: &[u8]) -> bool {
        self.signature
            .as_ref()
            .is_some_and(|signature| signature.as_bytes() == server_final)
    }
}
