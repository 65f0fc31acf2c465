//! The threads for work that an event loop must not wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ottla_core::node::{Job, LongAnswer, Node, NodeExecutor};
use ottla_core::services::{ColdRead, Executor, Syncable};
use ottla_core::storage::maintenance::cleaner_backoff_ms;
use ottla_core::time::Clock;
use tracing::error;

pub mod work_queue;
pub mod fair_queue;
pub mod fair_pool;
pub mod cold_reads;
pub mod alarm;
pub mod crew;

use alarm::Alarm;
use cold_reads::ColdReads;
use fair_pool::{FairPool, PoolKind};
use work_queue::WorkQueue;

/// How many syncs may be at the device at once. Each partition has at most one; further threads
/// keep a slow one from holding up the others.
const SYNC_THREADS: usize = 3;

/// The number of threads for requests that name thousands of things or decompress to large sizes:
/// half of the processors, at least two. More would take too much of the processors from event
/// loops; with fewer, producers of large compressed batches would queue up behind each other.
pub fn long_answer_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).max(2)
}

/// A tenant leaves one thread to others, so that a metadata request does not wait for seconds of a
/// single tenant's work.
fn long_answers() -> PoolKind {
    PoolKind {
        name: "ottla-answer",
        threads_max: long_answer_threads(),
        threads_max_per_payer: long_answer_threads() - 1,
        quantum: 10_000,
    }
}

/// Maintenance runs once a second, or at the interval of `log.cleaner.backoff.ms` if that is
/// shorter, but not more often than this.
const MAINTENANCE_MS_MIN: u64 = 100;

/// The queues of work for the threads; implements the core's [`NodeExecutor`].
pub struct Queues {
    node: OnceLock<Weak<Node>>,
    syncs: WorkQueue<Arc<dyn Syncable>>,
    control: WorkQueue<Job>,
    telemetry: WorkQueue<Job>,
    deadlines: Alarm,
    maintenance: Alarm,
    cold_reads: Arc<ColdReads>,
    long_answers: Arc<FairPool>,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues {
            node: OnceLock::new(),
            syncs: WorkQueue::default(),
            control: WorkQueue::default(),
            telemetry: WorkQueue::default(),
            deadlines: Alarm::default(),
            maintenance: Alarm::default(),
            cold_reads: Arc::default(),
            long_answers: Arc::new(FairPool::new(long_answers())),
        }
    }
}

impl Queues {
    /// Sets the node that jobs will work on; must be called before the node is given this executor.
    pub fn bind(&self, node: &Arc<Node>) {
        self.node.get_or_init(|| Arc::downgrade(node));
        self.cold_reads.bind(node.cold_cache.clone());
    }

    pub fn cold_reads(&self) -> &Arc<ColdReads> {
        &self.cold_reads
    }

    pub fn long_answers(&self) -> &Arc<FairPool> {
        &self.long_answers
    }
}

impl Executor for Queues {
    fn sync(&self, sync: Arc<dyn Syncable>) {
        self.syncs.push(sync);
    }

    fn cold_read(&self, read: ColdRead) {
        let node = self.node.get().cloned();
        let work = move || {
            node.and_then(|node| node.upgrade())
                .map_or(0, |node| (read.job)(node.services()))
        };
        self.cold_reads.run(read.payer, read.bytes, Box::new(work));
    }

    fn deadline_changed(&self) {
        self.deadlines.ring();
    }
}

impl NodeExecutor for Queues {
    fn long_answer(&self, answer: LongAnswer) {
        let node = self.node.get().cloned();
        let work = move || {
            node.and_then(|node| node.upgrade())
                .map_or(0, |node| (answer.job)(&node))
        };
        self.long_answers
            .run(answer.payer, answer.entries, Box::new(work));
    }

    fn control(&self, job: Job) {
        self.control.push(job);
    }

    fn telemetry(&self, job: Job) {
        self.telemetry.push(job);
    }
}

/// The running threads. Dropping them finishes queued work except syncs, and joins them: no client
/// waits for a sync any more, and the node makes all logs durable when it is closed.
pub struct Workers {
    queues: Arc<Queues>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub fn start(node: &Arc<Node>, queues: Arc<Queues>, clock: Arc<dyn Clock>) -> std::io::Result<Workers> {
        queues.bind(node);
        let mut workers = Workers {
            queues,
            threads: Vec::new(),
        };
        for index in 0..SYNC_THREADS {
            workers.spawn(&format!("ottla-sync-{index}"), node, |node, queues| {
                while let Some(sync) = queues.syncs.pop() {
                    contain("sync", || sync.run_sync(node.services()));
                }
            })?;
        }
        workers.spawn("ottla-control", node, |node, queues| {
            while let Some(job) = queues.control.pop() {
                contain("controller", || job(node));
            }
        })?;
        workers.spawn("ottla-telemetry", node, |node, queues| {
            // Not at a lower priority: preempted while holding a lock of the queue or of the
            // allocator, it blocked event loops for 50 to 100 ms (priority inversion).
            while let Some(job) = queues.telemetry.pop() {
                contain("telemetry", || job(node));
            }
        })?;
        workers.spawn("ottla-deadline", node, move |node, queues| {
            run_deadlines(node, queues, &*clock)
        })?;
        workers.spawn("ottla-maintain", node, |node, queues| {
            let pause = || {
                let backoff_ms = u64::try_from(cleaner_backoff_ms(&node.storage)).unwrap_or(0);
                Duration::from_millis(backoff_ms.clamp(MAINTENANCE_MS_MIN, 1_000))
            };
            while queues.maintenance.wait(Some(pause())) {
                contain("maintenance", || node.maintain());
            }
        })?;
        Ok(workers)
    }

    fn spawn(
        &mut self,
        name: &str,
        node: &Arc<Node>,
        body: impl FnOnce(&Node, &Queues) + Send + 'static,
    ) -> std::io::Result<()> {
        let (node, queues) = (node.clone(), self.queues.clone());
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || body(&node, &queues))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queues.maintenance.stop();
        self.queues.deadlines.stop();
        self.queues.control.stop();
        self.queues.telemetry.stop();
        self.queues.syncs.discard();
        self.queues.cold_reads.stop();
        self.queues.long_answers.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run_deadlines(node: &Node, queues: &Queues, clock: &dyn Clock) {
    loop {
        let now = clock.moment();
        let wait = node
            .next_deadline()
            .map(|deadline| Duration::from_micros(deadline.micros_since(now)));
        if !queues.deadlines.wait(wait) {
            return;
        }
        let now = clock.moment();
        if node.next_deadline().is_some_and(|deadline| deadline <= now) {
            contain("deadline", || node.on_deadline(now));
        }
    }
}

/// Runs one piece of work; a panic in it must not end the thread.
pub(crate) fn contain(work: &'static str, body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        error!(work, "a bug was hit by a background thread");
    }
}
