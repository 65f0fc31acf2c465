//! `buffer.memory`: a pool that grants memory in order of arrival.
//!
//! Memory is taken per batch, never per record. Returned buffers are reused before the allocator is
//! asked.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::Error;

/// How often a waiting thread rechecks without a wake-up.
pub(super) const RECHECK: Duration = Duration::from_millis(1);

/// Counts bytes and keeps buffers of `batch.size` for the next batch. Clones share one pool.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    total_bytes: usize,
    batch_bytes: usize,
    /// A waiter is woken only with this much free, even though less would do for it: woken for
    /// every returned batch, a thread would go back to sleep after 16 KiB, and the two context
    /// switches cost more than filling the batch.
    wake_bytes: usize,
    state: Mutex<PoolState>,
    /// Mirror of the queue's length, read by the sender without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct PoolState {
    /// Negative by the amount by which codecs' output was larger than their input.
    available: isize,
    /// Buffers of exactly `batch_bytes`; their bytes count as available.
    free: Vec<Vec<u8>>,
    queue: VecDeque<Waiter>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    wanted_bytes: usize,
    is_granted: bool,
    /// A thread rechecks regularly, so its wake-up may be held back; a task does not.
    is_thread: bool,
    waker: Waker,
}

impl BufferPool {
    pub fn new(buffer_memory_bytes: usize, batch_bytes: usize) -> BufferPool {
        BufferPool {
            shared: Arc::new(Shared {
                total_bytes: buffer_memory_bytes,
                batch_bytes,
                wake_bytes: (buffer_memory_bytes / 16).min(batch_bytes.saturating_mul(16)),
                state: Mutex::new(PoolState {
                    available: isize::try_from(buffer_memory_bytes).unwrap_or(isize::MAX),
                    free: Vec::new(),
                    queue: VecDeque::new(),
                    next_id: 0,
                }),
                waiting: AtomicUsize::new(0),
            }),
        }
    }

    pub fn total_bytes(&self) -> usize {
        self.shared.total_bytes
    }

    pub fn available_bytes(&self) -> usize {
        usize::try_from(self.shared.lock().available).unwrap_or(0)
    }

