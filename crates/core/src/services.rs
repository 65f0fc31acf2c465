//! What every part of the broker is given: time, random numbers, and the shell's threads.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::batch_times::BatchTimes;
use crate::random::Random;
use crate::rate_limit::RateLimit;
use crate::tenant::TenantId;
use crate::time::Clock;

/// Log lines that are limited to a few per second.
pub(crate) struct Complaints {
    /// Logs that cannot be written, opened or closed.
    pub failures: RateLimit,
    /// What is retried when there is space, or a descriptor.
    pub lacks: RateLimit,
}

pub struct Services {
    pub clock: Arc<dyn Clock>,
    /// Of names that must not collide: topic ids, directory ids, member ids.
    pub random: Arc<Random>,
    pub batch_times: BatchTimes,
    pub(crate) complaints: Complaints,
    executor: OnceLock<Arc<dyn Executor>>,
    /// Syncs that found no descriptor.
    put_off: Mutex<Vec<Weak<dyn Syncable>>>,
}

impl Services {
    pub fn new(clock: Arc<dyn Clock>, random: Arc<Random>) -> Services {
        Services {
            clock,
            random,
            batch_times: BatchTimes::default(),
            complaints: Complaints {
                failures: RateLimit::per_second(10),
                lacks: RateLimit::per_second(1),
            },
            executor: OnceLock::new(),
            put_off: Mutex::default(),
        }
    }

    pub(crate) fn set_executor(&self, executor: Arc<dyn Executor>) {
        assert!(self.executor.set(executor).is_ok(), "the executor is set once");
    }

    pub fn executor(&self) -> &dyn Executor {
        self.executor
            .get()
            .expect("the shell sets an executor before it serves")
            .as_ref()
    }

    /// As `executor`, for wakers, which outlive the call that makes them.
    pub(crate) fn shared_executor(&self) -> Arc<dyn Executor> {
        let executor = self.executor.get();
        executor
            .expect("the shell sets an executor before it serves")
            .clone()
    }

    /// A sync found no descriptor: what it should have made durable waits for the next one.
    pub(crate) fn put_off(&self, sync: Weak<dyn Syncable>) {
        let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        put_off.push(sync);
    }

    /// Requests the syncs that were put off.
    pub(crate) fn retry_syncs(&self) {
        let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        let syncs = std::mem::take(&mut *put_off);
        drop(put_off);
        for sync in syncs.iter().filter_map(Weak::upgrade) {
            sync.request_sync(self);
        }
    }
}

/// What makes appends durable, one group commit at a time: a partition.
pub trait Syncable: Send + Sync {
    /// Requests a sync, unless one is under way.
    fn request_sync(self: Arc<Self>, services: &Services);

    /// Called on a sync thread after [`Executor::sync`].
    fn begin_commit(self: Arc<Self>) -> Box<dyn Commit>;

    /// One whole group commit. Waits for the disk.
    fn run_sync(self: Arc<Self>, services: &Services) {
        let mut commit = self.begin_commit();
        commit.run();
        commit.finish(services);
    }
}

/// A group commit that is under way. Anything may happen between its steps.
pub trait Commit: Send {
    /// Waits for the disk.
    fn run(&mut self);

    /// Publishes what is durable now, and begins the next commit if more was appended meanwhile.
    fn finish(self: Box<Self>, services: &Services);
}

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
    pub job: ColdJob,
}

/// Returns how many bytes were read.
pub type ColdJob = Box<dyn FnOnce(&Services) -> u64 + Send>;

/// What storage, groups and fetches ask of the shell. Implemented with threads by the broker, and
/// with a seeded queue by the simulation.
pub trait Executor: Send + Sync {
    /// Runs a group commit soon on a sync thread. Not called again before that commit has begun.
    fn sync(&self, sync: Arc<dyn Syncable>);

    /// Runs the job where waiting for a disk read is allowed. Jobs run in parallel and in no order;
    /// payers share the disk evenly, by bytes. A connection has at most a handful of jobs, which
    /// bounds the queue.
    fn cold_read(&self, read: ColdRead);

    /// Tells the shell that `Node::next_deadline` may have moved closer.
    fn deadline_changed(&self);
}
