//! Authentication of a connection by SASL (KIP-12, KIP-43, KIP-84, KIP-152, KIP-368): a machine
//! without socket and clock, one for each connection of a listener with SASL.
//!
//! Until a client is authenticated, only three requests are decoded: ApiVersions, SaslHandshake and
//! SaslAuthenticate. Any other closes the connection.
//!
//! Deviations from Apache Kafka: an unknown user of SCRAM gets a challenge like a known one
//! ([`decoy`]); the client's channel-binding header is compared; during authentication any other
//! request closes the connection, where Kafka answers ILLEGAL_SASL_STATE first.
//!
//! Reading order: the modules below, top to bottom.

mod plain;
mod scram;
mod scram_message;
mod oauth;
mod web_token;
pub mod jwk;
pub mod token_keys;
pub mod keys;
pub mod decoy;
pub mod nonce;
pub(crate) mod secret_file;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod oauth_tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_wire::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use ottla_wire::primitives::Reader;

use crate::config::{MechanismSettings, SaslMechanism, SaslSettings, Secret};
use crate::image::access::{ScramCredential, ScramKey};
use crate::request::Request;
use crate::time::{Moment, Timestamp};
use decoy::Decoys;
use nonce::Nonces;
use oauth::OauthExchange;
use scram::ScramExchange;
use token_keys::TokenKeys;

/// The answer to a client that wants to act for another user.
const OTHER_IDENTITY: &str =
    "Authentication failed: Client requested an authorization id that is different from username";

/// KIP-368: a connection may authenticate again once in this time.
const REAUTHENTICATION_MICROS_MIN: u64 = 1_000_000;

/// What only the broker knows.
#[derive(Debug)]
pub struct SaslSecrets {
    pub nonces: Nonces,
    pub decoys: Decoys,
}

/// What the machine is given with each message.
#[derive(Clone, Copy)]
pub struct SaslContext<'a> {
    pub settings: &'a SaslSettings,
    pub credentials: &'a BTreeMap<ScramKey, ScramCredential>,
    pub secrets: &'a SaslSecrets,
    pub token_keys: &'a TokenKeys,
    pub now: Moment,
    /// The same moment on the wall clock, which tokens are compared with.
    pub wall_clock: Timestamp,
}

/// What the connection does with a request.
#[derive(Debug, PartialEq, Eq)]
pub enum SaslStep {
    /// Not a matter of authentication: serve it. Before authentication it is ApiVersions, and
    /// [`SaslServer::answered_api_versions`] must be called unless the answer is an error.
    Serve,
    /// The answer is written.
    Replied,
    /// The answer is written, and from here on the connection belongs to this principal.
    Authenticated(Arc<str>),
    /// Close the connection after `connection.failed.authentication.delay.ms`.
    Refused(SaslFailure),
    /// Close the connection; the reason is for the log.
    Close(String),
}

/// A failed authentication, for the log.
#[derive(Debug, PartialEq, Eq)]
pub struct SaslFailure {
    /// As the client named it.
    pub mechanism: String,
    /// As the client claims.
    pub user: Option<String>,
    pub reason: &'static str,
    /// Whether the answer is written; a client without SaslAuthenticate gets none.
    pub has_answer: bool,
}

/// What a mechanism does with a message.
enum Progress {
    Challenge(Vec<u8>),
    Done {
        answer: Vec<u8>,
        user: String,
        /// How long the proof counts; `None`: without end.
        lives_ms: Option<u64>,
    },
}

/// Why a message does not authenticate its sender.
#[derive(Debug)]
struct Rejection {
    /// What the client is told; `None`: only that its credentials are invalid.
    told: Option<&'static str>,
    /// For the log.
    reason: &'static str,
    user: Option<String>,
}

impl Rejection {
    fn of_message(reason: &'static str) -> Rejection {
        Rejection {
            told: None,
            reason,
            user: None,
        }
    }

    fn told(told: &'static str, reason: &'static str) -> Rejection {
        Rejection {
            told: Some(told),
            reason,
            user: None,
        }
    }

