//! Chooses a record's partition.
//!
//! Records with a key: by murmur2, as every Kafka client does, so that a key has one partition
//! whichever client writes it. Records without a key: to one partition until a batch's worth of
//! bytes went there, then to another (KIP-480, KIP-794).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::Record;
use crate::metadata::snapshot::{NodeId, Topic};
use crate::network::backoff::Random;
use crate::time::Moment;

/// A custom choice of partitions, for applications that know better than a hash.
///
/// Called by `send` on the sending thread for every record that names no partition; it should be
/// quick and must not block.
pub trait Partitioner: Send + Sync {
    /// Returns the record's partition, or `None` to let the producer choose as it does without a
    /// partitioner.
    fn partition(&self, record: &Record<'_>, topic: &Topic) -> Option<i32>;
}

impl fmt::Debug for dyn Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Partitioner")
    }
}

/// The hash of keys that decides their partitions: 32-bit murmur2 with Kafka's seed.
///
/// - Source: Kafka's `Utils.murmur2`; it is part of Kafka's de-facto protocol.
pub fn murmur2(bytes: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = SEED ^ bytes.len() as u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes(word.try_into().expect("chunks of four"));
        k = k.wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^= hash >> 15;
    hash as i32
}

/// The partition of a key among `partition_count`, which is not 0.
pub fn partition_of_key(key: &[u8], partition_count: usize) -> i32 {
    let positive = (murmur2(key) & i32::MAX) as usize;
    i32::try_from(positive % partition_count).expect("a topic has at most 2^31 partitions")
}

/// Takes a topic's partitions in turn, and skips those without a leader as long as there are
/// others.
///
/// - Source: Kafka's `RoundRobinPartitioner`.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    next: AtomicU32,
}

impl RoundRobin {
    pub(super) fn next(&self, topic: &Topic) -> i32 {
        let turn = (self.next.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1)) as usize;
        let partitions = &topic.partitions;
        let count = partitions.len().max(1);
        let mut index = turn % count;
        if partitions
            .get(index)
            .is_none_or(|partition| partition.leader.is_none())
        {
            let available = || {
                partitions
                    .iter()
                    .enumerate()
                    .filter(|(_, partition)| partition.leader.is_some())
            };
            let available_count = available().count();
            if available_count > 0 {
                let chosen = available().nth(turn % available_count);
                index = chosen.map_or(index, |(index, _)| index);
            }
        }
        i32::try_from(index).expect("a topic has at most 2^31 partitions")
    }
}

/// The partition that a topic's records without a key currently go to (the sticky partition).
///
/// Read by every such `send`, written about once per batch, so that threads share its cache line
/// without contention.
#[derive(Debug)]
pub(super) struct Sticky {
    /// A count of switches above the partition, so that a thread can tell that its choice is
    /// outdated.
    current: AtomicU64,
    chooser: Mutex<Chooser>,
}

/// A choice that a thread has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck(u64);

impl Stuck {
    const NONE: Stuck = Stuck(u64::MAX);

    pub(super) fn partition(self) -> i32 {
        (self.0 & 0x7FFF_FFFF) as i32
    }

    /// The choice after this one.
    fn next(self, partition: i32) -> Stuck {
        let switches = (self.0 >> 32).wrapping_add(1) & 0x7FFF_FFFF;
        Stuck(switches << 32 | u64::from(partition.unsigned_abs()))
    }
}

#[derive(Debug)]
struct Chooser {
    random: Random,
    /// Of the partitions in `candidates`: the sum of weights up to each.
    sums: Vec<u64>,
    candidates: Vec<i32>,
}

