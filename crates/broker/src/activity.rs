//! What the broker saw of its clients, as a value for the doctor to judge.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use ottla_core::group::held::{Held, Standing};
pub use ottla_core::group::overview::{
    CommittedOverview, Departed, Departure, GroupOverview, GroupReading, MemberOverview,
};
pub use ottla_core::group::progress::GroupProgress;
pub use ottla_core::group::rebalances::{Cause, Rebalance};
use ottla_core::image::MetadataImage;
use ottla_core::image::features::TRANSACTION_VERSION;
use ottla_core::node::Node;
pub use ottla_core::quota::QuotaKind;
use ottla_core::quota::Quotas;
use ottla_core::quota::registry::user_of;
pub use ottla_core::seen::{FetchLimits, FetchedPartition};
use ottla_core::time::Clock;
pub use ottla_core::time::{Moment, Timestamp};
use ottla_wire::primitives::Uuid;

pub use crate::metrics::activity::{Activity, ApiActivity, Largest, Who};
use crate::metrics::recorder::Records;
pub use crate::metrics::stage::{STAGE_COUNT, Stage};
pub use crate::metrics::written::{PartitionBits, WrittenPartition, WrittenPartitions};

/// A view from which the activity of all clients can be read. Several views see the same.
pub struct ActivityView {
    node_id: i32,
    /// Weak: the view does not keep the broker alive.
    node: Weak<Node>,
    records: Records,
    clock: Arc<dyn Clock>,
    quotas: Arc<Quotas>,
    /// By event loop: how many closed connections this view has already reported.
    departed: Mutex<Vec<u64>>,
}

impl Clone for ActivityView {
    fn clone(&self) -> ActivityView {
        ActivityView {
            node_id: self.node_id,
            node: self.node.clone(),
            records: self.records.clone(),
            clock: self.clock.clone(),
            quotas: self.quotas.clone(),
            departed: Mutex::new(self.departed().clone()),
        }
    }
}

/// All clients' activity at one moment. Two readings make a window.
#[derive(Clone, Debug)]
pub struct ActivityReading {
    pub node_id: i32,
    pub at: Timestamp,
    pub moment: Moment,
    /// Event loops, and the time they have worked in total.
    pub loop_count: usize,
    pub busy_micros: u64,
    /// Processors of this machine, and the time this process has used them in total.
    pub processor_count: usize,
    pub processor_micros: u64,
    pub connections: Vec<Activity>,
    pub groups: Vec<GroupOverview>,
    /// The oldest open transaction of each partition in which a reader is behind.
    pub open_transactions: Vec<OpenTransaction>,
    /// Whether this broker may ask any client for its metrics (KIP-714).
    pub asks_for_metrics: bool,
    image: Option<Arc<MetadataImage>>,
}

/// The transaction that readers of committed records wait for in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    pub topic: Arc<str>,
    pub partition: i32,
    pub first_offset: i64,
    pub producer_id: i64,
    /// `None`: no coordinator of this broker knows it.
    pub transactional_id: Option<Arc<str>>,
    /// When its producer last wrote to the partition.
    pub written: Timestamp,
}

impl ActivityReading {
    /// The finalized `transaction.version`.
    pub fn transaction_version(&self) -> Option<i16> {
        let image = self.image.as_ref()?;
        Some(image.features.level(TRANSACTION_VERSION))
    }

    /// The topic's name; `None`: it is deleted.
    pub fn topic_name(&self, id: Uuid) -> Option<&Arc<str>> {
        Some(&self.image.as_ref()?.topic_by_id(id)?.name)
    }
}

impl ActivityView {
    pub(crate) fn new(node: &Arc<Node>, records: Records, clock: Arc<dyn Clock>) -> ActivityView {
        ActivityView {
            node_id: node.config().node_id,
            node: Arc::downgrade(node),
            departed: Mutex::new(vec![0; records.0.len()]),
            records,
            clock,
            quotas: node.quotas.clone(),
        }
    }

    /// Returns a client's quota in the unit of its key; `None`: no limit, as for every client in a
    /// dry run.
    pub fn quota(&self, principal: &str, client_id: &str, kind: QuotaKind) -> Option<f64> {
        if self.quotas.is_dry_run() {
            return None;
        }
        self.quotas.limits(user_of(principal), client_id)[kind as usize]
    }

    /// Reads everything. A connection closed less than a minute ago, and since this view's last
    /// reading, is included once.
    pub fn read(&self) -> ActivityReading {
        let mut connections = Vec::new();
        let mut busy_micros = 0;
        let now = self.clock.moment();
        let mut departed = self.departed();
        for (records, departed) in self.records.0.iter().zip(&mut *departed) {
            let lock = || records.lock().unwrap_or_else(PoisonError::into_inner);
            let mut from = Some(0);
            // In small portions: the event loop waits for the lock.
            while let Some(at) = from {
                from = lock().activities.read(at, &mut connections);
            }
            let mut records = lock();
            busy_micros += records.busy_micros;
            *departed = records.activities.read_departed(*departed, now, &mut connections);
        }
        drop(departed);
        let node = self.node.upgrade();
        let open_transactions = node
            .as_ref()
            .map_or_else(Vec::new, |node| open_transactions(node, &connections));
        let processor = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        ActivityReading {
            node_id: self.node_id,
            at: self.clock.timestamp(),
            moment: now,
            loop_count: self.records.0.len(),
            busy_micros,
            processor_count: std::thread::available_parallelism().map_or(1, |count| count.get()),
            processor_micros: processor.tv_sec as u64 * 1_000_000 + processor.tv_nsec as u64 / 1_000,
            connections,
            groups: (node.as_ref()).map_or_else(Vec::new, |node| node.groups.overview(&node.storage)),
            open_transactions,
            asks_for_metrics: (node.as_ref()).is_some_and(|node| node.telemetry.may_ask(&node.image())),
            image: node.map(|node| node.image().clone()),
        }
    }

    fn departed(&self) -> MutexGuard<'_, Vec<u64>> {
        self.departed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks only where a connection fetched from before the end: in no other partition does anybody
/// wait.
fn open_transactions(node: &Node, connections: &[Activity]) -> Vec<OpenTransaction> {
    let fetched = connections
        .iter()
        .filter_map(|activity| activity.fetched.as_ref());
    let behind: BTreeSet<(&Arc<str>, i32)> = fetched
        .flat_map(|(_, partitions)| partitions)
        .filter(|partition| partition.offset < partition.end)
        .map(|partition| (&partition.topic, partition.index))
        .collect();
    if behind.is_empty() {
        return Vec::new();
    }
    let mut known = node.transactions.open();
    let oldest = behind.into_iter().filter_map(|(topic, index)| {
        let partition = node.storage.partition_by_name(topic, index).ok()?;
        let open = partition.with_log(|log| log.open_transactions());
        let first = open
            .into_iter()
            .min_by_key(|open| open.transaction_first_offset)?;
        Some((topic, index, first))
    });
    let oldest: Vec<_> = oldest.collect();
    // One may have begun or ended between the looks: it is known before or after.
    known.extend(node.transactions.open());
    let with_owner = oldest.into_iter().map(|(topic, index, first)| {
        let owner = known
            .iter()
            .find(|known| known.holds(first.producer_id, topic, index));
        OpenTransaction {
            topic: topic.clone(),
            partition: index,
            first_offset: first.transaction_first_offset,
            producer_id: first.producer_id,
            transactional_id: owner.map(|known| known.id.clone()),
            written: Timestamp(first.last_timestamp),
        }
    });
    with_owner.collect()
}
