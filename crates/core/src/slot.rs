//! A one-shot slot for a value from another thread: where a pending reply meets its answer.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// Filled once, taken once. A dropped reply leaves the slot behind; filling it then has no effect.
#[derive(Debug)]
pub struct Slot<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            inner: Mutex::new(Inner {
                value: None,
                waker: None,
            }),
        }
    }
}

impl<T> Slot<T> {
    /// Stores the value and wakes the waiter.
    pub fn fill(&self, value: T) {
        let waker = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.value = Some(value);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the value, or registers `waker` for the moment it arrives.
    pub fn take_or_register(&self, waker: &Waker) -> Option<T> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let value = inner.value.take();
        if value.is_none() {
            inner.waker = Some(waker.clone());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_value_that_arrives_later_wakes_its_reader() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let slot = Slot::default();
        assert_eq!(slot.take_or_register(&waker), None);
        slot.fill(7);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(slot.take_or_register(&waker), Some(7));
    }
}
