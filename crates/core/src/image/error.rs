//! Why a record cannot be applied.

use std::fmt;

use ottla_wire::primitives::{DecodeError, Uuid};

/// A record that cannot be applied. The broker must stop before any of it is published: otherwise
/// it would serve a cluster that differs from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    Decode(DecodeError),
    UnknownTopic {
        id: Uuid,
    },
    UnknownPartition {
        id: Uuid,
        partition: i32,
    },
    /// A partition number that would leave a gap in its topic.
    PartitionGap {
        id: Uuid,
        partition: i32,
        partition_count: usize,
    },
    /// A second topic under a name that is in use.
    TopicExists {
        name: String,
        id: Uuid,
    },
    UnknownBroker {
        broker_id: i32,
        broker_epoch: i64,
    },
    UnknownResourceType {
        code: i8,
    },
    /// A field with an invalid value.
    Invalid {
        record: &'static str,
        field: &'static str,
        value: i64,
    },
    /// A transaction record that is invalid in its place.
    Transaction {
        reason: &'static str,
    },
    /// A batch that is invalid in a metadata log.
    Batch {
        reason: String,
    },
}

impl From<DecodeError> for ImageError {
    fn from(error: DecodeError) -> ImageError {
        ImageError::Decode(error)
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Decode(error) => write!(f, "metadata record cannot be decoded: {error}"),
            ImageError::UnknownTopic { id } => write!(f, "record for unknown topic {id}"),
            ImageError::UnknownPartition { id, partition } => {
                write!(f, "record for unknown partition {partition} of topic {id}")
            }
            ImageError::PartitionGap {
                id,
                partition,
                partition_count,
            } => {
                write!(
                    f,
                    "partition {partition} of topic {id} leaves a hole behind {partition_count} partitions"
                )
            }
            ImageError::TopicExists { name, id } => write!(f, "topic {name} exists already with id {id}"),
            ImageError::UnknownBroker {
                broker_id,
                broker_epoch,
            } => {
                write!(
                    f,
                    "record for broker {broker_id} epoch {broker_epoch}, which is not registered"
                )
            }
            ImageError::UnknownResourceType { code } => {
                write!(f, "configuration of unknown resource type {code}")
            }
            ImageError::Invalid { record, field, value } => write!(f, "{record}.{field} is {value}"),
            ImageError::Transaction { reason } => write!(f, "metadata transaction: {reason}"),
            ImageError::Batch { reason } => write!(f, "metadata log: {reason}"),
        }
    }
}

impl std::error::Error for ImageError {}
