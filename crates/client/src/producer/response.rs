//! Decides what to do with each batch of a produce response.

use ottla_wire::error_code::ErrorCode;

/// What the sender does with a batch after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is in the log.
    Appended,
    /// Retry, if retries and time allow.
    Retry(Certainty),
    /// A batch before this one is missing in the log (or forgotten), so this one was not appended.
    Gap,
    /// It must be split, or cannot be sent at all.
    TooLarge,
    /// Do not retry.
    Fail(Certainty),
}

/// Whether the batch may be in the log in spite of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    NotAppended,
    MaybeAppended,
}

/// Judges the error code that a response gives for a batch.
///
/// - Source: the errors on which Kafka's broker decides before it appends; all others may come from
///   a leader that has appended and then lost its leadership, its disk or its followers.
pub(super) fn verdict(code: i16) -> Verdict {
    use Certainty::{MaybeAppended, NotAppended};
    let Some(code) = ErrorCode::from_i16(code) else {
        return Verdict::Fail(MaybeAppended);
    };
    match code {
        ErrorCode::None | ErrorCode::DuplicateSequenceNumber => Verdict::Appended,
        ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId => Verdict::Gap,
        ErrorCode::MessageTooLarge => Verdict::TooLarge,
        ErrorCode::NotEnoughReplicas | ErrorCode::CorruptMessage => Verdict::Retry(NotAppended),
        ErrorCode::InvalidRecord
        | ErrorCode::InvalidTimestamp
        | ErrorCode::InvalidTopicException
        | ErrorCode::InvalidRequiredAcks
        | ErrorCode::InvalidRequest
        | ErrorCode::InvalidProducerEpoch
        | ErrorCode::InvalidProducerIdMapping
        | ErrorCode::ProducerFenced
        | ErrorCode::InvalidTxnState
        | ErrorCode::RecordListTooLarge
        | ErrorCode::TopicAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::TransactionalIdAuthorizationFailed
        | ErrorCode::PolicyViolation
        | ErrorCode::UnsupportedCompressionType
        | ErrorCode::UnsupportedForMessageFormat
        | ErrorCode::UnsupportedVersion => Verdict::Fail(NotAppended),
        code if code.is_retriable() => Verdict::Retry(MaybeAppended),
        _ => Verdict::Fail(MaybeAppended),
    }
}

/// Whether the code says that the cluster metadata is outdated.
pub(super) fn is_metadata_outdated(code: i16) -> bool {
    matches!(
        ErrorCode::from_i16(code),
        Some(
            ErrorCode::NotLeaderOrFollower
                | ErrorCode::LeaderNotAvailable
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::UnknownTopicId
                | ErrorCode::InconsistentTopicId
                | ErrorCode::KafkaStorageError
                | ErrorCode::ReplicaNotAvailable
                | ErrorCode::FencedLeaderEpoch
                | ErrorCode::ListenerNotFound
                | ErrorCode::NetworkException
        )
    )
}

/// Whether the code means that no producer with these rights can send anything, so that trying
/// other partitions is useless.
pub(super) fn is_fatal(code: i16) -> bool {
    matches!(
        ErrorCode::from_i16(code),
        Some(
            ErrorCode::ClusterAuthorizationFailed
                | ErrorCode::TransactionalIdAuthorizationFailed
                | ErrorCode::ProducerFenced
                | ErrorCode::UnsupportedVersion
                | ErrorCode::InvalidProducerIdMapping
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_retriable_code_is_retried_and_no_other() {
        for code in ErrorCode::ALL {
            let is_retried = matches!(verdict(code.code()), Verdict::Retry(_));
            assert_eq!(is_retried, code.is_retriable(), "{code}");
        }
    }

    #[test]
    fn a_code_of_a_newer_protocol_fails_the_batch_but_proves_nothing() {
        for code in [-2, 134, i16::MAX, i16::MIN] {
            assert_eq!(verdict(code), Verdict::Fail(Certainty::MaybeAppended));
            assert!(!is_metadata_outdated(code));
            assert!(!is_fatal(code));
        }
    }

    #[test]
    fn an_error_that_may_come_after_the_append_leaves_open_whether_the_batch_is_there() {
        for code in [
            ErrorCode::NotEnoughReplicasAfterAppend,
            ErrorCode::RequestTimedOut,
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::KafkaStorageError,
            ErrorCode::UnknownTopicOrPartition,
        ] {
            assert_eq!(verdict(code.code()), Verdict::Retry(Certainty::MaybeAppended));
        }
        assert_eq!(
            verdict(ErrorCode::NotEnoughReplicas.code()),
            Verdict::Retry(Certainty::NotAppended)
        );
    }
}
