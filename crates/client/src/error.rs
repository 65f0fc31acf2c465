//! The errors of this client, with the numbers needed to understand them.

use std::fmt;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use crate::producer::DeliveryStatus;

/// Why a call of this client failed. Cheap to clone: each record of a failed batch gets a copy.
///
/// `is_retriable` and `is_fatal` make Kafka's distinction: retriable, final for this call, final
/// for this client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The broker answered with an error code; `what` names the topic, partition or group.
    Broker {
        /// The code.
        code: ErrorCode,
        /// What failed, for example a topic, partition or group.
        what: Arc<str>,
    },
    /// The broker answered with an error code that this client does not know (a newer protocol).
    UnknownCode {
        /// The code.
        code: i16,
        /// What failed, for example a topic, partition or group.
        what: Arc<str>,
    },
    /// A setting's value is unknown, malformed or out of range; the text is Kafka's.
    Config {
        /// The setting.
        key: Arc<str>,
        /// One sentence.
        message: Arc<str>,
    },
    /// `what` was not done within `limit_ms`, the limit set by `setting`.
    Timeout {
        /// What failed, for example a topic, partition or group.
        what: Arc<str>,
        /// How long was waited.
        limit_ms: u64,
        /// The setting with the limit.
        setting: &'static str,
    },
    /// No metadata response contained the topic within max.block.ms; `trouble` is the reason, where
    /// it is known.
    TopicNotPresent {
        /// The topic's name.
        topic: Arc<str>,
        /// How long was waited.
        limit_ms: u64,
        /// Why no answer came.
        trouble: Option<Arc<Error>>,
    },
    /// The topic exists, but had too few partitions for all of max.block.ms.
    PartitionNotPresent {
        /// The topic's name.
        topic: Arc<str>,
        /// Counted from 0.
        partition: i32,
        /// How many it had.
        partition_count: usize,
        /// How long was waited.
        limit_ms: u64,
    },
    /// A record is larger than `setting` allows.
    RecordTooLarge {
        /// The size of the record.
        bytes: usize,
        /// The largest size allowed.
        limit_bytes: usize,
        /// The setting with the limit.
        setting: &'static str,
    },
    /// `buffer.memory` had no room for the record within `max.block.ms`.
    BufferExhausted {
        /// What the record needs.
        wanted_bytes: usize,
        /// `buffer.memory`.
        buffer_bytes: usize,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The name of a topic, group or similar that Kafka would refuse.
    InvalidArgument {
        /// One sentence.
        message: Arc<str>,
    },
    /// A serializer, deserializer or interceptor refused the record.
    Serialization {
        /// One sentence.
        message: Arc<str>,
    },
    /// The connection to this address failed or was lost; `reason` is the operating system's text.
    Disconnected {
        /// Host and port.
        address: Arc<str>,
        /// The cause, as text.
        reason: Arc<str>,
    },
    /// No host of `bootstrap.servers` resolves to an address.
    Resolve {
        /// The name.
        host: Arc<str>,
        /// The cause, as text.
        reason: Arc<str>,
    },
    /// TLS: a certificate is expired, not trusted, or issued for another name. Not retriable.
    Tls {
        /// Host and port.
        address: Arc<str>,
        /// The cause, as text.
        reason: Arc<str>,
    },
    /// SASL: wrong password, unknown mechanism. Not retriable.
    Authentication {
        /// Host and port.
        address: Arc<str>,
        /// The cause, as text.
        reason: Arc<str>,
    },
    /// The broker supports no version of this API that this client supports.
    UnsupportedVersion {
        /// Kafka's name of the API.
        api: &'static str,
        /// The latest version that the broker supports.
        broker_max: i16,
        /// The earliest version that this client can use.
        needed_min: i16,
    },
    /// The broker's answer violates the protocol: a wrong correlation id, an impossible size.
    Malformed {
        /// Host and port.
        address: Arc<str>,
        /// The cause, as text.
        reason: Arc<str>,
    },
    /// A fetched batch's checksum does not match, or its records cannot be decoded.
    CorruptBatch {
        /// The topic's name.
        topic: Arc<str>,
        /// Counted from 0.
        partition: i32,
        /// Where, counted in records.
        offset: i64,
        /// The cause, as text.
        reason: Arc<str>,
    },
    /// The call came after `close`, or `close` ended the wait.
    Closed,
    /// The consumer has no position for this partition and `auto.offset.reset` is `none`.
    NoOffset {
        /// The topic's name.
        topic: Arc<str>,
        /// Counted from 0.
        partition: i32,
    },
    /// The leader's log diverges from what this consumer has read before its position (KIP-320),
    /// and `auto.offset.reset` is `none`.
    LogTruncated {
        /// The topic's name.
        topic: Arc<str>,
        /// Counted from 0.
        partition: i32,
        /// Where, counted in records.
        offset: i64,
        /// The offset at which the logs diverge; `None` when the leader does not know.
        divergent_offset: Option<i64>,
    },
    /// The record was not sent, or was sent and taken back: its transaction was aborted.
    TransactionAborted,
    /// `wakeup` ended a `poll`.
    Wakeup,
    /// The member has lost its place in the group, and another member now commits for its
    /// partitions. Not retriable; the next `poll` rejoins the group.
    CommitFailed {
        /// The cause, as text.
        reason: Arc<str>,
    },
    /// This build of the crate lacks a cargo feature; `what` is what would need it. Not retriable.
    MissingFeature {
        /// The feature.
        feature: Feature,
        /// What failed, for example a topic, partition or group.
        what: Arc<str>,
    },
    /// The call does not fit the client's state, for instance `subscribe` after `assign`.
    IllegalState {
        /// One sentence.
        message: Arc<str>,
    },
    /// A record was given up because of `cause` after a request with it was sent, and no answer
    /// has said that the broker did not append it. See [`DeliveryStatus::MaybeWritten`].
    MaybeWritten {
        /// Why the record was given up.
        cause: Arc<Error>,
    },
}

