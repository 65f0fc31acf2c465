//! The cells of a tenant's row, and the sentences about the heaviest tenants.

use ottla_lab::numbers::{count, number, percent};
use ottla_lab::tenants::document::{Document, Tenant};
use ottla_lab::tenants::figures::{REMOVED, Relief};

use crate::cli::doctor::text::clean;

pub const HEADS: [&str; 12] = [
    "TENANT",
    "KIND",
    "CONN",
    "SHARE",
    "BEFORE",
    "REQ/S",
    "REC/S",
    "IN-MB/S",
    "OUT-MB/S",
    "COLD-MB/S",
    "INFLICTED",
    "SUFFERED",
];

/// What the columns mean, printed with the table.
pub const LEGEND: &str = "SHARE: share of the event loops' time. BEFORE: the same an hour ago, or at the earliest known minute. INFLICTED, SUFFERED: \
    waiting time caused to others, or caused by others, in ms per second, summed over all waiting requests.";

/// Returns one cell for each of [`HEADS`].
pub fn row(document: &Document, tenant: &Tenant) -> [String; HEADS.len()] {
    let rates = document.rates(tenant);
    let before = document.share_before(tenant);
    [
        clean(&tenant.name),
        clean(&tenant.kind),
        count(tenant.connections),
        percent(tenant.share),
        before.map_or_else(|| String::from("-"), |(share, _)| percent(share)),
        number(rates.requests),
        number(rates.records),
        number(rates.bytes_in / 1e6),
        number(rates.bytes_out / 1e6),
        number(rates.cold_bytes / 1e6),
        number(rates.inflicted_ms),
        number(rates.suffered_ms),
    ]
}

/// Returns sentences on how the heaviest tenants delay the others.
pub fn sentences(document: &Document) -> Vec<String> {
    let reliefs = document.reliefs();
    reliefs.iter().map(|relief| sentence(document, relief)).collect()
}

fn sentence(document: &Document, relief: &Relief<'_>) -> String {
    let tenant = relief.tenant;
    let rates = document.rates(tenant);
    let before = match document.share_before(tenant) {
        Some((share, minutes)) => format!("; {minutes} min ago it took {}", percent(share)),
        None => String::new(),
    };
    let throttled = match rates.throttled_ms {
        0.0 => String::new(),
        ms => format!(" Quotas delayed it by {} ms per second.", number(ms)),
    };
    format!(
        "{} {} takes {} of the event loops' time with {} requests/s of {} records each{before}. Without {} of its requests \
         utilisation falls from {} to {}, the queueing factor from {} to {}.{throttled}",
        clean(&tenant.kind),
        clean(&tenant.name),
        percent(tenant.share),
        number(rates.requests),
        number(relief.records_per_request),
        percent(REMOVED),
        number(document.utilisation),
        number(relief.utilisation_after),
        number(relief.wait),
        number(relief.wait_after),
    )
}

/// `2 event loops, 92 % busy in the last 60 s; 2 tenants`
pub fn summary(document: &Document) -> String {
    format!(
        "{} event loops, {} busy in the last {} s; {} tenants",
        document.event_loops,
        percent(document.utilisation),
        number(document.window_ms as f64 / 1e3),
        count(document.tenants.len() as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_heaviest_gets_a_sentence_with_its_past_and_what_it_does_to_the_queue() {
        let sentences = sentences(&sample());
        assert_eq!(
            sentences,
            [
                "client-id batch takes 41 % of the event loops' time with 18,200 requests/s of 3 records each; 60 min ago it took \
              0 %. Without 90 % of its requests utilisation falls from 0.92 to 0.551, the queueing factor from 11.5 to 1.23."
            ]
        );
    }

    #[test]
    fn a_row_has_rates_of_the_window() {
        let document = sample();
        let row = row(&document, &document.tenants[1]);
        assert_eq!(
            row.join("|"),
            "orders|user|1|5 %|0 %|1,000|20,000|20|0.01|0.1|2|500"
        );
    }
}
