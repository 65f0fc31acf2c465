//! Why a request is refused, as its client will see it.

use std::borrow::Cow;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::text;

/// Why a request about one thing was refused, with the message that the client shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

impl Refusal {
    /// Creates a refusal.
    ///
    /// - Shape: a `message` beyond [`text::MESSAGE_BYTES_MAX`] is cut, so that a thousand refusals
    ///   do not keep a thousand long names.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        let message = message.into();
        let cut = match text::message(&message) {
            Cow::Borrowed(_) => None,
            Cow::Owned(cut) => Some(cut),
        };
        Refusal {
            code,
            message: cut.unwrap_or(message),
        }
    }

    /// Returns a denial by ACLs, in Apache Kafka's words, which its tools show.
    pub(crate) fn denial(code: ErrorCode) -> Refusal {
        let message = match code {
            ErrorCode::TopicAuthorizationFailed => "Topic authorization failed.",
            ErrorCode::GroupAuthorizationFailed => "Group authorization failed.",
            ErrorCode::ClusterAuthorizationFailed => "Cluster authorization failed.",
            other => other.description(),
        };
        Refusal::new(code, message)
    }

    pub(crate) fn plain(code: ErrorCode) -> Refusal {
        Refusal {
            code,
            message: code.description().to_owned(),
        }
    }
}
