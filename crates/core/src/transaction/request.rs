//! Requests to a transaction machine, its answers, and its orders to the caller.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::record::TransactionRecord;
use super::state::{Place, TransactionState};
use crate::time::Moment;

pub use crate::coordinator::runtime::Ticket;

/// A request about one transactional id. It may wait inside the machine, so it owns its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Init(InitRequest),
    Add(AddRequest),
    /// Whether partitions belong to the open transaction.
    Verify(AddRequest),
    End(EndRequest),
    Describe(Arc<str>),
    List,
}

/// A producer registers: its predecessor with the same id is fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitRequest {
    pub id: Arc<str>,
    pub timeout_ms: i32,
    /// The id and epoch that the producer has (KIP-360); `None`: it is new.
    pub expected: Option<(i64, i16)>,
    /// When the client stops waiting for an earlier transaction to end.
    pub until: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddRequest {
    pub id: Arc<str>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub partitions: Vec<Place>,
    /// The transaction version that the client's request shows.
    pub client_version: i16,
    pub until: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndRequest {
    pub id: Arc<str>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub is_commit: bool,
    /// The transaction version that the client's request shows.
    pub client_version: i16,
    pub until: Moment,
}

/// Producer id and epoch.
pub type Producer = (i64, i16);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Init(Result<Producer, ErrorCode>),
    Add(Result<(), ErrorCode>),
    /// Parallel to the request's partitions: whether each belongs to the transaction.
    Verify(Result<Vec<bool>, ErrorCode>),
    /// The id and epoch of the producer's next transaction.
    End(Result<Producer, ErrorCode>),
    Describe(Option<TransactionState>),
    List(Vec<(Arc<str>, TransactionState)>),
    /// No producer id is at hand: ask again when there is one.
    NeedsProducerId,
}

/// What the machine wants from the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write markers, then report `Machine::finished`. Idempotent: it may come again after a
    /// restart.
    Finish(Finish),
    /// A time-out needs a producer id soon.
    AllocateProducerIds,
}

/// A decided transaction whose markers are to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    pub id: Arc<str>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub is_commit: bool,
    pub partitions: Vec<Place>,
    pub transaction_version: i8,
}

/// Make `records` durable, then send `replies` and carry out `effects`. The records have been
/// applied already.
#[derive(Debug, Default)]
pub struct Step {
    pub records: Vec<TransactionRecord>,
    pub replies: Vec<(Ticket, Reply)>,
    pub effects: Vec<Effect>,
}
