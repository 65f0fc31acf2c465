//! What handlers observe of a client's settings and work: the evidence for diagnosing a slow
//! client.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::compression::Codec;

/// At most this many different errors of one request are told apart; a request seldom has two.
const ERRORS_MAX: usize = 2;

/// Observations from one request and its answer. Plain numbers: it is filled on the hot path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Of a produce request.
    pub acks: Option<i16>,
    /// Record batches appended, one for each partition of the request, their records and their
    /// bytes as received: of all, and of the largest.
    pub batches: u32,
    pub records: u64,
    pub batch_bytes: u64,
    pub batch_bytes_max: u32,
    /// Codecs of the batches as received, and as stored where the topic demands another.
    pub codecs: CodecsSeen,
    pub recompressed: CodecsSeen,
    /// Of the last batch.
    pub producer_id: Option<i64>,
    pub fetch_limits: Option<FetchLimits>,
    /// Of a fetch: bytes of record batches in its answer, and the client's position.
    pub fetched_bytes: u64,
    /// How long a thread of the cold-read pool read for it, without the time in the queue.
    pub disk_micros: u64,
    pub position: Option<Position>,
    pub errors: ErrorsSeen,
}

impl Seen {
    /// Adds what another part of the same request observed.
    pub fn add(&mut self, other: &Seen) {
        self.acks = other.acks.or(self.acks);
        self.batches += other.batches;
        self.records += other.records;
        self.batch_bytes += other.batch_bytes;
        self.batch_bytes_max = self.batch_bytes_max.max(other.batch_bytes_max);
        self.codecs.add(other.codecs);
        self.recompressed.add(other.recompressed);
        self.producer_id = other.producer_id.or(self.producer_id);
        self.fetch_limits = other.fetch_limits.or(self.fetch_limits);
        self.fetched_bytes += other.fetched_bytes;
        self.disk_micros += other.disk_micros;
        self.position = other.position.or(self.position);
        for (code, count) in other.errors.iter() {
            self.errors.count(code, count);
        }
    }
}

/// The limits that a fetch request names: settings of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    pub min_bytes: i32,
    pub max_wait_ms: i32,
    pub max_bytes: i32,
    /// The largest limit of a partition. A session (KIP-227) keeps the limits that were sent
    /// before; `None`: it has no partition.
    pub partition_bytes_max: Option<i32>,
}

/// A batch that was appended to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenBatch {
    pub topic_id: Uuid,
    pub index: i32,
    pub records: u32,
    /// As received.
    pub bytes: u32,
}

/// At most this many batches of a request, or of requests that are not answered yet, are kept: a
/// request of small batches would take as much memory again.
const WRITTEN_MAX: usize = 1_024;

/// The batches that were appended, in order.
#[derive(Clone, Debug, Default)]
pub struct Written(Vec<WrittenBatch>);

impl Written {
    pub fn see(&mut self, batch: WrittenBatch) {
        if self.0.len() < WRITTEN_MAX {
            self.0.push(batch);
        }
    }

    /// Takes what `later` holds. The memory of both is kept, and goes around.
    pub fn take(&mut self, later: &mut Written) {
        if self.0.is_empty() {
            std::mem::swap(self, later);
        } else {
            let room = WRITTEN_MAX.saturating_sub(self.0.len());
            self.0.extend(later.0.drain(..).take(room));
        }
    }

    pub fn batches(&self) -> &[WrittenBatch] {
        &self.0
    }

    /// Forgets the batches and passes the memory on, if `other` has less.
    pub fn clear_into(&mut self, other: &mut Written) {
        self.clear();
        if self.0.capacity() > other.0.capacity() {
            std::mem::swap(self, other);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// A set of codecs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodecsSeen(u8);

impl CodecsSeen {
    pub fn see(&mut self, codec: Codec) {
        self.0 |= 1 << codec.id();
    }

    pub fn add(&mut self, other: CodecsSeen) {
        self.0 |= other.0;
    }

    pub fn iter(self) -> impl Iterator<Item = Codec> {
        Codec::ALL
            .into_iter()
            .filter(move |codec| self.0 & (1 << codec.id()) != 0)
    }
}

/// Error codes and the number of partitions that had them; beyond `ERRORS_MAX` different codes they
/// are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorsSeen([(i16, u32); ERRORS_MAX]);

impl ErrorsSeen {
    pub fn see(&mut self, code: ErrorCode) {
        if code != ErrorCode::None {
            self.count(code.code(), 1);
        }
    }

    fn count(&mut self, code: i16, count: u32) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.0 == code || entry.1 == 0) {
            *entry = (code, entry.1 + count);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (i16, u32)> + '_ {
        self.0.iter().copied().filter(|(_, count)| *count > 0)
    }
}

/// The sum of the offsets that a fetch asks from: two fetches of the same partitions tell how far
/// the client has advanced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// A hash that is the same for the same partitions, in any order.
    partitions: u64,
    offset_sum: i64,
}

impl Position {
    pub fn by_id(&mut self, topic: Uuid, index: i32, offset: i64) {
        let bits = u128::from_be_bytes(topic.0);
        self.add(((bits >> 64) as u64) ^ bits as u64, index, offset);
    }

