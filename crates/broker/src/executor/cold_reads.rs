//! The threads that wait for the disk instead of the event loops.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use ottla_core::services::Payer;
use ottla_core::tenant::TenantId;
use ottla_log::disk::cold_cache::ColdCache;

use super::fair_pool::{FairPool, PoolKind, Work};

/// Concurrent reads at the device; more would not make a disk faster. One tenant may not occupy the
/// last two threads.
const POOL: PoolKind = PoolKind {
    name: "ottla-cold-read",
    threads_max: 8,
    threads_max_per_payer: 6,
    quantum: 1024 * 1024,
};

/// For event loops without a broker configuration: tests of the network layer.
const CACHE_BYTES_DEFAULT: u64 = 128 * 1024 * 1024;

/// Tenants whose reads are accounted separately; a bound in case ids ever become sparse.
const TENANTS_MAX: usize = 100_001;

/// The cost of a tenant's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColdCost {
    pub reads: u64,
    /// Bytes read from the device.
    pub bytes: u64,
    /// Time in which a thread worked or waited for them.
    pub micros: u64,
}

#[derive(Debug)]
pub struct ColdReads {
    pool: Arc<FairPool>,
    cache: OnceLock<Arc<ColdCache>>,
    costs: Arc<Mutex<BTreeMap<TenantId, ColdCost>>>,
}

impl Default for ColdReads {
    fn default() -> ColdReads {
        ColdReads {
            pool: Arc::new(FairPool::new(POOL)),
            cache: OnceLock::new(),
            costs: Arc::default(),
        }
    }
}

impl ColdReads {
    /// Sets the cache to load into; must be called before the first read.
    pub fn bind(&self, cache: Arc<ColdCache>) {
        self.cache.get_or_init(|| cache);
    }

    pub fn cache(&self) -> &Arc<ColdCache> {
        self.cache
            .get_or_init(|| Arc::new(ColdCache::new(CACHE_BYTES_DEFAULT)))
    }

    /// - Units: `bytes` is an estimate of what will be read; `read` returns what was.
    pub fn run(&self, payer: Payer, bytes: u64, read: Work) {
        let costs = self.costs.clone();
        let work = move || {
            let start = Instant::now();
            let bytes = read();
            if let Payer::Tenant(tenant) = payer {
                note(&costs, tenant, bytes, start);
            }
            bytes
        };
        self.pool.run(payer, bytes, Box::new(work));
    }

    pub fn queued(&self) -> usize {
        self.pool.queued()
    }

    /// Returns the cost of each tenant's reads since the start, by its id at the time.
    pub fn costs(&self) -> BTreeMap<TenantId, ColdCost> {
        self.costs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finishes queued work and joins the threads.
    pub fn stop(&self) {
        self.pool.stop();
    }
}

fn note(costs: &Mutex<BTreeMap<TenantId, ColdCost>>, tenant: TenantId, bytes: u64, start: Instant) {
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let mut costs = costs.lock().unwrap_or_else(PoisonError::into_inner);
    let tenant = if costs.len() < TENANTS_MAX || costs.contains_key(&tenant) {
        tenant
    } else {
        TenantId::OTHERS
    };
    let cost = costs.entry(tenant).or_default();
    cost.reads += 1;
    cost.bytes += bytes;
    cost.micros += micros;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_charged_to_the_tenant_they_serve() {
        let reads = ColdReads::default();
        for tenant in [1, 2, 1] {
            reads.run(Payer::Tenant(TenantId(tenant)), 100, Box::new(|| 60));
        }
        reads.run(Payer::Broker, 100, Box::new(|| 1_000));
        reads.stop();
        let costs = reads.costs();
        let summary: Vec<_> = costs
            .iter()
            .map(|(tenant, cost)| (tenant.0, cost.reads, cost.bytes))
            .collect();
        assert_eq!(summary, [(1, 2, 120), (2, 1, 60)]);
    }
}
