//! A timer for one thread that other threads can trigger early.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Alarm {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    has_rung: bool,
    is_waiting: bool,
    is_stopped: bool,
}

impl Alarm {
    /// Ends the current wait, or the next one if there is none.
    pub fn ring(&self) {
        let must_wake = {
            let mut inner = self.lock();
            let had_rung = std::mem::replace(&mut inner.has_rung, true);
            inner.is_waiting && !had_rung
        };
        if must_wake {
            self.changed.notify_one();
        }
    }

    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Waits until `timeout` has passed or the alarm rings; `None`: only for the ring. False once
    /// stopped.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut inner = self.lock();
        inner.is_waiting = true;
        let must_wait = |inner: &mut Inner| !inner.has_rung && !inner.is_stopped;
        inner = match timeout {
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(inner, timeout, must_wait);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self
                .changed
                .wait_while(inner, must_wait)
                .unwrap_or_else(PoisonError::into_inner),
        };
        inner.is_waiting = false;
        inner.has_rung = false;
        !inner.is_stopped
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_ring_before_the_wait_is_not_lost() {
        let alarm = Alarm::default();
        alarm.ring();
        assert!(alarm.wait(None));
        assert!(alarm.wait(Some(Duration::from_millis(1))));
    }

    #[test]
    fn stopping_ends_a_wait_without_a_timeout() {
        let alarm = Arc::new(Alarm::default());
        let waiter = std::thread::spawn({
            let alarm = alarm.clone();
            move || alarm.wait(None)
        });
        alarm.stop();
        assert!(!waiter.join().unwrap());
    }
}
