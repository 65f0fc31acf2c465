//! The produce request, decoded by hand: record bytes are borrowed from the socket's read buffer,
//! and nothing is collected.
//!
//! Versions 3 to 13: flexible from 9, topics by id from 13 (KIP-516).

use crate::primitives::{DecodeError, Reader, Uuid};
use crate::records::batch::{BatchHeader, MAGIC};

pub const VERSION_MIN: i16 = 3;
pub const VERSION_MAX: i16 = 13;

/// Whether the version has compact lengths and tagged fields.
pub fn is_flexible(version: i16) -> bool {
    version >= 9
}

/// Whether topics are named by id.
pub fn uses_topic_ids(version: i16) -> bool {
    version >= 13
}

/// Walks a request front to back: `next_topic`, then `next_partition` until it is `None`, and
/// again.
///
/// - Shape: [`ProduceRequest::decode`] has walked the whole request once, so a malformed request is
///   refused before anything of it is appended.
#[derive(Clone, Debug)]
pub struct ProduceRequest<'a> {
    pub transactional_id: Option<&'a str>,
    /// 0, 1 or −1; not checked here.
    pub acks: i16,
    pub timeout_ms: i32,
    pub topic_count: usize,
    /// Of all topics.
    pub partition_count: usize,
    /// Whether some partition's records start with a transactional batch.
    pub has_transactional_batch: bool,
    version: i16,
    reader: Reader<'a>,
    topics_left: usize,
    partitions_left: usize,
    in_topic: bool,
}

/// How a request names a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicName<'a> {
    Name(&'a str),
    Id(Uuid),
}

#[derive(Clone, Copy, Debug)]
pub struct ProduceTopic<'a> {
    pub topic: TopicName<'a>,
    pub partition_count: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct ProducePartition<'a> {
    pub index: i32,
    /// Record batches as the client built them; `None` and empty are not the same on the wire.
    pub records: Option<&'a [u8]>,
}

impl<'a> ProduceRequest<'a> {
    pub fn decode(body: &'a [u8], version: i16) -> Result<ProduceRequest<'a>, DecodeError> {
        if !(VERSION_MIN..=VERSION_MAX).contains(&version) {
            return Err(DecodeError::UnsupportedVersion { version });
        }
        let flexible = is_flexible(version);
        let mut reader = Reader::new(body);
        let transactional_id = reader.nullable_string(flexible)?;
        let acks = reader.i16()?;
        let timeout_ms = reader.i32()?;
        let topic_count = count(&mut reader, flexible)?;
        let mut request = ProduceRequest {
            transactional_id,
            acks,
            timeout_ms,
            topic_count,
            partition_count: 0,
            has_transactional_batch: false,
            version,
            reader,
            topics_left: topic_count,
            partitions_left: 0,
            in_topic: false,
        };
        (request.partition_count, request.has_transactional_batch) = request.clone().walk()?;
        Ok(request)
    }

    pub fn next_topic(&mut self) -> Result<Option<ProduceTopic<'a>>, DecodeError> {
        while self.next_partition()?.is_some() {}
        if self.topics_left == 0 {
            return Ok(None);
        }
        self.topics_left -= 1;
        let topic = if uses_topic_ids(self.version) {
            TopicName::Id(self.reader.uuid()?)
        } else {
            TopicName::Name(self.reader.string(is_flexible(self.version))?)
        };
        self.partitions_left = count(&mut self.reader, is_flexible(self.version))?;
        self.in_topic = true;
        Ok(Some(ProduceTopic {
            topic,
            partition_count: self.partitions_left,
        }))
    }

