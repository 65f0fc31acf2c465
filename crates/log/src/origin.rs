//! Who wrote the batches of an append. It decides what is checked against the state of their
//! producer.

use crate::partition_log::PartitionLog;

/// From this version on every transaction has a producer epoch of its own: its marker raises the
/// epoch, which fences whatever of the transaction arrives late (KIP-890).
const FIRST_VERSION_WITH_OWN_EPOCH: i8 = 2;

/// The writer of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer: epoch and sequence. A transactional batch continues a transaction, or has a
    /// ticket to begin one.
    Client(Option<Ticket>),
    /// A group coordinator that keeps offsets in a producer's transaction: no sequences, otherwise
    /// as a client.
    GroupCoordinator(Option<Ticket>),
    /// A transaction coordinator, or an administrator in its place: a marker.
    TransactionCoordinator { transaction_version: i8 },
    /// Nothing has to be verified: batches of the broker's own, or ones that were verified before.
    Broker,
}

impl Origin {
    pub(crate) fn ticket(self) -> Option<Ticket> {
        match self {
            Origin::Client(ticket) | Origin::GroupCoordinator(ticket) => ticket,
            Origin::TransactionCoordinator { .. } | Origin::Broker => None,
        }
    }

    pub(crate) fn has_sequences(self) -> bool {
        !matches!(self, Origin::GroupCoordinator(_))
    }

    pub(crate) fn is_verified(self) -> bool {
        matches!(self, Origin::Broker)
    }

    /// Whether a marker must have an epoch of its own. For markers written before, as in a log that
    /// is replayed, the version is not known.
    pub(crate) fn has_own_epoch(self) -> bool {
        matches!(self, Origin::TransactionCoordinator { transaction_version }
            if transaction_version >= FIRST_VERSION_WITH_OWN_EPOCH)
    }
}

/// What a transactional batch needs to begin a transaction in a partition (KIP-890): taken before
/// the transaction coordinator is asked, so that a marker written between question and append is
/// noticed. The batch would otherwise begin a transaction that nothing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) log_end: i64,
    pub(crate) begins_at_zero: bool,
}

impl PartitionLog {
    /// Returns a ticket that is good until a marker of its producer is appended.
    ///
    /// - `begins_at_zero`: a producer that the log does not know must begin with sequence 0. So do
    ///   those of transaction version 2; before, retention may have removed what one wrote.
    pub fn ticket(&self, begins_at_zero: bool) -> Ticket {
        Ticket {
            log_end: self.end_offset(),
            begins_at_zero,
        }
    }

    /// Whether the producer has an open transaction at this epoch.
    pub fn has_open_transaction(&self, producer_id: i64, producer_epoch: i16) -> bool {
        self.producers.has_open_transaction(producer_id, producer_epoch)
    }
}
