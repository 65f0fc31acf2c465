//! Encodes the fetch answer by hand: everything but record bytes, which are inserted as file
//! ranges.

use ottla_log::disk::FileRegion;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::{
    put_count, put_i16, put_i32, put_i64, put_nullable_count, put_string, put_uuid, put_uvarint,
};

use super::read::PartitionRead;
use super::session::TopicRef;
use crate::reply::{InsertedRegion, ReplyBuffer};

/// The answer's entry for one partition.
#[derive(Debug)]
pub struct PartitionAnswer<'a> {
    pub topic: &'a TopicRef,
    pub index: i32,
    pub read: &'a PartitionRead,
}

/// The part of the answer that does not depend on its partitions.
#[derive(Clone, Copy, Debug)]
pub struct FetchAnswer {
    pub version: i16,
    pub error: ErrorCode,
    pub session_id: i32,
}

impl FetchAnswer {
    fn is_flexible(self) -> bool {
        self.version >= 12
    }

    /// Encodes the answer; neighbouring partitions of one topic share a topic entry.
    ///
    /// - Source: FetchResponse versions 4 to 18.
    pub fn encode(self, partitions: &[PartitionAnswer<'_>], reply: &mut ReplyBuffer) {
        let flexible = self.is_flexible();
        put_i32(&mut reply.bytes, 0); // throttle time
        if self.version >= 7 {
            put_i16(&mut reply.bytes, self.error.code());
            put_i32(&mut reply.bytes, self.session_id);
        }
        let topics = || partitions.chunk_by(|left, right| left.topic == right.topic);
        put_count(&mut reply.bytes, topics().count(), flexible);
        for partitions in topics() {
            match partitions[0].topic {
                TopicRef::Name(name) => put_string(&mut reply.bytes, name, flexible),
                TopicRef::Id(id) => put_uuid(&mut reply.bytes, *id),
            }
            put_count(&mut reply.bytes, partitions.len(), flexible);
            for partition in partitions {
                self.encode_partition(partition, reply);
            }
            self.no_tags(reply);
        }
        self.no_tags(reply);
    }

    fn encode_partition(self, partition: &PartitionAnswer<'_>, reply: &mut ReplyBuffer) {
        let flexible = self.is_flexible();
        let read = partition.read;
        let out = &mut reply.bytes;
        put_i32(out, partition.index);
        put_i16(out, read.error.code());
        put_i64(out, read.offsets.high_watermark);
        put_i64(out, read.offsets.last_stable_offset);
        if self.version >= 5 {
            put_i64(out, read.offsets.log_start_offset);
        }
        let aborted = read.aborted_transactions.as_deref();
        put_nullable_count(out, aborted.map(<[_]>::len), flexible);
        for transaction in aborted.unwrap_or_default() {
            put_i64(out, transaction.producer_id);
            put_i64(out, transaction.first_offset);
            out.extend(flexible.then_some(0));
        }
        if self.version >= 11 {
            put_i32(out, -1); // preferred read replica: none
        }
        self.encode_records(read.region.as_ref(), reply);
        self.encode_partition_tags(read, reply);
    }

    fn encode_records(self, region: Option<&FileRegion>, reply: &mut ReplyBuffer) {
        // An answer without records has empty records, not null: librdkafka and older Java clients
        // expect bytes.
        let length = region.map_or(0, |region| region.bytes);
        let length = usize::try_from(length).expect("a region is at most bytes_max, an i32");
        put_count(&mut reply.bytes, length, self.is_flexible());
        if let Some(region) = region.filter(|region| region.bytes > 0) {
            reply.regions.push(InsertedRegion {
                at: reply.bytes.len(),
                region: region.clone(),
            });
        }
    }

    fn encode_partition_tags(self, read: &PartitionRead, reply: &mut ReplyBuffer) {
        if !self.is_flexible() {
            return;
        }
        let out = &mut reply.bytes;
        match read.diverging {
            Some(diverging) => {
                // Tag 0, DivergingEpoch: epoch, end offset and its own empty tags are 4 + 8 + 1
                // bytes.
                out.extend([1, 0]);
                put_uvarint(out, 4 + 8 + 1);
                put_i32(out, diverging.leader_epoch);
                put_i64(out, diverging.end_offset);
                out.push(0);
            }
            None => out.push(0),
        }
    }

    fn no_tags(self, reply: &mut ReplyBuffer) {
        if self.is_flexible() {
            reply.bytes.push(0);
        }
    }
}
