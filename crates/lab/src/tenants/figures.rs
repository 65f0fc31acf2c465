//! A tenant's rates, and how much the heaviest tenants delay the others.

use super::document::{Document, Tenant};
use crate::formulas::queueing::{utilisation_without, wait_factor};

/// A tenant is judged from this share and this utilisation of the event loops on.
const SHARE_MIN: f64 = 0.1;
const UTILISATION_MIN: f64 = 0.5;

/// At most this many tenants are judged.
const RELIEFS_MAX: usize = 3;

/// The share of a tenant's requests that is assumed removed, to show their effect on others.
pub const REMOVED: f64 = 0.9;

/// At a higher utilisation the queue grows without limit; the wait is computed at this one.
const UTILISATION_MAX: f64 = 0.999;

/// A tenant's counters per second of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantRates {
    pub requests: f64,
    pub records: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    pub cold_bytes: f64,
    /// Milliseconds of waiting, summed over all waiting requests: caused to others, caused by
    /// others, and by quotas.
    pub inflicted_ms: f64,
    pub suffered_ms: f64,
    pub throttled_ms: f64,
}

/// What the others gain without [`REMOVED`] of a heavy tenant's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relief<'a> {
    pub tenant: &'a Tenant,
    pub records_per_request: f64,
    pub utilisation_after: f64,
    /// The number of service times that a request waits in the queue (F24), now and after.
    pub wait: f64,
    pub wait_after: f64,
}

impl Document {
    pub fn rates(&self, tenant: &Tenant) -> TenantRates {
        let sums = &tenant.window;
        let per_second = |sum: u64| sum as f64 * 1_000.0 / self.window_ms.max(1) as f64;
        TenantRates {
            requests: per_second(sums.requests),
            records: per_second(sums.records),
            bytes_in: per_second(sums.bytes_in),
            bytes_out: per_second(sums.bytes_out),
            cold_bytes: per_second(sums.cold_bytes),
            inflicted_ms: per_second(sums.inflicted_micros) / 1e3,
            suffered_ms: per_second(sums.suffered_micros) / 1e3,
            throttled_ms: per_second(sums.throttled_ms),
        }
    }

    /// Returns the oldest known share, and how many minutes ago that was.
    pub fn share_before(&self, tenant: &Tenant) -> Option<(f64, usize)> {
        let minutes = self.past_minutes;
        let share = tenant.past_shares.get(minutes.checked_sub(1)?);
        Some((share.copied().unwrap_or(0.0), minutes))
    }

    /// Returns what the heaviest tenants cost the others; none while the event loops have time.
    pub fn reliefs(&self) -> Vec<Relief<'_>> {
        if self.utilisation < UTILISATION_MIN {
            return Vec::new();
        }
        let heavy = self.tenants.iter().filter(|tenant| tenant.share >= SHARE_MIN);
        heavy
            .take(RELIEFS_MAX)
            .map(|tenant| {
                let after = utilisation_without(self.utilisation, REMOVED, tenant.share);
                Relief {
                    tenant,
                    records_per_request: tenant.window.records as f64 / tenant.window.requests.max(1) as f64,
                    utilisation_after: after,
                    wait: wait_factor(self.utilisation.min(UTILISATION_MAX)),
                    wait_after: wait_factor(after.min(UTILISATION_MAX)),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::sample;

    #[test]
    fn the_heaviest_tenant_shortens_the_queue_when_it_is_removed() {
        let document = sample();
        let reliefs = document.reliefs();
        let [relief] = &reliefs[..] else {
            panic!("{reliefs:?}")
        };
        assert_eq!((&*relief.tenant.name, relief.records_per_request), ("batch", 3.0));
        assert!((relief.utilisation_after - 0.551).abs() < 1e-9, "{relief:?}");
        assert!((relief.wait - 11.5).abs() < 1e-9, "{relief:?}");
        assert!((relief.wait_after - 0.551 / 0.449).abs() < 1e-9, "{relief:?}");
        assert_eq!(document.share_before(relief.tenant), Some((0.0, 60)));
    }

    #[test]
    fn no_tenant_is_judged_while_utilisation_is_low() {
        let mut document = sample();
        document.utilisation = 0.45;
        assert!(document.reliefs().is_empty());
    }

    #[test]
    fn rates_are_those_of_the_window() {
        let document = sample();
        let rates = document.rates(&document.tenants[1]);
        assert_eq!(
            (rates.requests, rates.records, rates.bytes_in),
            (1_000.0, 20_000.0, 20e6)
        );
        assert_eq!(
            (rates.inflicted_ms, rates.suffered_ms, rates.throttled_ms),
            (2.0, 500.0, 50.0)
        );
    }
}
