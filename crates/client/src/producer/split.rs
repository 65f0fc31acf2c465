//! Splits a batch that the broker finds too large (KIP-126).

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::records::batch::{
    BatchHeader, HEADER_BYTES, MAGIC, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE,
};
use ottla_wire::records::compression::{self, Codec};
use ottla_wire::records::record::{HeaderIter, Payload, Record, Records, record_bytes};

use super::batch::{SealedBatch, Sending, compress};
use super::buffer_pool::Memory;

impl SealedBatch {
    /// Splits the batch into parts of at most `target_bytes` before compression, unless a single
    /// record is larger; at least two parts when there are two records. Each part keeps its
    /// records' futures and callbacks; the caller assigns sequences.
    ///
    /// From now on the topic's batches are filled as if compression gained nothing, as in Kafka.
    pub fn split(mut self, target_bytes: usize) -> Vec<SealedBatch> {
        let mut plain = Vec::new();
        compression::decompress(self.codec, &self.records, self.uncompressed_bytes, &mut plain)
            .expect("this client compressed it");
        // The refused bytes are no longer needed; do not hold their memory beside that of the
        // parts.
        self.records = Bytes::new();
        self.origin.ratio.set(1.0);
        let header = self.header();
        let target_bytes = target_bytes
            .min(HEADER_BYTES + plain.len().div_ceil(2))
            .saturating_sub(HEADER_BYTES);
        let mut parts = Vec::new();
        let mut part: Option<Part> = None;
        for record in Records::new(&header, &plain) {
            let record = record.expect("this client encoded it");
            let is_taken = part
                .as_mut()
                .is_some_and(|part| part.append(&record, target_bytes));
            if !is_taken {
                parts.extend(part.take().map(|part| part.seal(&mut self)));
                let memory = self
                    .origin
                    .pool
                    .take_anyway(self.origin.batch_bytes.max(target_bytes));
                part = Some(Part::new(memory, &record));
            }
        }
        parts.extend(part.map(|part| part.seal(&mut self)));
        debug_assert!(self.callbacks.is_empty(), "every callback belongs to a part");
        // From here on the parts complete the records.
        self.record_count = 0;
        parts
    }

    fn header(&self) -> BatchHeader {
        let count = i32::try_from(self.record_count).expect("indices are offset deltas");
        BatchHeader {
            base_offset: 0,
            batch_length: 0,
            leader_epoch: NO_LEADER_EPOCH,
            magic: MAGIC,
            crc: 0,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            record_count: count,
        }
    }
}

/// A part that is being filled.
struct Part {
    memory: Memory,
    base_timestamp: i64,
    max_timestamp: i64,
    record_count: u32,
    record_bytes_max: usize,
    /// The first record's index in the batch that is split.
    first: u32,
}

impl Part {
    fn new(mut memory: Memory, first: &Record<'_>) -> Part {
        memory.prepare();
        let mut part = Part {
            memory,
            base_timestamp: first.timestamp,
            max_timestamp: first.timestamp,
            record_count: 0,
            record_bytes_max: 0,
            first: u32::try_from(first.offset).expect("offsets count from 0 here"),
        };
        let is_taken = part.append(first, usize::MAX);
        assert!(is_taken, "without a limit every record fits");
        part
    }

    fn append(&mut self, record: &Record<'_>, limit_bytes: usize) -> bool {
        let payload: Payload<'_, HeaderIter<'_>> = Payload {
            key: record.key,
            value: record.value,
            headers: record.headers.iter(),
        };
        let payload_bytes = payload.byte_count();
        let timestamp_delta = record.timestamp.wrapping_sub(self.base_timestamp);
        let offset_delta =
            i32::try_from(self.record_count).expect("a part has no more records than the whole");
        let bytes = record_bytes(payload_bytes, timestamp_delta, offset_delta);
        let used_bytes = self.memory.buffer.len();
        if used_bytes.saturating_add(bytes) > limit_bytes {
            return false;
        }
        payload.encode(
            payload_bytes,
            timestamp_delta,
            offset_delta,
            &mut self.memory.buffer,
        );
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.record_bytes_max = self.record_bytes_max.max(bytes);
        self.record_count += 1;
        true
    }

    fn seal(mut self, whole: &mut SealedBatch) -> SealedBatch {
        let uncompressed_bytes = self.memory.buffer.len();
        if whole.codec != Codec::None {
            compress(whole.origin.compression, &mut self.memory);
        }
        let completion_first = whole.completion_first + self.first;
        let end = completion_first + self.record_count;
        let own = whole.callbacks.partition_point(|record| record.index < end);
        let later = whole.callbacks.split_off(own);
        SealedBatch {
            topic: Arc::clone(&whole.topic),
            partition: whole.partition,
            records: Bytes::from_owner(self.memory),
            codec: whole.codec,
            record_count: self.record_count,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            uncompressed_bytes,
            record_bytes_max: self.record_bytes_max,
            created_at: whole.created_at,
            filled_at: whole.filled_at,
            completion: Arc::clone(&whole.completion),
            completion_first,
            callbacks: std::mem::replace(&mut whole.callbacks, later),
            sending: Sending {
                attempts: whole.sending.attempts,
                first_sent_at: whole.sending.first_sent_at,
                ..Sending::default()
            },
            origin: Arc::clone(&whole.origin),
        }
    }
}
