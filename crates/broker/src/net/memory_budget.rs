//! How much memory all connections together may hold: requests that have not arrived whole, and replies that are not taken.
//!
//! Each connection has bounds of its own, but there may be any number of connections. When their sum comes near the limit,
//! connections are no longer read: the bytes stay in the sockets of those who send them, and in the end with them.
//!
//! A tenant may hold as much as is left (as switches share their buffers, "dynamic thresholds"): one alone gets half of
//! the limit, two get a third each, and there is always room for the next. Who is refused could wait for ever for others in
//! the same position, each with a part of a request; so one connection at a time goes on regardless until its request is whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ottla_core::tenant::TenantId;

/// Below this part of the limit nobody is refused and no tenant is looked up.
const QUIET_DIVISOR: usize = 8;

const NOBODY: u64 = u64::MAX;

#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    by_tenant: Box<[AtomicUsize]>,
    /// The connection that may go on beyond the limit.
    exempt: AtomicU64,
    refused: AtomicU64,
}

impl MemoryBudget {
    /// - Shape: tenants have ids below `tenants_max`; any other counts as [`TenantId::OTHERS`].
    pub fn new(limit_bytes: usize, tenants_max: usize) -> MemoryBudget {
        MemoryBudget {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            by_tenant: (0..tenants_max.max(1)).map(|_| AtomicUsize::new(0)).collect(),
            exempt: AtomicU64::new(NOBODY),
            refused: AtomicU64::new(0),
        }
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// How often a connection was not read for lack of memory.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether connections of `tenant` may take more.
    pub fn has_room(&self, tenant: TenantId) -> bool {
        let used = self.used_bytes();
        if used < self.limit_bytes / QUIET_DIVISOR {
            return true;
        }
        let left = self.limit_bytes.saturating_sub(used);
        self.of_tenant(tenant).load(Ordering::Relaxed) < left
    }

    fn is_below_limit(&self) -> bool {
        self.used_bytes() < self.limit_bytes
    }

    fn of_tenant(&self, tenant: TenantId) -> &AtomicUsize {
        let index = tenant.0 as usize;
        self.by_tenant.get(index).unwrap_or(&self.by_tenant[0])
    }
}

/// What one connection holds; given back when it is dropped.
#[derive(Debug)]
pub struct Holding {
    budget: Arc<MemoryBudget>,
    connection_id: u64,
    tenant: TenantId,
    bytes: usize,
    is_exempt: bool,
}

impl Holding {
    pub fn new(budget: Arc<MemoryBudget>, connection_id: u64) -> Holding {
        Holding {
            budget,
            connection_id,
            tenant: TenantId::OTHERS,
            bytes: 0,
            is_exempt: false,
        }
    }

    /// The connection belongs to `tenant` and holds so much of a request and of replies now.
    pub fn set(&mut self, tenant: TenantId, request_bytes: usize, reply_bytes: usize) {
        let bytes = request_bytes + reply_bytes;
        self.move_to(tenant, bytes);
        // Its request is whole, so the next one may finish his, unless the replies that are not taken fill the limit.
        if self.is_exempt && request_bytes == 0 && (bytes == 0 || self.budget.is_below_limit()) {
            self.give_up_exemption();
        }
    }

    fn move_to(&mut self, tenant: TenantId, bytes: usize) {
        if bytes == self.bytes && (bytes == 0 || tenant == self.tenant) {
            return;
        }
        let budget = &*self.budget;
        budget
            .of_tenant(self.tenant)
            .fetch_sub(self.bytes, Ordering::Relaxed);
        budget.of_tenant(tenant).fetch_add(bytes, Ordering::Relaxed);
        budget.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        budget.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        (self.tenant, self.bytes) = (tenant, bytes);
    }