/// A cargo feature of this crate; all are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// TLS, and SASL's SCRAM.
    Tls,
    /// The codec zstd.
    Zstd,
    /// Pushed metrics (KIP-714).
    Telemetry,
    /// Tokens of OAUTHBEARER from a server.
    Oauth,
}

impl Feature {
    /// Its name in `Cargo.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Tls => "tls",
            Feature::Zstd => "zstd",
            Feature::Telemetry => "telemetry",
            Feature::Oauth => "oauth",
        }
    }

    /// Whether this build has it.
    pub fn is_built(self) -> bool {
        match self {
            Feature::Tls => cfg!(feature = "tls"),
            Feature::Zstd => cfg!(feature = "zstd"),
            Feature::Telemetry => cfg!(feature = "telemetry"),
            Feature::Oauth => cfg!(feature = "oauth"),
        }
    }

    /// What a refusal says: `this build of ottla-client lacks the cargo feature NAME`.
    pub(crate) fn missing(self) -> String {
        format!(
            "this build of ottla-client lacks the cargo feature {}",
            self.name()
        )
    }
}

impl Error {
    pub(crate) fn missing_feature(feature: Feature, what: impl Into<Arc<str>>) -> Error {
        Error::MissingFeature {
            feature,
            what: what.into(),
        }
    }

    /// An answer with this code.
    pub fn broker(code: ErrorCode, what: impl Into<Arc<str>>) -> Error {
        Error::Broker {
            code,
            what: what.into(),
        }
    }

    /// The error for an error code of a response; `None` for 0.
    pub fn from_code(code: i16, what: impl FnOnce() -> Arc<str>) -> Option<Error> {
        match ErrorCode::from_i16(code) {
            Some(ErrorCode::None) => None,
            Some(code) => Some(Error::Broker { code, what: what() }),
            None => Some(Error::UnknownCode { code, what: what() }),
        }
    }

    /// What failed, without the delivery status: the cause of `MaybeWritten`, else this error.
    pub fn cause(&self) -> &Error {
        match self {
            Error::MaybeWritten { cause } => cause.cause(),
            error => error,
        }
    }

    /// Whether the record of a failed `send` is in the log in spite of the error.
    ///
    /// ```
    /// use ottla_client::Error;
    /// use ottla_client::producer::DeliveryStatus;
    ///
    /// assert_eq!(Error::Closed.delivery_status(), DeliveryStatus::NotWritten);
    /// ```
    pub fn delivery_status(&self) -> DeliveryStatus {
        match self {
            Error::MaybeWritten { .. } => DeliveryStatus::MaybeWritten,
            _ => DeliveryStatus::NotWritten,
        }
    }

