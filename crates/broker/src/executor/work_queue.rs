//! First in, first out, for a fixed set of threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct WorkQueue<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Inner<T> {
    work: VecDeque<T>,
    waiting_threads: usize,
    is_stopped: bool,
}

impl<T> Default for WorkQueue<T> {
    fn default() -> Self {
        let inner = Inner { work: VecDeque::new(), waiting_threads: 0, is_stopped: false };
        WorkQueue { inner: Mutex::new(inner), arrived: Condvar::new() }
    }
}

impl<T> WorkQueue<T> {
    pub fn push(&self, work: T) {
        let mut inner = self.lock();
        inner.work.push_back(work);
        // Waking is a system call; without a waiting thread it would be for nothing.
        let must_wake = inner.waiting_threads > 0;
        drop(inner);
        if must_wake {
            self.arrived.notify_one();
        }
    }

    /// Waits for work; `None` once the queue is stopped and empty.
    pub fn pop(&self) -> Option<T> {
        let mut inner = self.lock();
        loop {
            if let Some(work) = inner.work.pop_front() {
                return Some(work);
            }
            if inner.is_stopped {
                return None;
            }
            inner.waiting_threads += 1;
            inner = self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner);
            inner.waiting_threads -= 1;
        }
    }

    /// What is queued is still handed out.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn queued_work_is_handed_out_after_the_stop() {
        let queue = WorkQueue::default();
        queue.push(1);
        queue.push(2);
        queue.stop();
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(1), Some(2), None));
    }

    #[test]
    fn a_waiting_thread_gets_what_arrives_and_ends_with_the_stop() {
        let queue = Arc::new(WorkQueue::default());
        let taker = std::thread::spawn({
            let queue = queue.clone();
            move || std::iter::from_fn(|| queue.pop()).sum::<u64>()
        });
        (1..=1000).for_each(|number| queue.push(number));
        queue.stop();
        assert_eq!(taker.join().unwrap(), 500_500);
    }
}
