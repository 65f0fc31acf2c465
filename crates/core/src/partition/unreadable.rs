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
    /// Holds one more than the limit once it was said that the others are not listed.
    reported: Mutex<BTreeSet<String>>,
}

/// What to log of a damaged place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Place,
    /// It is the first one that is not listed.
    Limit,
    Nothing,
}

impl Unreadable {
    fn news(&self, place: &str) -> News {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() > PLACES_MAX || !reported.insert(place.to_owned()) {
            News::Nothing
        } else if reported.len() > PLACES_MAX {
            News::Limit
        } else {
            News::Place
        }
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
        match self.unreadable.news(&failure.to_string()) {
            News::Place => error!(topic, partition, error = %failure, "cannot read records"),
            News::Limit => error!(
                topic,
                partition,
                listed = PLACES_MAX,
                "cannot read records in more places: they are not listed"
            ),
            News::Nothing => {}
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
        let places: Vec<String> = (0..PLACES_MAX + 9).map(|index| index.to_string()).collect();
        let news = || {
            let all: Vec<News> = places.iter().map(|place| unreadable.news(place)).collect();
            [News::Place, News::Limit].map(|kind| all.iter().filter(|news| **news == kind).count())
        };
        assert_eq!([news(), news()], [[PLACES_MAX, 1], [0, 0]]);
    }
}
