//! A look at one partition: its offsets, its segments, and the producers that it knows. May wait
//! for the device.

use ottla_core::node::Node;
use ottla_core::partition::Offsets;
pub use ottla_core::partition::Partition;
pub use ottla_log::{ActiveProducer, SegmentSummary};
use ottla_log::{Lookup, ReadMode};

/// Segments that are listed, the newest; others are counted.
pub const SEGMENTS_MAX: usize = 1_000;

/// Producers that are listed: those with an open transaction first, then those that wrote last.
pub const PRODUCERS_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub offsets: Offsets,
    pub leader_epoch: i32,
    /// The newest timestamp of a record; `None`: there is no record, or none has one.
    pub newest_at_ms: Option<i64>,
    /// Newest first.
    pub segments: Vec<SegmentSummary>,
    pub segments_cut: usize,
    pub producers: Vec<ActiveProducer>,
    pub producers_cut: usize,
}

/// `None`: there is no such partition.
pub fn look(node: &Node, topic: &str, index: i32) -> Option<Look> {
    let partition = node.storage.partition_by_name(topic, index).ok()?;
    // Reads the segments' newest timestamps, which are then known below.
    let newest_at_ms = newest(&partition);
    let (mut segments, producers) = partition.with_log(|log| {
        let producers: Vec<ActiveProducer> = log.active_producers().collect();
        (log.segments(), producers)
    });
    segments.reverse();
    let segments_cut = cut(&mut segments, SEGMENTS_MAX);
    let (producers, producers_cut) = first(producers);
    Some(Look {
        offsets: partition.offsets(),
        leader_epoch: partition.leader_epoch(),
        newest_at_ms,
        segments,
        segments_cut,
        producers,
        producers_cut,
    })
}

fn first(mut producers: Vec<ActiveProducer>) -> (Vec<ActiveProducer>, usize) {
    let is_open = |producer: &ActiveProducer| producer.transaction_first_offset >= 0;
    producers.sort_by_key(|producer| {
        let last = std::cmp::Reverse(producer.last_timestamp);
        (!is_open(producer), last, producer.producer_id)
    });
    let cut = cut(&mut producers, PRODUCERS_MAX);
    (producers, cut)
}

/// Shortens a list; returns how many are gone.
fn cut<T>(all: &mut Vec<T>, count_max: usize) -> usize {
    let gone = all.len().saturating_sub(count_max);
    all.truncate(count_max);
    gone
}

fn newest(partition: &Partition) -> Option<i64> {
    let view = partition.view();
    let found = view
        .reader
        .offset_for_max_timestamp(view.bound, ReadMode::Blocking);
    match found {
        Ok(Lookup::Found(record)) if record.timestamp >= 0 => Some(record.timestamp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_with_an_open_transaction_come_first_and_the_list_ends() {
        let producer = |producer_id: i64, last_timestamp: i64, first: i64| ActiveProducer {
            producer_id,
            producer_epoch: 0,
            last_sequence: 0,
            last_timestamp,
            coordinator_epoch: -1,
            transaction_first_offset: first,
        };
        let mut all: Vec<ActiveProducer> = (0..PRODUCERS_MAX as i64 + 5)
            .map(|id| producer(id, id, -1))
            .collect();
        all.push(producer(-7, 0, 40));
        let (shown, cut) = first(all);
        assert_eq!((shown.len(), cut), (PRODUCERS_MAX, 6));
        let ids: Vec<i64> = shown
            .iter()
            .take(3)
            .map(|producer| producer.producer_id)
            .collect();
        assert_eq!(ids, [-7, 1_004, 1_003]);
    }
}
