//! Transactions that a directory brought along, still open: nothing here can end them, and whoever reads committed records only waits
//! at the first record of the oldest. Apache Kafka ends them when it opens the directory.

use ottla_log::ActiveProducer;
use tracing::warn;

use crate::node::Node;

/// More than these would bury what else is said at start.
const NAMED_MAX: usize = 100;

/// Says which there are, one line for each; called once, when the logs are open.
pub(crate) fn warn_of(node: &Node) {
    let mut count = 0;
    for partition in node.partitions.all() {
        let is_open = |producer: &ActiveProducer| producer.transaction_first_offset >= 0;
        let open: Vec<_> = partition.with_log(|log| log.active_producers().filter(is_open).collect());
        for producer in open {
            count += 1;
            if count > NAMED_MAX {
                continue;
            }
            warn!(
                topic = &*partition.topic,
                partition = partition.index,
                producer_id = producer.producer_id,
                producer_epoch = producer.producer_epoch,
                first_offset = producer.transaction_first_offset,
                last_write_ms = producer.last_timestamp,
                "open transaction: readers of committed records wait at its first offset, and transactions are not served yet"
            );
        }
    }
    if count > NAMED_MAX {
        warn!(
            count,
            named = NAMED_MAX,
            "open transactions: not all of them are named"
        );
    }
}