    /// Threads that wait for memory. While there are any, the sender treats every open batch as
    /// ready, as Kafka does.
    pub fn waiting_threads(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Takes memory for `wanted_bytes`, at least a batch's buffer, if it is free and there is no
    /// other waiter.
    pub(super) fn try_take(&self, wanted_bytes: usize) -> Option<Memory> {
        let mut state = self.shared.lock();
        let is_free = state.queue.is_empty() && state.has(wanted_bytes);
        is_free.then(|| self.shared.hand_out(&mut state, wanted_bytes))
    }

    /// Takes memory for `wanted_bytes` beyond the limit if necessary: for work that must go on,
    /// such as splitting a batch that the broker found too large.
    pub(super) fn take_anyway(&self, wanted_bytes: usize) -> Memory {
        let mut state = self.shared.lock();
        self.shared.hand_out(&mut state, wanted_bytes)
    }

    /// Waits for memory for `wanted_bytes`, behind earlier waiters (first come, first served).
    ///
    /// - `is_thread`: the caller polls at least every `RECHECK` even if it is not woken.
    pub(super) fn take_in_turn(&self, wanted_bytes: usize, is_thread: bool) -> PoolTurn {
        PoolTurn {
            shared: Arc::clone(&self.shared),
            wanted_bytes,
            is_thread,
            id: None,
        }
    }

    /// The error of a call that found no room.
    pub(super) fn exhausted(&self, wanted_bytes: usize, waited_ms: u64) -> Error {
        Error::BufferExhausted {
            wanted_bytes,
            buffer_bytes: self.shared.total_bytes,
            waited_ms,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_out(self: &Arc<Shared>, state: &mut PoolState, wanted_bytes: usize) -> Memory {
        state.reserve(wanted_bytes);
        let reused = if wanted_bytes == self.batch_bytes {
            state.free.pop()
        } else {
            None
        };
        state.forget_buffers(self.batch_bytes);
        Memory {
            buffer: reused.unwrap_or_default(),
            reserved_bytes: wanted_bytes,
            pool: Arc::clone(self),
        }
    }

    fn give_back(&self, bytes: usize, buffer: Vec<u8>) {
        let mut woken = Vec::new();
        {
            let mut state = self.lock();
            state.release(bytes);
            if buffer.capacity() == self.batch_bytes {
                state.free.push(buffer);
                state.forget_buffers(self.batch_bytes);
            }
            self.grant(&mut state, &mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Grants memory to the waiters in order, as far as it goes.
    fn grant(&self, state: &mut PoolState, woken: &mut Vec<Waker>) {
        for i in 0..state.queue.len() {
            let waiter = &state.queue[i];
            if waiter.is_granted {
                continue;
            }
            let wanted_bytes = waiter.wanted_bytes;
            let enough_bytes = if waiter.is_thread {
                wanted_bytes.max(self.wake_bytes)
            } else {
                wanted_bytes
            };
            if !state.has(enough_bytes) {
                return;
            }
            state.reserve(wanted_bytes);
            let waiter = &mut state.queue[i];
            waiter.is_granted = true;
            woken.push(waiter.waker.clone());
        }
    }
}

impl PoolState {
    fn has(&self, bytes: usize) -> bool {
        usize::try_from(self.available).is_ok_and(|available| available >= bytes)
    }

    fn reserve(&mut self, bytes: usize) {
        self.available -= isize::try_from(bytes).expect("no allocation exceeds isize::MAX");
    }

    fn release(&mut self, bytes: usize) {
        self.available += isize::try_from(bytes).expect("it was reserved");
    }

    /// Kept buffers count as available: they are freed when other sizes need the memory.
    fn forget_buffers(&mut self, batch_bytes: usize) {
        while !self.free.is_empty() && !self.has(self.free.len().saturating_mul(batch_bytes)) {
            self.free.pop();
        }
    }
}

/// A waiter's place in the queue for memory.
#[derive(Debug)]
pub(super) struct PoolTurn {
    shared: Arc<Shared>,
    wanted_bytes: usize,
    is_thread: bool,
    /// Its id in the queue, once the first poll found no room.
    id: Option<u64>,
}

impl Future for PoolTurn {
    type Output = Memory;

    fn poll(self: Pin<&mut PoolTurn>, context: &mut Context<'_>) -> Poll<Memory> {
        let this = self.get_mut();
        let shared = &this.shared;
        let mut state = shared.lock();
        let Some(id) = this.id else {
            if state.queue.is_empty() && state.has(this.wanted_bytes) {
                return Poll::Ready(shared.hand_out(&mut state, this.wanted_bytes));
            }
            let id = state.next_id;
            state.next_id += 1;
            state.queue.push_back(Waiter {
                id,
                wanted_bytes: this.wanted_bytes,
                is_granted: false,
                is_thread: this.is_thread,
                waker: context.waker().clone(),
            });
            this.id = Some(id);
            shared.waiting.fetch_add(1, Ordering::Relaxed);
            return Poll::Pending;
        };
        let place = state.place(id);
        if state.queue[place].is_granted {
            // `hand_out` reserves again.
            state.release(this.wanted_bytes);
        } else if !state.is_next(place) || !state.has(this.wanted_bytes) {
            state.queue[place].waker.clone_from(context.waker());
            return Poll::Pending;
        }
        this.id = None;
        state.queue.remove(place);
        shared.waiting.fetch_sub(1, Ordering::Relaxed);
        Poll::Ready(shared.hand_out(&mut state, this.wanted_bytes))
    }
}

impl PoolState {
    fn place(&self, id: u64) -> usize {
        self.queue
            .iter()
            .position(|waiter| waiter.id == id)
            .expect("a waiter stays queued until its turn ends")
    }

    /// Whether no waiter before `place` waits for memory.
    fn is_next(&self, place: usize) -> bool {
        self.queue.iter().take(place).all(|waiter| waiter.is_granted)
    }
}

impl Drop for PoolTurn {
    /// A waiter that gives up leaves its place, and any memory granted to it, to the next.
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut woken = Vec::new();
        {
            let mut state = self.shared.lock();
            let place = state.place(id);
            let waiter = state.queue.remove(place).expect("found above");
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            if waiter.is_granted {
                state.release(waiter.wanted_bytes);
            }
            self.shared.grant(&mut state, &mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Bytes taken from a pool; they go back when this is dropped.
///
/// As the owner of a `Bytes` it is dropped by the last holder of a slice of it, on whichever thread
/// that is.
pub(super) struct Memory {
    pub(super) buffer: Vec<u8>,
    reserved_bytes: usize,
    pool: Arc<Shared>,
}

impl Memory {
    /// Allocates the buffer if it was not reused. Separate from taking, so that no lock is held
    /// during the allocation.
    pub(super) fn prepare(&mut self) {
        if self.buffer.capacity() == 0 {
            self.buffer.reserve_exact(self.reserved_bytes);
        }
    }

    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    /// Adds room for `more_bytes`, at once or not at all; false when the pool lacks them or has
    /// waiters.
    pub(super) fn grow(&mut self, more_bytes: usize) -> bool {
        {
            let mut state = self.pool.lock();
            if !state.queue.is_empty() || !state.has(more_bytes) {
                return false;
            }
            state.reserve(more_bytes);
            state.forget_buffers(self.pool.batch_bytes);
        }
        self.reserved_bytes += more_bytes;
        let missing = self.reserved_bytes - self.buffer.len();
        self.buffer.reserve_exact(missing);
        true
    }

    /// Replaces the content by a copy of `bytes`, in no more memory than that needs.
    pub(super) fn replace(&mut self, bytes: &[u8]) {
        self.buffer.clear();
        let batch_bytes = self.pool.batch_bytes;
        if self.reserved_bytes == batch_bytes && bytes.len() <= batch_bytes {
            self.prepare();
            self.buffer.extend_from_slice(bytes);
            return;
        }
        let keeps_bytes = if bytes.len() <= batch_bytes {
            batch_bytes
        } else {
            bytes.len()
        };
        let mut other = BufferPool {
            shared: Arc::clone(&self.pool),
        }
        .take_anyway(keeps_bytes);
        other.prepare();
        other.buffer.extend_from_slice(bytes);
        *self = other;
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        self.pool.give_back(self.reserved_bytes, buffer);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Memory {{ used: {}, reserved: {} }}",
            self.buffer.len(),
            self.reserved_bytes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{block_on, block_on_until, deadline_after};

    fn poll(turn: &mut PoolTurn) -> Option<Memory> {
        match Pin::new(turn).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(memory) => Some(memory),
            Poll::Pending => None,
        }
    }

    #[test]
    fn dropped_memory_is_reused() {
        let pool = BufferPool::new(300, 100);
        let mut memory = pool.try_take(100).unwrap();
        memory.prepare();
        memory.buffer.extend_from_slice(b"old bytes");
        let address = memory.buffer.as_ptr();
        assert_eq!(pool.available_bytes(), 200);
        drop(memory);
        assert_eq!(pool.available_bytes(), 300);
        let again = pool.try_take(100).unwrap();
        assert_eq!(again.buffer.as_ptr(), address);
        assert!(again.buffer.is_empty());
    }

    #[test]
    fn never_hands_out_more_than_the_total() {
        let pool = BufferPool::new(300, 100);
        let held: Vec<_> = std::iter::from_fn(|| pool.try_take(100)).collect();
        assert_eq!(held.len(), 3);
        assert!(pool.try_take(1).is_none());
    }

    #[test]
    fn kept_buffers_make_room_for_other_sizes() {
        let pool = BufferPool::new(300, 100);
        let mut held: Vec<_> = std::iter::from_fn(|| pool.try_take(100)).collect();
        held.iter_mut().for_each(Memory::prepare);
        held.clear();
        assert_eq!(pool.shared.lock().free.len(), 3);
        let large = pool.try_take(250).unwrap();
        assert_eq!(pool.shared.lock().free.len(), 0);
        assert_eq!(pool.available_bytes(), 50);
        drop(large);
        assert_eq!(pool.available_bytes(), 300);
    }

    #[test]
    fn a_large_request_is_not_overtaken_by_small_ones() {
        let pool = BufferPool::new(300, 100);
        let (first, second) = (pool.try_take(100), pool.try_take(100));
        let mut large = pool.take_in_turn(250, false);
        assert!(poll(&mut large).is_none());
        assert_eq!(pool.waiting_threads(), 1);
        assert!(
            pool.try_take(10).is_none(),
            "100 bytes are free, but another was first"
        );
        let mut small = pool.take_in_turn(10, false);
        assert!(poll(&mut small).is_none());
        drop(first);
        assert!(poll(&mut large).is_none());
        drop(second);
        let memory = poll(&mut large).unwrap();
        assert_eq!(pool.waiting_threads(), 1);
        assert!(poll(&mut small).is_some());
        assert_eq!((pool.waiting_threads(), pool.available_bytes()), (0, 50));
        drop(memory);
        assert_eq!(pool.available_bytes(), 300);
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_its_grant_to_the_next() {
        let pool = BufferPool::new(100, 100);
        let held = pool.try_take(100);
        let (mut first, mut second) = (pool.take_in_turn(100, false), pool.take_in_turn(60, false));
        assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
        drop(held);
        assert_eq!(pool.available_bytes(), 0, "granted to the first");
        drop(first);
        assert!(poll(&mut second).is_some());
        drop(second);
        assert_eq!((pool.waiting_threads(), pool.available_bytes()), (0, 100));
    }

    #[test]
    fn a_thread_rechecks_although_too_little_came_back_to_wake_it() {
        let pool = BufferPool::new(3_200, 100);
        assert_eq!(pool.shared.wake_bytes, 200);
        let mut held: Vec<_> = std::iter::from_fn(|| pool.try_take(100)).collect();
        let mut turn = pool.take_in_turn(100, true);
        assert!(poll(&mut turn).is_none());
        held.pop();
        assert!(!pool.shared.lock().queue[0].is_granted);
        assert!(poll(&mut turn).is_some());
    }

    #[test]
    fn growing_takes_from_the_pool_and_replacing_gives_back() {
        let pool = BufferPool::new(1_000, 100);
        let mut memory = pool.try_take(100).unwrap();
        memory.prepare();
        assert!(memory.grow(300));
        assert_eq!((memory.buffer.capacity(), pool.available_bytes()), (400, 600));
        assert!(!memory.grow(601));
        memory.replace(b"small");
        assert_eq!((memory.as_ref(), pool.available_bytes()), (&b"small"[..], 900));
        memory.replace(&[7; 150]);
        assert_eq!((memory.as_ref().len(), pool.available_bytes()), (150, 850));
        drop(memory);
        assert_eq!(pool.available_bytes(), 1_000);
    }

    #[test]
    fn no_memory_by_the_deadline_leaves_no_trace() {
        let pool = BufferPool::new(100, 100);
        let held = pool.try_take(100).unwrap();
        let turn = pool.take_in_turn(50, true);
        let deadline = deadline_after(Duration::from_millis(1));
        assert!(block_on_until(turn, deadline, None).is_none());
        assert_eq!(pool.waiting_threads(), 0);
        drop(held);
        assert_eq!(pool.available_bytes(), 100);
    }

    #[test]
    fn many_threads_share_little_memory_and_all_get_their_turn() {
        let pool = BufferPool::new(1_000, 100);
        let most_held = AtomicUsize::new(0);
        let held = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (pool, held, most_held) = (&pool, &held, &most_held);
                scope.spawn(move || {
                    for round in 0..200 {
                        let bytes = 1 + (thread * 131 + round * 37) % 400;
                        let memory = block_on(pool.take_in_turn(bytes, false));
                        most_held.fetch_max(
                            held.fetch_add(bytes, Ordering::Relaxed) + bytes,
                            Ordering::Relaxed,
                        );
                        held.fetch_sub(bytes, Ordering::Relaxed);
                        drop(memory);
                    }
                });
            }
        });
        assert!(most_held.into_inner() <= 1_000);
        assert_eq!((pool.available_bytes(), pool.waiting_threads()), (1_000, 0));
    }
}
