//! Idempotence: the producer id and each batch's sequence (KIP-98, KIP-360).
//!
//! The broker tracks producer epoch and sequence per partition, so a partition that must restart at
//! sequence 0 raises its own epoch and disturbs no other. Kafka's Java client raises one epoch for
//! all partitions, and the others follow when they are idle; what arrives at each broker obeys the
//! same rules.

use ottla_wire::records::batch::add_to_sequence;

use super::batch::Sequence;
use crate::time::Moment;

/// A producer id and the epoch with which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProducerId {
    pub id: i64,
    pub epoch: i16,
}

/// The state of the producer's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Not idempotent: batches carry no id.
    None,
    /// To be requested, not before this moment; `attempts` requests have failed.
    Wanted {
        attempts: u32,
        not_before: Moment,
    },
    Asked {
        attempts: u32,
    },
    Known(ProducerId),
}

impl Identity {
    pub fn new(is_idempotent: bool) -> Identity {
        match is_idempotent {
            true => Identity::WANTED,
            false => Identity::None,
        }
    }

    const WANTED: Identity = Identity::Wanted {
        attempts: 0,
        not_before: Moment::from_nanos(0),
    };

    pub fn is_idempotent(&self) -> bool {
        *self != Identity::None
    }

    pub fn known(&self) -> Option<ProducerId> {
        match self {
            Identity::Known(producer) => Some(*producer),
            _ => None,
        }
    }

    /// The epochs of `used_up` are exhausted: another id is needed, unless there is one already.
    pub fn renew(&mut self, used_up: i64) {
        if self.known().is_some_and(|producer| producer.id == used_up) {
            *self = Identity::WANTED;
        }
    }
}

/// The sequences of one partition's batches.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    producer: Option<ProducerId>,
    next: i32,
    /// The broker has acknowledged a batch of this id and epoch.
    is_proven: bool,
    /// Base sequence of the last batch that was given up while the broker may or may not have it:
    /// it is not known whether the broker expects `next`.
    unresolved: Option<i32>,
}

impl Sequences {
    /// Numbers the next batch; `producer` is used if this is the partition's first.
    ///
    /// - Errors: `None` while there is no producer id.
    pub fn assign(&mut self, producer: Option<ProducerId>, record_count: u32) -> Option<Sequence> {
        // Use the partition's own id first: another partition with exhausted epochs may have made
        // the producer request a new one.
        let used = self.producer.or(producer)?;
        self.producer = Some(used);
        let sequence = Sequence {
            producer_id: used.id,
            producer_epoch: used.epoch,
            base_sequence: self.next,
        };
        self.next = after(self.next, record_count);
        Some(sequence)
    }

    /// False until the broker knows this producer: before that it accepts any sequence for the
    /// first batch, so a second batch in flight could be stored although the first was refused.
    /// Kafka's Java client takes that risk.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub fn is_unresolved(&self) -> bool {
        self.unresolved.is_some()
    }

    /// Marks a batch as given up, or as refused because the broker misses something before it.
    pub fn mark_unresolved(&mut self, sequence: Sequence) {
        if !self.is_current(sequence) {
            return;
        }
        let base = sequence.base_sequence;
        if self.unresolved.is_none_or(|marked| is_after(base, marked)) {
            self.unresolved = Some(base);
        }
    }

    /// The broker has this batch, hence every one before it.
    pub fn acknowledge(&mut self, sequence: Sequence) {
        self.is_proven |= self.is_current(sequence);
        let is_proof = |marked| is_after(sequence.base_sequence, marked);
        if self.is_current(sequence) && self.unresolved.is_some_and(is_proof) {
            self.unresolved = None;
        }
    }

    /// Restarts at sequence 0 under the next epoch, or under another id when the epochs are
    /// exhausted.
    ///
    /// Call it only when no batch numbered under the old epoch can be mistaken for a new one: none
    /// is in flight, and those to be retried are known not to be in the log.
    ///
    /// - Errors: false when another id must be requested first.
    pub fn restart(&mut self, known: Option<ProducerId>) -> bool {
        self.producer = match (self.producer, known) {
            (Some(used), _) if used.epoch < i16::MAX => Some(ProducerId {
                epoch: used.epoch + 1,
                ..used
            }),
            (Some(used), Some(known)) if known.id != used.id => Some(known),
            (Some(_), _) => return false,
            (None, known) => known,
        };
        self.next = 0;
        self.is_proven = false;
        self.unresolved = None;
        true
    }

    /// Restarts at sequence 0 under the producer's own id and epoch: with transactions the
    /// coordinator raises the epoch, for all partitions together.
    pub fn start_over(&mut self) {
        *self = Sequences {
            // Brokers that know the producer accept nothing but 0 from a new epoch.
            is_proven: self.is_proven,
            ..Sequences::default()
        };
    }

    pub fn producer_id(&self) -> Option<i64> {
        self.producer.map(|producer| producer.id)
    }

    fn is_current(&self, sequence: Sequence) -> bool {
        self.producer
            == Some(ProducerId {
                id: sequence.producer_id,
                epoch: sequence.producer_epoch,
            })
    }
}

