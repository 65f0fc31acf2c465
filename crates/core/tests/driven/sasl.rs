//! The machine of SASL with requests and tokens of any content in any order. Used by a test and by
//! a fuzz target.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ottla_core::config::{MechanismSettings, OauthSettings, SaslMechanism, SaslSettings, Secret};
use ottla_core::image::access::{ScramCredential, ScramKey};
use ottla_core::random::SecretSeed;
use ottla_core::request::{ConnectionContext, Request};
use ottla_core::sasl::decoy::Decoys;
use ottla_core::sasl::jwk::JsonWebKeys;
use ottla_core::sasl::keys::ScramHash;
use ottla_core::sasl::nonce::Nonces;
use ottla_core::sasl::token_keys::TokenKeys;
use ottla_core::sasl::{SaslContext, SaslSecrets, SaslServer, SaslStep};
use ottla_core::tenant::TenantId;
use ottla_core::time::{Moment, Timestamp};
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_wire::messages::sasl_handshake::SaslHandshakeRequest;
use ottla_wire::primitives::Reader;

/// Random: no script contains it.
const PASSWORD: &str = "5f1d0c2e9b7a4863a4c1";
const USERS: [&str; 3] = ["alice", "nobody", "=2C=3D,"];
/// Larger answers would be an amplifier of what strangers send.
const REPLY_BYTES_MAX: usize = 4_096;

/// Where the keys of tokens are.
const KEYS_URL: &str = "file:///keys";
/// The public key of RFC 7517, A.1, under the id `1`.
const KEYS: &str = r#"{"keys": [{
    "kty": "EC", "kid": "1", "crv": "P-256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"
}]}"#;
/// `{"alg":"ES256","kid":"1"}` and `{"sub":"alice","iat":1,"exp":99999999999}`: only a signature is
/// missing.
const UNSIGNED: &[u8] =
    b"eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJhbGljZSIsImlhdCI6MSwiZXhwIjo5OTk5OTk5OTk5OX0.";

/// What the machine is given.
pub struct World {
    settings: SaslSettings,
    credentials: BTreeMap<ScramKey, ScramCredential>,
    secrets: SaslSecrets,
    token_keys: TokenKeys,
}

impl World {
    pub fn new() -> World {
        let mechanisms = SaslMechanism::ALL.into_iter();
        let settings = mechanisms.clone().map(|mechanism| MechanismSettings {
            mechanism,
            session_ms: Some(60_000),
            users: match mechanism {
                SaslMechanism::Plain => [(Arc::from(USERS[0]), Secret::new(PASSWORD))].into(),
                _ => BTreeMap::new(),
            },
            oauth: (mechanism == SaslMechanism::OauthBearer).then(oauth),
        });
        let settings = settings.collect();
        let scram = mechanisms.filter_map(|mechanism| Some((mechanism, mechanism.scram_code()?)));
        let credentials: BTreeMap<ScramKey, ScramCredential> = scram
            .map(|(mechanism, code)| {
                let hash = ScramHash::of(mechanism);
                let keys = hash.stored_keys(&vec![0xa7; hash.key_bytes()]);
                let key = ScramKey {
                    mechanism: code,
                    user: USERS[0].into(),
                };
                let credential = ScramCredential {
                    salt: b"0123456789abcdefghijklmno"[..].into(),
                    stored_key: keys.stored_key,
                    server_key: keys.server_key,
                    iterations: 4_096,
                };
                (key, credential)
            })
            .collect();
        let token_keys = TokenKeys::default();
        token_keys.put(&KEYS_URL.into(), JsonWebKeys::parse(KEYS).expect("as in the RFC"));
        World {
            settings: SaslSettings {
                mechanisms: settings,
                request_bytes_max: 524_288,
            },
            secrets: SaslSecrets {
                nonces: Nonces::new(SecretSeed([7; 4]), "test"),
                decoys: Decoys::new(b"decoys", &credentials),
            },
            token_keys,
            credentials,
        }
    }
}

fn oauth() -> OauthSettings {
    OauthSettings {
        keys_url: KEYS_URL.into(),
        refresh_ms: 3_600_000,
        retry_ms: (100, 10_000),
        audiences: Vec::new(),
        issuer: None,
        subject_claim: "sub".to_owned(),
        scope_claim: "scope".to_owned(),
        skew_seconds: 30,
    }
}

/// What a run has come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Steps that were answered.
    pub answers: usize,
    /// Of them, challenges of SCRAM.
    pub challenges: usize,
    /// And refusals of tokens.
    pub tokens: usize,
    pub is_refused: bool,
    pub is_closed: bool,
}

struct Run<'a> {
    world: &'a World,
    server: SaslServer,
    now_ms: u64,
    reply: Vec<u8>,
    outcome: Outcome,
}