    /// Whether the connection, which has something to read, may be read: when there is room, or nobody else goes on
    /// regardless.
    pub fn may_grow(&mut self, tenant: TenantId) -> bool {
        if self.budget.has_room(tenant) || self.take_exemption() {
            return true;
        }
        self.budget.refused.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn take_exemption(&mut self) -> bool {
        if !self.is_exempt {
            let exempt = &self.budget.exempt;
            self.is_exempt = exempt
                .compare_exchange(NOBODY, self.connection_id, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        }
        self.is_exempt
    }

    fn give_up_exemption(&mut self) {
        if std::mem::take(&mut self.is_exempt) {
            self.budget.exempt.store(NOBODY, Ordering::Relaxed);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.move_to(self.tenant, 0);
        self.give_up_exemption();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: TenantId = TenantId(1);
    const MODEST: TenantId = TenantId(2);

    fn budget() -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget::new(1_000, 10))
    }

    /// Opens connections of `tenant` that take `bytes` each, until one is refused.
    fn fill(budget: &Arc<MemoryBudget>, tenant: TenantId, bytes: usize, first_id: u64) -> Vec<Holding> {
        let mut holdings = Vec::new();
        loop {
            let id = first_id + holdings.len() as u64;
            let mut holding = Holding::new(budget.clone(), id);
            if !budget.has_room(tenant) {
                return holdings;
            }
            holding.set(tenant, bytes, 0);
            holdings.push(holding);
        }
    }

    #[test]
    fn one_tenant_leaves_room_for_the_next() {
        let budget = budget();
        let greedy = fill(&budget, GREEDY, 10, 0);
        assert_eq!(budget.used_bytes(), 500);
        let modest = fill(&budget, MODEST, 10, 1_000);
        assert!((240..=260).contains(&(modest.len() * 10)), "{}", modest.len());
        assert!(budget.used_bytes() < budget.limit_bytes());
        drop((greedy, modest));
        assert_eq!(budget.used_bytes(), 0);
        assert!(budget.has_room(GREEDY));
    }

    #[test]
    fn one_who_is_refused_goes_on_and_then_the_next() {
        let budget = budget();
        let mut held = fill(&budget, GREEDY, 100, 0);
        let mut waiting = [100, 101].map(|id| Holding::new(budget.clone(), id));
        assert!(waiting[0].may_grow(GREEDY), "it is the first to ask");
        assert!(!waiting[1].may_grow(GREEDY) && !held[0].may_grow(GREEDY));
        waiting[0].set(GREEDY, 400, 0);
        assert!(waiting[0].may_grow(GREEDY), "until its request is whole");
        assert!(!waiting[1].may_grow(GREEDY));
        // Answered, but the answer is not taken; below the limit that stops nobody.
        waiting[0].set(GREEDY, 0, 300);
        assert!(waiting[1].may_grow(GREEDY), "its turn");
        assert!(!waiting[0].may_grow(GREEDY));
        // At the limit it does.
        waiting[1].set(GREEDY, 0, 900);
        assert!(!held[0].may_grow(GREEDY));
        waiting[1].set(GREEDY, 0, 0);
        assert!(held[0].may_grow(GREEDY));
        assert!(budget.refused() > 0);
    }

    #[test]
    fn bytes_move_with_a_connection_that_turns_out_to_be_another_tenants() {
        let budget = budget();
        let mut holding = Holding::new(budget.clone(), 1);
        holding.set(GREEDY, 300, 0);
        holding.set(MODEST, 150, 50);
        assert_eq!(budget.of_tenant(GREEDY).load(Ordering::Relaxed), 0);
        assert_eq!(budget.of_tenant(MODEST).load(Ordering::Relaxed), 200);
        drop(holding);
        assert_eq!(budget.of_tenant(MODEST).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn ids_beyond_the_table_share_a_place() {
        let budget = budget();
        let mut holding = Holding::new(budget.clone(), 1);
        holding.set(TenantId(1_000_000), 100, 0);
        assert_eq!(budget.of_tenant(TenantId::OTHERS).load(Ordering::Relaxed), 100);
    }
}