/// The sequence after `record_count` records that begin at `base`.
pub(super) fn after(base: i32, record_count: u32) -> i32 {
    add_to_sequence(
        base,
        i32::try_from(record_count).expect("a batch has less than 2^31 records"),
    )
}

/// Whether `sequence` comes later than `other` modulo 2^31; the two are never far apart.
fn is_after(sequence: i32, other: i32) -> bool {
    let distance = (i64::from(sequence) - i64::from(other)) & 0x7FFF_FFFF;
    (1..1 << 30).contains(&distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCER: ProducerId = ProducerId { id: 7, epoch: 0 };

    fn assign(sequences: &mut Sequences, count: u32) -> Sequence {
        sequences.assign(Some(PRODUCER), count).unwrap()
    }

    #[test]
    fn a_partition_keeps_its_id_while_another_is_requested() {
        let mut sequences = Sequences::default();
        let first = assign(&mut sequences, 2);
        let second = sequences.assign(None, 1).unwrap();
        assert_eq!((second.producer_id, second.base_sequence), (first.producer_id, 2));
    }

    #[test]
    fn sequences_are_consecutive_and_wrap_after_the_largest() {
        let mut sequences = Sequences::default();
        assert_eq!(sequences.assign(None, 1), None);
        assert_eq!(assign(&mut sequences, 3).base_sequence, 0);
        assert_eq!(assign(&mut sequences, i32::MAX as u32 - 3).base_sequence, 3);
        assert_eq!(assign(&mut sequences, 2).base_sequence, i32::MAX);
        assert_eq!(assign(&mut sequences, 1).base_sequence, 1);
    }

    #[test]
    fn a_later_batch_in_the_log_resolves_a_batch_that_was_given_up() {
        let mut sequences = Sequences::default();
        let [first, second, third] = [2, 2, 2].map(|count| assign(&mut sequences, count));
        sequences.mark_unresolved(second);
        sequences.acknowledge(first);
        assert!(sequences.is_unresolved());
        sequences.acknowledge(third);
        assert!(!sequences.is_unresolved());
        assert_eq!(assign(&mut sequences, 1).base_sequence, 6);
    }

    #[test]
    fn resolving_works_across_the_wrap() {
        let mut sequences = Sequences::default();
        assign(&mut sequences, i32::MAX as u32);
        let [last, wrapped] = [1, 1].map(|count| assign(&mut sequences, count));
        assert_eq!((last.base_sequence, wrapped.base_sequence), (i32::MAX, 0));
        sequences.mark_unresolved(last);
        sequences.acknowledge(wrapped);
        assert!(!sequences.is_unresolved());
    }

    #[test]
    fn a_restart_raises_the_epoch_and_forgets_older_ones() {
        let mut sequences = Sequences::default();
        let old = assign(&mut sequences, 4);
        sequences.mark_unresolved(old);
        assert!(sequences.restart(Some(PRODUCER)));
        let new = assign(&mut sequences, 1);
        assert_eq!((new.producer_epoch, new.base_sequence), (1, 0));
        sequences.mark_unresolved(old);
        assert!(!sequences.is_unresolved());
    }

    #[test]
    fn only_a_batch_of_the_present_epoch_proves_that_the_broker_knows_the_producer() {
        let mut sequences = Sequences::default();
        let first = assign(&mut sequences, 1);
        assert!(!sequences.is_proven());
        sequences.acknowledge(first);
        assert!(sequences.is_proven());
        assert!(sequences.restart(Some(PRODUCER)));
        sequences.acknowledge(first);
        assert!(!sequences.is_proven());
    }

    #[test]
    fn when_the_epochs_are_used_up_another_id_is_needed() {
        let last = ProducerId {
            id: 7,
            epoch: i16::MAX,
        };
        let mut sequences = Sequences::default();
        sequences.assign(Some(last), 1);
        assert!(!sequences.restart(Some(last)));
        let mut identity = Identity::Known(last);
        identity.renew(6);
        assert_eq!(identity.known(), Some(last));
        identity.renew(7);
        assert_eq!(identity.known(), None);
        let other = ProducerId { id: 8, epoch: 0 };
        assert!(sequences.restart(Some(other)));
        assert_eq!(
            sequences
                .assign(Some(other), 1)
                .map(|sequence| sequence.producer_id),
            Some(8)
        );
    }
}
