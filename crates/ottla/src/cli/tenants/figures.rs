//! The cells of a tenant's row, and the sentences about the heaviest tenants.

use super::document::{Document, Sums, Tenant};
use crate::cli::doctor::text::clean;
use ottla_lab::numbers::{number, percent};

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

/// A tenant gets a sentence from this share and this utilisation of the event loops on.
const SHARE_MIN: f64 = 0.1;
const UTILISATION_MIN: f64 = 0.5;

/// At most this many tenants get a sentence.
const SENTENCES_MAX: usize = 3;

/// The share of a tenant's requests that a sentence assumes removed, to show their effect on
/// others.
const REMOVED: f64 = 0.9;

impl Document {
    fn per_second(&self, sum: u64) -> f64 {
        sum as f64 * 1_000.0 / self.window_ms.max(1) as f64
    }

    /// Returns the oldest known share, and how many minutes ago that was.
    fn before(&self, tenant: &Tenant) -> Option<(f64, usize)> {
        let minutes = self.past_minutes;
        let share = tenant.past_shares.get(minutes.checked_sub(1)?);
        Some((share.copied().unwrap_or(0.0), minutes))
    }

    /// Returns one cell for each of [`HEADS`].
    pub fn row(&self, tenant: &Tenant) -> [String; HEADS.len()] {
        let rate = |of: fn(&Sums) -> u64| number(self.per_second(of(&tenant.window)));
        let megabytes = |of: fn(&Sums) -> u64| number(self.per_second(of(&tenant.window)) / 1e6);
        let millis = |of: fn(&Sums) -> u64| number(self.per_second(of(&tenant.window)) / 1e3);
        [
            clean(&tenant.name),
            clean(&tenant.kind),
            tenant.connections.to_string(),
            percent(tenant.share),
            self.before(tenant)
                .map_or_else(|| String::from("-"), |(share, _)| percent(share)),
            rate(|sums| sums.requests),
            rate(|sums| sums.records),
            megabytes(|sums| sums.bytes_in),
            megabytes(|sums| sums.bytes_out),
            megabytes(|sums| sums.cold_bytes),
            millis(|sums| sums.inflicted_micros),
            millis(|sums| sums.suffered_micros),
        ]
    }

    /// Returns sentences on how the heaviest tenants delay the others, by the mean queue of a
    /// single server: rho / (1 - rho).
    pub fn sentences(&self) -> Vec<String> {
        if self.utilisation < UTILISATION_MIN {
            return Vec::new();
        }
        let heavy = self.tenants.iter().filter(|tenant| tenant.share >= SHARE_MIN);
        heavy
            .take(SENTENCES_MAX)
            .map(|tenant| self.sentence(tenant))
            .collect()
    }

    fn sentence(&self, tenant: &Tenant) -> String {
        let requests = self.per_second(tenant.window.requests);
        let records = tenant.window.records as f64 / tenant.window.requests.max(1) as f64;
        let before = match self.before(tenant) {
            Some((share, minutes)) => format!("; {minutes} min ago it took {}", percent(share)),
            None => String::new(),
        };
        let after = (self.utilisation - REMOVED * tenant.share).max(0.0);
        let throttled = match tenant.window.throttled_ms {
            0 => String::new(),
            ms => format!(
                " Quotas delayed it by {} ms per second.",
                number(self.per_second(ms))
            ),
        };
        format!(
            "{} {} takes {} of the event loops' time with {} requests/s of {} records each{before}. Without 90 % of its requests \
             utilisation falls from {} to {}, the queueing factor from {} to {}.{throttled}",
            clean(&tenant.kind),
            clean(&tenant.name),
            percent(tenant.share),
            number(requests),
            number(records),
            number(self.utilisation),
            number(after),
            number(queueing(self.utilisation)),
            number(queueing(after)),
        )
    }

    /// `2 event loops, 92 % busy in the last 60 s; 2 tenants`
    pub fn summary(&self) -> String {
        format!(
            "{} event loops, {} busy in the last {} s; {} tenants",
            self.event_loops,
            percent(self.utilisation),
            number(self.window_ms as f64 / 1e3),
            self.tenants.len()
        )
    }
}

/// Returns the number of service times that a request waits in the queue.
fn queueing(utilisation: f64) -> f64 {
    let utilisation = utilisation.clamp(0.0, 0.999);
    utilisation / (1.0 - utilisation)
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::sample;

    #[test]
    fn the_heaviest_gets_a_sentence_with_its_past_and_what_it_does_to_the_queue() {
        let sentences = sample().sentences();
        assert_eq!(
            sentences,
            [
                "client-id batch takes 41 % of the event loops' time with 18,200 requests/s of 3 records each; 60 min ago it took \
              0 %. Without 90 % of its requests utilisation falls from 0.92 to 0.551, the queueing factor from 11.5 to 1.23."
            ]
        );
    }

    #[test]
    fn no_tenant_gets_a_sentence_while_utilisation_is_low() {
        let mut document = sample();
        document.utilisation = 0.45;
        assert!(document.sentences().is_empty());
    }

    #[test]
    fn a_row_has_rates_of_the_window() {
        let document = sample();
        let row = document.row(&document.tenants[1]);
        assert_eq!(
            row.join("|"),
            "orders|user|1|5 %|0 %|1,000|20,000|20|0.01|0.1|2|500"
        );
    }
}
