//! A bounded sample of records that producers and consumers choose identically without
//! communicating.

/// The most records of a group; about 100 bytes each.
const LIMIT: usize = 1 << 14;

/// Records chosen by their offset. When full, every second one is dropped, independently on each
/// side: what both sides have in the end is the smaller sample.
#[derive(Clone, Debug)]
pub struct Samples<T> {
    stride: u64,
    limit: usize,
    chosen: Vec<(u64, T)>,
}

impl<T> Samples<T> {
    /// One of several parts of a group that are merged at the end.
    pub fn share_of(parts: usize) -> Samples<T> {
        let limit = (LIMIT / parts.max(1)).max(64);
        Samples {
            stride: 1,
            limit,
            // Allocated at once: growing takes milliseconds, in the first second of the
            // measurement.
            chosen: Vec::with_capacity(limit),
        }
    }

    #[inline]
    pub fn offer(&mut self, partition: i32, offset: i64, sample: impl FnOnce() -> T) {
        let lot = lot(partition, offset);
        // Without acks there is no offset.
        if offset < 0 || !lot.is_multiple_of(self.stride) {
            return;
        }
        while self.chosen.len() >= self.limit {
            self.widen();
            if !lot.is_multiple_of(self.stride) || self.stride > STRIDE_MAX {
                return;
            }
        }
        self.chosen.push((lot, sample()));
    }

    fn widen(&mut self) {
        self.stride = (self.stride * 2).min(2 * STRIDE_MAX);
        let stride = self.stride;
        self.chosen.retain(|(lot, _)| lot.is_multiple_of(stride));
    }

    /// Merges all parts, at the widest of their strides.
    pub fn merge(parts: impl IntoIterator<Item = Samples<T>>) -> Vec<T> {
        let parts: Vec<Samples<T>> = parts.into_iter().collect();
        let widest = parts.iter().map(|part| part.stride).max().unwrap_or(1);
        let all = parts.into_iter().flat_map(|part| part.chosen);
        all.filter(|(lot, _)| lot.is_multiple_of(widest))
            .map(|(_, sample)| sample)
            .collect()
    }
}

/// Every stride is a power of two, so a wider one samples a subset of what a narrower one samples.
const STRIDE_MAX: u64 = 1 << 40;

/// A well-mixed hash of partition and offset: where batches have 128 records, every 128th offset
/// would be the first of a batch, which waits longest.
fn lot(partition: i32, offset: i64) -> u64 {
    let place = offset.cast_unsigned() ^ (u64::from(partition.cast_unsigned()) + 1).rotate_right(16);
    let mixed = place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(parts: usize, offsets: impl Iterator<Item = i64>) -> Samples<i64> {
        let mut samples = Samples::share_of(parts);
        offsets.for_each(|offset| samples.offer(3, offset, || offset));
        samples
    }

    #[test]
    fn of_any_number_of_records_few_are_kept_from_beginning_to_end() {
        let kept = Samples::merge([filled(1, 0..1_000_000)]);
        assert!((LIMIT / 4..=LIMIT).contains(&kept.len()), "{}", kept.len());
        let in_last_tenth = kept.iter().filter(|offset| **offset >= 900_000).count();
        assert!(in_last_tenth > kept.len() / 20, "{in_last_tenth}");
    }

    #[test]
    fn two_sides_choose_the_same_records() {
        // One side counts all of them, the other has them in four parts.
        let sent = Samples::merge([filled(1, 0..500_000)]);
        let mut received = Samples::merge((0..4).map(|part| filled(4, (0..500_000).skip(part).step_by(4))));
        received.sort_unstable();
        let common = received
            .iter()
            .filter(|offset| sent.binary_search(offset).is_ok())
            .count();
        assert!(common >= received.len().min(sent.len()) / 2, "{common}");
    }

    #[test]
    fn batches_of_a_power_of_two_are_sampled_throughout() {
        let kept = Samples::merge([filled(1, 0..4_000_000)]);
        let firsts = kept.iter().filter(|offset| *offset % 128 == 0).count();
        assert!(firsts < kept.len() / 32, "{firsts} of {}", kept.len());
    }

    #[test]
    fn the_same_offset_of_many_partitions_does_not_end_the_sampling() {
        let mut samples = Samples::share_of(1);
        for partition in 0..100_000 {
            samples.offer(partition, 0, || partition);
        }
        assert!(Samples::merge([samples]).len() >= LIMIT / 4);
    }

    #[test]
    fn records_without_an_offset_are_no_samples() {
        assert!(Samples::merge([filled(1, std::iter::repeat_n(-1, 9))]).is_empty());
    }
}
