//! A batch from its first record to its answer.
//!
//! Memory safety by ownership: the memory of a batch (`records`) is a reference-counted slice, and
//! its bytes return to the buffer pool when the last holder is gone: the batch itself, or a frame
//! that a socket has not written completely. A batch that expires while its bytes are still being
//! written keeps them until the write ends or the connection is closed, which rules out the bug
//! class of CVE-2026-35554.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use bytes::Bytes;
use ottla_wire::records::batch::HEADER_BYTES;
use ottla_wire::records::compression::{self, Codec, Compression};
use ottla_wire::records::record::{Header, Payload, RECORD_OVERHEAD_BYTES_MAX, record_bytes};

use super::buffer_pool::{BufferPool, Memory};
use super::callbacks::{CallbackQueue, Finished, RecordCallback};
use super::completion::{BatchCompletion, Placed};
use super::record::{Callback, Record};
use crate::error::Error;
use crate::time::Moment;

/// A closed batch, to which no record is added any more. The accumulator makes it; the sender sends
/// it, with retries.
///
/// The batch's 61-byte header is not part of `records`: the sender encodes it into the request
/// (sequence, producer id, CRC), so that a retry under a new producer epoch changes no shared byte.
#[derive(Debug)]
pub struct SealedBatch {
    pub topic: Arc<str>,
    pub partition: i32,
    /// The records section as sent (compressed when `codec` says so).
    pub records: Bytes,
    pub codec: Codec,
    pub record_count: u32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub uncompressed_bytes: usize,
    pub record_bytes_max: usize,
    /// When its first record arrived: delivery.timeout.ms and linger.ms count from here.
    pub created_at: Moment,
    /// When its last record arrived.
    pub filled_at: Moment,
    pub completion: Arc<BatchCompletion>,
    /// Index in `completion` of the batch's first record (not 0 after a split).
    pub completion_first: u32,
    /// In the order of their records; most batches have none.
    pub callbacks: Vec<RecordCallback>,
    /// The sender's state for this batch.
    pub sending: Sending,
    /// Where the parts of a split batch get their memory and compression level.
    pub(super) origin: Arc<Origin>,
}

/// What the sender remembers of a batch between attempts.
#[derive(Debug, Default)]
pub struct Sending {
    pub attempts: u32,
    /// Set once and kept: a retry needs the same producer id, epoch and sequence, or the broker
    /// cannot detect the duplicate.
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

impl SealedBatch {
    /// Bytes of the batch on the wire, header included.
    pub fn wire_bytes(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// The batch's place among its partition's batches; a retry goes back to it.
    pub(super) fn order(&self) -> (u64, u32) {
        (self.completion.id(), self.completion_first)
    }

    /// Completes the batch's records: wakes their futures, queues their callbacks, releases its
    /// memory.
    pub fn finish(mut self, result: Result<Placed, Error>, callbacks: &CallbackQueue) {
        // Before the result is known: the next send may need exactly this memory.
        self.records = Bytes::new();
        // Callbacks first: a flush that ends with the completion must find them in the queue.
        if !self.callbacks.is_empty() {
            callbacks.push(Finished {
                partition: self.partition,
                first: self.completion_first,
                callbacks: std::mem::take(&mut self.callbacks),
                result: result.clone(),
            });
        }
        let record_count = std::mem::take(&mut self.record_count);
        self.completion
            .complete(self.completion_first, record_count, result);
    }
}

/// A batch that is dropped without a result, for instance by a sender that panicked, still
/// completes its waiters.
impl Drop for SealedBatch {
    fn drop(&mut self) {
        let error = match self.sending.attempts {
            0 => Error::Closed,
            _ => Error::Closed.maybe_written(),
        };
        if self.record_count > 0 {
            self.completion
                .abandon(self.completion_first, self.record_count, &error);
        }
        if let Some(callbacks) = &self.origin.callbacks
            && !self.callbacks.is_empty()
        {
            callbacks.push(Finished {
                partition: self.partition,
                first: self.completion_first,
                callbacks: std::mem::take(&mut self.callbacks),
                result: Err(error),
            });
        }
    }
}

/// What the batches of a topic share.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) topic: Arc<str>,
    pub(super) pool: BufferPool,
    pub(super) compression: Compression,
    pub(super) batch_bytes: usize,
    pub(super) ratio: CompressionRatio,
    /// For batches that are dropped without a result.
    pub(super) callbacks: Option<Arc<CallbackQueue>>,
    /// How many callbacks the last batch had: the next one probably has as many.
    pub(super) callback_count: AtomicUsize,
}

impl Origin {
    pub(super) fn is_compressed(&self) -> bool {
        self.compression.codec != Codec::None
    }
}

/// How well a topic's records compress: compressed by uncompressed bytes, learned from closed
/// batches.
///
/// - Source: Kafka's `CompressionRatioEstimator`: a worse ratio takes effect quickly, a better one
///   slowly.
#[derive(Debug)]
pub(super) struct CompressionRatio {
    bits: AtomicU32,
}

impl CompressionRatio {
    const DETERIORATE_STEP: f32 = 0.05;
    const IMPROVE_STEP: f32 = 0.005;

