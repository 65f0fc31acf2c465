//! What the core asks of its shell: work that must not run on the thread that serves requests.

use std::sync::Arc;

use crate::node::Node;
use crate::partition::Partition;
use crate::tenant::TenantId;

pub type Job = Box<dyn FnOnce(&Node) + Send>;

/// Returns how much was done of what it was announced as, in the same unit.
pub type ChargedJob = Box<dyn FnOnce(&Node) -> u64 + Send>;

/// For whom a piece of work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// Nobody's request: groups that are loaded.
    Broker,
    Tenant(TenantId),
}

/// Work that may wait for a disk read.
pub struct ColdRead {
    pub payer: Payer,
    /// How much is read, as far as one can say before; `job` returns what it was.
    pub bytes: u64,
    pub job: ChargedJob,
}

/// A step of a request or an answer that takes long.
pub struct LongAnswer {
    pub payer: Payer,
    /// How many things it names, as far as one can say before: topics, partitions.
    pub entries: u64,
    pub job: ChargedJob,
}

/// Implemented with threads by the broker, and by a seeded queue in the simulation.
pub trait Executor: Send + Sync {
    /// Calls `Partition::run_sync` soon on a sync thread. Called once until `run_sync` has begun.
    fn sync(&self, partition: Arc<Partition>);

    /// Runs the job where waiting for a disk read is allowed. Jobs run in parallel and in no order; payers share the disk
    /// evenly, by bytes. A connection has at most a handful of them, which bounds the queue.
    fn cold_read(&self, read: ColdRead);

    /// Runs the job where nothing waits that is in a hurry. Payers take turns, by entries. A connection has at most one, and
    /// one more when it is closed.
    fn long_answer(&self, answer: LongAnswer);

    /// Runs `job` on the one controller thread, in order of submission. May wait for the disk.
    fn control(&self, job: Job);

    /// Runs `job` on the one thread that reads client metrics, in order of submission. The core bounds what is queued.
    fn telemetry(&self, job: Job);

    /// `Node::next_deadline` may be earlier than at the last call.
    fn deadline_changed(&self);
}