    fn by(self, user: &str) -> Rejection {
        Rejection {
            user: Some(user.to_owned()),
            ..self
        }
    }
}

/// The state of one connection.
pub struct SaslServer {
    state: SaslState,
    /// Of the last successful authentication.
    session: Option<Session>,
    /// When the last re-authentication began.
    began_again: Option<Moment>,
}

enum SaslState {
    /// Nothing was received.
    Initial,
    /// ApiVersions was answered.
    HandshakeOnly,
    /// A mechanism was agreed on.
    Exchange {
        mechanism: SaslMechanism,
        exchange: Exchange,
        framing: Framing,
    },
    Done,
    Refused,
}

enum Exchange {
    Plain,
    Scram(ScramExchange),
    Oauth(OauthExchange),
}

/// How tokens are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// After SaslHandshake version 0: as they are, behind a length.
    Raw,
    /// KIP-152: in SaslAuthenticate.
    Requests,
}

/// Who a connection belongs to, and for how long.
struct Session {
    mechanism: SaslMechanism,
    principal: Arc<str>,
    /// `None`: without end.
    ends: Option<Moment>,
}

impl Default for SaslServer {
    fn default() -> SaslServer {
        SaslServer {
            state: SaslState::Initial,
            session: None,
            began_again: None,
        }
    }
}

impl SaslServer {
    /// Whether the connection has been authenticated, even if it is authenticating again.
    pub fn is_authenticated(&self) -> bool {
        self.session.is_some()
    }

    /// What the connection has been authenticated with.
    pub fn authenticated_by(&self) -> Option<SaslMechanism> {
        self.session.as_ref().map(|session| session.mechanism)
    }

    /// Whether the next frame is a token without a header.
    pub fn takes_token(&self) -> bool {
        matches!(
            self.state,
            SaslState::Exchange {
                framing: Framing::Raw,
                ..
            }
        )
    }

    /// Whether a request must be passed to [`SaslServer::request`]; others are served as usual.
    pub fn concerns(&self, api_key: ApiKey, now: Moment) -> bool {
        !matches!(self.state, SaslState::Done)
            || api_key == ApiKey::SaslHandshake && self.may_begin_again(now)
            || self.is_expired(now)
    }

    /// Takes a request with its header decoded.
    pub fn request(
        &mut self,
        request: &Request<'_>,
        context: &SaslContext<'_>,
        reply: &mut Vec<u8>,
    ) -> SaslStep {
        match (&self.state, request.api_key) {
            (SaslState::Done, ApiKey::SaslHandshake) if self.may_begin_again(context.now) => {
                self.began_again = Some(context.now);
                self.handshake(request, context, reply)
            }
            (SaslState::Done, _) if self.is_expired(context.now) => SaslStep::Close(
                "the session is over: its client did not authenticate again within connections.max.reauth.ms"
                    .to_owned(),
            ),
            (SaslState::Done, _) | (SaslState::Initial, ApiKey::ApiVersions) => SaslStep::Serve,
            (SaslState::Initial | SaslState::HandshakeOnly, ApiKey::SaslHandshake) => {
                self.handshake(request, context, reply)
            }
            (
                SaslState::Exchange {
                    framing: Framing::Requests,
                    ..
                },
                ApiKey::SaslAuthenticate,
            ) => self.authenticate(request, context, reply),
            (_, api_key) => SaslStep::Close(format!(
                "{api_key} is not the request that authentication expects at this point"
            )),
        }
    }

    /// Takes a token that came without a header.
    ///
    /// - Shape: the answer in `reply` is a token, too.
    pub fn token(&mut self, token: &[u8], context: &SaslContext<'_>, reply: &mut Vec<u8>) -> SaslStep {
        match self.next(token, context) {
            Ok(Progress::Challenge(answer)) => {
                reply.extend_from_slice(&answer);
                SaslStep::Replied
            }
            Ok(Progress::Done {
                answer,
                user,
                lives_ms,
            }) => match self.authenticated(&user, lives_ms, context) {
                Ok((principal, _)) => {
                    reply.extend_from_slice(&answer);
                    SaslStep::Authenticated(principal)
                }
                Err(rejection) => self.refused(rejection, false),
            },
            Err(rejection) => self.refused(rejection, false),
        }
    }

