//! Batches that have no answer yet, in order of creation: what `flush` waits for.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The batches of a producer that are not completed. Touched twice per batch, never per record.
#[derive(Debug, Default)]
pub(super) struct Incomplete {
    state: Mutex<IncompleteState>,
    /// A batch ended with `Closed`: it was accepted, and the producer was closed before the batch
    /// was decided.
    is_cut_short: AtomicBool,
}

#[derive(Debug, Default)]
struct IncompleteState {
    next_id: u64,
    /// The ids of the batches. A map without values: `BTreeSet` has no cheaper first key.
    open: BTreeMap<u64, ()>,
    /// Waiters, each for every batch below an id.
    waiting: Vec<(u64, Waker)>,
}

impl Incomplete {
    fn lock(&self) -> MutexGuard<'_, IncompleteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a batch and returns its id. Ids grow: of two batches of a partition the later has the
    /// larger one.
    pub(super) fn add(&self) -> u64 {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.open.insert(id, ());
        id
    }

    pub(super) fn remove(&self, id: u64) {
        let mut woken = Vec::new();
        {
            let mut state = self.lock();
            state.open.remove(&id);
            if !state.waiting.is_empty() {
                let first = state.first();
                state.waiting.retain(|(below, waker)| {
                    let is_waiting = first < *below;
                    if !is_waiting {
                        woken.push(waker.clone());
                    }
                    is_waiting
                });
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    pub(super) fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) -> usize {
        self.lock().open.len()
    }

    /// Completes when every batch that exists now is completed.
    pub(super) fn all_done(self: &Arc<Incomplete>) -> AllDone {
        AllDone {
            below: self.lock().next_id,
            incomplete: Arc::clone(self),
        }
    }
}

impl IncompleteState {
    /// The id of the oldest batch, or the next id when there is none.
    fn first(&self) -> u64 {
        self.open.first_key_value().map_or(self.next_id, |(id, ())| *id)
    }
}

/// See `Incomplete::all_done`.
#[derive(Debug)]
pub(super) struct AllDone {
    incomplete: Arc<Incomplete>,
    below: u64,
}

impl Future for AllDone {
    type Output = ();

    fn poll(self: Pin<&mut AllDone>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.incomplete.lock();
        if state.first() >= self.below {
            return Poll::Ready(());
        }
        let waker = context.waker();
        let is_known = |(below, known): &(u64, Waker)| *below == self.below && known.will_wake(waker);
        if !state.waiting.iter().any(is_known) {
            state.waiting.push((self.below, waker.clone()));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_earlier_batches_and_not_for_later_ones() {
        let incomplete = Arc::new(Incomplete::default());
        let (first, second) = (incomplete.add(), incomplete.add());
        let mut done = incomplete.all_done();
        let third = incomplete.add();
        assert!(first < second && second < third);
        let mut context = Context::from_waker(Waker::noop());
        incomplete.remove(second);
        assert!(Pin::new(&mut done).poll(&mut context).is_pending());
        incomplete.remove(first);
        assert!(Pin::new(&mut done).poll(&mut context).is_ready());
        assert_eq!(incomplete.count(), 1);
    }

    #[test]
    fn nothing_to_wait_for_is_done_at_once() {
        let incomplete = Arc::new(Incomplete::default());
        crate::wait::block_on(incomplete.all_done());
    }

    #[test]
    fn the_last_batch_wakes_a_blocked_thread() {
        let incomplete = Arc::new(Incomplete::default());
        let id = incomplete.add();
        let done = incomplete.all_done();
        let remover = Arc::clone(&incomplete);
        let thread = std::thread::spawn(move || {
            while remover.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            remover.remove(id);
        });
        crate::wait::block_on(done);
        thread.join().unwrap();
    }
}
