//! Blocking waits on futures: `.wait()` of every future of this crate is built on this.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Unparks the waiting thread. The flag distinguishes its wake-up from an unpark meant for
/// something else.
struct Unparker {
    thread: Thread,
    is_called: AtomicBool,
}

impl Wake for Unparker {
    fn wake(self: Arc<Unparker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Unparker>) {
        if !self.is_called.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    static UNPARKER: Arc<Unparker> = Arc::new(Unparker {
        thread: thread::current(),
        is_called: AtomicBool::new(false),
    });
}

/// Runs `future` to completion on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    block_on_until(future, None, None).expect("without a deadline the future ends")
}

/// Runs `future` on this thread until `deadline`; `None` when it has not completed by then.
///
/// - `recheck`: polls at least this often, for futures whose wake-ups may be held back.
pub(crate) fn block_on_until<T>(
    future: impl Future<Output = T>,
    deadline: Option<Instant>,
    recheck: Option<Duration>,
) -> Option<T> {
    let mut future = pin!(future);
    // A thread that ends runs destructors, and they may block here after the thread's locals are
    // gone.
    let unparker = UNPARKER.try_with(Arc::clone).unwrap_or_else(|_| {
        Arc::new(Unparker {
            thread: thread::current(),
            is_called: AtomicBool::new(false),
        })
    });
    let waker = Waker::from(Arc::clone(&unparker));
    let mut context = Context::from_waker(&waker);
    loop {
        unparker.is_called.store(false, Ordering::Relaxed);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return None;
        }
        if unparker.is_called.load(Ordering::Acquire) {
            continue;
        }
        match [left, recheck].into_iter().flatten().min() {
            Some(limit) => thread::park_timeout(limit),
            None => thread::park(),
        }
    }
}

/// The moment `limit` from now; `None` when it is too far away to be represented.
pub(crate) fn deadline_after(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Gate(Mutex<(bool, Option<Waker>)>);

    impl Gate {
        fn wait(&self) -> impl Future<Output = ()> + '_ {
            std::future::poll_fn(|context| {
                let mut state = self.0.lock().unwrap();
                if state.0 {
                    return Poll::Ready(());
                }
                state.1 = Some(context.waker().clone());
                Poll::Pending
            })
        }
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_wait() {
        let gate = Arc::new(Gate::default());
        let opener = Arc::clone(&gate);
        let thread = thread::spawn(move || {
            loop {
                // A statement of its own, so that the lock is released before the block.
                let waker = opener.0.lock().unwrap().1.take();
                if let Some(waker) = waker {
                    opener.0.lock().unwrap().0 = true;
                    return waker.wake();
                }
                thread::yield_now();
            }
        });
        block_on(gate.wait());
        thread.join().unwrap();
    }

    #[test]
    fn the_deadline_ends_the_wait() {
        let gate = Gate::default();
        let deadline = deadline_after(Duration::from_millis(2));
        assert_eq!(block_on_until(gate.wait(), deadline, None), None);
        assert!(Instant::now() >= deadline.unwrap());
    }

    #[test]
    fn rechecks_need_no_wake() {
        let mut polls = 0;
        let counted = std::future::poll_fn(|_| {
            polls += 1;
            if polls == 3 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        assert_eq!(
            block_on_until(counted, None, Some(Duration::from_micros(100))),
            Some(())
        );
    }

    #[test]
    fn an_unpark_meant_for_something_else_does_not_end_the_wait() {
        thread::current().unpark();
        let gate = Gate::default();
        assert_eq!(
            block_on_until(gate.wait(), deadline_after(Duration::from_millis(1)), None),
            None
        );
    }
}
