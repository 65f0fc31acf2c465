//! Reports transactions that are open in a directory when it is opened. Their coordinator, which
//! loads later, ends those that it knows; a hanging one is ended by an administrator
//! (WriteTxnMarkers).
//!
//! They block consumers with `isolation.level=read_committed`, and in `__consumer_offsets` clients
//! that ask for the offsets they touch. That is correct behaviour, but the operator must be able to
//! see why.

use std::sync::Arc;

use ottla_log::{Read, ReadMode};
use ottla_wire::records::batch::{BatchHeader, HEADER_BYTES};
use tracing::warn;

use super::Storage;
use crate::partition::Partition;
use crate::time::Timestamp;

/// Lines in the log at a start; of further transactions only the number is logged.
const NAMED_MAX: usize = 100;

/// The oldest open transaction of a partition: the one that readers wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenTransaction {
    pub topic: Arc<str>,
    pub partition: i32,
    pub producer_id: i64,
    pub first_offset: i64,
    /// When its first batch was written; `None` where that batch has been removed.
    pub since: Option<Timestamp>,
    /// Number of later open transactions in the same partition.
    pub others: usize,
}

impl OpenTransaction {
    /// The commands that tell whose it is, and that end it. Coordinators are not loaded yet:
    /// whether it hangs is not known.
    pub(crate) fn commands(&self) -> String {
        format!(
            "`ottla transactions list` tells whose it is, and `ottla transactions abort --topic {} --partition {} \
             --start-offset {}` ends one that no coordinator knows",
            self.topic, self.partition, self.first_offset
        )
    }
}

/// Logs the open transactions. Waits for the disk; called once, at start.
pub(crate) fn report(storage: &Storage) {
    let found = find(storage);
    let now = storage.services.clock.timestamp();
    for open in found.iter().take(NAMED_MAX) {
        let since_unix_ms = open.since.map(|since| since.0);
        let open_for_s = since_unix_ms.map(|since_ms| now.0.saturating_sub(since_ms) / 1_000);
        warn!(
            topic = &*open.topic,
            partition = open.partition,
            producer_id = open.producer_id,
            first_offset = open.first_offset,
            since_unix_ms,
            open_for_s,
            others = open.others,
            "a transaction is open: readers with read_committed stop at it until its producer or its time-out ends it; {}",
            open.commands()
        );
    }
    if found.len() > NAMED_MAX {
        let partitions = found.len() - NAMED_MAX;
        warn!(
            partitions,
            "more partitions have open transactions: `ottla transactions list` shows them"
        );
    }
}

pub(crate) fn find(storage: &Storage) -> Vec<OpenTransaction> {
    let partitions = storage.partitions.all();
    partitions.iter().filter_map(oldest).collect()
}

fn oldest(partition: &Arc<Partition>) -> Option<OpenTransaction> {
    let mut open = partition.with_log(|log| log.open_transactions());
    open.sort_by_key(|producer| producer.transaction_first_offset);
    let first = open.first()?;
    Some(OpenTransaction {
        topic: partition.topic.clone(),
        partition: partition.index,
        producer_id: first.producer_id,
        first_offset: first.transaction_first_offset,
        since: written_at(partition, first.transaction_first_offset),
        others: open.len() - 1,
    })
}

fn written_at(partition: &Partition, offset: i64) -> Option<Timestamp> {
    let (reader, end) = partition.with_log(|log| (log.reader(), log.end()));
    // At least one batch is returned, and only its header is read.
    let read = reader.read(offset, 0, true, end, ReadMode::Blocking).ok()?;
    let Read::Region(found) = read else {
        return None;
    };
    let mut header = [0; HEADER_BYTES];
    let region = found.region;
    let count = region.file.read_at(&mut header, region.position).ok()?;
    (count == HEADER_BYTES).then(|| Timestamp(BatchHeader::decode(&header).base_timestamp))
}
