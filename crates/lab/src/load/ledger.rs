//! The consumers' ledger: which records arrived, which arrived twice, which arrived out of order.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::stamp::Stamp;

/// Sequence numbers per block: 8 KiB of bits.
const BLOCK_BITS: u64 = 1 << 16;
const WORDS: usize = (BLOCK_BITS / 64) as usize;

/// Blocks with gaps that are kept per producer; older ones are given up. A producer's sequences are
/// spread over all partitions, so this is how far one partition may lag behind another: 16 million
/// records.
const OPEN_BLOCKS_MAX: usize = 256;

/// Shared by all consumers of a group, because partitions move between them.
#[derive(Debug, Default)]
pub struct Ledger {
    producers: HashMap<u32, Seen, BuildHasherDefault<Mix>>,
    /// The last sequence by producer and partition.
    last: HashMap<(u32, u32), u64, BuildHasherDefault<Mix>>,
    pub duplicated: u64,
    pub disordered: u64,
}

/// The ledger's classification of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    New,
    /// It arrived before.
    Again,
    /// A record of the same partition that was sent after it arrived before it.
    Late,
}

impl Ledger {
    /// - `partition`: the caller's number for topic and partition.
    pub fn enter(&mut self, partition: u32, stamp: &Stamp) -> Entry {
        let is_new = self
            .producers
            .entry(stamp.producer)
            .or_default()
            .insert(stamp.sequence);
        if !is_new {
            self.duplicated += 1;
            return Entry::Again;
        }
        let last = self
            .last
            .entry((stamp.producer, partition))
            .or_insert(stamp.sequence);
        if stamp.sequence < *last {
            self.disordered += 1;
            return Entry::Late;
        }
        *last = stamp.sequence;
        Entry::New
    }
}

/// Two lookups per record: the standard library's hash, which resists attacks, would cost more than
/// everything else here.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A set of sequence numbers: bits where there are gaps, nothing where there are none.
#[derive(Debug, Default)]
struct Seen {
    open: BTreeMap<u64, Block>,
    /// Blocks without a gap that are not below `given_up`: first and last of a run.
    complete: BTreeMap<u64, u64>,
    /// Blocks below this are no longer tracked: their records count as seen.
    given_up: u64,
}

#[derive(Debug)]
struct Block {
    bits: Box<[u64; WORDS]>,
    count: u64,
}

impl Default for Block {
    fn default() -> Block {
        Block {
            bits: Box::new([0; WORDS]),
            count: 0,
        }
    }
}

impl Seen {
    /// Returns false if it was in the set.
    fn insert(&mut self, sequence: u64) -> bool {
        let (number, bit) = (sequence / BLOCK_BITS, sequence % BLOCK_BITS);
        if number < self.given_up || self.is_complete(number) {
            return false;
        }
        let block = self.open.entry(number).or_default();
        let word = &mut block.bits[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        if *word & mask != 0 {
            return false;
        }
        *word |= mask;
        block.count += 1;
        if block.count == BLOCK_BITS {
            self.open.remove(&number);
            self.add_complete(number);
        } else if self.open.len() > OPEN_BLOCKS_MAX {
            self.give_up_oldest();
        }
        true
    }

    fn is_complete(&self, number: u64) -> bool {
        let run = self.complete.range(..=number).next_back();
        run.is_some_and(|(_, last)| number <= *last)
    }

    fn add_complete(&mut self, number: u64) {
        let mut last = number;
        if let Some(after) = self.complete.remove(&(number + 1)) {
            last = after;
        }
        let before = self.complete.range_mut(..number).next_back();
        match before {
            Some((_, end)) if *end + 1 == number => *end = last,
            _ => {
                self.complete.insert(number, last);
            }
        }
    }

    fn give_up_oldest(&mut self) {
        if let Some((oldest, _)) = self.open.pop_first() {
            self.given_up = oldest + 1;
            self.complete = self.complete.split_off(&self.given_up);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(producer: u32, sequence: u64) -> Stamp {
        Stamp {
            producer,
            sequence,
            due_nanos: 0,
            sent_nanos: 0,
        }
    }

    fn check(stream: &[(u32, u64)], expected: &[Entry]) {
        let mut ledger = Ledger::default();
        let entries: Vec<Entry> = stream
            .iter()
            .map(|(partition, sequence)| ledger.enter(*partition, &stamp(1, *sequence)))
            .collect();
        assert_eq!(entries, expected);
        let count = |wanted: Entry| expected.iter().filter(|entry| **entry == wanted).count() as u64;
        assert_eq!(ledger.duplicated, count(Entry::Again));
        assert_eq!(ledger.disordered, count(Entry::Late));
    }

    use Entry::{Again, Late, New};

    #[test]
    fn what_comes_in_order_is_fine_and_gaps_are_other_partitions() {
        check(&[(0, 0), (1, 1), (0, 2), (1, 5), (0, 7)], &[New; 5]);
    }

    #[test]
    fn a_record_that_comes_twice_is_a_duplicate_and_not_late() {
        check(
            &[(0, 0), (0, 1), (0, 1), (0, 0), (0, 2)],
            &[New, New, Again, Again, New],
        );
        // Written to another partition the second time.
        check(&[(0, 0), (1, 0)], &[New, Again]);
    }

    #[test]
    fn a_record_behind_its_successor_is_late_once() {
        check(
            &[(0, 0), (0, 2), (0, 1), (0, 1), (0, 3)],
            &[New, New, Late, Again, New],
        );
    }

    #[test]
    fn partitions_and_producers_are_ordered_separately() {
        check(&[(0, 5), (1, 2)], &[New, New]);
        let mut ledger = Ledger::default();
        assert_eq!(ledger.enter(0, &stamp(1, 5)), New);
        assert_eq!(ledger.enter(0, &stamp(2, 2)), New);
    }

    #[test]
    fn whole_blocks_take_no_memory_and_are_remembered() {
        let mut seen = Seen::default();
        for sequence in (0..4 * BLOCK_BITS).rev() {
            assert!(seen.insert(sequence));
        }
        assert!(seen.open.is_empty());
        assert_eq!(seen.complete, BTreeMap::from([(0, 3)]));
        assert!(!seen.insert(3 * BLOCK_BITS + 7));
        assert!(seen.insert(4 * BLOCK_BITS));
    }

    #[test]
    fn gaps_do_not_take_more_and_more_memory() {
        let mut seen = Seen::default();
        for block in 0..10 * OPEN_BLOCKS_MAX as u64 {
            assert!(seen.insert(block * BLOCK_BITS));
        }
        assert_eq!(seen.open.len(), OPEN_BLOCKS_MAX);
        // A sequence of a given-up block is not tracked, and does not count as new.
        assert!(!seen.insert(1));
    }
}
