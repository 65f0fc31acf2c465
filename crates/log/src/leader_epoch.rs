//! The start offset of each leader epoch, and its file `leader-epoch-checkpoint` (KIP-101,
//! KIP-279).

use crate::checkpoint::parse_lines;

/// - Units: `start_offset` is the first offset written in `leader_epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    pub leader_epoch: i32,
    pub start_offset: i64,
}

/// Ascending in both fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// Notes that `leader_epoch` begins at `start_offset`; true if that was new.
    pub fn assign(&mut self, leader_epoch: i32, start_offset: i64) -> bool {
        if leader_epoch < 0
            || self
                .latest()
                .is_some_and(|latest| leader_epoch <= latest.leader_epoch)
        {
            return false;
        }
        self.entries.retain(|entry| entry.start_offset < start_offset);
        self.entries.push(EpochEntry {
            leader_epoch,
            start_offset,
        });
        true
    }

    /// Returns where `leader_epoch` ended: (largest known epoch not above it, start of the next
    /// one).
    ///
    /// - Shape: the newest epoch ends at `end_offset`; an epoch newer than that is unknown
    ///   (`None`).
    /// - Source: KIP-279.
    pub fn end_offset_for(&self, leader_epoch: i32, end_offset: i64) -> Option<(i32, i64)> {
        let latest = self.latest()?;
        if leader_epoch < 0 || leader_epoch > latest.leader_epoch {
            return None;
        }
        if leader_epoch == latest.leader_epoch {
            return Some((leader_epoch, end_offset));
        }
        let next = self
            .entries
            .partition_point(|entry| entry.leader_epoch <= leader_epoch);
        let floor_epoch = next
            .checked_sub(1)
            .map_or(leader_epoch, |index| self.entries[index].leader_epoch);
        Some((floor_epoch, self.entries[next].start_offset))
    }

    /// Returns the epoch in which the record at `offset` was written.
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        let next = self.entries.partition_point(|entry| entry.start_offset <= offset);
        next.checked_sub(1).map(|index| self.entries[index].leader_epoch)
    }

    /// Removes epochs that began at or after the log's new end.
    pub fn truncate_from_end(&mut self, end_offset: i64) {
        self.entries.retain(|entry| entry.start_offset < end_offset);
    }

    /// Removes epochs that ended before the log's new start; the one that spans it now starts
    /// there.
    pub fn truncate_from_start(&mut self, start_offset: i64) {
        let next = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        if let Some(reaching) = next.checked_sub(1) {
            self.entries.drain(..reaching);
            self.entries[0].start_offset = start_offset;
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            text.push_str(&format!("{} {}\n", entry.leader_epoch, entry.start_offset));
        }
        text.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<LeaderEpochs, String> {
        let mut epochs = LeaderEpochs::default();
        for line in parse_lines(bytes)? {
            let entry = line
                .split_once(' ')
                .and_then(|(epoch, offset)| {
                    Some(EpochEntry {
                        leader_epoch: epoch.parse().ok()?,
                        start_offset: offset.parse().ok()?,
                    })
                })
                .ok_or_else(|| format!("line '{line}' is not an epoch and an offset"))?;
            epochs.assign(entry.leader_epoch, entry.start_offset);
        }
        Ok(epochs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for (leader_epoch, start_offset) in entries {
            assert!(epochs.assign(*leader_epoch, *start_offset));
        }
        epochs
    }

    fn check_end(entries: &[(i32, i64)], leader_epoch: i32, expected: Option<(i32, i64)>) {
        assert_eq!(
            epochs(entries).end_offset_for(leader_epoch, 100),
            expected,
            "epoch {leader_epoch}"
        );
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_starts() {
        let entries = [(2, 10), (4, 20), (7, 50)];
        check_end(&entries, 7, Some((7, 100)));
        check_end(&entries, 8, None);
        check_end(&entries, 4, Some((4, 50)));
        check_end(&entries, 5, Some((4, 50)));
        check_end(&entries, 1, Some((1, 10)));
        check_end(&entries, -1, None);
        check_end(&[(0, 0), (2, 5)], 0, Some((0, 5)));
        check_end(&[], 0, None);
    }

    #[test]
    fn an_epoch_without_records_is_replaced_by_the_next() {
        let epochs = epochs(&[(1, 0), (2, 5), (3, 5)]);
        assert_eq!(
            epochs.entries(),
            [(1, 0), (3, 5)].map(|(e, o)| EpochEntry {
                leader_epoch: e,
                start_offset: o
            })
        );
    }

    #[test]
    fn truncation_cuts_both_ends() {
        let mut cut = epochs(&[(1, 0), (2, 5), (3, 9)]);
        cut.truncate_from_end(9);
        cut.truncate_from_start(6);
        assert_eq!(cut, epochs(&[(2, 6)]));
        cut.truncate_from_start(6);
        assert_eq!(cut, epochs(&[(2, 6)]));
        assert_eq!(cut.epoch_at(5), None);
        assert_eq!(cut.epoch_at(6), Some(2));
        let mut between = epochs(&[(1, 0), (2, 5), (3, 9)]);
        between.truncate_from_start(5);
        assert_eq!(between, epochs(&[(2, 5), (3, 9)]));
    }

    #[test]
    fn an_epoch_begins_once() {
        let mut known = epochs(&[(1, 0), (3, 5)]);
        for (leader_epoch, start_offset) in [(3, 8), (2, 8), (-1, 8)] {
            assert!(!known.assign(leader_epoch, start_offset), "{leader_epoch}");
        }
        assert_eq!(known, epochs(&[(1, 0), (3, 5)]));
    }

    #[test]
    fn the_file_has_kafkas_format() {
        let epochs = epochs(&[(0, 0), (3, 17)]);
        assert_eq!(epochs.encode(), b"0\n2\n0 0\n3 17\n");
        assert_eq!(LeaderEpochs::decode(&epochs.encode()), Ok(epochs));
        assert!(LeaderEpochs::decode(b"0\n2\n0 0\n").is_err());
        assert!(LeaderEpochs::decode(b"1\n0\n").is_err());
        assert!(LeaderEpochs::decode(b"0\n1\n0 x\n").is_err());
    }
}
