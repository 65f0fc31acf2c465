//! A batch from its first record to its answer.
//!
//! Ownership is the rule that no code can forget: the memory of a batch (`records`) is a counted slice; its bytes return to the
//! buffer pool when the last holder is gone: the batch itself, or a frame that a socket has not taken completely. A
//! batch that expired while its bytes were still being written keeps them until the write ends or the connection is
//! closed (the bug class of CVE-2026-35554 cannot be written).

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::records::compression::Codec;

use super::completion::BatchCompletion;
use super::record::Callback;
use crate::time::Moment;

/// A closed batch: no record is added any more. The accumulator makes it, the sender sends it, as often as needed.
///
/// The batch's 61-byte header is not part of `records`: the sender encodes it into the request (sequence, producer id, CRC), so that
/// a retry after a new producer epoch changes no shared byte.
#[derive(Debug)]
pub struct SealedBatch {
    pub topic: Arc<str>,
    pub partition: i32,
    /// The records section as it goes on the wire (compressed when `codec` says so).
    pub records: Bytes,
    pub codec: Codec,
    pub record_count: u32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub uncompressed_bytes: usize,
    pub record_bytes_max: usize,
    /// When its first record came: delivery.timeout.ms and linger.ms count from here.
    pub created_at: Moment,
    /// When its last record came.
    pub filled_at: Moment,
    pub completion: Arc<BatchCompletion>,
    /// The batch's first record is this one of `completion` (not 0 after a split).
    pub completion_first: u32,
    /// With the record's index in `completion`, ascending; most batches have none.
    pub callbacks: Vec<(u32, Callback)>,
    /// The sender's notes.
    pub sending: Sending,
}

/// What the sender remembers of a batch between attempts.
#[derive(Debug, Default)]
pub struct Sending {
    pub attempts: u32,
    /// Set once and kept: a retry has the same producer id, epoch and sequence, or the broker cannot see that it is one.
    pub sequence: Option<Sequence>,
    pub retry_not_before: Option<Moment>,
    pub first_sent_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}
