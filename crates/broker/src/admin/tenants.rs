//! `GET /tenants`: what each tenant costs, in the last minute and in total, and its share over the
//! last hour.

use serde_json::{Map, Value, json};

use crate::metrics::accounts::{Sum, Sums};
use crate::metrics::tenants::{TenantBooks, TenantReading, TenantRow};

/// The version of the document; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// Renders the document. Shares are of the time of all event loops; the names of sums carry their
/// units.
pub fn render(books: &TenantBooks) -> String {
    let reading = books.read();
    let key: Vec<&str> = books
        .tenants()
        .config()
        .key
        .iter()
        .map(|kind| kind.name())
        .collect();
    let tenants: Vec<Value> = reading.tenants.iter().map(|row| tenant(row, &reading)).collect();
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
        "tenants": tenants,
        "departed": sums(&reading.departed),
    });
    format!("{document}\n")
}

fn tenant(row: &TenantRow, reading: &TenantReading) -> Value {
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
    })
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
