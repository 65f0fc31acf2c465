//! A value that another thread will provide: a future for any async runtime, with a blocking
//! `wait`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::error::Error;

/// The waiting side. Dropping it discards the result; it does not cancel the work.
pub struct Pending<T> {
    slot: Arc<Slot<T>>,
}

/// The providing side. Dropped without a result, it gives `Error::Closed`, so that no waiter waits
/// for a thread that has ended.
pub struct Promise<T> {
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    content: Mutex<Content<T>>,
    ready: Condvar,
}

struct Content<T> {
    result: Option<Result<T, Error>>,
    is_decided: bool,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Content<T>> {
        // No code panics while it holds this lock.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, result: Result<T, Error>) {
        let mut content = self.lock();
        if content.is_decided {
            return;
        }
        content.is_decided = true;
        content.result = Some(result);
        let waker = content.waker.take();
        drop(content);
        self.ready.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Returns both sides of a new value.
pub fn pending<T>() -> (Promise<T>, Pending<T>) {
    let slot = Arc::new(Slot {
        content: Mutex::new(Content {
            result: None,
            is_decided: false,
            waker: None,
        }),
        ready: Condvar::new(),
    });
    let promise = Promise {
        slot: Arc::clone(&slot),
    };
    (promise, Pending { slot })
}

impl<T> Promise<T> {
    pub fn fulfil(self, result: Result<T, Error>) {
        self.slot.decide(result);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.slot.decide(Err(Error::Closed));
    }
}

impl<T> Pending<T> {
    /// Returns one whose result is already known.
    pub fn decided(result: Result<T, Error>) -> Pending<T> {
        let (promise, pending) = pending();
        promise.fulfil(result);
        pending
    }

    /// Blocks until the result is there. There is no time limit here: the providing side enforces
    /// it.
    pub fn wait(self) -> Result<T, Error> {
        let mut content = self.slot.lock();
        loop {
            if let Some(result) = content.result.take() {
                return result;
            }
            content = self
                .slot
                .ready
                .wait(content)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks for at most `limit`; `None` when there is no result by then. The result is handed out
    /// once.
    pub fn wait_for(&mut self, limit: Duration) -> Option<Result<T, Error>> {
        let end = Instant::now() + limit;
        let mut content = self.slot.lock();
        loop {
            if let Some(result) = content.result.take() {
                return Some(result);
            }
            let left = end.checked_duration_since(Instant::now())?;
            (content, _) = self
                .slot
                .ready
                .wait_timeout(content, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the result if it is there.
    pub fn try_take(&mut self) -> Option<Result<T, Error>> {
        self.slot.lock().result.take()
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let mut content = self.slot.lock();
        match content.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                content.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_reaches_the_waiter() {
        let (promise, pending) = pending();
        let waiting = std::thread::spawn(move || pending.wait());
        promise.fulfil(Ok(7));
        assert_eq!(waiting.join().unwrap(), Ok(7));
    }

    #[test]
    fn a_dropped_promise_closes() {
        let (promise, pending) = pending::<()>();
        drop(promise);
        assert_eq!(pending.wait(), Err(Error::Closed));
    }

    #[test]
    fn waiting_with_a_limit_ends_without_a_result() {
        let (promise, mut pending) = pending();
        assert_eq!(pending.wait_for(Duration::from_millis(1)), None);
        promise.fulfil(Ok(1));
        assert_eq!(pending.wait_for(Duration::ZERO), Some(Ok(1)));
    }

    #[test]
    fn a_future_is_woken() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count(std::sync::atomic::AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let (promise, mut pending) = pending();
        assert!(Pin::new(&mut pending).poll(&mut context).is_pending());
        promise.fulfil(Ok("done"));
        assert_eq!(count.0.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert_eq!(Pin::new(&mut pending).poll(&mut context), Poll::Ready(Ok("done")));
    }
}