/// Reads `script` as what a client does that has no password.
///
/// Whatever it does: no panic, no authentication, no answer that is larger than a few kilobytes,
/// and none to what closes the connection.
pub fn drive(world: &World, script: &[u8]) -> Outcome {
    let mut script = script.iter().copied();
    let mut next = move || script.next();
    let mut run = Run {
        world,
        server: SaslServer::default(),
        now_ms: 1_000_000,
        reply: Vec::new(),
        outcome: Outcome::default(),
    };
    while let Some(operation) = next()
        && !run.outcome.is_refused
        && !run.outcome.is_closed
    {
        let upper = operation / 8;
        let mut bytes = |count: u8| -> Vec<u8> { (0..count).map_while(|_| next()).collect() };
        let user = USERS[usize::from(upper) % USERS.len()];
        let step = match operation % 8 {
            0 => {
                let all = ApiKey::ALL;
                let head = bytes(2);
                let api_key = all[usize::from(head.first().copied().unwrap_or(0)) % all.len()];
                let version = i16::from(head.get(1).copied().unwrap_or(0) % 16);
                let body = bytes(upper * 8);
                run.ask(api_key, version, &body)
            }
            1 => {
                let names = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", ""];
                run.handshake(names[usize::from(upper) % names.len()], i16::from(upper % 2))
            }
            2 => run.handshake(&String::from_utf8_lossy(&bytes(upper)), 1),
            3 => run.ask(ApiKey::ApiVersions, i16::from(upper % 5), &bytes(upper)),
            4 => {
                let any = bytes(upper);
                run.token(&[b"\0", user.as_bytes(), b"\0", &any].concat())
            }
            5 => run.token(format!("n,,n={user},r=fyko+d2lbbFgONRv9qkxdawL").as_bytes()),
            6 => {
                let any = bytes(upper);
                run.token(&run.last_message(&any))
            }
            _ => {
                run.now_ms += u64::from(upper);
                let any = bytes(upper * 8);
                let bearer =
                    |token: &[&[u8]]| [b"n,,\x01auth=Bearer ", &token.concat()[..], b"\x01\x01"].concat();
                match upper % 4 {
                    0 => run.token(&bearer(&[UNSIGNED, &any])),
                    1 => run.token(&bearer(&[&any])),
                    _ => run.token(&any),
                }
            }
        };
        run.check(&step);
    }
    run.outcome
}

impl Run<'_> {
    fn context(&self) -> SaslContext<'_> {
        SaslContext {
            settings: &self.world.settings,
            credentials: &self.world.credentials,
            secrets: &self.world.secrets,
            token_keys: &self.world.token_keys,
            now: Moment::from_micros(self.now_ms * 1_000),
            wall_clock: Timestamp(self.now_ms as i64),
        }
    }

    fn ask(&mut self, api_key: ApiKey, api_version: i16, body: &[u8]) -> SaslStep {
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
        let world = self.world;
        let context = SaslContext {
            settings: &world.settings,
            credentials: &world.credentials,
            secrets: &world.secrets,
            token_keys: &world.token_keys,
            ..self.context()
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
        let mut reply = Vec::new();
        let mut server = std::mem::take(&mut self.server);
        let step = server.request(&request, &context, &mut reply);
        (self.server, self.reply) = (server, reply);
        step
    }

    fn handshake(&mut self, mechanism: &str, version: i16) -> SaslStep {
        let mut body = Vec::new();
        SaslHandshakeRequest { mechanism }.encode(&mut body, version);
        self.ask(ApiKey::SaslHandshake, version, &body)
    }

    /// A token as it is expected: with a request around it, or without.
    fn token(&mut self, token: &[u8]) -> SaslStep {
        if !self.server.takes_token() {
            let mut body = Vec::new();
            SaslAuthenticateRequest { auth_bytes: token }.encode(&mut body, 2);
            return self.ask(ApiKey::SaslAuthenticate, 2, &body);
        }
        let mut reply = Vec::new();
        let mut server = std::mem::take(&mut self.server);
        let step = server.token(token, &self.context(), &mut reply);
        (self.server, self.reply) = (server, reply);
        step
    }

    /// A client's last message of SCRAM with the nonce of the challenge, and a proof of `any`
    /// bytes.
    fn last_message(&self, any: &[u8]) -> Vec<u8> {
        let answer = SaslAuthenticateResponse::decode(&mut Reader::new(&self.reply), 2);
        let challenge = answer.map_or(&self.reply[..], |answer| answer.auth_bytes);
        let challenge = String::from_utf8_lossy(challenge);
        let nonce = challenge.split(',').next().unwrap_or_default();
        [b"c=biws,", nonce.as_bytes(), b",p=", any].concat()
    }

    fn check(&mut self, step: &SaslStep) {
        assert!(
            !self.server.is_authenticated(),
            "authenticated without a password"
        );
        assert!(self.reply.len() <= REPLY_BYTES_MAX, "{} bytes", self.reply.len());
        match step {
            // What the connection does with ApiVersions.
            SaslStep::Serve => self.server.answered_api_versions(),
            SaslStep::Replied => {
                self.outcome.answers += 1;
                let is_challenge = self.reply.windows(3).any(|bytes| bytes == b",i=");
                self.outcome.challenges += usize::from(is_challenge);
                let says = |word: &[u8]| self.reply.windows(word.len()).any(|bytes| bytes == word);
                self.outcome.tokens += usize::from(says(b"invalid_token"));
            }
            SaslStep::Authenticated(principal) => panic!("authenticated as {principal}"),
            SaslStep::Refused(_) => self.outcome.is_refused = true,
            SaslStep::Close(_) => {
                assert!(self.reply.is_empty(), "an answer to what closes the connection");
                self.outcome.is_closed = true;
            }
        }
    }
}
