//! The answer of `GET /tenants` as a value.

use std::collections::HashMap;

use serde::Deserialize;

/// The version of the answer that this program reads.
const VERSION: u64 = 1;

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Document {
    pub moment_micros: u64,
    pub event_loops: u64,
    /// Since the broker started.
    pub busy_micros: u64,
    pub window_ms: u64,
    /// Busy share of all event loops' time in the window.
    pub utilisation: f64,
    /// Number of minutes before the window with known shares.
    pub past_minutes: usize,
    /// Quotas are only counted, and throttle nothing.
    #[serde(default)]
    pub quotas_are_dry_run: bool,
    /// Sorted, the heaviest of the window first.
    pub tenants: Vec<Tenant>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Tenant {
    pub kind: String,
    pub name: String,
    pub connections: u64,
    /// Share of all event loops' time in the window.
    pub share: f64,
    /// The share of each past minute, latest first; trailing zeros are left out.
    pub past_shares: Vec<f64>,
    pub window: TenantSums,
    pub total: TenantSums,
    /// Those in force for its clients, the ones that throttled longest first.
    #[serde(default)]
    pub quotas: Vec<TenantQuota>,
    /// Quotas beyond these.
    #[serde(default)]
    pub quotas_cut: usize,
}

/// A limit on the clients of a tenant, and its use since the broker started.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TenantQuota {
    /// Kafka's name: `producer_byte_rate`.
    pub quota: String,
    pub limit: f64,
    /// `user ana`, `client-id default`.
    pub set_for: String,
    pub clients: u64,
    /// At present, in the unit of the limit.
    pub rate: f64,
    pub throttles: u64,
    pub throttle_ms: u64,
}

/// The broker's counters of a tenant; their units are in the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TenantSums {
    pub handling_micros: u64,
    pub sending_micros: u64,
    pub disk_micros: u64,
    pub requests: u64,
    pub records: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub cold_bytes: u64,
    pub throttled_ms: u64,
    pub inflicted_micros: u64,
    pub suffered_micros: u64,
}

impl TenantSums {
    pub fn loop_micros(&self) -> u64 {
        self.handling_micros + self.sending_micros
    }

    fn since(&self, earlier: &TenantSums) -> TenantSums {
        let after = |of: fn(&TenantSums) -> u64| of(self).saturating_sub(of(earlier));
        TenantSums {
            handling_micros: after(|sums| sums.handling_micros),
            sending_micros: after(|sums| sums.sending_micros),
            disk_micros: after(|sums| sums.disk_micros),
            requests: after(|sums| sums.requests),
            records: after(|sums| sums.records),
            bytes_in: after(|sums| sums.bytes_in),
            bytes_out: after(|sums| sums.bytes_out),
            cold_bytes: after(|sums| sums.cold_bytes),
            throttled_ms: after(|sums| sums.throttled_ms),
            inflicted_micros: after(|sums| sums.inflicted_micros),
            suffered_micros: after(|sums| sums.suffered_micros),
        }
    }
}

impl Document {
    /// Parses the answer.
    ///
    /// - Errors: the answer is not from an Ottla broker, or has another version.
    pub fn read(text: &str) -> Result<Document, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("/tenants is not JSON: {error}"))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "/tenants has version {version}; this program reads version {VERSION}"
                ));
            }
            None => return Err(String::from("/tenants has no version: this is not Ottla")),
        }
        serde_json::from_value(value).map_err(|error| format!("/tenants: {error}"))
    }

    /// Returns this document with the time since `earlier` as its window; unchanged if the broker
    /// was restarted in between.
    pub fn since(&self, earlier: &Document) -> Document {
        let mut now = self.clone();
        let micros = self.moment_micros.saturating_sub(earlier.moment_micros);
        if micros == 0 || self.busy_micros < earlier.busy_micros {
            return now;
        }
        let available = (micros * self.event_loops.max(1)) as f64;
        let before: HashMap<(&str, &str), &Tenant> = (earlier.tenants.iter())
            .map(|tenant| ((tenant.kind.as_str(), tenant.name.as_str()), tenant))
            .collect();
        now.window_ms = micros / 1_000;
        now.utilisation = (self.busy_micros - earlier.busy_micros) as f64 / available;
        for tenant in &mut now.tenants {
            let key = (tenant.kind.as_str(), tenant.name.as_str());
            let total = before
                .get(&key)
                .map_or(TenantSums::default(), |tenant| tenant.total);
            tenant.window = tenant.total.since(&total);
            tenant.share = tenant.window.loop_micros() as f64 / available;
        }
        let weight = |tenant: &Tenant| (tenant.window.loop_micros(), tenant.total.loop_micros());
        now.tenants
            .sort_by_key(|tenant| std::cmp::Reverse(weight(tenant)));
        now
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two tenants over a minute of two event loops: one with many small requests, one with few.
    pub fn sample() -> Document {
        Document::read(SAMPLE).unwrap()
    }

    const SAMPLE: &str = include_str!("../../fixtures/tenants.json");

    #[test]
    fn another_version_is_refused_by_number() {
        let error = Document::read(&SAMPLE.replace("\"version\": 1", "\"version\": 2")).unwrap_err();
        assert_eq!(error, "/tenants has version 2; this program reads version 1");
        assert!(Document::read("{}").unwrap_err().contains("not Ottla"));
        assert!(Document::read("<html>").unwrap_err().contains("not JSON"));
    }

    #[test]
    fn the_difference_of_two_answers_is_a_window() {
        let earlier = sample();
        let mut later = sample();
        later.moment_micros += 2_000_000;
        later.busy_micros += 1_000_000;
        later.tenants[1].total.handling_micros += 600_000;
        later.tenants[1].total.requests += 20;
        let window = later.since(&earlier);
        assert_eq!((window.window_ms, window.utilisation), (2_000, 0.25));
        assert_eq!(window.tenants[0].name, "orders");
        assert_eq!(
            (window.tenants[0].share, window.tenants[0].window.requests),
            (0.15, 20)
        );
        assert_eq!(window.tenants[1].window, TenantSums::default());
        // A restarted broker counts from zero.
        assert_eq!(earlier.since(&later), earlier);
    }
}