    pub(super) fn get(&self) -> f32 {
        f32::from_bits(self.bits.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, ratio: f32) {
        self.bits.store(ratio.to_bits(), Ordering::Relaxed);
    }

    /// Two threads that observe at once may lose one observation, as in Kafka.
    fn observe(&self, observed: f32) {
        let current = self.get();
        if observed > current {
            self.set((current + Self::DETERIORATE_STEP).max(observed));
        } else if observed < current {
            self.set((current - Self::IMPROVE_STEP).max(observed));
        }
    }
}

impl Default for CompressionRatio {
    fn default() -> CompressionRatio {
        CompressionRatio {
            bits: AtomicU32::new(1.0f32.to_bits()),
        }
    }
}

/// A record with everything that can be computed before its batch is locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft<'a> {
    record: &'a Record<'a>,
    timestamp: i64,
    payload_bytes: usize,
}

impl<'a> Draft<'a> {
    pub(super) fn new(record: &'a Record<'a>, timestamp: i64) -> Draft<'a> {
        Draft {
            record,
            timestamp,
            payload_bytes: payload(record).byte_count(),
        }
    }

    /// The record's size at most if it is alone in a batch, before compression: the number that
    /// Kafka compares with `max.request.size` and `buffer.memory`.
    pub(super) fn batch_bytes_max(&self) -> usize {
        HEADER_BYTES + RECORD_OVERHEAD_BYTES_MAX + self.payload_bytes
    }

    /// Approximate bytes that the record adds to a batch, before compression.
    pub(super) fn record_bytes(&self) -> usize {
        record_bytes(self.payload_bytes, 0, 0)
    }

    pub(super) fn timestamp(&self) -> i64 {
        self.timestamp
    }
}

fn payload<'a>(
    record: &Record<'a>,
) -> Payload<'a, impl ExactSizeIterator<Item = Header<'a>> + Clone + use<'a>> {
    Payload {
        key: record.key,
        value: record.value,
        headers: record.headers.iter().map(|(key, value)| Header {
            key: key.as_bytes(),
            value: *value,
        }),
    }
}

/// A batch that accepts records.
#[derive(Debug)]
pub(super) struct OpenBatch {
    memory: Memory,
    base_timestamp: i64,
    max_timestamp: i64,
    record_count: u32,
    record_bytes_max: usize,
    pub(super) created_at: Moment,
    filled_at: Moment,
    pub(super) completion: Arc<BatchCompletion>,
    callbacks: Vec<RecordCallback>,
    /// Room to make with the first callback, so that no record grows the list.
    callbacks_expected: usize,
    /// The estimate with Kafka's safety factor, taken when the batch was opened; `None` without
    /// compression.
    ratio: Option<f32>,
    /// Wire bytes, header included, that it should not exceed: batch.size. A larger record is alone
    /// in its batch.
    limit_bytes: usize,
}

/// Uncompressed bytes of a batch are at most this many times its limit, however well it compresses,
/// because its readers must decompress it.
const UNFOLDED_LIMIT: usize = 16;

impl OpenBatch {
    /// - `memory`: at least `first.batch_bytes_max()`.
    pub(super) fn new(
        origin: &Origin,
        completion: Arc<BatchCompletion>,
        mut memory: Memory,
        first: &Draft<'_>,
        now: Moment,
    ) -> OpenBatch {
        /// Kafka's factor on its estimate: COMPRESSION_RATE_ESTIMATION_FACTOR.
        const SAFETY: f32 = 1.05;
        memory.prepare();
        OpenBatch {
            limit_bytes: origin.batch_bytes,
            memory,
            base_timestamp: first.timestamp,
            max_timestamp: first.timestamp,
            record_count: 0,
            record_bytes_max: 0,
            created_at: now,
            filled_at: now,
            completion,
            callbacks: Vec::new(),
            callbacks_expected: origin.callback_count.load(Ordering::Relaxed),
            ratio: origin.is_compressed().then(|| origin.ratio.get() * SAFETY),
        }
    }

