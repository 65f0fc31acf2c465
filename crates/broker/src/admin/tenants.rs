//! `GET /tenants`: what each tenant costs, in the last minute and in total, and its share over the
//! last hour; and the quotas that are in force for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ottla_core::quota::registry::ClientReport;
use ottla_core::quota::{QuotaKind, Quotas};
use ottla_core::tenant::{TenantName, Tenants};
use serde_json::{Map, Value, json};

use super::quotas::entity;
use crate::metrics::accounts::{Sum, Sums};
use crate::metrics::tenants::{TenantBooks, TenantReading, TenantRow};

/// The version of the document; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// Quotas of one tenant that are listed, those that throttled longest first; others are counted.
const QUOTAS_MAX: usize = 12;

/// Renders the document. Shares are of the time of all event loops; the names of sums carry their
/// units.
pub fn render(books: &TenantBooks, quotas: &Quotas) -> String {
    let reading = books.read();
    let key = books.tenants().config().key.iter();
    let key: Vec<&str> = key.map(|kind| kind.name()).collect();
    let clients = quotas.report();
    let in_force = InForce::of(&clients, books.tenants());
    let tenants = reading.tenants.iter();
    let tenants: Vec<Value> = tenants.map(|row| tenant(row, &reading, &in_force)).collect();
    let document = json!({
        "version": VERSION,
        "at_ms": books.timestamp().0,
        "moment_micros": reading.at.micros(),
        "key": key,
        "event_loops": reading.loop_count,
        "busy_micros": reading.busy_micros_total,
        "window_ms": reading.window_micros / 1_000,
        "utilisation": rounded(reading.busy_micros, reading.available_micros()),
        "charged": rounded(reading.charged_micros(), reading.available_micros()),
        "past_minutes": reading.past_minutes,
        "quotas_are_dry_run": quotas.is_dry_run(),
        "tenants": tenants,
        "departed": sums(&reading.departed),
    });
    format!("{document}\n")
}

fn tenant(row: &TenantRow, reading: &TenantReading, in_force: &InForce) -> Value {
    let (quotas, quotas_cut) = in_force.listed(&row.name);
    let past: Vec<f64> = row
        .past_shares
        .iter()
        .map(|share| (f64::from(*share) * 1e5).round() / 1e5)
        .collect();
    json!({
        "kind": row.name.kind.name(),
        "name": &*row.name.name,
        "connections": row.connections,
        "share": rounded(row.window.loop_micros(), reading.available_micros()),
        "past_shares": past,
        "window": sums(&row.window),
        "total": sums(&row.total),
        "quotas": quotas,
        "quotas_cut": quotas_cut,
    })
}

/// One limit of a tenant: its kind, the entity that it was set for, and its value.
type Limit = (&'static str, String, u64);

/// The use of one limit by the clients of a tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    clients: u64,
    rate: f64,
    throttles: u64,
    throttle_micros: u64,
}

/// The limits of the clients of each tenant.
struct InForce(BTreeMap<TenantName, BTreeMap<Limit, Use>>);

impl InForce {
    fn of(clients: &[ClientReport], tenants: &Tenants) -> InForce {
        let mut all = BTreeMap::new();
        let is_limited = |client: &&ClientReport| client.limits.iter().any(Option::is_some);
        for client in clients.iter().filter(is_limited) {
            if let Some(name) = tenants.name_of_clients(&client.user, &client.client_id) {
                add(client, all.entry(name).or_default());
            }
        }
        InForce(all)
    }

    /// The limits that throttled longest first, and how many there are beyond them.
    fn listed(&self, name: &TenantName) -> (Vec<Value>, usize) {
        let Some(limits) = self.0.get(name) else {
            return (Vec::new(), 0);
        };
        let mut limits: Vec<(&Limit, &Use)> = limits.iter().collect();
        limits.sort_by_key(|(_, used)| Reverse(used.throttle_micros));
        let listed = limits
            .iter()
            .take(QUOTAS_MAX)
            .map(|((quota, set_for, limit), used)| {
                json!({
                    "quota": quota,
                    "limit": f64::from_bits(*limit),
                    "set_for": set_for,
                    "clients": used.clients,
                    "rate": used.rate,
                    "throttles": used.throttles,
                    "throttle_ms": used.throttle_micros / 1_000,
                })
            });
        (listed.collect(), limits.len().saturating_sub(QUOTAS_MAX))
    }
}

fn add(client: &ClientReport, limits: &mut BTreeMap<Limit, Use>) {
    for kind in QuotaKind::ALL {
        let index = kind as usize;
        let (Some(limit), Some(set_for)) = (client.limits[index], client.set_for[index]) else {
            continue;
        };
        let limit = (kind.key(), entity(client, set_for), limit.to_bits());
        let used = limits.entry(limit).or_default();
        used.clients += 1;
        used.rate += client.rates.now[index];
        used.throttles += client.sums.throttles[index];
        used.throttle_micros += client.sums.throttle_micros[index];
    }
}

fn sums(of: &Sums) -> Value {
    Sum::ALL
        .iter()
        .map(|sum| (sum.name().to_owned(), json!(of.get(*sum))))
        .collect::<Map<_, _>>()
        .into()
}

/// Rounds a share to five decimals: further ones are noise.
fn rounded(part: u64, whole: u64) -> f64 {
    let share = part as f64 / whole.max(1) as f64;
    (share * 1e5).round() / 1e5
}
