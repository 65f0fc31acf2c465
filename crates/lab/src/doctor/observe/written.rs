//! The partitions that a producer writes to, from its connections' counts: the heaviest, and how
//! many there are.

use std::sync::Arc;

use super::counts::{PARTITION_BITS, PartitionBits, PartitionCounts, WrittenCounts};
use crate::doctor::snapshot::WrittenPartition;

/// Kept per slice and reported per window.
const HEAVIEST: usize = 8;

/// One partition's sums over a slice, or over a window of several.
#[derive(Clone, Debug)]
struct Sums {
    topic: Arc<str>,
    partition: i32,
    batches: u64,
    records: u64,
    bytes: u64,
}

impl Sums {
    fn is_same(&self, other: &Sums) -> bool {
        // Names of one broker are mostly one allocation.
        self.partition == other.partition
            && (Arc::ptr_eq(&self.topic, &other.topic) || self.topic == other.topic)
    }
}

/// What a client wrote over a slice, or over a window of several.
#[derive(Clone, Debug, Default)]
pub struct Written {
    partitions: Vec<Sums>,
    /// Set where `partitions` may lack some.
    bits: Option<Box<PartitionBits>>,
}

impl Written {
    /// Adds what a connection wrote between two readings.
    pub fn add(&mut self, now: &WrittenCounts, before: Option<&WrittenCounts>) {
        let earlier = before.map_or(&[][..], |before| &before.partitions);
        for partition in &now.partitions {
            let same = |before: &&PartitionCounts| before.entry == partition.entry;
            let before = earlier.iter().find(same);
            let since = |of: fn(&PartitionCounts) -> u64| of(partition) - before.map_or(0, of);
            let sums = Sums {
                topic: partition.topic.clone(),
                partition: partition.partition,
                batches: since(|counts| counts.batches),
                records: since(|counts| counts.records),
                bytes: since(|counts| counts.bytes),
            };
            if sums.batches > 0 {
                self.add_sums(&sums);
            }
        }
        self.add_bits(&now.bits);
    }

    fn add_sums(&mut self, sums: &Sums) {
        match self.partitions.iter_mut().find(|known| known.is_same(sums)) {
            Some(known) => {
                known.batches += sums.batches;
                known.records += sums.records;
                known.bytes += sums.bytes;
            }
            None => self.partitions.push(sums.clone()),
        }
    }

    fn add_bits(&mut self, bits: &PartitionBits) {
        let own = self.bits.get_or_insert_with(|| Box::new([0; _]));
        for (own, more) in own.iter_mut().zip(bits) {
            *own |= more;
        }
    }

    /// Ends a slice: only the heaviest stay.
    pub fn end(&mut self) {
        if self.partitions.len() > HEAVIEST {
            self.sort();
            self.partitions.truncate(HEAVIEST);
            self.partitions.shrink_to_fit();
        } else {
            self.bits = None;
        }
    }

    fn sort(&mut self) {
        self.partitions.sort_by_key(|sums| std::cmp::Reverse(sums.bytes));
    }

    /// Adds the next slice of the same client.
    pub fn merge(&mut self, later: &Written) {
        for sums in &later.partitions {
            self.add_sums(sums);
        }
        if let Some(bits) = &later.bits {
            self.add_bits(bits);
        }
    }

    /// How many partitions there were: beyond a handful an estimate by linear counting (Whang,
    /// Vander-Zanden, Taylor 1990).
    pub fn count(&self) -> Option<f64> {
        let known = self.partitions.len() as f64;
        let estimate = self.bits.as_ref().map_or(0.0, |bits| {
            let free: u32 = bits.iter().map(|word| word.count_zeros()).sum();
            let all = PARTITION_BITS as f64;
            (all * (all / f64::from(free.max(1))).ln()).round()
        });
        (known > 0.0).then(|| known.max(estimate))
    }

    pub fn heaviest(&self, seconds: f64) -> Vec<WrittenPartition> {
        let mut sorted = self.clone();
        sorted.sort();
        let per_second = |count: u64| Some(count as f64 / seconds.max(0.001));
        let heaviest = sorted.partitions.iter().take(HEAVIEST);
        heaviest
            .map(|sums| WrittenPartition {
                topic: sums.topic.to_string(),
                partition: sums.partition,
                bytes_per_second: per_second(sums.bytes),
                records_per_second: per_second(sums.records),
                batches_per_second: per_second(sums.batches),
                batch_bytes: Some(sums.bytes as f64 / sums.batches.max(1) as f64),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(partition: i32, entry: u32, batches: u64) -> PartitionCounts {
        PartitionCounts {
            topic: "t".into(),
            partition,
            entry,
            batches,
            records: 10 * batches,
            bytes: 1_000 * batches,
        }
    }

    fn reading(partitions: Vec<PartitionCounts>, bits: PartitionBits) -> WrittenCounts {
        WrittenCounts { partitions, bits }
    }

    fn slice(now: &WrittenCounts, before: Option<&WrittenCounts>) -> Written {
        let mut written = Written::default();
        written.add(now, before);
        written.end();
        written
    }

    #[test]
    fn a_partition_counts_what_was_written_since_the_reading_before() {
        let first = reading(vec![counts(0, 0, 5), counts(1, 1, 7)], [0; _]);
        // Partition 1 lost its entry, and got another one.
        let second = reading(vec![counts(0, 0, 25), counts(1, 2, 10)], [0; _]);
        let mut window = slice(&first, None);
        window.merge(&slice(&second, Some(&first)));
        let heaviest = window.heaviest(10.0);
        let found: Vec<_> = (heaviest.iter())
            .map(|partition| (partition.partition, partition.batches_per_second))
            .collect();
        assert_eq!(found, [(0, Some(2.5)), (1, Some(1.7))]);
        assert_eq!(heaviest[0].records_per_second, Some(25.0));
        assert_eq!(heaviest[0].batch_bytes, Some(1_000.0));
        assert_eq!(window.count(), Some(2.0));
        let idle = slice(&second, Some(&second));
        assert_eq!((idle.count(), idle.heaviest(10.0).len()), (None, 0));
    }

    #[test]
    fn of_many_partitions_the_heaviest_stay_and_the_others_are_counted() {
        let many = (0..40).map(|index| counts(index, index as u32, 1 + index as u64));
        let mut bits: PartitionBits = [0; _];
        for index in 0..60 {
            bits[index / 8] |= 1 << (7 * index % 64);
        }
        let written = slice(&reading(many.collect(), bits), None);
        let heaviest = written.heaviest(1.0);
        let found: Vec<i32> = heaviest.iter().map(|partition| partition.partition).collect();
        assert_eq!(found, [39, 38, 37, 36, 35, 34, 33, 32]);
        assert_eq!(written.count(), Some(62.0), "60 bits of 1,024");
    }
}
