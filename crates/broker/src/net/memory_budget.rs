//! How much memory all connections together may hold: requests that have not arrived whole, and replies that are not taken.
//!
//! Each connection has bounds of its own, but there may be any number of connections. When their sum comes near the limit,
//! connections are no longer read: the bytes stay in the sockets of those who send them, and in the end with them.
//!
//! A tenant may hold as much as is left (as switches share their buffers, "dynamic thresholds"): one alone gets half of
//! the limit, two get a third each, and there is always room for the next. Who is refused although a request of his has
//! begun to arrive could wait for ever for others in the same position; so one connection at a time may go on regardless.

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
}

impl Holding {
    pub fn new(budget: Arc<MemoryBudget>, connection_id: u64, tenant: TenantId) -> Holding {
        Holding {
            budget,
            connection_id,
            tenant,
            bytes: 0,
        }
    }

    /// The connection belongs to `tenant` and holds `bytes` now.
    pub fn set(&mut self, tenant: TenantId, bytes: usize) {
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
        if bytes == 0 {
            self.give_up_exemption();
        }
        (self.tenant, self.bytes) = (tenant, bytes);
    }

    /// Whether the connection may be read. It may when there is room, and when it holds a part of a request and nobody else
    /// goes on regardless.
    pub fn may_grow(&self, tenant: TenantId) -> bool {
        if self.budget.has_room(tenant) || (self.bytes > 0 && self.is_exempt()) {
            return true;
        }
        self.budget.refused.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn is_exempt(&self) -> bool {
        let exempt = &self.budget.exempt;
        match exempt.compare_exchange(NOBODY, self.connection_id, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(holder) => holder == self.connection_id,
        }
    }

    fn give_up_exemption(&self) {
        let exempt = &self.budget.exempt;
        // Fails where it is another's.
        let _ = exempt.compare_exchange(self.connection_id, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(self.tenant, 0);
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
            let mut holding = Holding::new(budget.clone(), id, tenant);
            if !holding.may_grow(tenant) {
                return holdings;
            }
            holding.set(tenant, bytes);
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
    fn one_of_those_who_have_begun_goes_on_and_then_the_next() {
        let budget = budget();
        let mut holdings = fill(&budget, GREEDY, 100, 0);
        assert!(holdings[0].may_grow(GREEDY), "it is the first to ask");
        assert!(!holdings[1].may_grow(GREEDY));
        holdings[0].set(GREEDY, 900);
        assert!(holdings[0].may_grow(GREEDY));
        assert!(!holdings[1].may_grow(GREEDY));
        holdings.remove(0);
        // With its request gone there is room again, for as long as the others leave it.
        while budget.has_room(GREEDY) {
            let bytes = holdings[1].bytes + 100;
            holdings[1].set(GREEDY, bytes);
        }
        assert!(holdings[0].may_grow(GREEDY), "its turn");
        assert!(!holdings[1].may_grow(GREEDY));
    }

    #[test]
    fn a_connection_that_holds_nothing_is_never_exempt() {
        let budget = budget();
        let _holdings = fill(&budget, GREEDY, 100, 0);
        let idle = Holding::new(budget.clone(), 77, GREEDY);
        assert!(!idle.may_grow(GREEDY));
        assert_eq!(budget.exempt.load(Ordering::Relaxed), NOBODY);
        assert!(budget.refused() > 0);
    }

    #[test]
    fn bytes_move_with_a_connection_that_turns_out_to_be_another_tenants() {
        let budget = budget();
        let mut holding = Holding::new(budget.clone(), 1, GREEDY);
        holding.set(GREEDY, 300);
        holding.set(MODEST, 200);
        assert_eq!(budget.of_tenant(GREEDY).load(Ordering::Relaxed), 0);
        assert_eq!(budget.of_tenant(MODEST).load(Ordering::Relaxed), 200);
        drop(holding);
        assert_eq!(budget.of_tenant(MODEST).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn ids_beyond_the_table_share_a_place() {
        let budget = budget();
        let mut holding = Holding::new(budget.clone(), 1, TenantId(1_000_000));
        holding.set(TenantId(1_000_000), 100);
        assert_eq!(budget.of_tenant(TenantId::OTHERS).load(Ordering::Relaxed), 100);
    }
}