    /// Notes that ApiVersions was answered without an error. A client that got one asks again
    /// (KIP-511).
    pub fn answered_api_versions(&mut self) {
        if matches!(self.state, SaslState::Initial) {
            self.state = SaslState::HandshakeOnly;
        }
    }

    fn may_begin_again(&self, now: Moment) -> bool {
        let is_recent = |began: Moment| now.micros_since(began) < REAUTHENTICATION_MICROS_MIN;
        self.session
            .as_ref()
            .is_some_and(|session| session.ends.is_some())
            && !self.began_again.is_some_and(is_recent)
    }

    fn is_expired(&self, now: Moment) -> bool {
        let ends = self.session.as_ref().and_then(|session| session.ends);
        ends.is_some_and(|ends| ends < now)
    }

    fn handshake(
        &mut self,
        request: &Request<'_>,
        context: &SaslContext<'_>,
        reply: &mut Vec<u8>,
    ) -> SaslStep {
        let body = SaslHandshakeRequest::decode(&mut Reader::new(request.body), request.api_version);
        let body = match body {
            Ok(body) => body,
            Err(error) => return SaslStep::Close(format!("SaslHandshake: {error}")),
        };
        let mechanism = SaslMechanism::from_name(body.mechanism)
            .filter(|mechanism| context.settings.mechanism(*mechanism).is_some());
        let code = match mechanism {
            Some(_) => ErrorCode::None,
            None => ErrorCode::UnsupportedSaslMechanism,
        };
        let offered = context.settings.mechanisms.iter();
        SaslHandshakeResponse {
            error_code: code.code(),
            mechanisms: offered.map(|offered| offered.mechanism.name()).collect(),
        }
        .encode(reply, request.api_version);
        let Some(mechanism) = mechanism else {
            self.state = SaslState::Refused;
            return SaslStep::Refused(SaslFailure {
                mechanism: body.mechanism.to_owned(),
                user: None,
                reason: "the mechanism is not in sasl.enabled.mechanisms",
                has_answer: true,
            });
        };
        self.state = SaslState::Exchange {
            mechanism,
            exchange: match mechanism {
                SaslMechanism::Plain => Exchange::Plain,
                SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => {
                    Exchange::Scram(ScramExchange::new(mechanism))
                }
                SaslMechanism::OauthBearer => Exchange::Oauth(OauthExchange::default()),
            },
            framing: match request.api_version {
                0 => Framing::Raw,
                _ => Framing::Requests,
            },
        };
        SaslStep::Replied
    }

    fn authenticate(
        &mut self,
        request: &Request<'_>,
        context: &SaslContext<'_>,
        reply: &mut Vec<u8>,
    ) -> SaslStep {
        let version = request.api_version;
        let body = match SaslAuthenticateRequest::decode(&mut Reader::new(request.body), version) {
            Ok(body) => body,
            Err(error) => return SaslStep::Close(format!("SaslAuthenticate: {error}")),
        };
        let done = match self.next(body.auth_bytes, context) {
            Ok(Progress::Challenge(answer)) => {
                answer_with(&answer, 0).encode(reply, version);
                return SaslStep::Replied;
            }
            Ok(Progress::Done {
                answer,
                user,
                lives_ms,
            }) => self
                .authenticated(&user, lives_ms, context)
                .map(|(principal, session_ms)| (answer, principal, session_ms)),
            Err(rejection) => Err(rejection),
        };
        match done {
            Ok((answer, principal, session_ms)) => {
                answer_with(&answer, session_ms).encode(reply, version);
                SaslStep::Authenticated(principal)
            }
            Err(rejection) => {
                let told = self.told(&rejection);
                SaslAuthenticateResponse {
                    error_code: ErrorCode::SaslAuthenticationFailed.code(),
                    error_message: Some(&told),
                    ..Default::default()
                }
                .encode(reply, version);
                self.refused(rejection, true)
            }
        }
    }

