//! What a partition's readers met that cannot be read: said once each, however often clients ask again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use ottla_log::{LogError, ReadError};
use ottla_wire::error_code::ErrorCode;
use tracing::error;

use super::Partition;

/// A log with more damaged places than this has told enough.
const PLACES_MAX: usize = 64;

/// The places that were reported since the partition was opened.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    reported: Mutex<BTreeSet<String>>,
}

impl Unreadable {
    fn is_news(&self, place: &str) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.len() < PLACES_MAX && reported.insert(place.to_owned())
    }
}

impl Partition {
    /// The answer to a read that failed; what the operator must know of it is logged.
    pub fn read_failed(&self, failure: &ReadError) -> ErrorCode {
        match failure {
            ReadError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Log(failure) => self.cannot_read(failure),
        }
    }

    /// The same for bytes that were found, and turned out not to be readable.
    pub fn cannot_read(&self, failure: &LogError) -> ErrorCode {
        let (topic, partition) = (&*self.topic, self.index);
        if self.unreadable.is_news(&failure.to_string()) {
            error!(topic, partition, error = %failure, "cannot read records");
        }
        match failure {
            // As Apache Kafka answers: the client can go on behind the damage, where asking again would not help.
            LogError::Corrupt { .. } => ErrorCode::CorruptMessage,
            _ => ErrorCode::KafkaStorageError,
        }
    }
}
