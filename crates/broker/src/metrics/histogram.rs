//! Log-linear histogram of microseconds: sixteen buckets per power of two, so a quantile is at most
//! 6.25 % too high.

const SUB_BITS: u32 = 4;
const SUB_BUCKETS: u32 = 1 << SUB_BITS;

/// Memory grows with the largest value recorded: at most 464 buckets of 8 bytes.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u32,
}

/// Returns the index of the bucket of `value`: values below 16 have one each.
fn bucket_of(value: u32) -> usize {
    if value < SUB_BUCKETS {
        return value as usize;
    }
    let exponent = 31 - value.leading_zeros() - SUB_BITS;
    ((exponent << SUB_BITS) + (value >> exponent)) as usize
}

/// The largest value in a bucket.
fn bucket_max(index: usize) -> u32 {
    let index = index as u32;
    if index < 2 * SUB_BUCKETS {
        return index;
    }
    let exponent = (index >> SUB_BITS) - 1;
    let start = u64::from(SUB_BUCKETS + (index & (SUB_BUCKETS - 1))) << exponent;
    (start + (1 << exponent) - 1) as u32
}

impl Histogram {
    pub fn record(&mut self, micros: u32) {
        let index = bucket_of(micros);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.count += 1;
        self.sum += u64::from(micros);
        self.max = self.max.max(micros);
    }

    /// Adds `count` zeros.
    pub fn record_zeros(&mut self, count: u64) {
        if count > 0 {
            if self.counts.is_empty() {
                self.counts.resize(1, 0);
            }
            self.counts[0] += count;
            self.count += count;
        }
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (into, from) in self.counts.iter_mut().zip(&other.counts) {
            *into += from;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The buckets that hold values: the largest value of each, and how many there are; ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u32, u64)> {
        let all = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(index, count)| (bucket_max(index), *count))
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> u64 {
        self.sum
    }

    pub fn max(&self) -> u32 {
        self.max
    }

    /// How many recorded values are at most `micros` (exact at bucket ends).
    pub fn count_up_to(&self, micros: u32) -> u64 {
        self.counts.iter().take(bucket_of(micros) + 1).sum()
    }

    /// The smallest bucket end below which at least `quantile` of the values lie; 0 without values.
    pub fn quantile(&self, quantile: f64) -> u32 {
        let wanted = (quantile * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return bucket_max(index).min(self.max);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_at_most_a_sixteenth_wide() {
        let mut expected = 0;
        for index in 0..=bucket_of(u32::MAX) {
            let end = bucket_max(index);
            assert_eq!(bucket_of(expected), index);
            assert_eq!(bucket_of(end), index);
            assert!(u64::from(end - expected) <= u64::from(expected) / 16);
            expected = end.wrapping_add(1);
        }
        assert_eq!(expected, 0);
        assert_eq!(bucket_of(u32::MAX) + 1, 464);
    }

    #[test]
    fn quantiles_are_near_and_never_too_low() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|value| histogram.record(value));
        for (quantile, exact) in [(0.5, 5_000), (0.99, 9_900), (0.999, 9_990), (1.0, 10_000)] {
            let found = histogram.quantile(quantile);
            assert!(
                found >= exact && found <= exact + exact / 16,
                "{quantile}: {found}"
            );
        }
        assert_eq!(histogram.quantile(1.0), 10_000);
    }

    #[test]
    fn merging_adds() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.record(3);
        b.record(1_000_000);
        a.record_zeros(2);
        a.merge(&b);
        assert_eq!((a.count(), a.sum(), a.max()), (4, 1_000_003, 1_000_000));
        assert_eq!(a.count_up_to(0), 2);
        assert_eq!(a.quantile(0.5), 0);
        assert_eq!(a.quantile(0.75), 3);
    }
}
