//! Records of groups whose protocol this coordinator does not implement: share groups and streams
//! groups. They stay in the log untouched, so that Apache Kafka finds them again.

use std::collections::BTreeSet;

/// Record types of the keys, from Apache Kafka's `CoordinatorRecordType`.
pub const CONSUMER_TYPES: &[i16] = &[3, 4, 5, 6, 7, 8, 16];
const SHARE_TYPES: std::ops::RangeInclusive<i16> = 10..=15;
const STREAMS_TYPES: std::ops::RangeInclusive<i16> = 17..=23;
/// Types with one record per member: of share and streams groups.
const MEMBER_TYPES: &[i16] = &[10, 19];
/// Types of streams groups, in order of removal: the members' records first and the group's own
/// record last, because Apache Kafka refuses to load a group that is removed while members or their
/// assignments are left.
const REMOVAL_ORDER: &[i16] = &[22, 21, 20, 19, 18, 23, 17];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignKind {
    Share,
    Streams,
}

impl ForeignKind {
    /// Returns the kind; `None`: not a record of a group that this module keeps.
    pub fn of_record_type(record_type: i16) -> Option<ForeignKind> {
        if SHARE_TYPES.contains(&record_type) {
            Some(ForeignKind::Share)
        } else if STREAMS_TYPES.contains(&record_type) {
            Some(ForeignKind::Streams)
        } else {
            None
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ForeignKind::Share => "share",
            ForeignKind::Streams => "streams",
        }
    }
}

/// The keys, as bytes, of a group's foreign records without tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    keys: BTreeSet<Box<[u8]>>,
}

impl Foreign {
    pub fn apply(&mut self, key: &[u8], is_present: bool) {
        if is_present {
            self.keys.insert(key.into());
        } else {
            self.keys.remove(key);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn kind(&self) -> Option<ForeignKind> {
        self.types().find_map(ForeignKind::of_record_type)
    }

    pub fn has_members(&self) -> bool {
        self.types()
            .any(|record_type| MEMBER_TYPES.contains(&record_type))
    }

    /// Returns the keys that get tombstones when a group is deleted or becomes a classic one.
    /// Neither happens to share groups.
    pub fn removal_keys(&self) -> Vec<Vec<u8>> {
        let rank = |key: &[u8]| {
            REMOVAL_ORDER
                .iter()
                .position(|record_type| Some(*record_type) == record_type_of(key))
        };
        let mut keys: Vec<Vec<u8>> = self.keys.iter().map(|key| key.to_vec()).collect();
        keys.sort_by_key(|key| rank(key));
        keys
    }

    fn types(&self) -> impl Iterator<Item = i16> + '_ {
        self.keys.iter().filter_map(|key| record_type_of(key))
    }
}

fn record_type_of(key: &[u8]) -> Option<i16> {
    key.first_chunk::<2>().map(|bytes| i16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_member_record_has_members_until_its_tombstone() {
        let mut foreign = Foreign::default();
        foreign.apply(b"\0\x11\0\x01g", true);
        assert_eq!(
            (foreign.kind(), foreign.has_members()),
            (Some(ForeignKind::Streams), false)
        );
        foreign.apply(b"\0\x13\0\x01g\0\x01m", true);
        assert!(foreign.has_members());
        foreign.apply(b"\0\x13\0\x01g\0\x01m", false);
        assert!(!foreign.has_members());
    }

    #[test]
    fn the_record_of_the_group_is_removed_last() {
        let check = |types: &[u8], expected: &[u8]| {
            let mut foreign = Foreign::default();
            for record_type in types {
                foreign.apply(&[0, *record_type, b'g'], true);
            }
            let removed: Vec<u8> = foreign.removal_keys().iter().map(|key| key[1]).collect();
            assert_eq!(removed, expected);
        };
        check(&[17, 18, 19, 20, 21, 22, 23], &[22, 21, 20, 19, 18, 23, 17]);
    }

    #[test]
    fn each_kind_of_group_has_its_own_member_records() {
        for (group_type, member_type) in [(11, 10), (17, 19)] {
            let mut foreign = Foreign::default();
            foreign.apply(&[0, group_type, b'g'], true);
            assert!(!foreign.has_members());
            foreign.apply(&[0, member_type, b'g', b'm'], true);
            assert!(foreign.has_members());
        }
    }
}
