//! The produce request: small parts that are encoded here, and the batches' records, shared and not
//! copied.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::primitives::{
    Uuid, put_count, put_i16, put_i32, put_nullable_string, put_string, put_uuid, put_uvarint,
};
use ottla_wire::produce::{is_flexible, uses_topic_ids};
use ottla_wire::records::batch::{
    BatchHeader, CRC_START, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE, attributes,
};
use ottla_wire::records::compression::Codec;
use ottla_wire::records::crc32c;

use super::batch::SealedBatch;

/// The lowest version with record batches of format 2, the only format this client writes.
pub(super) const VERSION_MIN: i16 = ottla_wire::produce::VERSION_MIN;

/// The first version that may carry zstd (KIP-110).
pub(super) const ZSTD_VERSION_MIN: i16 = 7;

/// The last version that names topics.
pub(super) const NAMES_VERSION_MAX: i16 = 12;

/// Bytes of one partition besides its records, at most: index, length, the header, tagged fields.
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

/// The lowest version that can carry a batch of this codec.
pub(super) fn needed_version(codec: Codec) -> i16 {
    match codec {
        Codec::Zstd => ZSTD_VERSION_MIN,
        Codec::None | Codec::Gzip | Codec::Snappy | Codec::Lz4 => VERSION_MIN,
    }
}

/// Encodes the body of a request.
///
/// - Shape: entries of one topic are adjacent; no partition twice.
/// - `transactional_id`: of the transaction that all batches belong to.
pub(super) fn encode(
    version: i16,
    transactional_id: Option<&str>,
    acks: i16,
    timeout_ms: i32,
    entries: &[Entry<'_>],
) -> Vec<Bytes> {
    let flexible = is_flexible(version);
    let names: usize = entries.iter().map(|entry| entry.batch.topic.len()).sum();
    let id_bytes = transactional_id.map_or(0, |id| id.len() + 3);
    let capacity = REQUEST_BYTES + id_bytes + names + entries.len() * (TOPIC_BYTES + PARTITION_BYTES);
    let mut small = Vec::with_capacity(capacity);
    let mut body = Vec::with_capacity(2 * entries.len() + 2);
    // Where the records of each entry go between the encoded bytes.
    let mut cuts = Vec::with_capacity(entries.len());

    put_nullable_string(&mut small, transactional_id, flexible);
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
            small.extend_from_slice(&batch_header(batch, transactional_id.is_some()));
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
fn batch_header(batch: &SealedBatch, is_transactional: bool) -> [u8; HEADER_BYTES] {
    let sequence = batch.sending.sequence;
    let transactional = if is_transactional {
        attributes::TRANSACTIONAL
    } else {
        0
    };
    let mut header = BatchHeader {
        base_offset: 0,
        batch_length: (batch.wire_bytes() - LENGTH_PREFIX_BYTES) as i32,
        leader_epoch: NO_LEADER_EPOCH,
        magic: MAGIC,
        crc: 0,
        attributes: batch.codec.id() | transactional,
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

#[cfg(test)]
mod tests {
    use ottla_wire::messages::produce::ProduceRequest;
    use ottla_wire::primitives::Reader;
    use ottla_wire::records::batch::Batch;

    use super::super::batch::Sequence;
    use super::super::test_batches::{accumulator, sealed, topic};
    use super::*;

    fn batches(codec: &str) -> Vec<SealedBatch> {
        let accumulator = accumulator(&[("compression.type", codec)]);
        let mut batches = vec![
            sealed(&accumulator, "t", 0, 3),
            sealed(&accumulator, "t", 2, 1),
            sealed(&accumulator, "other", 1, 2),
        ];
        batches[1].sending.sequence = Some(Sequence {
            producer_id: 4711,
            producer_epoch: 3,
            base_sequence: 99,
        });
        batches
    }

    fn encoded(version: i16, batches: &[SealedBatch]) -> Vec<Bytes> {
        let entries: Vec<Entry<'_>> = batches
            .iter()
            .map(|batch| Entry {
                topic_id: topic(&batch.topic).id,
                batch,
            })
            .collect();
        encode(version, None, -1, 1500, &entries)
    }

    #[test]
    fn a_broker_can_decode_every_version() {
        for codec in ["none", "lz4", "zstd"] {
            let batches = batches(codec);
            for version in VERSION_MIN..=ottla_wire::produce::VERSION_MAX {
                let body = encoded(version, &batches).concat();
                let mut reader = Reader::new(&body);
                let request = ProduceRequest::decode(&mut reader, version).unwrap();
                assert_eq!(reader.finish(), Ok(()), "version {version}");
                assert_eq!((request.acks, request.timeout_ms), (-1, 1500));
                assert_eq!(request.transactional_id, None);
                let [first, second] = &request.topic_data[..] else {
                    panic!("version {version}: {} topics", request.topic_data.len());
                };
                match version {
                    13.. => assert_eq!(
                        (first.topic_id, second.topic_id),
                        (topic("t").id, topic("other").id)
                    ),
                    _ => assert_eq!((first.name, second.name), ("t", "other")),
                }
                let partitions: Vec<_> = [first, second]
                    .iter()
                    .flat_map(|topic| &topic.partition_data)
                    .collect();
                assert_eq!(partitions.len(), 3);
                for (partition, batch) in partitions.iter().zip(&batches) {
                    assert_eq!(partition.index, batch.partition);
                    check_batch(partition.records.unwrap(), batch);
                }
            }
        }
    }

    fn check_batch(bytes: &[u8], batch: &SealedBatch) {
        let read = Batch::parse(bytes).unwrap();
        assert_eq!(read.bytes.len(), bytes.len());
        assert_eq!(read.verify_checksum(), Ok(()));
        assert_eq!(read.record_bytes(), &batch.records[..]);
        assert_eq!(read.header.record_count as u32, batch.record_count);
        assert_eq!(read.header.last_offset_delta as u32, batch.record_count - 1);
        assert_eq!(read.header.compression(), Some(batch.codec));
        assert_eq!(read.header.base_timestamp, 5_000);
        let expected = batch.sending.sequence.map_or((-1, -1, -1), |sequence| {
            (
                sequence.producer_id,
                sequence.producer_epoch,
                sequence.base_sequence,
            )
        });
        let header = read.header;
        assert_eq!(
            (header.producer_id, header.producer_epoch, header.base_sequence),
            expected
        );
    }

    #[test]
    fn records_are_sent_without_a_copy_and_the_rest_is_one_buffer() {
        let batches = batches("none");
        let parts = encoded(9, &batches);
        assert_eq!(parts.len(), 2 * batches.len() + 1);
        for (part, batch) in parts.iter().skip(1).step_by(2).zip(&batches) {
            assert_eq!(part.as_ptr(), batch.records.as_ptr());
        }
        let small: Vec<&Bytes> = parts.iter().step_by(2).collect();
        for pair in small.windows(2) {
            assert_eq!(pair[0].as_ptr_range().end, pair[1].as_ptr());
        }
    }

    #[test]
    fn zstd_needs_a_newer_broker_than_the_other_codecs() {
        assert_eq!(needed_version(Codec::Zstd), 7);
        assert_eq!(needed_version(Codec::Gzip), VERSION_MIN);
    }
}
