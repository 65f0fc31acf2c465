//! The memory that all connections together may take for requests not yet served and answers not
//! yet sent (`queued.max.request.bytes`).
//!
//! Most requests need none: a request arrives whole in the buffer that an event loop shares between
//! its connections, and its answer goes to the socket in the same turn. What is left over of either
//! takes memory from one of two parts:
//!
//! - **The part of the event loop**, for items of up to a sixteenth of it. The parts of all loops
//!   together are a quarter of the limit. Only its loop writes to a part, so the usual case touches
//!   nothing that another thread does. No connection ever waits for it: when it is full, the loop
//!   reads no more than it can serve, and asks for shared memory. Answers may fill at most half of
//!   it.
//! - **The shared part** for the rest, divided fairly between tenants (`fair_semaphore/mod.rs`,
//!   which argues why there is no deadlock). A request asks before it is read, and one that will
//!   have a large answer asks before it is served. Back pressure: a connection that waits is not
//!   read, so the bytes stay in the socket, and in the end with the sender.
//!
//! Requests never exceed the limit. The size of an answer is known only when it is made: each event
//! loop, and each thread for long answers, may exceed the limit by the one answer it is making.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ottla_core::tenant::TenantId;

use super::fair_semaphore::{FairSemaphore, Ticket};

/// The fraction of the limit that the loops have, and the fraction of a loop's part that one item
/// may have.
const LOOPS_DIVISOR: usize = 4;
const ITEM_DIVISOR: usize = 16;

/// A loop's part must have room for what a few reads may leave over.
pub const LOOP_BYTES_MIN: usize = 1024 * 1024;

/// The memory for the usual requests of one event loop. Written by that loop only, read by any
/// thread.
#[derive(Debug)]
#[repr(align(64))]
pub struct LoopMemory {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl LoopMemory {
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Whether `bytes` more would fit.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes() + bytes <= self.limit_bytes
    }

    /// Whether `bytes` more would fit that stay until a client reads them; the other half is
    /// reserved for requests.
    pub fn has_room_for_answers(&self, bytes: usize) -> bool {
        self.used_bytes() + bytes <= self.limit_bytes / 2
    }

    /// The most that one request or answer may take.
    pub fn item_bytes_max(&self) -> usize {
        self.limit_bytes / ITEM_DIVISOR
    }

    /// Replaces the `before` bytes that a connection used by `after`.
    pub fn exchange(&self, before: usize, after: usize) {
        // A plain store, no lock: only this loop writes.
        self.used_bytes
            .store(self.used_bytes() - before + after, Ordering::Relaxed);
    }
}

/// The limit, and how much of it is in use.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    of_loops: Box<[Arc<LoopMemory>]>,
    shared_limit_bytes: usize,
    shared: Mutex<FairSemaphore<Waker>>,
    /// Copies of numbers in `shared`, readable without its lock.
    shared_bytes: AtomicUsize,
    waiting: AtomicUsize,
}

impl MemoryBudget {
    /// The smallest limit with which `loops` event loops can work and a request of
    /// `request_bytes_max` fits.
    pub fn limit_bytes_min(loops: usize, request_bytes_max: usize) -> usize {
        let of_loops = loops * LOOP_BYTES_MIN;
        (request_bytes_max + of_loops).max(LOOPS_DIVISOR * of_loops)
    }

