//! Lock-free counters that threads add to and that are collected from time to time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::window::Several;

/// A count, a sum and a maximum; reset when a thread folds them into the windows.
///
/// On a cache line of its own, against false sharing: a writer must not wait for another thread's
/// counter.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Tally {
    count: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Tally {
    pub fn add(&self, count: u64, sum: u64, max: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.sum.fetch_add(sum, Ordering::Relaxed);
        if max > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(max, Ordering::Relaxed);
        }
    }

    /// Takes the values since the last call, times `scale`. A value added concurrently may be
    /// counted now and summed next time.
    pub fn take(&self, scale: f64) -> Several {
        Several {
            count: self.count.swap(0, Ordering::Relaxed),
            sum: self.sum.swap(0, Ordering::Relaxed) as f64 * scale,
            max: self.max.swap(0, Ordering::Relaxed) as f64 * scale,
        }
    }
}

thread_local! {
    /// This thread's tallies, one per producer it has sent with.
    static TALLIES: RefCell<Vec<(Weak<Registry>, Arc<Tally>)>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct Member {
    tally: Arc<Tally>,
    active_at_ms: u64,
}

/// A tally per thread, so that threads that send concurrently do not contend.
#[derive(Debug, Default)]
pub(crate) struct ThreadTallies {
    registry: Arc<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    members: Mutex<Vec<Member>>,
}

impl ThreadTallies {
    /// Adds to the calling thread's tally. Costs a search in a short list and three uncontended
    /// atomics.
    pub fn add(&self, count: u64, sum: u64, max: u64) {
        // A thread that is ending has no tallies any more; its last send is not counted.
        let _ = TALLIES.try_with(|tallies| {
            let mut tallies = tallies.borrow_mut();
            let this = Arc::as_ptr(&self.registry);
            if let Some((_, tally)) = tallies.iter().find(|(owner, _)| owner.as_ptr() == this) {
                return tally.add(count, sum, max);
            }
            tallies.retain(|(owner, _)| owner.strong_count() > 0);
            let tally = Arc::new(Tally::default());
            tally.add(count, sum, max);
            self.registry.lock().push(Member {
                tally: tally.clone(),
                active_at_ms: u64::MAX,
            });
            tallies.push((Arc::downgrade(&self.registry), tally));
        });
    }

    /// Takes what all threads have added; forgets threads that were idle for `silence_ms`.
    pub fn take(&self, scale: f64, now_ms: u64, silence_ms: u64) -> Several {
        let mut all = Several {
            count: 0,
            sum: 0.0,
            max: 0.0,
        };
        self.registry.lock().retain_mut(|member| {
            let taken = member.tally.take(scale);
            if taken.count > 0 || member.active_at_ms == u64::MAX {
                member.active_at_ms = now_ms;
            }
            all.count += taken.count;
            all.sum += taken.sum;
            all.max = all.max.max(taken.max);
            // A living thread keeps its entry, because it may add at any time.
            now_ms.saturating_sub(member.active_at_ms) < silence_ms || Arc::strong_count(&member.tally) > 1
        });
        all
    }

    /// Threads that added a value less than `silence_ms` before the last `take`.
    pub fn active_threads(&self, now_ms: u64, silence_ms: u64) -> usize {
        let members = self.registry.lock();
        members
            .iter()
            .filter(|member| now_ms.saturating_sub(member.active_at_ms) < silence_ms)
            .count()
    }
}

impl Registry {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_counted_once_while_it_is_active() {
        let tallies = Arc::new(ThreadTallies::default());
        for _ in 0..3 {
            let tallies = tallies.clone();
            // Joined, not scoped: a scope may end before its threads' locals are dropped.
            let thread = std::thread::spawn(move || {
                tallies.add(1, 10, 10);
                tallies.add(1, 30, 30);
            });
            thread.join().expect("the thread only adds");
        }
        let all = tallies.take(0.5, 1000, 60_000);
        assert_eq!((all.count, all.sum, all.max), (6, 60.0, 15.0));
        assert_eq!(tallies.active_threads(1000, 60_000), 3);
        tallies.add(1, 1, 1);
        tallies.take(1.0, 61_000, 60_000);
        assert_eq!(tallies.active_threads(61_000, 60_000), 1);
        assert_eq!(
            tallies.registry.lock().len(),
            1,
            "threads that ended are forgotten"
        );
    }

    #[test]
    fn two_producers_on_one_thread_have_their_own_tallies() {
        let (first, second) = (ThreadTallies::default(), ThreadTallies::default());
        first.add(1, 5, 5);
        second.add(1, 7, 7);
        first.add(1, 5, 5);
        assert_eq!(first.take(1.0, 0, 1).sum, 10.0);
        assert_eq!(second.take(1.0, 0, 1).sum, 7.0);
    }
}