    /// Adds that the record may be in the log.
    pub(crate) fn maybe_written(self) -> Error {
        match self {
            Error::MaybeWritten { .. } => self,
            error => Error::MaybeWritten {
                cause: Arc::new(error),
            },
        }
    }

    /// Whether the same call may succeed later without any change by the caller.
    ///
    /// False for a record that may have been written: sending it again could write it twice.
    pub fn is_retriable(&self) -> bool {
        match self {
            Error::Broker { code, .. } => code.is_retriable(),
            Error::Timeout { .. }
            | Error::TopicNotPresent { .. }
            | Error::PartitionNotPresent { .. }
            | Error::BufferExhausted { .. }
            | Error::Disconnected { .. } => true,
            _ => false,
        }
    }

    /// Whether a transaction in which this error came can only be aborted (KIP-1050). The producer
    /// is usable afterwards.
    pub fn needs_abort(&self) -> bool {
        !self.needs_new_producer()
            && !self.is_transaction_fatal()
            && !matches!(self, Error::IllegalState { .. })
    }

    /// Whether the transactional id is another producer's now, or its coordinator has ended the
    /// transaction or forgotten the producer (KIP-1050, "application recoverable"). Reset
    /// the positions of what was consumed, and make a new producer or call
    /// [`TransactionalProducer::init`](crate::producer::TransactionalProducer::init) again.
    pub fn needs_new_producer(&self) -> bool {
        matches!(
            self.cause(),
            Error::Broker {
                code: ErrorCode::ProducerFenced
                    | ErrorCode::InvalidProducerEpoch
                    | ErrorCode::InvalidProducerIdMapping
                    | ErrorCode::InvalidTxnState,
                ..
            }
        )
    }

    /// Whether no transaction with this id can succeed before something outside is changed.
    fn is_transaction_fatal(&self) -> bool {
        match self.cause() {
            Error::Broker { code, .. } => matches!(
                code,
                ErrorCode::TransactionalIdAuthorizationFailed
                    | ErrorCode::ClusterAuthorizationFailed
                    | ErrorCode::InvalidTransactionTimeout
                    | ErrorCode::UnsupportedVersion
            ),
            Error::UnsupportedVersion { .. } | Error::Closed | Error::Config { .. } => true,
            _ => false,
        }
    }

