//! Checks that sent = acknowledged = received by counting and comparing, without assumptions.

use crate::load::outcome::{ConsumeOutcome, ProduceOutcome};
use crate::report::Integrity;

/// Compares the counts of the groups of one measurement.
///
/// - Shape: each group of consumers reads its topics independently, so each must have received all
///   that was acknowledged in them. This also holds for a group that does not read from the
///   beginning and keeps up, because it starts before the producers.
pub fn check(producers: &[ProduceOutcome], consumers: &[ConsumeOutcome], is_complete: bool) -> Integrity {
    let missing = consumers.iter().map(|group| {
        let received = group.records_in_all - group.duplicated;
        group.acknowledged_in_its_topics.saturating_sub(received)
    });
    Integrity {
        sent: producers.iter().map(|group| group.sent).sum(),
        acknowledged: producers.iter().map(|group| group.acknowledged).sum(),
        failed: producers.iter().map(|group| group.failed).sum(),
        received: (!consumers.is_empty()).then(|| consumers.iter().map(|group| group.records).sum()),
        lost: match is_complete {
            true => missing.max().unwrap_or(0),
            // Readers that were stopped before they had caught up have lost nothing.
            false => 0,
        },
        duplicated: consumers.iter().map(|group| group.duplicated).sum(),
        disordered: consumers.iter().map(|group| group.disordered).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumed(acknowledged_in_its_topics: u64, records_in_all: u64, duplicated: u64) -> ConsumeOutcome {
        ConsumeOutcome {
            acknowledged_in_its_topics,
            records_in_all,
            duplicated,
            ..ConsumeOutcome::default()
        }
    }

    #[test]
    fn an_unread_record_is_lost() {
        assert_eq!(check(&[], &[consumed(10, 9, 0)], true).lost, 1);
        // A duplicate does not compensate for it.
        assert_eq!(check(&[], &[consumed(10, 10, 1)], true).lost, 1);
        // Every group reads everything.
        assert_eq!(
            check(&[], &[consumed(10, 10, 0), consumed(10, 7, 0)], true).lost,
            3
        );
    }

    #[test]
    fn records_of_topics_that_a_group_does_not_read_are_not_lost() {
        let produced = ProduceOutcome {
            acknowledged_in_all: 110,
            ..ProduceOutcome::default()
        };
        let readers = [consumed(100, 100, 0), consumed(10, 10, 0)];
        assert_eq!(check(&[produced], &readers, true).lost, 0);
    }

    #[test]
    fn readers_that_were_stopped_lost_nothing() {
        assert_eq!(check(&[], &[consumed(10, 4, 0)], false).lost, 0);
        assert_eq!(check(&[ProduceOutcome::default()], &[], true).received, None);
    }

    #[test]
    fn records_that_failed_and_arrived_all_the_same_are_not_negative_losses() {
        assert_eq!(check(&[], &[consumed(10, 12, 0)], true).lost, 0);
    }
}
