//! One partition.

use ottla_broker::AdminView;
use ottla_broker::admin::partition::{self, ActiveProducer, SegmentSummary};
use ottla_console::source::{LogSegment, PartitionDetail, PartitionProducer};

use super::topics;

pub fn one(view: &AdminView, topic: &str, index: i32) -> Option<PartitionDetail> {
    let look = partition::look(&view.node, topic, index)?;
    let partition = view.node.storage.partition_by_name(topic, index).ok()?;
    Some(PartitionDetail {
        partition: topics::row(&partition),
        last_stable: Ok(look.offsets.last_stable),
        leader_epoch: Ok(look.leader_epoch),
        newest_at_ms: Ok(look.newest_at_ms),
        segments: Ok(look.segments.iter().map(segment).collect()),
        segments_cut: look.segments_cut,
        producers: Ok(look.producers.iter().map(producer).collect()),
        producers_cut: look.producers_cut,
    })
}

fn segment(segment: &SegmentSummary) -> LogSegment {
    LogSegment {
        base_offset: segment.base_offset,
        bytes: segment.bytes,
        newest_at_ms: segment.largest_timestamp,
    }
}

fn producer(producer: &ActiveProducer) -> PartitionProducer {
    let known = |value: i64| Some(value).filter(|value| *value >= 0);
    PartitionProducer {
        producer_id: producer.producer_id,
        producer_epoch: producer.producer_epoch.into(),
        last_sequence: producer.last_sequence,
        last_at_ms: known(producer.last_timestamp),
        transaction_from: known(producer.transaction_first_offset),
    }
}