    /// Returns the record's index, or `None` when it does not fit any more.
    #[inline]
    pub(super) fn append(&mut self, draft: &Draft<'_>, now: Moment) -> Option<u32> {
        let timestamp_delta = draft.timestamp.wrapping_sub(self.base_timestamp);
        let index = self.record_count;
        let offset_delta = i32::try_from(index).ok()?;
        let bytes = record_bytes(draft.payload_bytes, timestamp_delta, offset_delta);
        if !self.has_room(bytes) {
            return None;
        }
        payload(draft.record).encode(
            draft.payload_bytes,
            timestamp_delta,
            offset_delta,
            &mut self.memory.buffer,
        );
        self.max_timestamp = self.max_timestamp.max(draft.timestamp);
        self.record_bytes_max = self.record_bytes_max.max(bytes);
        self.record_count = index + 1;
        self.filled_at = now;
        Some(index)
    }

    #[inline]
    fn has_room(&mut self, bytes: usize) -> bool {
        let needed_bytes = HEADER_BYTES + self.memory.buffer.len() + bytes;
        if self.record_count == 0 {
            return needed_bytes <= self.memory.reserved_bytes();
        }
        if self.ratio.is_none() {
            return needed_bytes <= self.limit_bytes;
        }
        self.wire_bytes_estimate() + bytes <= self.limit_bytes
            && (needed_bytes <= self.memory.reserved_bytes() || self.unfold(needed_bytes))
    }

    /// Takes more memory for data that will shrink when the batch is closed; doubled, so that each
    /// byte moves once on average.
    #[cold]
    fn unfold(&mut self, needed_bytes: usize) -> bool {
        let reserved_bytes = self.memory.reserved_bytes();
        if needed_bytes > self.limit_bytes.saturating_mul(UNFOLDED_LIMIT) {
            return false;
        }
        let more_bytes = reserved_bytes.max(needed_bytes - reserved_bytes);
        self.memory.grow(more_bytes)
    }

    fn wire_bytes_estimate(&self) -> usize {
        let bytes = self.memory.buffer.len();
        HEADER_BYTES + self.ratio.map_or(bytes, |ratio| (bytes as f32 * ratio) as usize)
    }

    /// Whether nothing more fits, as far as the estimate can tell.
    pub(super) fn is_full(&self) -> bool {
        self.wire_bytes_estimate() >= self.limit_bytes
    }

    pub(super) fn register(&mut self, index: u32, timestamp: i64, callback: Callback) {
        if self.callbacks.is_empty() {
            self.callbacks.reserve_exact(self.callbacks_expected);
        }
        self.callbacks.push(RecordCallback {
            index,
            timestamp,
            callback,
        });
    }

    /// Closes the batch. With a codec this is expensive: do not call it under a lock that `send`
    /// takes.
    pub(super) fn seal(mut self, origin: &Arc<Origin>, partition: i32) -> SealedBatch {
        let uncompressed_bytes = self.memory.buffer.len();
        if origin.is_compressed() {
            compress(origin.compression, &mut self.memory);
            let observed = self.memory.buffer.len() as f32 / uncompressed_bytes as f32;
            origin.ratio.observe(observed);
        }
        self.into_sealed(origin, partition, origin.compression.codec, uncompressed_bytes)
    }

    /// Closes a batch that will not be sent.
    pub(super) fn seal_uncompressed(self, origin: &Arc<Origin>, partition: i32) -> SealedBatch {
        let uncompressed_bytes = self.memory.buffer.len();
        self.into_sealed(origin, partition, Codec::None, uncompressed_bytes)
    }

    fn into_sealed(
        self,
        origin: &Arc<Origin>,
        partition: i32,
        codec: Codec,
        uncompressed_bytes: usize,
    ) -> SealedBatch {
        self.completion.seal(self.record_count);
        if !self.callbacks.is_empty() {
            let count = self.callbacks.len();
            origin.callback_count.store(count, Ordering::Relaxed);
        }
        SealedBatch {
            topic: Arc::clone(&origin.topic),
            partition,
            records: Bytes::from_owner(self.memory),
            codec,
            record_count: self.record_count,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            uncompressed_bytes,
            record_bytes_max: self.record_bytes_max,
            created_at: self.created_at,
            filled_at: self.filled_at,
            completion: self.completion,
            completion_first: 0,
            callbacks: self.callbacks,
            sending: Sending::default(),
            origin: Arc::clone(origin),
        }
    }
}

/// Replaces the content of `memory` by its compressed form.
pub(super) fn compress(compression: Compression, memory: &mut Memory) {
    /// Scratch memory up to this size is kept between batches; a few large batches should not hold
    /// memory forever.
    const KEPT_BYTES_MAX: usize = 1 << 20;
    thread_local! {
        static SCRATCH: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let mut scratch = SCRATCH.try_with(std::cell::RefCell::take).unwrap_or_default();
    scratch.clear();
    compression::compress(compression, &memory.buffer, &mut scratch);
    memory.replace(&scratch);
    if scratch.capacity() <= KEPT_BYTES_MAX {
        // A thread that is ending has no locals any more and needs no scratch memory.
        let _ = SCRATCH.try_with(|kept| kept.replace(scratch));
    }
}