    pub fn by_name(&mut self, topic: &str, index: i32, offset: i64) {
        // FNV-1a: names are short.
        let hash = topic.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        });
        self.add(hash, index, offset);
    }

    fn add(&mut self, topic: u64, index: i32, offset: i64) {
        let key = (topic ^ u64::from(index as u32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.partitions = self.partitions.wrapping_add(key ^ (key >> 29));
        self.offset_sum = self.offset_sum.wrapping_add(offset.max(0));
    }

    /// Returns the offsets from `earlier` to here; `None` when the partitions differ, or the client
    /// went back.
    pub fn progress_since(&self, earlier: &Position) -> Option<u64> {
        let is_same = self.partitions == earlier.partitions;
        is_same
            .then(|| self.offset_sum.checked_sub(earlier.offset_sum))
            .flatten()
            .and_then(|progress| u64::try_from(progress).ok())
    }
}

/// At most this many partitions of one fetch are reported.
const FETCHED_PARTITIONS_MAX: usize = 64;

/// The position of a fetch in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    pub topic: Arc<str>,
    pub index: i32,
    /// The offset that it asked from, and the high watermark.
    pub offset: i64,
    pub end: i64,
}

/// The positions of a fetch in its partitions, if the connection wants them: they are many, and
/// needed only now and then.
#[derive(Clone, Debug, Default)]
pub struct Fetched(Option<Vec<FetchedPartition>>);

impl Fetched {
    pub fn wanted(is_wanted: bool) -> Fetched {
        Fetched(is_wanted.then(Vec::new))
    }

    pub(crate) fn see(&mut self, topic: &Arc<str>, index: i32, offset: i64, end: i64) {
        if let Some(partitions) = &mut self.0
            && partitions.len() < FETCHED_PARTITIONS_MAX
            && (0..=end).contains(&offset)
        {
            partitions.push(FetchedPartition {
                topic: topic.clone(),
                index,
                offset,
                end,
            });
        }
    }

    /// Returns the positions; `None` when there are none or they were not wanted.
    pub fn take(&mut self) -> Option<Vec<FetchedPartition>> {
        self.0.take().filter(|partitions| !partitions.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(partitions: &[(&str, i32, i64)]) -> Position {
        let mut position = Position::default();
        for (topic, index, offset) in partitions {
            position.by_name(topic, *index, *offset);
        }
        position
    }

    #[test]
    fn progress_is_that_of_the_same_partitions_in_any_order() {
        let before = position(&[("a", 0, 10), ("a", 1, 5), ("b", 0, 7)]);
        let after = position(&[("b", 0, 9), ("a", 1, 5), ("a", 0, 110)]);
        assert_eq!(after.progress_since(&before), Some(102));
        assert_eq!(before.progress_since(&after), None, "it went back");
        for other in [
            position(&[("a", 0, 110), ("a", 1, 5)]),
            position(&[("a", 0, 110), ("a", 2, 5), ("b", 0, 9)]),
            position(&[("a", 1, 110), ("b", 0, 5), ("b", 1, 9)]),
        ] {
            assert_eq!(other.progress_since(&before), None);
        }
    }

    #[test]
    fn errors_are_counted_by_code_as_far_as_there_is_room() {
        let mut seen = Seen::default();
        seen.errors.see(ErrorCode::None);
        seen.errors.see(ErrorCode::NotLeaderOrFollower);
        let mut later = Seen::default();
        later.errors.see(ErrorCode::NotLeaderOrFollower);
        later.errors.see(ErrorCode::RequestTimedOut);
        seen.add(&later);
        seen.errors.see(ErrorCode::CorruptMessage);
        let found: Vec<(i16, u32)> = seen.errors.iter().collect();
        let expected = [
            (ErrorCode::NotLeaderOrFollower, 2),
            (ErrorCode::RequestTimedOut, 1),
        ];
        assert_eq!(found, expected.map(|(code, count)| (code.code(), count)));
    }

    #[test]
    fn positions_are_kept_where_they_are_wanted_and_possible() {
        let topic: Arc<str> = "t".into();
        let mut unwanted = Fetched::default();
        unwanted.see(&topic, 0, 5, 9);
        assert_eq!(unwanted.take(), None);
        let mut wanted = Fetched::wanted(true);
        wanted.see(&topic, 0, 5, -1);
        wanted.see(&topic, 0, 10, 9);
        assert_eq!(wanted.take(), None);
        let mut wanted = Fetched::wanted(true);
        for index in 0..100 {
            wanted.see(&topic, index, 5, 9);
        }
        assert_eq!(
            wanted.take().map(|partitions| partitions.len()),
            Some(FETCHED_PARTITIONS_MAX)
        );
    }

    #[test]
    fn codecs_are_a_set() {
        let mut seen = CodecsSeen::default();
        seen.see(Codec::Lz4);
        seen.see(Codec::None);
        seen.see(Codec::Lz4);
        assert_eq!(seen.iter().collect::<Vec<_>>(), [Codec::None, Codec::Lz4]);
    }
}
