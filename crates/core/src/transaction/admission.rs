//! The question of the produce path: may this producer write to these partitions in its
//! transaction?
//!
//! The transaction coordinator answers it. The question may wait: for the coordinator's log, or for
//! the end of the producer's previous transaction.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::access::granted::{OwnedGrant, TransactionalId};
use crate::refusal::Refusal;
use crate::services::Services;
use crate::storage::Storage;
use crate::time::Moment;

/// A write to partitions in which the producer has no open transaction at its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionalWrite {
    pub transactional_id: OwnedGrant<TransactionalId>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Topic and partition.
    pub partitions: Vec<(Arc<str>, i32)>,
    pub question: Question,
    /// When the client stops waiting.
    pub deadline: Moment,
}

/// What the coordinator is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the partitions belong to the transaction (Produce up to 11, TxnOffsetCommit up to 4:
    /// the client has added them).
    Verify,
    /// To add them (Produce from 12 on, TxnOffsetCommit from 5 on: KIP-890). The answer must not
    /// come before the addition is durable: otherwise a power cut could leave an open transaction
    /// in a partition that no coordinator knows of.
    Add,
}

/// Decides about transactional writes.
pub trait WriteGate: Send + Sync {
    /// Whether writes of clients that add their partitions themselves are verified
    /// (`transaction.partition.verification.enable`).
    fn verifies(&self, _: &Storage) -> bool {
        true
    }

    /// Begins to decide.
    fn admit(&self, storage: &Storage, write: TransactionalWrite) -> Box<dyn Admission>;
}

/// A decision that may take a while. Dropping it withdraws the question; what was added stays
/// added.
pub trait Admission: Send {
    /// Returns the decision about each partition, parallel to `TransactionalWrite::partitions`, or
    /// registers `waker`. Registration must come before the last check, so that no wake-up is lost.
    ///
    /// - Errors: the codes of AddPartitionsToTxn. TRANSACTION_ABORTABLE: the partition is not part
    ///   of the transaction. CONCURRENT_TRANSACTIONS: the previous one took too long to end.
    fn poll(&mut self, services: &Services, waker: &Waker) -> Poll<Vec<Result<(), Refusal>>>;

    /// When to poll again even without a wake-up.
    fn deadline(&self) -> Option<Moment> {
        None
    }
}
