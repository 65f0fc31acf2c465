//! The memory that all connections together may take for requests not yet served and answers not
//! yet sent (`queued.max.request.bytes`).
//!
//! Most requests need none: a request arrives whole in the buffer that an event loop shares between
//! its connections, and its answer goes to the socket in the same turn. What is left over of either
//! takes memory from one of two parts:
//!
//! - **The pocket of the event loop**, for items of up to a sixteenth of it. All pockets together
//!   are a quarter of the limit, divided among the loops. Only its loop writes to a pocket, so the
//!   usual case touches nothing that another thread does. No connection ever waits for a pocket:
//!   when it is full, the loop reads no more than it can serve, and asks for the common part.
//!   Answers may fill at most half of it.
//! - **The common part** for the rest, shared fairly between tenants (`memory_shares.rs`, which
//!   argues why there is no deadlock). A request asks before it is read, and one that will have a
//!   large answer asks before it is served. Back pressure: a connection that waits is not read, so
//!   the bytes stay in the socket, and in the end with the sender.
//!
//! Requests never exceed the limit. The size of an answer is known only when it is made: each event
//! loop, and each thread for long answers, may exceed the limit by the one answer it is making.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ottla_core::tenant::TenantId;

use super::memory_shares::{Shares, Ticket};

/// The fraction of the limit that pockets have, and the fraction of a pocket that one request may
/// have.
const POCKETS_DIVISOR: usize = 4;
const POCKET_REQUEST_DIVISOR: usize = 16;

/// A pocket must have room for what a few reads may leave over.
pub const POCKET_BYTES_MIN: usize = 1024 * 1024;

/// The memory for the usual requests of one event loop. Written by that loop only, read by any
/// thread.
#[derive(Debug)]
#[repr(align(64))]
pub struct Pocket {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Pocket {
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

    /// The most that one incomplete request may take.
    pub fn request_bytes_max(&self) -> usize {
        self.limit_bytes / POCKET_REQUEST_DIVISOR
    }

    /// Replaces the `before` bytes that a connection held by `after`.
    pub fn exchange(&self, before: usize, after: usize) {
        // A plain store, no lock: only this loop writes.
        self.used_bytes
            .store(self.used_bytes() - before + after, Ordering::Relaxed);
    }
}

/// A connection that waits for the common part.
#[derive(Debug)]
struct Waiter {
    is_given: Arc<AtomicBool>,
    waker: Waker,
}

/// The limit, and how much of it is in use.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    pockets: Box<[Arc<Pocket>]>,
    common_limit_bytes: usize,
    shares: Mutex<Shares<Waiter>>,
    /// Copies of numbers in `shares`, readable without its lock.
    common_bytes: AtomicUsize,
    waiting: AtomicUsize,
    waits: AtomicU64,
}

impl MemoryBudget {
    /// The smallest limit with which `loops` event loops can work and a request of
    /// `request_bytes_max` fits.
    pub fn limit_bytes_min(loops: usize, request_bytes_max: usize) -> usize {
        let pockets = loops * POCKET_BYTES_MIN;
        (request_bytes_max + pockets).max(POCKETS_DIVISOR * pockets)
    }

