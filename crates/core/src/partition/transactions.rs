//! Transactions in one partition: tickets for transactional batches, and the markers that end them.

use std::sync::Arc;

use ottla_log::{AppendError, LogError, Origin, Ticket};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::records::control::TransactionMarker;

use super::{Appended, Partition};
use crate::services::Services;

/// What a producer needs to write to a partition in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub ticket: Ticket,
    /// The producer has a transaction open here, at its epoch: the coordinator need not be asked.
    pub is_open: bool,
}

impl Partition {
    /// Takes a ticket for a transactional write. Take it before the transaction coordinator is
    /// asked.
    ///
    /// - `begins_at_zero`: see `PartitionLog::ticket`.
    pub fn enter_transaction(&self, producer_id: i64, producer_epoch: i16, begins_at_zero: bool) -> Entry {
        self.with_log(|log| Entry {
            ticket: log.ticket(begins_at_zero),
            is_open: log.has_open_transaction(producer_id, producer_epoch),
        })
    }

    /// Whether the producer has a transaction open here, at this epoch.
    pub fn has_open_transaction(&self, producer_id: i64, producer_epoch: i16) -> bool {
        self.with_log(|log| log.has_open_transaction(producer_id, producer_epoch))
    }

    /// Appends the marker that ends a producer's transaction here. It is durable, and readers are
    /// told, when the high watermark has passed `last_offset` of the result
    /// (`wait_for_high_watermark`). Without an open transaction it has no effect on readers.
    ///
    /// - `transaction_version`: from 2 on the marker must have an epoch of its own (KIP-890).
    /// - Errors: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED: the partition knows a
    ///   newer producer or coordinator. KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
    pub fn append_marker(
        self: &Arc<Self>,
        services: &Services,
        marker: TransactionMarker,
        transaction_version: i8,
    ) -> Result<Appended, ErrorCode> {
        let bytes = marker.to_batch(0, 0, services.clock.timestamp().0);
        let origin = Origin::TransactionCoordinator { transaction_version };
        let appended = self.append_built(services, origin, &bytes);
        appended.map_err(|error| self.refusal_code(&error))
    }

    /// Appends offsets that a group coordinator keeps in a producer's transaction: transactional
    /// batches with its id and epoch, without sequences.
    ///
    /// - `ticket`: taken before the transaction coordinator was asked.
    pub fn append_offsets(
        self: &Arc<Self>,
        services: &Services,
        ticket: Ticket,
        batches: &[u8],
    ) -> Result<Appended, AppendError> {
        self.append_built(services, Origin::GroupCoordinator(Some(ticket)), batches)
    }

    /// Returns what a client is told about a refused append.
    pub fn refusal_code(&self, error: &AppendError) -> ErrorCode {
        if self.is_deleted() {
            return ErrorCode::UnknownTopicOrPartition;
        }
        match error {
            AppendError::Log(LogError::Corrupt { .. }) => ErrorCode::CorruptMessage,
            AppendError::Log(_) => ErrorCode::KafkaStorageError,
            AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            AppendError::InvalidTransactionState { .. } => ErrorCode::InvalidTxnState,
            AppendError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            AppendError::InvalidBatch { .. } => ErrorCode::InvalidRecord,
        }
    }
}
