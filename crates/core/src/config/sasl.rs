//! SASL as configured: the mechanisms that a listener offers, and the users of PLAIN.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::oauth::OauthSettings;

/// RFC 5802 and RFC 7677 ask for at least this many iterations of SCRAM, and Kafka's clients refuse
/// fewer.
pub const SCRAM_ITERATIONS_MIN: i32 = 4_096;

/// Kafka's limit: clients compute them, and an operator must not be able to keep them busy.
pub const SCRAM_ITERATIONS_MAX: i32 = 16_384;

/// A SASL mechanism that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SaslMechanism {
    Plain,
    ScramSha256,
    ScramSha512,
    OauthBearer,
}

impl SaslMechanism {
    pub const ALL: [SaslMechanism; 4] = [
        SaslMechanism::Plain,
        SaslMechanism::ScramSha256,
        SaslMechanism::ScramSha512,
        SaslMechanism::OauthBearer,
    ];

    /// The name registered with IANA.
    pub fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
            SaslMechanism::OauthBearer => "OAUTHBEARER",
        }
    }

    pub fn from_name(name: &str) -> Option<SaslMechanism> {
        SaslMechanism::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
    }

    pub fn is_scram(self) -> bool {
        self.scram_code().is_some()
    }

    /// The number in records and requests of SCRAM credentials (KIP-554).
    pub fn scram_code(self) -> Option<i8> {
        match self {
            SaslMechanism::Plain | SaslMechanism::OauthBearer => None,
            SaslMechanism::ScramSha256 => Some(1),
            SaslMechanism::ScramSha512 => Some(2),
        }
    }

    pub fn from_scram_code(code: i8) -> Option<SaslMechanism> {
        SaslMechanism::ALL
            .into_iter()
            .find(|mechanism| mechanism.scram_code() == Some(code))
    }

    pub(super) fn login_module(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => {
                "org.apache.kafka.common.security.scram.ScramLoginModule"
            }
            SaslMechanism::OauthBearer => {
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
            }
        }
    }
}

/// A password; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[hidden]")
    }
}

/// One mechanism that a listener offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MechanismSettings {
    pub mechanism: SaslMechanism,
    /// `connections.max.reauth.ms`; `None`: a session has no end.
    pub session_ms: Option<u64>,
    /// The users of PLAIN; those of SCRAM are records of the metadata log.
    pub users: BTreeMap<Arc<str>, Secret>,
    /// Which tokens count; `None` for other mechanisms than OAUTHBEARER.
    pub oauth: Option<OauthSettings>,
}

/// How clients of a listener with SASL authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslSettings {
    /// In the order of `sasl.enabled.mechanisms`.
    pub mechanisms: Vec<MechanismSettings>,
    /// `sasl.server.max.receive.size`: larger requests close a connection that is not
    /// authenticated.
    pub request_bytes_max: i32,
}

impl SaslSettings {
    pub fn mechanism(&self, mechanism: SaslMechanism) -> Option<&MechanismSettings> {
        self.mechanisms
            .iter()
            .find(|offered| offered.mechanism == mechanism)
    }
}