impl Sticky {
    pub(super) fn new(seed: u64) -> Sticky {
        Sticky {
            current: AtomicU64::new(Stuck::NONE.0),
            chooser: Mutex::new(Chooser {
                random: Random::new(seed),
                sums: Vec::new(),
                candidates: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Chooser> {
        self.chooser.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// - `choose`: chooses the partition when there is no choice yet.
    pub(super) fn current(&self, choose: impl FnOnce(&Sticky) -> i32) -> Stuck {
        let current = Stuck(self.current.load(Ordering::Relaxed));
        if current != Stuck::NONE {
            return current;
        }
        self.switch(current, choose(self))
    }

    pub(super) fn is_current(&self, stuck: Stuck) -> bool {
        self.current.load(Ordering::Relaxed) == stuck.0
    }

    /// Switches to `partition` unless another thread has switched since `from`; returns the choice
    /// now in effect.
    pub(super) fn switch(&self, from: Stuck, partition: i32) -> Stuck {
        let to = from.next(partition);
        match self
            .current
            .compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => to,
            Err(other) => Stuck(other),
        }
    }

    /// Chooses a partition at random; the longer its queue, the less often (KIP-794).
    ///
    /// - `queue_length`: `None` for a partition that should not be chosen while there are others.
    pub(super) fn choose(
        &self,
        partition_count: usize,
        mut queue_length: impl FnMut(usize) -> Option<usize>,
    ) -> i32 {
        let mut chooser = self.lock();
        let chooser = &mut *chooser;
        chooser.candidates.clear();
        chooser.sums.clear();
        let mut longest = 0;
        for index in 0..partition_count {
            if let Some(length) = queue_length(index) {
                chooser.candidates.push(index as i32);
                chooser.sums.push(length as u64);
                longest = longest.max(length as u64);
            }
        }
        if chooser.candidates.is_empty() {
            return chooser.random.below(partition_count.max(1) as u64) as i32;
        }
        let mut sum = 0;
        for length in &mut chooser.sums {
            sum += longest + 1 - *length;
            *length = sum;
        }
        let point = chooser.random.below(sum);
        let chosen = chooser.sums.partition_point(|sum| *sum <= point);
        chooser.candidates[chosen]
    }
}

/// Which brokers accept data: partitions of a broker that has accepted none for a while are not
/// chosen (`partitioner.availability.timeout.ms`).
#[derive(Debug, Default)]
pub(super) struct Availability {
    nodes: Mutex<BTreeMap<NodeId, Attempts>>,
}

#[derive(Clone, Copy, Debug)]
struct Attempts {
    /// When there was last something to send.
    offered_at: Moment,
    /// When it could last be sent.
    taken_at: Moment,
}

impl Availability {
    pub(super) fn note(&self, node: NodeId, now: Moment, is_taken: bool) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = nodes.entry(node).or_insert(Attempts {
            offered_at: now,
            taken_at: now,
        });
        attempts.offered_at = now;
        if is_taken {
            attempts.taken_at = now;
        }
    }

    pub(super) fn is_available(&self, node: NodeId, timeout_ms: u64) -> bool {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes
            .get(&node)
            .is_none_or(|attempts| attempts.offered_at.ms_since(attempts.taken_at) <= timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::snapshot::Partition;

    /// Key in hex, hash, and the partition among 1, 3, 12, 50 and 1000: printed by Kafka 4.3.0's
    /// own `org.apache.kafka.common.utils.Utils` (`murmur2`, `toPositive`) under Java 21. The last
    /// eight are `java.util.Random(42)`.
    const FROM_JAVA: &[(&str, i32, [i32; 5])] = &[
        ("", 275646681, [0, 0, 9, 31, 681]),
        ("61", -1563381124, [0, 1, 4, 24, 524]),
        ("6162", 316155434, [0, 2, 2, 34, 434]),
        ("616263", 479470107, [0, 0, 3, 7, 107]),
        ("61626364", -1323649548, [0, 2, 8, 0, 100]),
        ("6162636465", 461995741, [0, 1, 1, 41, 741]),
        ("3231", -973932308, [0, 0, 0, 40, 340]),
        ("666f6f626172", -790332482, [0, 0, 6, 16, 166]),
        (
            "612d6c6974746c652d6269742d6c6f6e672d737472696e67",
            -985981536,
            [0, 2, 8, 12, 112],
        ),
        (
            "612d6c6974746c652d6269742d6c6f6e6765722d737472696e67",
            -1486304829,
            [0, 2, 11, 19, 819],
        ),
        ("6b65792d30", 29210041, [0, 1, 1, 41, 41]),
        ("6b65792d31", 193331640, [0, 0, 0, 40, 640]),
        ("757365723a3432", -1493546323, [0, 1, 1, 25, 325]),
        ("4772c3b6c39f65", -255045697, [0, 1, 7, 1, 951]),
        ("e697a5e69cace8aa9e", 1431860170, [0, 1, 10, 20, 170]),
        ("ff", -311467685, [0, 0, 3, 13, 963]),
        ("8081fe", 796990047, [0, 0, 3, 47, 47]),
        ("00000000000000", 1067877175, [0, 1, 7, 25, 175]),
        ("359d41baf7", 1491068629, [0, 1, 1, 29, 629]),
        ("e1bbe7ae28c045", 1137648021, [0, 0, 9, 21, 21]),
        ("e43c084f4bbb2bf183", -1037908890, [0, 2, 2, 8, 758]),
        ("6d852cb5be6a61aa9a0c61", 733863615, [0, 0, 3, 15, 615]),
        ("bd6743e7dc978573998e685e88", 308369531, [0, 2, 11, 31, 531]),
        ("f86c974620bebfb01100b276545718", 478636412, [0, 2, 8, 12, 412]),
        (
            "0f406cc8e3a188fff11059eb6fbce62655",
            1570108194,
            [0, 0, 6, 44, 194],
        ),
        (
            "83b89670d6d9f9bf52d83deedc0bf66205835c",
            1037019242,
            [0, 2, 2, 42, 242],
        ),
    ];

    fn unhex(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn keys_go_where_java_puts_them() {
        for (hex, hash, partitions) in FROM_JAVA {
            let key = unhex(hex);
            assert_eq!(murmur2(&key), *hash, "{hex}");
            let ours = [1, 3, 12, 50, 1000].map(|count| partition_of_key(&key, count));
            assert_eq!(ours, *partitions, "{hex}");
        }
    }

    #[test]
    fn every_byte_value_hashes_as_in_java() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(murmur2(&all), -1948347274);
    }

    fn topic(leaders: &[bool]) -> Topic {
        Topic {
            partitions: leaders
                .iter()
                .map(|has_leader| Partition {
                    leader: has_leader.then_some(NodeId(1)),
                    ..Partition::default()
                })
                .collect(),
            ..Topic::default()
        }
    }

    #[test]
    fn round_robin_takes_turns_and_skips_partitions_without_a_leader() {
        let turns = RoundRobin::default();
        let all = topic(&[true, true, true]);
        let taken: Vec<_> = (0..6).map(|_| turns.next(&all)).collect();
        assert_eq!(taken, [0, 1, 2, 0, 1, 2]);
        let some = topic(&[true, false, true]);
        let mut counts = [0u32; 3];
        (0..600).for_each(|_| counts[turns.next(&some) as usize] += 1);
        assert_eq!((counts[1], counts[0] + counts[2]), (0, 600));
        assert!(counts[0].abs_diff(counts[2]) <= 200, "{counts:?}");
        let none = topic(&[false, false]);
        let taken: Vec<_> = (0..4).map(|_| turns.next(&none)).collect();
        assert_eq!(taken, [0, 1, 0, 1]);
    }

    #[test]
    fn longer_queues_are_chosen_proportionally_less_often() {
        let sticky = Sticky::new(7);
        // Weights 4, 1 and 3 of 8; the last has no leader.
        let lengths = [Some(0), Some(3), Some(1), None];
        let mut counts = [0u32; 4];
        for _ in 0..8_000 {
            counts[sticky.choose(4, |index| lengths[index]) as usize] += 1;
        }
        let expected = [4_000u32, 1_000, 3_000, 0];
        for (count, expected) in counts.iter().zip(expected) {
            assert!(count.abs_diff(expected) < 250, "{counts:?}");
        }
    }

    #[test]
    fn without_any_available_partition_all_are_candidates() {
        let sticky = Sticky::new(7);
        let chosen: std::collections::BTreeSet<_> = (0..100).map(|_| sticky.choose(3, |_| None)).collect();
        assert_eq!(chosen.len(), 3);
    }

    #[test]
    fn only_one_of_two_threads_switches() {
        let sticky = Sticky::new(7);
        let first = sticky.current(|_| 5);
        assert_eq!(first.partition(), 5);
        assert_eq!(sticky.current(|_| unreachable!()), first);
        let second = sticky.switch(first, 6);
        assert_eq!((second.partition(), sticky.is_current(first)), (6, false));
        assert_eq!(sticky.switch(first, 7), second);
        // Back to the same partition is still a new choice.
        let third = sticky.switch(second, 6);
        assert_ne!(second, third);
        assert_eq!(third.partition(), 6);
    }

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let choices = |seed| -> Vec<_> {
            let sticky = Sticky::new(seed);
            (0..20).map(|_| sticky.choose(100, |_| Some(0))).collect()
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
    }

    #[test]
    fn a_broker_that_takes_nothing_for_long_is_avoided() {
        let availability = Availability::default();
        let node = NodeId(1);
        let at = |ms: u64| Moment::from_nanos(0).after_ms(ms);
        assert!(availability.is_available(node, 100));
        availability.note(node, at(1_000), false);
        availability.note(node, at(1_100), false);
        assert!(availability.is_available(node, 100));
        availability.note(node, at(1_101), false);
        assert!(!availability.is_available(node, 100));
        availability.note(node, at(1_102), true);
        assert!(availability.is_available(node, 100));
    }
}
