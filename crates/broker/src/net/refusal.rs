//! Why a connection is closed although its client did not ask for it.

use std::fmt;
use std::time::Duration;

use ottla_wire::api_key::ApiKey;

use super::tls_session::TlsFault;

/// What the first bytes of a frame look like if they are not a Kafka request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookalike {
    Http,
    TlsHello,
    Unknown,
}

impl Lookalike {
    pub fn of(first: [u8; 4]) -> Lookalike {
        match &first {
            b"GET " | b"PUT " | b"POST" | b"HEAD" | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"TRAC"
            | b"PRI " => Lookalike::Http,
            // RFC 8446, 5.1: a handshake record starts with 22, then a legacy version 3.x.
            [0x16, 0x03, 0x00..=0x04, _] => Lookalike::TlsHello,
            _ => Lookalike::Unknown,
        }
    }
}

/// Why the connection is closed. `Display` is the log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed the connection, or the network did; not worth a line.
    Gone,
    /// The client broke the rules of TLS after its handshake.
    Tls(String),
    FrameTooLarge {
        bytes: i32,
        bytes_max: i32,
        lookalike: Lookalike,
    },
    NegativeLength {
        bytes: i32,
        lookalike: Lookalike,
    },
    Header(String),
    UnsupportedApi {
        api_key: i16,
    },
    UnsupportedVersion {
        api: &'static str,
        version: i16,
    },
    Handler(String),
    Panicked {
        api_key: ApiKey,
        api_version: i16,
    },
    Idle(Duration),
    RequestTooSlow(Duration),
    /// Others wait for the memory held by an incomplete request of this many bytes.
    RequestInTheWay(usize),
    ReaderTooSlow(Duration),
    /// Others wait for the memory held by answers of this many bytes.
    ReaderInTheWay(usize),
    ReplyUnreadable(String),
    /// A request that authentication does not expect at this point, or the end of a session.
    NotAuthenticated(String),
    /// The client has been told, and the log, too.
    AuthenticationFailed,
    AuthenticationTooSlow(Duration),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Gone => write!(f, "the peer closed the connection"),
            CloseReason::Tls(reason) => write!(f, "TLS: {reason}"),
            CloseReason::FrameTooLarge {
                lookalike: Lookalike::Http,
                ..
            }
            | CloseReason::NegativeLength {
                lookalike: Lookalike::Http,
                ..
            } => {
                write!(f, "looks like an HTTP request on a Kafka port")
            }
            CloseReason::FrameTooLarge {
                lookalike: Lookalike::TlsHello,
                ..
            }
            | CloseReason::NegativeLength {
                lookalike: Lookalike::TlsHello,
                ..
            } => {
                write!(f, "looks like a TLS handshake on a PLAINTEXT port")
            }
            CloseReason::FrameTooLarge { bytes, bytes_max, .. } => {
                write!(
                    f,
                    "request announces {bytes} bytes, {bytes_max} are allowed (socket.request.max.bytes, or before \
                     authentication sasl.server.max.receive.size)"
                )
            }
            CloseReason::NegativeLength { bytes, .. } => write!(f, "request announces {bytes} bytes"),
            CloseReason::Header(reason) => write!(f, "request header: {reason}"),
            CloseReason::UnsupportedApi { api_key } => write!(f, "api key {api_key} is not supported"),
            CloseReason::UnsupportedVersion { api, version } => {
                write!(f, "{api} version {version} is not supported")
            }
            CloseReason::Handler(reason) => write!(f, "{reason}"),
            CloseReason::Panicked { api_key, api_version } => {
                write!(f, "a bug was hit while serving {api_key} version {api_version}")
            }
            CloseReason::Idle(limit) => write!(f, "idle for more than {} ms", limit.as_millis()),
            CloseReason::RequestTooSlow(limit) => {
                write!(
                    f,
                    "request incomplete {} ms after its first byte",
                    limit.as_millis()
                )
            }
            CloseReason::RequestInTheWay(bytes) => {
                write!(
                    f,
                    "request of {bytes} bytes arrives too slowly while others wait for memory (queued.max.request.bytes)"
                )
            }
            CloseReason::ReaderTooSlow(limit) => {
                write!(f, "took no byte of its replies for {} ms", limit.as_millis())
            }
            CloseReason::ReaderInTheWay(bytes) => {
                write!(
                    f,
                    "answers of {bytes} bytes are read too slowly while others wait for memory (queued.max.request.bytes)"
                )
            }
            CloseReason::ReplyUnreadable(reason) => {
                write!(f, "reply could not be read from the log: {reason}")
            }
            CloseReason::NotAuthenticated(reason) => write!(f, "{reason}"),
            CloseReason::AuthenticationFailed => write!(f, "authentication failed"),
            CloseReason::AuthenticationTooSlow(limit) => {
                write!(
                    f,
                    "not authenticated within {} ms (ottla.authentication.timeout.ms)",
                    limit.as_millis()
                )
            }
        }
    }
}

impl From<TlsFault> for CloseReason {
    fn from(fault: TlsFault) -> CloseReason {
        match fault {
            TlsFault::Gone => CloseReason::Gone,
            TlsFault::Refused(refusal) => CloseReason::Tls(refusal.text),
        }
    }
}

impl CloseReason {
    /// The value of the counter's label.
    pub fn name(&self) -> &'static str {
        match self {
            CloseReason::Gone => "gone",
            CloseReason::Tls(_) => "tls",
            CloseReason::FrameTooLarge { .. } | CloseReason::NegativeLength { .. } => "frame-length",
            CloseReason::Header(_) => "header",
            CloseReason::UnsupportedApi { .. } | CloseReason::UnsupportedVersion { .. } => "unsupported",
            CloseReason::Handler(_) => "request",
            CloseReason::Panicked { .. } => "bug",
            CloseReason::Idle(_) => "idle",
            CloseReason::RequestTooSlow(_) => "request-too-slow",
            CloseReason::RequestInTheWay(_) => "request-in-the-way",
            CloseReason::ReaderTooSlow(_) => "reader-too-slow",
            CloseReason::ReaderInTheWay(_) => "reader-in-the-way",
            CloseReason::ReplyUnreadable(_) => "log-unreadable",
            CloseReason::NotAuthenticated(_) => "not-authenticated",
            CloseReason::AuthenticationFailed => "authentication-failed",
            CloseReason::AuthenticationTooSlow(_) => "authentication-too-slow",
        }
    }

    /// Whether it is worth a log line.
    pub fn is_worth_a_line(&self) -> bool {
        !matches!(
            self,
            CloseReason::Gone | CloseReason::Idle(_) | CloseReason::AuthenticationFailed
        )
    }
}
