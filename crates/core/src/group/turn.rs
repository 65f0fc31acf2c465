//! The context in which a group answers one request or handles one timer.

use std::sync::Arc;

use ottla_wire::primitives::STRING_BYTES_MAX;
use ottla_wire::random::Random;

use crate::time::Now;

use super::classic::Group;
use super::config::GroupConfig;
use super::record::{GroupRecord, StoredGroup};
use super::reply::{GroupReply, Step};
use super::request::Ticket;
use super::timer::{Timer, Timers};

pub(super) struct Turn<'m> {
    pub now: Now,
    pub config: &'m GroupConfig,
    pub timers: &'m mut Timers,
    pub order: &'m mut u64,
    pub ids: &'m mut MemberIds,
    pub step: Step,
}

impl Turn<'_> {
    /// Applies a record and asks the caller to make it durable.
    pub fn record(&mut self, group: &mut Group, record: GroupRecord) {
        *self.order += 1;
        group.apply(*self.order, &record);
        self.step.records.push(record);
    }

    pub fn record_group(&mut self, group: &mut Group, stored: StoredGroup) {
        let record = GroupRecord::Group {
            group: group.group_id.clone(),
            value: Some(Arc::new(stored)),
        };
        self.record(group, record);
    }

    pub fn reply(&mut self, ticket: Ticket, reply: GroupReply) {
        self.step.replies.push((ticket, reply));
    }

    /// Arms a timer; a negative time counts as 0.
    pub fn schedule(&mut self, timer: Timer, in_ms: i32) {
        let in_ms = u64::try_from(in_ms).unwrap_or(0);
        self.timers.schedule(timer, self.now.moment.after_ms(in_ms));
    }
}

/// A hyphen and the 36 characters of a UUID must fit after it into the longest string of an answer.
const PREFIX_BYTES_MAX: usize = STRING_BYTES_MAX - 37;

/// Generator of member ids in Apache Kafka's form: a readable prefix and a random UUID.
#[derive(Clone, Debug)]
pub struct MemberIds {
    random: Random,
}

impl MemberIds {
    /// Creates a generator. Two coordinators, or two incarnations of one, must not share a seed.
    pub fn new(seed: u64) -> MemberIds {
        MemberIds {
            random: Random::new(seed),
        }
    }

    pub fn next(&mut self, prefix: &str) -> Arc<str> {
        let prefix = &prefix[..prefix.floor_char_boundary(PREFIX_BYTES_MAX)];
        let (high, low) = (self.random.next_u64(), self.random.next_u64());
        // RFC 9562: version 4 in the high nibble of byte 6, variant 10 in the top bits of byte 8.
        let high = (high & !0xf000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{prefix}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_ids_are_random_and_marked_as_such() {
        let mut ids = MemberIds::new(7);
        let ids: Vec<Arc<str>> = (0..64).map(|_| ids.next("c")).collect();
        let at = |index: usize| -> std::collections::BTreeSet<char> {
            ids.iter().filter_map(|id| id.chars().nth(index)).collect()
        };
        assert!(
            ids.iter().all(|id| id.starts_with("c-") && id.len() == 38),
            "{ids:?}"
        );
        assert_eq!(String::from_iter(at(16)), "4", "the version");
        assert_eq!(String::from_iter(at(21)), "89ab", "the variant");
        let digits = (2..38).filter(|index| ![10, 15, 16, 20, 21, 25].contains(index));
        assert!(digits.clone().all(|index| at(index).len() > 8), "{ids:?}");
    }
}
