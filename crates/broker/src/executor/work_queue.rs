//! A FIFO queue of work for a fixed set of threads.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Address of the queue that this thread took work from and will return to, so that the first
    /// piece of work it adds there itself wakes no other thread; 0 for none.
    ///
    /// A partition under load asks for its next sync at the end of each one; without this, every
    /// sync would move to another thread, at the price of two context switches.
    static COMES_BACK_TO: Cell<usize> = const { Cell::new(0) };
}

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
        let inner = Inner {
            work: VecDeque::new(),
            waiting_threads: 0,
            is_stopped: false,
        };
        WorkQueue {
            inner: Mutex::new(inner),
            arrived: Condvar::new(),
        }
    }
}

impl<T> WorkQueue<T> {
    pub fn push(&self, work: T) {
        let mut inner = self.lock();
        inner.work.push_back(work);
        // Waking is a system call; skip it when no thread waits.
        let must_wake = inner.waiting_threads > 0 && !self.is_taken_by_this_thread();
        drop(inner);
        if must_wake {
            self.arrived.notify_one();
        }
    }

    /// Waits for work; `None` once the queue is stopped and empty.
    pub fn pop(&self) -> Option<T> {
        COMES_BACK_TO.set(0);
        let mut inner = self.lock();
        loop {
            if let Some(work) = inner.work.pop_front() {
                COMES_BACK_TO.set(self.address());
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

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// True once after each `pop` on this thread, if it took work from this queue.
    fn is_taken_by_this_thread(&self) -> bool {
        let comes_back = COMES_BACK_TO.get() == self.address();
        if comes_back {
            COMES_BACK_TO.set(0);
        }
        comes_back
    }

    /// Stops the queue; queued work is still handed out.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.arrived.notify_all();
    }

    /// Stops the queue and drops what is queued.
    pub fn discard(&self) {
        let mut inner = self.lock();
        inner.is_stopped = true;
        let forgotten = std::mem::take(&mut inner.work);
        drop(inner);
        self.arrived.notify_all();
        drop(forgotten);
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
    fn discarded_work_is_not_handed_out() {
        let queue = WorkQueue::default();
        queue.push(1);
        queue.discard();
        assert_eq!(queue.pop(), None);
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

    #[test]
    fn work_added_by_a_thread_of_another_queue_wakes_a_waiter() {
        let (first, second) = (Arc::new(WorkQueue::default()), Arc::new(WorkQueue::default()));
        let last = std::thread::spawn({
            let second = second.clone();
            move || second.pop()
        });
        while second.lock().waiting_threads == 0 {
            std::thread::yield_now();
        }
        first.push(1);
        second.push(first.pop().unwrap());
        assert_eq!(last.join().unwrap(), Some(1));
    }

    #[test]
    fn the_second_piece_of_work_added_by_a_worker_wakes_another() {
        let queue = Arc::new(WorkQueue::default());
        queue.push(0);
        assert_eq!(queue.pop(), Some(0));
        let other = std::thread::spawn({
            let queue = queue.clone();
            move || queue.pop()
        });
        while queue.lock().waiting_threads == 0 {
            std::thread::yield_now();
        }
        queue.push(1);
        queue.push(2);
        let mine = queue.pop();
        let all = [mine, other.join().unwrap()];
        assert!(all == [Some(1), Some(2)] || all == [Some(2), Some(1)], "{all:?}");
    }
}
