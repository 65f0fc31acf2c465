//! The produce request: small parts that are built here, and the batches' records as they are, shared and not copied.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::primitives::{
    Uuid, put_count, put_i16, put_i32, put_nullable_string, put_string, put_uuid, put_uvarint,
};
use ottla_wire::produce::{is_flexible, uses_topic_ids};
use ottla_wire::records::batch::{
    BatchHeader, CRC_START, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE,
};
use ottla_wire::records::compression::Codec;
use ottla_wire::records::crc32c;

use super::batch::SealedBatch;

/// The lowest version with record batches of format 2, which is all this client writes.
pub(super) const VERSION_MIN: i16 = ottla_wire::produce::VERSION_MIN;

/// The first version that may carry zstd (KIP-110).
pub(super) const ZSTD_VERSION_MIN: i16 = 7;

/// The last version that names topics.
pub(super) const NAMES_VERSION_MAX: i16 = 12;

/// What one element costs besides its records, at most: index, length, the header, tagged fields.
const PARTITION_BYTES: usize = 4 + 5 + HEADER_BYTES + 1;
/// Transactional id, acks, timeout, counts, tagged fields.
const REQUEST_BYTES: usize = 2 + 2 + 4 + 5 + 1;
/// Length or id, count of partitions, tagged fields; without the name.
const TOPIC_BYTES: usize = 16 + 5 + 1;

/// One partition's part of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub topic_id: Uuid,
    pub batch: &'a SealedBatch,
}

/// The version a batch needs at least.
pub(super) fn needed_version(codec: Codec) -> i16 {
    match codec {
        Codec::Zstd => ZSTD_VERSION_MIN,
        Codec::None | Codec::Gzip | Codec::Snappy | Codec::Lz4 => VERSION_MIN,
    }
}

/// Encodes the body of a request.
///
/// - Shape: entries of one topic lie together; no partition twice.
pub(super) fn encode(version: i16, acks: i16, timeout_ms: i32, entries: &[Entry<'_>]) -> Vec<Bytes> {
    let flexible = is_flexible(version);
    let names: usize = entries.iter().map(|entry| entry.batch.topic.len()).sum();
    let capacity = REQUEST_BYTES + names + entries.len() * (TOPIC_BYTES + PARTITION_BYTES);
    let mut small = Vec::with_capacity(capacity);
    let mut body = Vec::with_capacity(2 * entries.len() + 2);
    // Where the records of each entry go between the small bytes.
    let mut cuts = Vec::with_capacity(entries.len());

    put_nullable_string(&mut small, None, flexible);
    put_i16(&mut small, acks);
    put_i32(&mut small, timeout_ms);
    put_count(&mut small, topics(entries).count(), flexible);
    for topic in topics(entries) {
        match uses_topic_ids(version) {
            true => put_uuid(&mut small, topic[0].topic_id),
            false => put_string(&mut small, &topic[0].batch.topic, flexible),
        }
        put_count(&mut small, topic.len(), flexible);
        for entry in topic {
            let batch = entry.batch;
            put_i32(&mut small, batch.partition);
            let bytes = batch.wire_bytes();
            match flexible {
                true => put_uvarint(&mut small, bytes as u32 + 1),
                false => put_i32(&mut small, bytes as i32),
            }
            small.extend_from_slice(&batch_header(batch));
            cuts.push(small.len());
            small.extend(flexible.then_some(0));
        }
        small.extend(flexible.then_some(0));
    }
    small.extend(flexible.then_some(0));

    let small = Bytes::from(small);
    let mut start = 0;
    for (cut, entry) in cuts.into_iter().zip(entries) {
        body.push(small.slice(start..cut));
        body.push(entry.batch.records.clone());
        start = cut;
    }
    if start < small.len() {
        body.push(small.slice(start..));
    }
    body
}

fn topics<'e, 'a>(entries: &'e [Entry<'a>]) -> impl Iterator<Item = &'e [Entry<'a>]> {
    entries.chunk_by(|one, other| {
        Arc::ptr_eq(&one.batch.topic, &other.batch.topic) || one.batch.topic == other.batch.topic
    })
}

/// The 61 bytes in front of a batch's records, checksum included.
pub(super) fn batch_header(batch: &SealedBatch) -> [u8; HEADER_BYTES] {
    let sequence = batch.sending.sequence;
    let mut header = BatchHeader {
        base_offset: 0,
        batch_length: (batch.wire_bytes() - LENGTH_PREFIX_BYTES) as i32,
        leader_epoch: NO_LEADER_EPOCH,
        magic: MAGIC,
        crc: 0,
        attributes: batch.codec.id(),
        last_offset_delta: batch.record_count as i32 - 1,
        base_timestamp: batch.base_timestamp,
        max_timestamp: batch.max_timestamp,
        producer_id: sequence.map_or(NO_PRODUCER_ID, |sequence| sequence.producer_id),
        producer_epoch: sequence.map_or(NO_PRODUCER_EPOCH, |sequence| sequence.producer_epoch),
        base_sequence: sequence.map_or(NO_SEQUENCE, |sequence| sequence.base_sequence),
        record_count: batch.record_count as i32,
    };
    header.crc = crc32c::checksum_of_two(&header.encode()[CRC_START..], &batch.records);
    header.encode()
}