    /// Passes a token to the mechanism.
    fn next(&mut self, token: &[u8], context: &SaslContext<'_>) -> Result<Progress, Rejection> {
        let SaslState::Exchange {
            mechanism, exchange, ..
        } = &mut self.state
        else {
            return Err(Rejection::of_message("a token without a mechanism"));
        };
        if self
            .session
            .as_ref()
            .is_some_and(|session| session.mechanism != *mechanism)
        {
            let told =
                "Authentication failed: re-authentication must use the mechanism of the first authentication";
            return Err(Rejection::told(told, "another mechanism than before"));
        }
        // The settings may have changed since the handshake.
        let no_longer = || Rejection::of_message("the mechanism is no longer offered");
        let settings: &MechanismSettings = context.settings.mechanism(*mechanism).ok_or_else(no_longer)?;
        match exchange {
            Exchange::Plain => {
                let users: &BTreeMap<Arc<str>, Secret> = &settings.users;
                plain::check(token, users).map(|user| Progress::Done {
                    answer: Vec::new(),
                    user,
                    lives_ms: None,
                })
            }
            Exchange::Scram(exchange) => exchange.next(token, context),
            Exchange::Oauth(exchange) => {
                let no_longer = || Rejection::of_message("the mechanism has no settings");
                let settings = settings.oauth.as_ref().ok_or_else(no_longer)?;
                exchange.next(token, settings, context)
            }
        }
    }

    /// Begins the session of a user that has proved to be it; returns its principal and the
    /// session's length.
    ///
    /// - `lives_ms`: how long the proof counts; the session does not outlive it (KIP-368).
    /// - Errors: the connection belongs to another one.
    fn authenticated(
        &mut self,
        user: &str,
        lives_ms: Option<u64>,
        context: &SaslContext<'_>,
    ) -> Result<(Arc<str>, u64), Rejection> {
        let SaslState::Exchange { mechanism, .. } = self.state else {
            return Err(Rejection::of_message("a token without a mechanism"));
        };
        let principal: Arc<str> = format!("User:{user}").into();
        if self
            .session
            .as_ref()
            .is_some_and(|session| session.principal != principal)
        {
            let told = "Authentication failed: a connection cannot change its principal by re-authentication";
            return Err(Rejection::told(told, "another user than before").by(user));
        }
        let session_ms = context
            .settings
            .mechanism(mechanism)
            .and_then(|settings| settings.session_ms);
        let session_ms = session_ms.into_iter().chain(lives_ms).min();
        self.session = Some(Session {
            mechanism,
            principal: principal.clone(),
            ends: session_ms.map(|session_ms| context.now.after_ms(session_ms)),
        });
        self.state = SaslState::Done;
        Ok((principal, session_ms.unwrap_or(0)))
    }

    /// The mechanism that was agreed on.
    fn mechanism(&self) -> &'static str {
        match &self.state {
            SaslState::Exchange { mechanism, .. } => mechanism.name(),
            _ => "",
        }
    }

    fn told(&self, rejection: &Rejection) -> String {
        let phase = if self.is_authenticated() {
            "re-authentication"
        } else {
            "authentication"
        };
        rejection.told.map_or_else(
            || {
                format!(
                    "Authentication failed during {phase} due to invalid credentials with SASL mechanism {}",
                    self.mechanism()
                )
            },
            str::to_owned,
        )
    }

    fn refused(&mut self, rejection: Rejection, has_answer: bool) -> SaslStep {
        let mechanism = self.mechanism().to_owned();
        self.state = SaslState::Refused;
        SaslStep::Refused(SaslFailure {
            mechanism,
            user: rejection.user,
            reason: rejection.reason,
            has_answer,
        })
    }
}

fn answer_with(token: &[u8], session_ms: u64) -> SaslAuthenticateResponse<'_> {
    SaslAuthenticateResponse {
        auth_bytes: token,
        session_lifetime_ms: i64::try_from(session_ms).unwrap_or(i64::MAX),
        ..Default::default()
    }
}
