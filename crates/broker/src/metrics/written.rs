//! The partitions that one connection writes to: the heaviest of them, and how many there are, in
//! memory that does not grow with their number.
//!
//! Space-Saving (Metwally, Agrawal, El Abbadi 2005): where no entry is free, a new partition takes
//! the place of the lightest and inherits its weight. A partition with more than one part in
//! `ENTRIES_MAX` of the bytes always has an entry.

use ottla_core::seen::WrittenBatch;
use ottla_core::time::Moment;
use ottla_wire::primitives::Uuid;

use super::recent::Recent;

/// Up to this many partitions are counted exactly.
const ENTRIES_MAX: usize = 32;

/// The number of partitions is estimated from this many bits (linear counting): exact to about one
/// part in twenty up to a thousand partitions.
const BITS: usize = 1_024;

/// One bit for each partition that was written to, by a hash.
pub type PartitionBits = [u64; BITS / 64];

/// One partition's sums since its entry was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenPartition {
    pub topic_id: Uuid,
    pub index: i32,
    /// Counts the connection's entries: a partition that lost its entry and got another one counts
    /// from zero.
    pub entry: u32,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
    /// The weight that was inherited.
    inherited_bytes: u64,
}

impl WrittenPartition {
    fn is_of(&self, batch: &WrittenBatch) -> bool {
        self.index == batch.index && self.topic_id == batch.topic_id
    }

    fn weight(&self) -> u64 {
        self.inherited_bytes + self.bytes
    }
}

#[derive(Clone, Debug, Default)]
pub struct WrittenPartitions {
    entries: Vec<WrittenPartition>,
    /// How many entries were made.
    entered: u32,
    /// The entry to look at first: clients name the same partitions in the same order.
    next: usize,
    bits: Recent<PartitionBits>,
}

impl WrittenPartitions {
    pub fn add(&mut self, batch: &WrittenBatch, now: Moment) {
        let bit = bit(batch);
        self.bits.at(now)[bit / 64] |= 1 << (bit % 64);
        let place = self.place(batch);
        let entry = &mut self.entries[place];
        entry.batches += 1;
        entry.records += u64::from(batch.records);
        entry.bytes += u64::from(batch.bytes);
        self.next = place + 1;
    }

    fn place(&mut self, batch: &WrittenBatch) -> usize {
        if self
            .entries
            .get(self.next)
            .is_some_and(|entry| entry.is_of(batch))
        {
            return self.next;
        }
        if let Some(place) = self.entries.iter().position(|entry| entry.is_of(batch)) {
            return place;
        }
        let lightest = match self.entries.len() {
            ENTRIES_MAX.. => (0..ENTRIES_MAX).min_by_key(|place| self.entries[*place].weight()),
            _ => None,
        };
        let entry = WrittenPartition {
            topic_id: batch.topic_id,
            index: batch.index,
            entry: self.entered,
            batches: 0,
            records: 0,
            bytes: 0,
            inherited_bytes: lightest.map_or(0, |place| self.entries[place].weight()),
        };
        self.entered = self.entered.wrapping_add(1);
        match lightest {
            Some(place) => {
                self.entries[place] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        }
    }

    pub fn entries(&self) -> &[WrittenPartition] {
        &self.entries
    }

    /// The partitions that were written to lately.
    pub fn bits(&self, now: Moment) -> PartitionBits {
        let [mut bits, before] = self.bits.read(now);
        for (word, before) in bits.iter_mut().zip(before) {
            *word |= before;
        }
        bits
    }
}

fn bit(batch: &WrittenBatch) -> usize {
    let id = u128::from_be_bytes(batch.topic_id.0);
    let key = ((id >> 64) as u64 ^ id as u64).wrapping_add(u64::from(batch.index as u32));
    // SplitMix64's finish.
    let key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (key >> 54) as usize % BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(index: i32, bytes: u32) -> WrittenBatch {
        WrittenBatch {
            topic_id: Uuid([7; 16]),
            index,
            records: bytes / 100,
            bytes,
        }
    }

    fn ones(bits: PartitionBits) -> u32 {
        bits.iter().map(|word| word.count_ones()).sum()
    }

    #[test]
    fn a_few_partitions_are_counted_exactly() {
        let mut written = WrittenPartitions::default();
        for round in 0..100 {
            for index in [3, 1, 2] {
                written.add(
                    &batch(index, 100 * index as u32),
                    Moment::from_micros(round * 200_000),
                );
            }
        }
        let sums: Vec<_> = (written.entries().iter())
            .map(|entry| (entry.index, entry.batches, entry.records, entry.bytes))
            .collect();
        assert_eq!(
            sums,
            [
                (3, 100, 300, 30_000),
                (1, 100, 100, 10_000),
                (2, 100, 200, 20_000)
            ]
        );
        assert_eq!(ones(written.bits(Moment::from_micros(20_000_000))), 3);
        assert_eq!(ones(written.bits(Moment::from_micros(60_000_000))), 0, "long ago");
    }

    #[test]
    fn the_heaviest_of_many_partitions_keeps_its_entry() {
        let mut written = WrittenPartitions::default();
        let now = Moment::from_micros(0);
        for round in 0..2_000 {
            written.add(&batch(round % 500, 100), now);
            if round % 4 == 0 {
                written.add(&batch(-1, 500), now);
            }
        }
        assert_eq!(written.entries().len(), ENTRIES_MAX);
        let heaviest = written.entries().iter().max_by_key(|entry| entry.bytes).unwrap();
        assert_eq!(
            (heaviest.index, heaviest.batches, heaviest.bytes),
            (-1, 500, 250_000)
        );
        // A partition that comes back later is another entry.
        let entries: std::collections::BTreeSet<u32> =
            written.entries().iter().map(|entry| entry.entry).collect();
        assert_eq!(entries.len(), ENTRIES_MAX);
        let found = f64::from(ones(written.bits(now)));
        let estimate = -(BITS as f64) * (1.0 - found / BITS as f64).ln();
        assert!((480.0..520.0).contains(&estimate), "{estimate}");
    }
}