    /// Whether this client is unusable from now on and must be replaced by a new one.
    pub fn is_fatal(&self) -> bool {
        match self {
            Error::Broker { code, .. } => matches!(
                code,
                ErrorCode::InvalidProducerEpoch
                    | ErrorCode::ProducerFenced
                    | ErrorCode::TransactionalIdAuthorizationFailed
                    | ErrorCode::ClusterAuthorizationFailed
                    | ErrorCode::FencedInstanceId
                    | ErrorCode::UnsupportedVersion
            ),
            Error::Authentication { .. } | Error::Tls { .. } | Error::Closed | Error::Config { .. } => true,
            Error::MaybeWritten { cause } => cause.is_fatal(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Broker { code, what } => write!(f, "{what}: {}: {}", code.name(), code.description()),
            Error::UnknownCode { code, what } => {
                write!(f, "{what}: the broker answered with unknown error code {code}")
            }
            Error::Config { message, .. } => write!(f, "{message}"),
            Error::Timeout {
                what,
                limit_ms,
                setting,
            } => {
                write!(f, "{what} not done after {limit_ms} ms ({setting})")
            }
            Error::TopicNotPresent {
                topic,
                limit_ms,
                trouble,
            } => {
                write!(f, "topic {topic} not present in metadata after {limit_ms} ms")?;
                match trouble {
                    Some(trouble) => write!(f, " ({trouble})"),
                    None => Ok(()),
                }
            }
            Error::PartitionNotPresent {
                topic,
                partition,
                partition_count,
                limit_ms,
            } => write!(
                f,
                "partition {partition} of topic {topic} with partition count {partition_count} is not present in metadata after {limit_ms} ms"
            ),
            Error::RecordTooLarge {
                bytes,
                limit_bytes,
                setting,
            } => {
                write!(
                    f,
                    "the record takes {bytes} bytes, more than the {limit_bytes} bytes that {setting} allows"
                )
            }
            Error::BufferExhausted {
                wanted_bytes,
                buffer_bytes,
                waited_ms,
            } => write!(
                f,
                "no {wanted_bytes} bytes free in buffer.memory ({buffer_bytes} bytes) after {waited_ms} ms (max.block.ms)"
            ),
            Error::InvalidArgument { message }
            | Error::Serialization { message }
            | Error::IllegalState { message } => {
                write!(f, "{message}")
            }
            Error::Disconnected { address, reason } => write!(f, "connection to {address}: {reason}"),
            Error::Resolve { host, reason } => write!(f, "host {host} cannot be resolved: {reason}"),
            Error::Tls { address, reason } => write!(f, "TLS with {address}: {reason}"),
            Error::Authentication { address, reason } => write!(f, "authentication with {address}: {reason}"),
            Error::UnsupportedVersion {
                api,
                broker_max,
                needed_min,
            } => {
                write!(
                    f,
                    "the broker speaks {api} up to version {broker_max}, this client from version {needed_min}"
                )
            }
            Error::Malformed { address, reason } => {
                write!(f, "{address} answered outside the protocol: {reason}")
            }
            Error::CorruptBatch {
                topic,
                partition,
                offset,
                reason,
            } => {
                write!(
                    f,
                    "batch at offset {offset} of {topic}-{partition} is corrupt: {reason}"
                )
            }
            Error::Closed => write!(f, "the client is closed"),
            Error::NoOffset { topic, partition } => {
                write!(
                    f,
                    "no committed offset for {topic}-{partition} and auto.offset.reset is none"
                )
            }
            Error::MissingFeature { feature, what } => write!(f, "{what}: {}", feature.missing()),
            Error::CommitFailed { reason } => write!(f, "offsets were not committed: {reason}"),
            Error::LogTruncated {
                topic,
                partition,
                offset,
                divergent_offset,
            } => {
                write!(
                    f,
                    "the log of {topic}-{partition} was truncated below offset {offset}"
                )?;
                match divergent_offset {
                    Some(divergent) => write!(f, ": it differs from offset {divergent} on"),
                    None => Ok(()),
                }
            }
            Error::TransactionAborted => write!(f, "the transaction was aborted"),
            Error::Wakeup => write!(f, "woken up"),
            Error::MaybeWritten { cause } => write!(f, "{cause}; the record may be in the log"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Broker { code, .. } => Some(code),
            Error::TopicNotPresent {
                trouble: Some(trouble),
                ..
            } => Some(trouble),
            Error::MaybeWritten { cause } => Some(cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn what_may_be_written_is_not_retriable_and_keeps_its_cause() {
        let timeout = Error::Timeout {
            what: "delivery".into(),
            limit_ms: 5,
            setting: "delivery.timeout.ms",
        };
        assert!(timeout.is_retriable());
        assert_eq!(timeout.delivery_status(), DeliveryStatus::NotWritten);
        let maybe = timeout.clone().maybe_written();
        assert!(!maybe.is_retriable() && !maybe.is_fatal());
        assert_eq!(maybe.delivery_status(), DeliveryStatus::MaybeWritten);
        assert_eq!(maybe.cause(), &timeout);
        assert_eq!(
            maybe.to_string(),
            "delivery not done after 5 ms (delivery.timeout.ms); the record may be in the log"
        );
        assert_eq!(maybe.clone().maybe_written(), maybe, "it is said once");
        assert!(Error::Closed.maybe_written().is_fatal());
    }

    #[test]
    fn the_source_of_a_missing_topic_is_the_trouble_behind_it() {
        let refused = Error::broker(ErrorCode::TopicAuthorizationFailed, "orders");
        let missing = Error::TopicNotPresent {
            topic: "orders".into(),
            limit_ms: 60_000,
            trouble: Some(Arc::new(refused.clone())),
        };
        let source = missing.source().unwrap();
        assert_eq!(source.to_string(), refused.to_string());
        let code = source.source().unwrap().downcast_ref::<ErrorCode>();
        assert_eq!(code, Some(&ErrorCode::TopicAuthorizationFailed));
        assert!(Error::Closed.source().is_none());
    }
}
