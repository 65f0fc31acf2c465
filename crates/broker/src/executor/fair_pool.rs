//! A thread pool shared fairly by several payers: as many threads as there is work, up to a limit,
//! and none without work.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_core::services::Payer;
use tracing::error;

use super::contain;
use super::fair_queue::{Charge, FairQueue};

/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Work that returns its actual cost. Pool threads have normal priority: one preempted while
/// holding the pool's lock, or the allocator's, would block event loops (priority inversion).
pub type Work = Box<dyn FnOnce() -> u64 + Send>;

/// The parameters of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolKind {
    /// The name of its threads.
    pub name: &'static str,
    pub threads_max: usize,
    /// How many threads one payer may occupy.
    pub threads_max_per_payer: usize,
    /// What a payer may spend in one turn.
    pub quantum: u64,
}

#[derive(Debug)]
pub struct FairPool {
    kind: PoolKind,
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    queue: FairQueue<Payer, Work>,
    threads: usize,
    waiting_threads: usize,
    is_stopped: bool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("queued", &self.queue.len())
            .field("threads", &self.threads)
            .finish()
    }
}

impl FairPool {
    pub fn new(kind: PoolKind) -> FairPool {
        FairPool {
            kind,
            inner: Mutex::new(Inner {
                queue: FairQueue::new(kind.quantum, kind.threads_max_per_payer),
                threads: 0,
                waiting_threads: 0,
                is_stopped: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Queues work; it is dropped unrun once the pool is stopped.
    pub fn run(self: &Arc<Self>, payer: Payer, cost: u64, work: Work) {
        let mut inner = self.lock();
        if inner.is_stopped {
            return;
        }
        inner.queue.push(payer, cost, work);
        if inner.waiting_threads >= inner.queue.len() {
            drop(inner);
            self.changed.notify_one();
        } else if inner.threads < self.kind.threads_max {
            inner.threads += 1;
            drop(inner);
            self.start_thread();
        }
    }

    fn start_thread(self: &Arc<Self>) {
        let pool = self.clone();
        if let Err(error) = std::thread::Builder::new()
            .name(self.kind.name.into())
            .spawn(move || pool.serve())
        {
            // The work stays queued for the existing threads; if there are none, the next piece of
            // work tries again.
            error!(%error, name = self.kind.name, "thread cannot be started");
            self.lock().threads -= 1;
        }
    }

    fn serve(&self) {
        let mut inner = self.lock();
        loop {
            if let Some((charge, work)) = inner.queue.pop() {
                drop(inner);
                let actual = self.work(work);
                inner = self.lock();
                self.settle(&mut inner, charge, actual);
                continue;
            }
            if inner.is_stopped && inner.queue.is_empty() {
                break;
            }
            inner.waiting_threads += 1;
            let (guard, timeout) = self
                .changed
                .wait_timeout(inner, IDLE_MAX)
                .unwrap_or_else(PoisonError::into_inner);
            inner = guard;
            inner.waiting_threads -= 1;
            if timeout.timed_out() && inner.queue.is_empty() {
                break;
            }
        }
        inner.threads -= 1;
        drop(inner);
        self.changed.notify_all();
    }

    fn work(&self, work: Work) -> u64 {
        let mut cost = 0;
        contain(self.kind.name, || cost = work());
        cost
    }

    fn settle(&self, inner: &mut Inner, charge: Charge<Payer>, actual: u64) {
        inner.queue.finish(charge, actual);
        if inner.is_stopped {
            // Threads waiting for a payer's running work to finish may find the queue empty now.
            self.changed.notify_all();
        }
    }

    pub fn queued(&self) -> usize {
        self.lock().queue.len()
    }

    /// Finishes queued work and joins the threads.
    pub fn stop(&self) {
        let mut inner = self.lock();
        inner.is_stopped = true;
        self.changed.notify_all();
        while inner.threads > 0 {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use ottla_core::tenant::TenantId;

    const KIND: PoolKind = PoolKind {
        name: "test",
        threads_max: 4,
        threads_max_per_payer: 3,
        quantum: 100,
    };

    fn tenant(number: u32) -> Payer {
        Payer::Tenant(TenantId(number))
    }

    #[test]
    fn work_of_several_payers_runs_concurrently() {
        let pool = Arc::new(FairPool::new(KIND));
        let barrier = Arc::new(Barrier::new(4));
        let done = Arc::new(AtomicUsize::new(0));
        for number in 0..4 {
            let (barrier, done) = (barrier.clone(), done.clone());
            let work = move || {
                barrier.wait();
                done.fetch_add(1, Ordering::SeqCst);
                1
            };
            pool.run(tenant(number % 2), 1, Box::new(work));
        }
        pool.stop();
        assert_eq!(done.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn a_thread_is_left_for_others_while_one_payer_waits() {
        let pool = Arc::new(FairPool::new(KIND));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..10 {
            let gate = gate.clone();
            let work = move || {
                // Ends when the sender is dropped.
                let _ = gate.lock().unwrap().recv();
                1
            };
            pool.run(tenant(1), 1, Box::new(work));
        }
        let (served, is_served) = mpsc::channel();
        pool.run(tenant(2), 1, Box::new(move || served.send(()).map_or(0, |()| 1)));
        is_served
            .recv()
            .expect("served although the other's work stands still");
        drop(release);
        pool.stop();
        assert_eq!(pool.queued(), 0);
    }

    #[test]
    fn a_panic_harms_no_other_work() {
        let pool = Arc::new(FairPool::new(KIND));
        let done = Arc::new(AtomicUsize::new(0));
        for number in 0..100 {
            let done = done.clone();
            let work = move || {
                assert!(number % 10 != 0, "on purpose");
                done.fetch_add(1, Ordering::SeqCst);
                1
            };
            pool.run(Payer::Broker, 1, Box::new(work));
        }
        pool.stop();
        assert_eq!(done.load(Ordering::SeqCst), 90);
    }
}