    pub fn next_partition(&mut self) -> Result<Option<ProducePartition<'a>>, DecodeError> {
        let flexible = is_flexible(self.version);
        if self.partitions_left == 0 {
            if self.in_topic && flexible {
                self.reader.skip_tagged_fields()?;
            }
            self.in_topic = false;
            return Ok(None);
        }
        self.partitions_left -= 1;
        let index = self.reader.i32()?;
        let records = self.reader.nullable_bytes(flexible)?;
        if flexible {
            self.reader.skip_tagged_fields()?;
        }
        Ok(Some(ProducePartition { index, records }))
    }

    /// Counts the partitions, and looks for transactional batches.
    fn walk(mut self) -> Result<(usize, bool), DecodeError> {
        let (mut partitions, mut has_transactional_batch) = (0, false);
        while let Some(topic) = self.next_topic()? {
            partitions += topic.partition_count;
            while let Some(partition) = self.next_partition()? {
                has_transactional_batch |= partition.records.is_some_and(is_transactional);
            }
        }
        if is_flexible(self.version) {
            self.reader.skip_tagged_fields()?;
        }
        // Bytes after the request are ignored, as in every other request.
        Ok((partitions, has_transactional_batch))
    }
}

/// Whether bytes that should be a batch have the transactional bit set; nothing else is checked.
fn is_transactional(records: &[u8]) -> bool {
    let header = records.first_chunk().map(BatchHeader::decode);
    header.is_some_and(|header| header.magic == MAGIC && header.is_transactional())
}

/// Reads the count before an array that must not be null. The count only bounds a loop that reads
/// bytes in every iteration, so a count beyond the frame ends in `Truncated` and allocates nothing.
fn count(reader: &mut Reader<'_>, flexible: bool) -> Result<usize, DecodeError> {
    let count = if flexible {
        i64::from(reader.uvarint()?) - 1
    } else {
        i64::from(reader.i32()?)
    };
    // The smallest element is an index, a length and its tagged fields: 4 + 1 + 1 bytes; a topic is
    // larger than 2.
    match usize::try_from(count) {
        Ok(count) if count > reader.remaining() => Err(DecodeError::CountTooLarge {
            count: count as u64,
            remaining: reader.remaining(),
        }),
        Ok(count) => Ok(count),
        Err(_) => Err(DecodeError::NegativeLength { length: count }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::{
        put_bytes, put_count, put_i16, put_i32, put_nullable_string, put_string, put_uuid,
    };

    fn sample(version: i16) -> Vec<u8> {
        let flexible = is_flexible(version);
        let mut out = Vec::new();
        put_nullable_string(&mut out, None, flexible);
        put_i16(&mut out, -1);
        put_i32(&mut out, 1500);
        put_count(&mut out, 2, flexible);
        for topic in 0..2u8 {
            if uses_topic_ids(version) {
                put_uuid(&mut out, Uuid([topic; 16]))
            } else {
                put_string(&mut out, ["a", "b"][usize::from(topic)], flexible)
            }
            put_count(&mut out, 2, flexible);
            for index in 0..2 {
                put_i32(&mut out, index);
                put_bytes(&mut out, &[topic, index as u8], flexible);
                out.extend(flexible.then_some(0));
            }
            out.extend(flexible.then_some(0));
        }
        out.extend(flexible.then_some(0));
        out
    }

    #[test]
    fn every_version_yields_topics_and_partitions_in_order() {
        for version in VERSION_MIN..=VERSION_MAX {
            let bytes = sample(version);
            let mut request = ProduceRequest::decode(&bytes, version).unwrap();
            assert_eq!(
                (request.acks, request.timeout_ms, request.topic_count),
                (-1, 1500, 2)
            );
            let mut seen = Vec::new();
            while request.next_topic().unwrap().is_some() {
                while let Some(partition) = request.next_partition().unwrap() {
                    seen.push(partition.records.unwrap().to_vec());
                }
            }
            assert_eq!(seen, [[0, 0], [0, 1], [1, 0], [1, 1]], "version {version}");
        }
    }

    #[test]
    fn a_truncated_request_is_refused_as_a_whole() {
        for version in [3, 9, 13] {
            let bytes = sample(version);
            for end in 0..bytes.len() {
                assert!(
                    ProduceRequest::decode(&bytes[..end], version).is_err(),
                    "version {version}, {end} bytes"
                );
            }
        }
    }

    #[test]
    fn a_count_beyond_the_frame_is_refused() {
        let mut bytes = sample(3);
        bytes[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
        assert!(matches!(
            ProduceRequest::decode(&bytes, 3).map(|_| ()),
            Err(DecodeError::CountTooLarge { .. })
        ));
    }
}
