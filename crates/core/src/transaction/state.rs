//! What a transaction coordinator knows of one transactional id.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::records::batch::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID};

use crate::time::Timestamp;

/// The last epoch that a producer is given. The next one is for fencing it alone.
pub const LAST_EPOCH: i16 = i16::MAX - 1;

/// From this transaction version on every transaction has an epoch of its own (KIP-890).
pub const EPOCH_PER_TRANSACTION: i16 = 2;

/// Topic and partition.
pub type Place = (Arc<str>, i32);

/// Kafka's states, by their codes in the log. Its `Dead` and `PrepareEpochFence` are never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    #[default]
    Empty = 0,
    Ongoing = 1,
    PrepareCommit = 2,
    PrepareAbort = 3,
    CompleteCommit = 4,
    CompleteAbort = 5,
}

impl Status {
    pub const ALL: [Status; 6] = [
        Status::Empty,
        Status::Ongoing,
        Status::PrepareCommit,
        Status::PrepareAbort,
        Status::CompleteCommit,
        Status::CompleteAbort,
    ];

    pub fn from_code(code: i8) -> Option<Status> {
        Status::ALL.into_iter().find(|status| *status as i8 == code)
    }

    pub fn name(self) -> &'static str {
        match self {
            Status::Empty => "Empty",
            Status::Ongoing => "Ongoing",
            Status::PrepareCommit => "PrepareCommit",
            Status::PrepareAbort => "PrepareAbort",
            Status::CompleteCommit => "CompleteCommit",
            Status::CompleteAbort => "CompleteAbort",
        }
    }

    /// The outcome is decided; markers are being written.
    pub fn is_prepared(self) -> bool {
        matches!(self, Status::PrepareCommit | Status::PrepareAbort)
    }

    /// No transaction is open.
    pub fn is_idle(self) -> bool {
        matches!(
            self,
            Status::Empty | Status::CompleteCommit | Status::CompleteAbort
        )
    }

    pub fn prepared(is_commit: bool) -> Status {
        match is_commit {
            true => Status::PrepareCommit,
            false => Status::PrepareAbort,
        }
    }

    pub fn complete(is_commit: bool) -> Status {
        match is_commit {
            true => Status::CompleteCommit,
            false => Status::CompleteAbort,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionState {
    pub producer_id: i64,
    /// The id before the last change of ids; −1: there was none.
    pub previous_producer_id: i64,
    /// While prepared: the id after this transaction, because the epochs of this one are used up.
    pub next_producer_id: i64,
    pub producer_epoch: i16,
    /// Not in the log: the epoch before the last one, which a repeated InitProducerId names.
    pub last_producer_epoch: i16,
    pub timeout_ms: i32,
    pub status: Status,
    pub partitions: BTreeSet<Place>,
    /// When the transaction began; −1 where there was none.
    pub started: Timestamp,
    pub updated: Timestamp,
    /// The transaction version by which the client began or ended it: decides the rule for its
    /// markers.
    pub client_version: i16,
}

impl TransactionState {
    pub fn new(producer_id: i64, timeout_ms: i32, now: Timestamp) -> TransactionState {
        TransactionState {
            producer_id,
            previous_producer_id: NO_PRODUCER_ID,
            next_producer_id: NO_PRODUCER_ID,
            producer_epoch: 0,
            last_producer_epoch: NO_PRODUCER_EPOCH,
            timeout_ms,
            status: Status::Empty,
            partitions: BTreeSet::new(),
            started: Timestamp(-1),
            updated: now,
            client_version: 0,
        }
    }

    /// The epochs of this producer id are used up.
    pub fn is_exhausted(&self) -> bool {
        self.producer_epoch >= LAST_EPOCH
    }

    /// When the open transaction is to be aborted; `None`: none is open, or it never times out
    /// (KIP-939).
    pub fn times_out_at(&self) -> Option<Timestamp> {
        let is_limited = self.status == Status::Ongoing && self.timeout_ms != i32::MAX;
        is_limited.then(|| Timestamp(self.started.0.saturating_add(i64::from(self.timeout_ms))))
    }

    /// The id and epoch after the transaction that is prepared.
    pub fn producer_when_complete(&self) -> (i64, i16) {
        match self.next_producer_id {
            NO_PRODUCER_ID => (self.producer_id, self.producer_epoch),
            next => (next, 0),
        }
    }

    /// The producer that the coordinator serves. While a transaction is prepared that is the one
    /// of the next transaction: its client learns of it as soon as the decision is durable.
    pub fn owner(&self) -> (i64, i16) {
        match self.status.is_prepared() {
            true => self.producer_when_complete(),
            false => (self.producer_id, self.producer_epoch),
        }
    }

    /// Whether this is the producer of the next transaction, under an id that takes effect when the
    /// prepared one is complete.
    pub fn is_of_next_id(&self, producer_id: i64, epoch: i16) -> bool {
        producer_id != self.producer_id && self.status.is_prepared() && self.owner() == (producer_id, epoch)
    }

    /// Ends what is prepared.
    pub fn complete(&mut self, now: Timestamp) {
        assert!(self.status.is_prepared(), "only a decided transaction completes");
        self.status = Status::complete(self.status == Status::PrepareCommit);
        self.partitions.clear();
        self.updated = now;
        if self.next_producer_id != NO_PRODUCER_ID {
            self.previous_producer_id = self.producer_id;
            self.producer_id = self.next_producer_id;
            self.next_producer_id = NO_PRODUCER_ID;
            self.last_producer_epoch = LAST_EPOCH;
            self.producer_epoch = 0;
        }
    }
}