    /// - `limit_bytes`: at least [`MemoryBudget::limit_bytes_min`].
    pub fn new(limit_bytes: usize, loops: usize, request_bytes_max: usize) -> MemoryBudget {
        let of_loops = (limit_bytes / LOOPS_DIVISOR).min(limit_bytes.saturating_sub(request_bytes_max));
        let loop_bytes = of_loops / loops.max(1);
        let of_loop = || LoopMemory {
            limit_bytes: loop_bytes,
            used_bytes: AtomicUsize::new(0),
        };
        let shared_limit_bytes = limit_bytes - loop_bytes * loops;
        MemoryBudget {
            limit_bytes,
            of_loops: (0..loops).map(|_| Arc::new(of_loop())).collect(),
            shared_limit_bytes,
            shared: Mutex::new(FairSemaphore::new(shared_limit_bytes)),
            shared_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes in use, of the loops' parts and the shared one together.
    pub fn used_bytes(&self) -> usize {
        let of_loops: usize = self.of_loops.iter().map(|of_loop| of_loop.used_bytes()).sum();
        of_loops + self.shared_bytes.load(Ordering::Relaxed)
    }

    /// Connections that are not read because the shared part is in use.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How often a connection has had to wait.
    pub fn waits(&self) -> u64 {
        self.lock().waits()
    }

    /// The part of an event loop.
    pub fn of_loop(&self, event_loop: usize) -> Arc<LoopMemory> {
        self.of_loops[event_loop].clone()
    }

    /// Asks for shared memory for one request. `waker` is called when it is granted later rather
    /// than at once.
    pub fn acquire(
        self: &Arc<Self>,
        tenant: TenantId,
        bytes: usize,
        waker: impl FnOnce() -> Waker,
    ) -> Permit {
        let mut shared = self.lock();
        let ticket = shared.acquire(tenant, bytes, waker);
        self.publish(&shared);
        Permit {
            budget: self.clone(),
            tenant,
            bytes,
            ticket,
        }
    }

    /// Takes shared memory for bytes that already exist.
    pub fn acquire_unconditionally(self: &Arc<Self>, tenant: TenantId, bytes: usize) -> Permit {
        let mut shared = self.lock();
        shared.acquire_unconditionally(tenant, bytes);
        self.publish(&shared);
        Permit {
            budget: self.clone(),
            tenant,
            bytes,
            ticket: None,
        }
    }

    /// Whether more than half of the shared part is in use; the rest should be left for newcomers.
    pub fn is_tight(&self) -> bool {
        self.shared_bytes.load(Ordering::Relaxed) > self.shared_limit_bytes / 2
    }

    /// Updates the counters, and wakes those that were granted memory.
    fn settle(&self, shared: MutexGuard<'_, FairSemaphore<Waker>>, granted: Vec<Waker>) {
        self.publish(&shared);
        drop(shared);
        granted.into_iter().for_each(Waker::wake);
    }

    fn publish(&self, shared: &FairSemaphore<Waker>) {
        self.shared_bytes.store(shared.used_bytes(), Ordering::Relaxed);
        self.waiting.store(shared.waiting(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, FairSemaphore<Waker>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shared memory for one request or a connection's answers, or a place in the queue for it.
/// Released when dropped.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<MemoryBudget>,
    tenant: TenantId,
    bytes: usize,
    /// Of a permit that had to wait.
    ticket: Option<Ticket>,
}

impl Permit {
    pub fn is_granted(&self) -> bool {
        self.ticket
            .is_none_or(|ticket| !self.budget.lock().is_waiting(self.tenant, ticket))
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut granted = Vec::new();
        let mut shared = self.budget.lock();
        let was_waiting = self
            .ticket
            .is_some_and(|ticket| shared.cancel(self.tenant, ticket, &mut granted));
        if !was_waiting {
            shared.release(self.tenant, self.bytes, &mut granted);
        }
        self.budget.settle(shared, granted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_parts_make_up_the_limit_and_the_largest_request_fits() {
        for (limit, loops, request) in [
            (8 * MIB, 2, 4 * MIB),
            (9 * MIB, 2, 7 * MIB),
            (512 * MIB, 16, 100 * MIB),
        ] {
            assert!(MemoryBudget::limit_bytes_min(loops, request) <= limit);
            let budget = MemoryBudget::new(limit, loops, request);
            let of_loop = budget.of_loop(loops - 1).limit_bytes;
            assert!(of_loop >= LOOP_BYTES_MIN, "{of_loop}");
            assert!(limit - loops * of_loop >= request);
        }
    }

    #[test]
    fn a_waiter_is_woken_and_a_dropped_permit_is_released() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let budget = Arc::new(MemoryBudget::new(8 * MIB, 2, 4 * MIB));
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let acquire = |tenant, bytes| budget.acquire(TenantId(tenant), bytes, || Waker::from(count.clone()));
        let first = acquire(1, 4 * MIB);
        let second = acquire(2, 4 * MIB);
        let third = acquire(3, 4 * MIB);
        assert_eq!(
            [&first, &second, &third].map(Permit::is_granted),
            [true, false, false]
        );
        assert_eq!(
            (budget.used_bytes(), budget.waiting(), budget.waits()),
            (4 * MIB, 2, 2)
        );
        drop(second);
        assert_eq!((budget.waiting(), count.0.load(Ordering::Relaxed)), (1, 0));
        drop(first);
        assert!(third.is_granted());
        assert_eq!((budget.waiting(), count.0.load(Ordering::Relaxed)), (0, 1));
        drop(third);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn the_part_of_a_loop_counts_what_its_connections_exchange() {
        let budget = MemoryBudget::new(8 * MIB, 2, 4 * MIB);
        let of_loop = budget.of_loop(1);
        assert!(of_loop.has_room(MIB) && !of_loop.has_room(MIB + 1));
        of_loop.exchange(0, 300_000);
        of_loop.exchange(300_000, 100);
        assert!(of_loop.has_room(MIB - 100));
        assert_eq!(budget.used_bytes(), 100);
        of_loop.exchange(100, 0);
        assert_eq!(budget.used_bytes(), 0);
    }
}
