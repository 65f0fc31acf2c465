//! What the core asks of its shell: work that must not run on a thread that serves requests.

use std::sync::Arc;

use crate::node::Node;
use crate::partition::Partition;
use crate::tenant::TenantId;

pub type Job = Box<dyn FnOnce(&Node) + Send>;

/// A job that returns how much it did, in the unit of its announcement.
pub type ChargedJob = Box<dyn FnOnce(&Node) -> u64 + Send>;

/// The account that a piece of work is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// No client's request: the loading of groups.
    Broker,
    Tenant(TenantId),
}

/// Work that may wait for a disk read.
pub struct ColdRead {
    pub payer: Payer,
    /// Estimate of how much is read; `job` returns the actual number.
    pub bytes: u64,
    pub job: ChargedJob,
}

/// A step of a long request or answer.
pub struct LongAnswer {
    pub payer: Payer,
    /// Estimate of how many things (topics, partitions) it names.
    pub entries: u64,
    pub job: ChargedJob,
}

/// Implemented with threads by the broker, and with a seeded queue by the simulation.
pub trait Executor: Send + Sync {
    /// Calls `Partition::run_sync` soon on a sync thread. Not called again before `run_sync` has
    /// begun.
    fn sync(&self, partition: Arc<Partition>);

    /// Runs the job where waiting for a disk read is allowed. Jobs run in parallel and in no order;
    /// payers share the disk evenly, by bytes. A connection has at most a handful of jobs, which
    /// bounds the queue.
    fn cold_read(&self, read: ColdRead);

    /// Runs the job on a thread without latency-sensitive work. Payers take turns, by entries. A
    /// connection has at most one job, and one more when it is closed.
    fn long_answer(&self, answer: LongAnswer);

    /// Runs `job` on the one controller thread, in order of submission. May wait for the disk.
    fn control(&self, job: Job);

    /// Runs `job` on the one thread that reads client metrics, in order of submission. The core
    /// bounds the queue.
    fn telemetry(&self, job: Job);

    /// Tells the shell that `Node::next_deadline` may have moved closer.
    fn deadline_changed(&self);
}
