//! The queue of pushes for the telemetry thread, bounded by number and bytes, so that a flood
//! cannot fill the memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ottla_wire::error_code::ErrorCode;

use crate::slot::Slot;

/// A thousand clients at once; they push with jitter.
const PUSHES_MAX: usize = 1024;
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// What is queued at this moment.
#[derive(Debug, Default)]
pub struct Queue {
    pushes: AtomicUsize,
    bytes: AtomicUsize,
}

/// The answer to a push.
pub type PushAnswer = Result<(), ErrorCode>;

/// A push's place in the queue. Dropping it frees the place, and answers the push if that was not
/// done.
#[derive(Debug)]
pub struct QueuePlace {
    queue: Arc<Queue>,
    bytes: usize,
    slot: Mutex<Option<Arc<Slot<PushAnswer>>>>,
}

impl Queue {
    /// Takes a place for a payload of `bytes`; returns it and the slot for its answer; `None` when
    /// the queue is full.
    pub fn enter(self: &Arc<Queue>, bytes: usize) -> Option<(QueuePlace, Arc<Slot<PushAnswer>>)> {
        let pushes = self.pushes.fetch_add(1, Ordering::Relaxed) + 1;
        let all_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let slot = Arc::new(Slot::default());
        let is_full = pushes > PUSHES_MAX || all_bytes > BYTES_MAX;
        let place = QueuePlace {
            queue: self.clone(),
            bytes,
            slot: Mutex::new((!is_full).then(|| slot.clone())),
        };
        (!is_full).then_some((place, slot))
    }

    pub fn len(&self) -> usize {
        self.pushes.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl QueuePlace {
    pub fn answer(&self, answer: PushAnswer) {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(slot) = slot {
            slot.fill(answer);
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.queue.pushes.fetch_sub(1, Ordering::Relaxed);
        self.queue.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // If the receiver panicked, it could not read the payload either.
        self.answer(Err(ErrorCode::InvalidRecord));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_full_queue_accepts_nothing_until_a_place_is_freed() {
        let queue = Arc::new(Queue::default());
        let mut places: Vec<QueuePlace> = (0..PUSHES_MAX)
            .map(|_| queue.enter(10).map(|(place, _)| place).unwrap())
            .collect();
        assert!(queue.enter(10).is_none());
        assert_eq!(queue.len(), PUSHES_MAX);
        places.pop();
        assert!(queue.enter(10).is_some());
    }

    #[test]
    fn bytes_count_as_well() {
        let queue = Arc::new(Queue::default());
        let large = queue.enter(BYTES_MAX).unwrap();
        assert!(queue.enter(1).is_none());
        drop(large);
        assert!(queue.enter(1).is_some() && queue.is_empty());
    }

    #[test]
    fn a_place_that_is_dropped_answers() {
        let queue = Arc::new(Queue::default());
        let (place, slot) = queue.enter(1).unwrap();
        drop(place);
        assert_eq!(
            slot.take_or_register(Waker::noop()),
            Some(Err(ErrorCode::InvalidRecord))
        );
        let (place, slot) = queue.enter(1).unwrap();
        place.answer(Ok(()));
        drop(place);
        assert_eq!(slot.take_or_register(Waker::noop()), Some(Ok(())));
        assert_eq!(slot.take_or_register(Waker::noop()), None);
    }
}
