//! Damaged places that readers of a partition ran into: each is logged once, however often clients
//! retry.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use ottla_log::{LogError, ReadError};
use ottla_wire::error_code::ErrorCode;
use tracing::error;

use super::Partition;

/// At most this many damaged places of a log are reported.
const PLACES_MAX: usize = 64;

/// The places reported since the partition was opened.
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
    /// Returns the error code for a failed read, and logs what the operator must know.
    pub fn read_failed(&self, failure: &ReadError) -> ErrorCode {
        match failure {
            ReadError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Log(failure) => self.cannot_read(failure),
        }
    }

    /// The same for bytes that were found but turned out to be unreadable.
    pub fn cannot_read(&self, failure: &LogError) -> ErrorCode {
        let (topic, partition) = (&*self.topic, self.index);
        if self.unreadable.is_news(&failure.to_string()) {
            error!(topic, partition, error = %failure, "cannot read records");
        }
        match failure {
            // As Apache Kafka answers: the client can skip the damage, while a retry would not
            // help.
            LogError::Corrupt { .. } => ErrorCode::CorruptMessage,
            _ => ErrorCode::KafkaStorageError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_damaged_place_is_reported_once_and_not_very_many_are() {
        let unreadable = Unreadable::default();
        let places: Vec<String> = (0..=PLACES_MAX).map(|index| index.to_string()).collect();
        let news = || places.iter().filter(|place| unreadable.is_news(place)).count();
        assert_eq!([news(), news()], [PLACES_MAX, 0]);
    }
}
