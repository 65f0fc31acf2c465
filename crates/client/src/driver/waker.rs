//! Wakes the driver from another thread; costs one atomic exchange while the driver is awake.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::network::io::Wake;

const AWAKE: u8 = 0;
/// The driver is in, or about to enter, the system call that waits.
const ASLEEP: u8 = 1;
/// A thread has called since the driver last looked.
const CALLED: u8 = 2;

/// Wakes the driver from its sleep.
#[derive(Debug)]
pub struct DriverWaker {
    state: AtomicU8,
    waker: mio::Waker,
}

impl DriverWaker {
    pub fn new(waker: mio::Waker) -> DriverWaker {
        DriverWaker {
            state: AtomicU8::new(AWAKE),
            waker,
        }
    }

    /// Prepares to sleep; false when the driver must not, because a thread has called meanwhile.
    pub fn fall_asleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Marks the driver as awake: it will see everything done before a call.
    pub fn wake_up(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }
}

impl Wake for DriverWaker {
    fn wake(&self) {
        if self.state.swap(CALLED, Ordering::AcqRel) == ASLEEP {
            // Fails only when the kernel's counter is full, and then the driver wakes up anyway.
            let _ = self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token};
    use std::time::Duration;

    #[test]
    fn a_call_before_sleep_prevents_it_and_a_call_during_sleep_ends_it() {
        let mut poll = Poll::new().unwrap();
        let waker = DriverWaker::new(mio::Waker::new(poll.registry(), Token(1)).unwrap());
        waker.wake();
        assert!(!waker.fall_asleep());
        waker.wake_up();
        assert!(waker.fall_asleep());
        let mut events = Events::with_capacity(4);
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            // Returns because of the call; the limit only keeps a defect from hanging the test.
            poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
        });
        assert_eq!(
            events.iter().map(|event| event.token()).collect::<Vec<_>>(),
            [Token(1)]
        );
    }

    #[test]
    fn a_call_while_awake_makes_no_system_call() {
        let mut poll = Poll::new().unwrap();
        let waker = DriverWaker::new(mio::Waker::new(poll.registry(), Token(1)).unwrap());
        waker.wake();
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
    }
}
