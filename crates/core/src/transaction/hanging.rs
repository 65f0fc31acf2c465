//! Transactions that hang: open in a partition, and known to no coordinator, so that nothing ends
//! them (KIP-664). Directories of Apache Kafka before 4.0 can have some.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tracing::warn;

use super::transactions::Transactions;
use crate::storage::Storage;
use crate::time::{Moment, Timestamp};

/// How often is looked for them. Two looks in a row must find one: it may have begun or ended
/// during one, or its coordinator was not loaded.
const INTERVAL_MS: u64 = 60_000;

/// Lines in the log for one look; the others follow with the next ones.
const LINES_MAX: usize = 100;

/// Where a transaction began.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    pub topic: Arc<str>,
    pub partition: i32,
    pub producer_id: i64,
    pub offset: i64,
}

/// Returns what is open in a partition and in no coordinator's transaction at one moment, each with
/// the time of its last batch.
pub fn look(storage: &Storage, transactions: &Transactions) -> BTreeMap<Start, Timestamp> {
    let mut known = transactions.open();
    let mut open = BTreeMap::new();
    for partition in storage.partitions.all() {
        for producer in partition.with_log(|log| log.open_transactions()) {
            let start = Start {
                topic: partition.topic.clone(),
                partition: partition.index,
                producer_id: producer.producer_id,
                offset: producer.transaction_first_offset,
            };
            open.insert(start, Timestamp(producer.last_timestamp));
        }
    }
    if !open.is_empty() {
        // One that began after the first question is known to the second one.
        known.extend(transactions.open());
    }
    open.retain(|start, _| {
        let holds = known
            .iter()
            .any(|known| known.holds(start.producer_id, &start.topic, start.partition));
        !holds
    });
    open
}

/// What the looks so far have found.
#[derive(Debug, Default)]
pub(crate) struct HangingReport {
    looked: Option<Moment>,
    seen: BTreeSet<Start>,
    logged: BTreeSet<Start>,
}

impl HangingReport {
    /// Looks if it is time, and logs each hanging transaction once, with the command that ends it.
    pub fn maintain(&mut self, storage: &Storage, transactions: &Transactions) {
        let now = storage.services.clock.moment();
        if self
            .looked
            .is_some_and(|looked| now.ms_since(looked) < INTERVAL_MS)
        {
            return;
        }
        self.looked = Some(now);
        let found = look(storage, transactions);
        for start in self.take_news(found.into_keys().collect()) {
            let Start {
                topic,
                partition,
                producer_id,
                offset,
            } = start;
            warn!(
                topic = &*topic,
                partition,
                producer_id,
                first_offset = offset,
                "a transaction hangs: no coordinator knows it, and readers with read_committed stop at it until `ottla transactions \
                 abort --topic {topic} --partition {partition} --start-offset {offset}` ends it"
            );
        }
    }

    /// Returns what was found twice and not logged before.
    fn take_news(&mut self, found: BTreeSet<Start>) -> Vec<Start> {
        self.logged.retain(|start| found.contains(start));
        let again = found.intersection(&self.seen);
        let news = again.filter(|start| !self.logged.contains(*start));
        let news: Vec<Start> = news.take(LINES_MAX).cloned().collect();
        self.logged.extend(news.iter().cloned());
        self.seen = found;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_two_looks_find_is_told_once() {
        const NONE: &[i64] = &[];
        let start = |offset| Start {
            topic: "t".into(),
            partition: 0,
            producer_id: 7,
            offset,
        };
        let mut report = HangingReport::default();
        let mut look = |offsets: &[i64]| -> Vec<i64> {
            let news = report.take_news(offsets.iter().copied().map(start).collect());
            news.into_iter().map(|start| start.offset).collect()
        };
        assert_eq!(look(&[3]), NONE);
        assert_eq!(look(&[3, 9]), [3]);
        assert_eq!(look(&[3, 12]), NONE, "told already, ended, and begun");
        assert_eq!(look(&[3, 12]), [12]);
        // Ended, and another one hangs at the same place later.
        assert_eq!(look(&[]), NONE);
        assert_eq!(look(&[3]), NONE);
        assert_eq!(look(&[3]), [3]);
    }

    #[test]
    fn no_look_tells_more_than_its_share_and_the_rest_follows() {
        let mut report = HangingReport::default();
        let all: BTreeSet<Start> = (0..250)
            .map(|partition| Start {
                topic: "t".into(),
                partition,
                producer_id: 7,
                offset: 0,
            })
            .collect();
        let told = [(); 5].map(|()| report.take_news(all.clone()).len());
        assert_eq!(told, [0, 100, 100, 50, 0]);
    }
}
