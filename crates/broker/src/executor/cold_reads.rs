//! Threads that may wait for the device: as many as there are reads, up to a limit, and none when there are none.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::error;

use super::contain;

/// Reads at the device at once; more would not make a disk faster.
const THREADS_MAX: usize = 8;

/// How long a thread waits for the next read before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Read = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub struct ColdReads {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    reads: VecDeque<Read>,
    threads: usize,
    waiting_threads: usize,
    is_stopped: bool,
}

impl std::fmt::Debug for ColdReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.lock();
        f.debug_struct("ColdReads")
            .field("queued", &inner.reads.len())
            .field("threads", &inner.threads)
            .finish()
    }
}

impl ColdReads {
    pub fn run(self: &Arc<Self>, read: Read) {
        let mut inner = self.lock();
        if inner.is_stopped {
            return;
        }
        inner.reads.push_back(read);
        if inner.waiting_threads >= inner.reads.len() {
            drop(inner);
            self.changed.notify_one();
        } else if inner.threads < THREADS_MAX {
            inner.threads += 1;
            drop(inner);
            self.start_thread();
        }
    }

    fn start_thread(self: &Arc<Self>) {
        let pool = self.clone();
        if let Err(error) = std::thread::Builder::new()
            .name("ottla-cold-read".into())
            .spawn(move || pool.serve())
        {
            // The reads stay queued for the threads there are; without any, the next read tries again.
            error!(%error, "cold-read thread cannot be started");
            self.lock().threads -= 1;
        }
    }

    fn serve(&self) {
        let mut inner = self.lock();
        loop {
            if let Some(read) = inner.reads.pop_front() {
                drop(inner);
                contain("cold read", read);
                inner = self.lock();
                continue;
            }
            if inner.is_stopped {
                break;
            }
            inner.waiting_threads += 1;
            let (guard, timeout) = self
                .changed
                .wait_timeout(inner, IDLE_MAX)
                .unwrap_or_else(PoisonError::into_inner);
            inner = guard;
            inner.waiting_threads -= 1;
            if timeout.timed_out() && inner.reads.is_empty() {
                break;
            }
        }
        inner.threads -= 1;
        drop(inner);
        self.changed.notify_all();
    }

    pub fn queued(&self) -> usize {
        self.lock().reads.len()
    }

    /// Finishes what is queued and waits for the threads to end.
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

    #[test]
    fn reads_wait_side_by_side() {
        let pool = Arc::new(ColdReads::default());
        let barrier = Arc::new(Barrier::new(THREADS_MAX));
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..THREADS_MAX {
            let (barrier, done) = (barrier.clone(), done.clone());
            pool.run(Box::new(move || {
                barrier.wait();
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        pool.stop();
        assert_eq!(done.load(Ordering::SeqCst), THREADS_MAX);
    }

    #[test]
    fn a_panic_in_a_read_harms_no_other() {
        let pool = Arc::new(ColdReads::default());
        let done = Arc::new(AtomicUsize::new(0));
        for number in 0..100 {
            let done = done.clone();
            pool.run(Box::new(move || {
                assert!(number % 10 != 0, "on purpose");
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        pool.stop();
        assert_eq!(done.load(Ordering::SeqCst), 90);
    }
}
