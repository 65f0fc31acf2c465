//! Authenticates a connection: SaslHandshake, SaslAuthenticate, and again before the session ends
//! (KIP-43, KIP-152, KIP-368). The mechanism determines the content of the messages (sasl/).

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_wire::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use ottla_wire::primitives::{DecodeError, Reader};

use crate::config::SaslSettings;
use crate::error::Error;
use crate::network::backoff::Random;
use crate::network::io::Address;
use crate::network::sasl::{self, Sasl, SaslStep};
use crate::time::Moment;

/// Version 1 leads to SaslAuthenticate; with version 0 the messages would follow without headers.
pub const HANDSHAKE_VERSION: i16 = 1;
/// A session is renewed at a random point between these percentages of its lifetime, as in Kafka's
/// client, so that clients that connected together do not renew together.
const RENEWAL_PERCENT_MIN: u64 = 85;
const RENEWAL_PERCENT_SPREAD: u64 = 10;

/// One exchange in progress.
#[derive(Debug)]
pub struct Authentication {
    sasl: Sasl,
    address: Address,
}

/// What follows a response.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The body of the next SaslAuthenticate.
    Authenticate(Vec<u8>),
    /// `session_ms`: the lifetime of the session; `None`: that of the connection.
    Done { session_ms: Option<u64> },
}

impl Authentication {
    pub fn new(settings: &SaslSettings, address: &Address) -> Authentication {
        Authentication {
            // The only system call of a machine: a predictable nonce would be useless. No decision
            // depends on it.
            sasl: Sasl::new(settings, sasl::nonce()),
            address: address.clone(),
        }
    }

    /// The body of SaslHandshake.
    pub fn handshake(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mechanism = self.sasl.mechanism();
        SaslHandshakeRequest { mechanism }.encode(&mut body, HANDSHAKE_VERSION);
        body
    }

    /// - `version`: of the following SaslAuthenticate.
    /// - Errors: `Authentication` when the broker does not accept the mechanism, `Malformed`.
    pub fn handshake_answered(&mut self, body: &[u8], version: i16) -> Result<Next, Error> {
        let response = SaslHandshakeResponse::decode(&mut Reader::new(body), HANDSHAKE_VERSION)
            .map_err(|error| self.malformed("SaslHandshake", error))?;
        if response.error_code == 0 {
            return self.step(None, None, version);
        }
        let reason = if response.error_code == ErrorCode::UnsupportedSaslMechanism.code() {
            format!(
                "the broker does not accept {}; it accepts {}",
                self.sasl.mechanism(),
                response.mechanisms.join(", ")
            )
        } else if response.error_code == ErrorCode::IllegalSaslState.code() {
            // The answer of a listener without SASL (KIP-43).
            "the port wants no SASL (security.protocol)".to_owned()
        } else {
            code_text(response.error_code)
        };
        Err(self.refused(reason))
    }

    /// - `version`: of the request, and of the next one.
    /// - Errors: `Authentication` with the broker's text, `Malformed`.
    pub fn authenticate_answered(&mut self, body: &[u8], version: i16) -> Result<Next, Error> {
        let response = SaslAuthenticateResponse::decode(&mut Reader::new(body), version)
            .map_err(|error| self.malformed("SaslAuthenticate", error))?;
        if response.error_code != 0 {
            let text = response.error_message.filter(|text| !text.is_empty());
            let text = text.map_or_else(|| code_text(response.error_code), str::to_owned);
            return Err(self.refused(self.sasl.refusal(text)));
        }
        let session_ms = u64::try_from(response.session_lifetime_ms)
            .ok()
            .filter(|ms| *ms > 0);
        self.step(Some(response.auth_bytes), session_ms, version)
    }

    fn step(
        &mut self,
        received: Option<&[u8]>,
        session_ms: Option<u64>,
        version: i16,
    ) -> Result<Next, Error> {
        match self.sasl.next(received) {
            Ok(SaslStep::Done) => Ok(Next::Done { session_ms }),
            Ok(SaslStep::Send(auth_bytes)) => {
                let mut body = Vec::new();
                SaslAuthenticateRequest {
                    auth_bytes: &auth_bytes,
                }
                .encode(&mut body, version);
                Ok(Next::Authenticate(body))
            }
            Err(Error::Authentication { reason, .. }) => Err(self.refused(reason)),
            Err(error) => Err(error),
        }
    }

    fn refused(&self, reason: impl Into<std::sync::Arc<str>>) -> Error {
        Error::Authentication {
            address: self.address.to_string().into(),
            reason: reason.into(),
        }
    }

    fn malformed(&self, api: &str, error: DecodeError) -> Error {
        Error::Malformed {
            address: self.address.to_string().into(),
            reason: format!("{api}: {error}").into(),
        }
    }
}

fn code_text(code: i16) -> String {
    ErrorCode::from_i16(code).map_or_else(|| format!("error code {code}"), |code| code.to_string())
}

/// When a session that begins now must be renewed.
pub fn renewal(now: Moment, session_ms: u64, random: &mut Random) -> Moment {
    let percent = RENEWAL_PERCENT_MIN + random.below(RENEWAL_PERCENT_SPREAD + 1);
    now.after_ms(session_ms / 100 * percent + session_ms % 100 * percent / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OauthSettings, Password, SaslMechanism, TokenSource};

    /// Brokers repeat the text of the mechanism, which does not say what it is about.
    #[test]
    fn the_error_of_a_refused_token_says_that_it_is_about_the_token() {
        const REFUSAL: &str = "{\"status\":\"invalid_token\"}";
        let settings = SaslSettings {
            mechanism: SaslMechanism::OauthBearer,
            username: "".into(),
            password: Password::new(""),
            oauth: Some(OauthSettings {
                source: TokenSource::Inline(Password::new("a.b.c")),
                extensions: Vec::new(),
            }),
        };
        let address = Address {
            host: "broker".into(),
            port: 9093,
        };
        let answer = SaslAuthenticateResponse {
            error_code: ErrorCode::SaslAuthenticationFailed.code(),
            error_message: Some(REFUSAL),
            ..Default::default()
        };
        let mut body = Vec::new();
        answer.encode(&mut body, 2);
        let refused = Authentication::new(&settings, &address).authenticate_answered(&body, 2);
        assert_eq!(
            refused.unwrap_err().to_string(),
            format!("authentication with broker:9093: the broker refused the token: {REFUSAL}")
        );
    }

    #[test]
    fn a_session_is_renewed_shortly_before_its_end() {
        let mut random = Random::new(3);
        for session_ms in [1000, 60_000, 3_600_000] {
            for _ in 0..50 {
                let at =
                    renewal(Moment::from_nanos(0), session_ms, &mut random).ms_since(Moment::from_nanos(0));
                assert!(
                    (session_ms * 85 / 100..=session_ms * 95 / 100).contains(&at),
                    "{at} of {session_ms}"
                );
            }
        }
    }
}
