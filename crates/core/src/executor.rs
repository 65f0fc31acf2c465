//! What the core asks of its shell: work that must not run on the thread that serves requests.

use std::sync::Arc;

use crate::node::Node;
use crate::partition::Partition;

pub type Job = Box<dyn FnOnce(&Node) + Send>;

/// Implemented with threads by the broker, and by a seeded queue in the simulation.
pub trait Executor: Send + Sync {
    /// Calls `Partition::run_sync` soon on a sync thread. Called once until `run_sync` has begun.
    fn sync(&self, partition: Arc<Partition>);

    /// Runs `job` where waiting for a disk read is allowed. Jobs run in parallel and in no order.
    fn cold_read(&self, job: Job);

    /// Runs `job` on the one controller thread, in order of submission. May wait for the disk.
    fn control(&self, job: Job);

    /// Runs `job` on the one thread that reads client metrics, in order of submission. The core bounds what is queued.
    fn telemetry(&self, job: Job);

    /// `Node::next_deadline` may be earlier than at the last call.
    fn deadline_changed(&self);
}