    /// - `limit_bytes`: at least [`MemoryBudget::limit_bytes_min`].
    pub fn new(limit_bytes: usize, loops: usize, request_bytes_max: usize) -> MemoryBudget {
        let of_pockets = (limit_bytes / POCKETS_DIVISOR).min(limit_bytes.saturating_sub(request_bytes_max));
        let pocket_bytes = of_pockets / loops.max(1);
        let pocket = || Pocket {
            limit_bytes: pocket_bytes,
            used_bytes: AtomicUsize::new(0),
        };
        let common_limit_bytes = limit_bytes - pocket_bytes * loops;
        MemoryBudget {
            limit_bytes,
            pockets: (0..loops).map(|_| Arc::new(pocket())).collect(),
            common_limit_bytes,
            shares: Mutex::new(Shares::new(common_limit_bytes)),
            common_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
        }
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes in use, of pockets and common part together.
    pub fn used_bytes(&self) -> usize {
        let of_pockets: usize = self.pockets.iter().map(|pocket| pocket.used_bytes()).sum();
        of_pockets + self.common_bytes.load(Ordering::Relaxed)
    }

    /// Connections that are not read because the common part is in use.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How often a connection has had to wait.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// The pocket of an event loop.
    pub fn pocket(&self, event_loop: usize) -> Arc<Pocket> {
        self.pockets[event_loop].clone()
    }

    /// Asks the common part for memory for one request. `waker` is called when it is granted later
    /// rather than at once.
    pub fn claim(self: &Arc<Self>, tenant: TenantId, bytes: usize, waker: impl FnOnce() -> Waker) -> Claim {
        let mut is_given: Option<Arc<AtomicBool>> = None;
        let mut shares = self.lock();
        let ticket = shares.ask(tenant, bytes, || Waiter {
            is_given: is_given.insert(Arc::default()).clone(),
            waker: waker(),
        });
        self.publish(&shares);
        drop(shares);
        self.waits
            .fetch_add(u64::from(ticket.is_some()), Ordering::Relaxed);
        Claim {
            budget: self.clone(),
            tenant,
            bytes,
            place: ticket.zip(is_given),
        }
    }

    /// Takes memory of the common part for bytes that already exist.
    pub fn take_unasked(self: &Arc<Self>, tenant: TenantId, bytes: usize) -> Claim {
        let mut shares = self.lock();
        shares.take_unasked(tenant, bytes);
        self.publish(&shares);
        Claim {
            budget: self.clone(),
            tenant,
            bytes,
            place: None,
        }
    }

    /// Whether more than half of the common part is in use; the rest should be left for newcomers.
    pub fn is_tight(&self) -> bool {
        self.common_bytes.load(Ordering::Relaxed) > self.common_limit_bytes / 2
    }

    /// Updates the counters, and wakes the waiters that were given memory.
    fn settle(&self, shares: MutexGuard<'_, Shares<Waiter>>, given: Vec<Waiter>) {
        for waiter in &given {
            waiter.is_given.store(true, Ordering::Release);
        }
        self.publish(&shares);
        drop(shares);
        given.into_iter().for_each(|waiter| waiter.waker.wake());
    }

    fn publish(&self, shares: &Shares<Waiter>) {
        self.common_bytes.store(shares.used_bytes(), Ordering::Relaxed);
        self.waiting.store(shares.waiting(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Shares<Waiter>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of the common part, for one request or a connection's answers, or a place in the queue
/// for it. Given back when dropped.
#[derive(Debug)]
pub struct Claim {
    budget: Arc<MemoryBudget>,
    tenant: TenantId,
    bytes: usize,
    /// Of a claim that had to wait: its place, and whether memory has been granted.
    place: Option<(Ticket, Arc<AtomicBool>)>,
}

impl Claim {
    pub fn is_given(&self) -> bool {
        self.place
            .as_ref()
            .is_none_or(|(_, is_given)| is_given.load(Ordering::Acquire))
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut given = Vec::new();
        let mut shares = self.budget.lock();
        let still_waits = self
            .place
            .as_ref()
            .is_some_and(|(ticket, _)| shares.withdraw(self.tenant, *ticket, &mut given));
        if !still_waits {
            shares.give_back(self.tenant, self.bytes, &mut given);
        }
        self.budget.settle(shares, given);
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
            let pocket = budget.pocket(loops - 1).limit_bytes;
            assert!(pocket >= POCKET_BYTES_MIN, "{pocket}");
            assert!(limit - loops * pocket >= request);
        }
    }

    #[test]
    fn a_waiter_is_woken_and_a_dropped_claim_is_given_back() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let budget = Arc::new(MemoryBudget::new(8 * MIB, 2, 4 * MIB));
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let claim = |tenant, bytes| budget.claim(TenantId(tenant), bytes, || Waker::from(count.clone()));
        let first = claim(1, 4 * MIB);
        let second = claim(2, 4 * MIB);
        let third = claim(3, 4 * MIB);
        assert_eq!(
            [&first, &second, &third].map(Claim::is_given),
            [true, false, false]
        );
        assert_eq!(
            (budget.used_bytes(), budget.waiting(), budget.waits()),
            (4 * MIB, 2, 2)
        );
        drop(second);
        assert_eq!((budget.waiting(), count.0.load(Ordering::Relaxed)), (1, 0));
        drop(first);
        assert!(third.is_given());
        assert_eq!((budget.waiting(), count.0.load(Ordering::Relaxed)), (0, 1));
        drop(third);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_pocket_counts_what_its_connections_exchange() {
        let budget = MemoryBudget::new(8 * MIB, 2, 4 * MIB);
        let pocket = budget.pocket(1);
        assert!(pocket.has_room(MIB) && !pocket.has_room(MIB + 1));
        pocket.exchange(0, 300_000);
        pocket.exchange(300_000, 100);
        assert!(pocket.has_room(MIB - 100));
        assert_eq!(budget.used_bytes(), 100);
        pocket.exchange(100, 0);
        assert_eq!(budget.used_bytes(), 0);
    }
}
