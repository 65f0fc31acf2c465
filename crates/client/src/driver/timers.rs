//! Time limits of futures, in any async runtime and without one: the driver's thread wakes them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::network::io::Wake;
use crate::time::{Clock, Moment};

/// The futures that wait for a moment. A future registers here only while it waits.
pub struct Timers {
    clock: Arc<dyn Clock>,
    driver: Arc<dyn Wake>,
    waiting: Mutex<Waiting>,
    /// Nanoseconds of the earliest moment, so that the driver need not lock to see that none is
    /// due.
    earliest: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    next_id: u64,
    wakers: BTreeMap<(Moment, u64), Waker>,
}

/// A place in `Waiting`, given up on drop.
struct TimerPlace<'a> {
    timers: &'a Timers,
    key: Option<(Moment, u64)>,
}

impl Timers {
    pub fn new(clock: Arc<dyn Clock>, driver: Arc<dyn Wake>) -> Timers {
        Timers {
            clock,
            driver,
            waiting: Mutex::default(),
            earliest: AtomicU64::new(Moment::NEVER.nanos()),
        }
    }

    /// Runs `future` until `deadline`; `None` when it has not completed by then.
    pub async fn limit<T>(&self, deadline: Moment, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut place = TimerPlace {
            timers: self,
            key: None,
        };
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            if self.clock.moment() >= deadline {
                return Poll::Ready(None);
            }
            place.wait_until(deadline, context.waker());
            Poll::Pending
        })
        .await
    }

    /// The earliest moment that a future waits for.
    pub fn next_deadline(&self) -> Option<Moment> {
        let earliest = Moment::from_nanos(self.earliest.load(Ordering::Acquire));
        (earliest != Moment::NEVER).then_some(earliest)
    }

    /// Wakes the futures whose moment has come.
    pub fn fire(&self, now: Moment) {
        if self.next_deadline().is_none_or(|earliest| earliest > now) {
            return;
        }
        let mut waiting = self.lock();
        let later = waiting
            .wakers
            .split_off(&(Moment::from_nanos(now.nanos().saturating_add(1)), 0));
        let due = std::mem::replace(&mut waiting.wakers, later);
        self.note_earliest(&waiting);
        drop(waiting);
        due.into_values().for_each(Waker::wake);
    }

    fn note_earliest(&self, waiting: &Waiting) {
        let first = waiting.wakers.first_key_value();
        let earliest = first.map_or(Moment::NEVER, |((moment, _), _)| *moment);
        self.earliest.store(earliest.nanos(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimerPlace<'_> {
    fn wait_until(&mut self, deadline: Moment, waker: &Waker) {
        let mut waiting = self.timers.lock();
        let id = self.key.map_or(waiting.next_id, |(_, id)| id);
        waiting.next_id = waiting.next_id.max(id + 1);
        let is_new = waiting.wakers.insert((deadline, id), waker.clone()).is_none();
        self.timers.note_earliest(&waiting);
        drop(waiting);
        self.key = Some((deadline, id));
        if is_new {
            self.timers.driver.wake();
        }
    }
}

impl Drop for TimerPlace<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let mut waiting = self.timers.lock();
            waiting.wakers.remove(&key);
            self.timers.note_earliest(&waiting);
        }
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("waiting", &self.lock().wakers.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use std::future::pending;
    use std::pin::Pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Context;

    #[derive(Debug, Default)]
    struct StillClock(AtomicU64);

    impl Clock for StillClock {
        fn moment(&self) -> Moment {
            Moment::from_nanos(self.0.load(Ordering::SeqCst))
        }

        fn timestamp(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    #[derive(Debug, Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl std::task::Wake for Calls {
        fn wake(self: Arc<Calls>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Bench {
        clock: Arc<StillClock>,
        driver: Arc<Calls>,
        timers: Timers,
        task: Arc<Calls>,
    }

    impl Bench {
        fn new() -> Bench {
            let (clock, driver) = (Arc::<StillClock>::default(), Arc::<Calls>::default());
            Bench {
                timers: Timers::new(clock.clone(), driver.clone()),
                clock,
                driver,
                task: Arc::default(),
            }
        }

        fn poll<T>(&self, future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
            let waker = Waker::from(Arc::clone(&self.task));
            future.poll(&mut Context::from_waker(&waker))
        }

        fn advance(&self, nanos: u64) {
            self.clock.0.store(nanos, Ordering::SeqCst);
            self.timers.fire(Moment::from_nanos(nanos));
        }
    }

    #[test]
    fn the_driver_wakes_a_future_at_its_limit_and_not_before() {
        let bench = Bench::new();
        let mut limited = pin!(bench.timers.limit(Moment::from_nanos(10), pending::<()>()));
        assert_eq!(bench.poll(limited.as_mut()), Poll::Pending);
        assert_eq!(bench.poll(limited.as_mut()), Poll::Pending);
        assert_eq!(bench.timers.next_deadline(), Some(Moment::from_nanos(10)));
        let woken = || {
            (
                bench.driver.0.load(Ordering::SeqCst),
                bench.task.0.load(Ordering::SeqCst),
            )
        };
        assert_eq!(woken(), (1, 0), "the driver learns of a limit once");
        bench.advance(9);
        assert_eq!(woken(), (1, 0));
        bench.advance(10);
        assert_eq!(woken(), (1, 1));
        assert_eq!(bench.timers.next_deadline(), None);
        assert_eq!(bench.poll(limited), Poll::Ready(None));
    }

    #[test]
    fn a_future_that_completes_or_is_dropped_leaves_no_timer() {
        let bench = Bench::new();
        {
            let mut dropped = pin!(bench.timers.limit(Moment::from_nanos(5), pending::<()>()));
            assert_eq!(bench.poll(dropped.as_mut()), Poll::Pending);
            let mut later = pin!(bench.timers.limit(Moment::from_nanos(7), pending::<()>()));
            assert_eq!(bench.poll(later.as_mut()), Poll::Pending);
            assert_eq!(bench.timers.next_deadline(), Some(Moment::from_nanos(5)));
        }
        assert_eq!(bench.timers.next_deadline(), None);
        let known = pin!(bench.timers.limit(Moment::from_nanos(0), std::future::ready(3)));
        assert_eq!(bench.poll(known), Poll::Ready(Some(3)));
        bench.advance(100);
        assert_eq!(bench.task.0.load(Ordering::SeqCst), 0);
    }
}
