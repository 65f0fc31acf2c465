//! sent = acknowledged = received: counted and compared, not assumed.

use crate::bench::result::Integrity;
use crate::load::outcome::{ConsumeOutcome, ProduceOutcome};

/// What the groups of one measurement say together.
///
/// - Shape: each group of consumers reads everything for itself, so each must have received all that was acknowledged. A group
///   that does not read from the beginning and keeps up is held to the same, since it starts before the producers.
pub fn check(producers: &[ProduceOutcome], consumers: &[ConsumeOutcome], is_complete: bool) -> Integrity {
    let acknowledged_in_all: u64 = producers.iter().map(|group| group.acknowledged_in_all).sum();
    let fewest = consumers
        .iter()
        .map(|group| group.records_in_all - group.duplicated)
        .min();
    Integrity {
        sent: producers.iter().map(|group| group.sent).sum(),
        acknowledged: producers.iter().map(|group| group.acknowledged).sum(),
        failed: producers.iter().map(|group| group.failed).sum(),
        received: (!consumers.is_empty()).then(|| consumers.iter().map(|group| group.records).sum()),
        lost: match fewest {
            // Readers that were stopped before they had caught up have lost nothing.
            Some(received) if is_complete => acknowledged_in_all.saturating_sub(received),
            _ => 0,
        },
        duplicated: consumers.iter().map(|group| group.duplicated).sum(),
        disordered: consumers.iter().map(|group| group.disordered).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn produced(acknowledged_in_all: u64) -> ProduceOutcome {
        ProduceOutcome {
            acknowledged_in_all,
            ..ProduceOutcome::default()
        }
    }

    fn consumed(records_in_all: u64, duplicated: u64) -> ConsumeOutcome {
        ConsumeOutcome {
            records_in_all,
            duplicated,
            ..ConsumeOutcome::default()
        }
    }

    #[test]
    fn a_record_that_nobody_read_is_lost() {
        assert_eq!(check(&[produced(10)], &[consumed(9, 0)], true).lost, 1);
        // A duplicate does not make up for it.
        assert_eq!(check(&[produced(10)], &[consumed(10, 1)], true).lost, 1);
        // Every group reads everything.
        assert_eq!(
            check(&[produced(10)], &[consumed(10, 0), consumed(7, 0)], true).lost,
            3
        );
    }

    #[test]
    fn readers_that_were_stopped_lost_nothing() {
        assert_eq!(check(&[produced(10)], &[consumed(4, 0)], false).lost, 0);
        assert_eq!(check(&[produced(10)], &[], true).received, None);
    }

    #[test]
    fn records_that_failed_and_arrived_all_the_same_are_not_negative_losses() {
        assert_eq!(check(&[produced(10)], &[consumed(12, 0)], true).lost, 0);
    }
}
