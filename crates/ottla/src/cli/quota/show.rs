//! `ottla quota show`: a row for each quota that a client uses or has a limit for.

use std::fmt::Write;

use clap::Args;

use super::{Failure, page};
use crate::cli::admin_address::AdminAddress;
use crate::cli::doctor::text::clean;
use crate::cli::output::Format;
use crate::cli::table::align;
use ottla_lab::numbers::{count, number};
use ottla_lab::tenants::quota::{QuotaClient, QuotaPage, QuotaUse};

#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    broker: AdminAddress,

    /// Output: a table, or the JSON of the admin address
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Show {
    pub fn run(self) -> Result<String, Failure> {
        let (text, page) = page(&self.broker)?;
        Ok(match self.format {
            Format::Json => text,
            Format::Text => table(&page),
        })
    }
}

const HEADINGS: [&str; 8] = [
    "USER",
    "CLIENT-ID",
    "QUOTA",
    "LIMIT",
    "NOW",
    "BUSIEST-10S",
    "BUSIEST-1S",
    "HELD-BACK",
];

/// User, client id and key of the quota.
const TEXT_COLUMNS: usize = 3;

fn table(page: &QuotaPage) -> String {
    let mut rows: Vec<[String; HEADINGS.len()]> = vec![HEADINGS.map(str::to_owned)];
    for client in &page.clients {
        let told = client
            .quotas
            .iter()
            .filter(|(_, of)| of.limit.is_some() || of.used > 0.0);
        rows.extend(told.map(|(key, of)| row(client, key, of)));
    }
    let mut text = String::new();
    for line in align(&rows, TEXT_COLUMNS) {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if page.is_dry_run {
        text.push_str(
            "\nottla.quota.dry.run is on: no client is throttled; the last column shows throttling that would have happened.\n",
        );
    }
    if page.connections_throttled > 0 {
        let _ = writeln!(
            text,
            "\n{} connections exceeded connection_creation_rate and were delayed.",
            page.connections_throttled
        );
    }
    text
}

fn row(client: &QuotaClient, key: &str, of: &QuotaUse) -> [String; HEADINGS.len()] {
    let name = |name: &str| {
        if name.is_empty() {
            String::from("-")
        } else {
            clean(name)
        }
    };
    let held_back = match of.throttles {
        0 => String::from("-"),
        times => format!("{} times, {} ms", count(times), count(of.throttle_ms)),
    };
    [
        name(&client.user),
        name(&client.client_id),
        key.to_owned(),
        of.limit.map_or_else(|| String::from("-"), number),
        number(of.rate),
        number(of.rate_max),
        number(of.rate_of_one_second_max),
        held_back,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_used_or_limited_quota_has_a_row() {
        let of = |limit, used, rate, throttles| QuotaUse {
            limit,
            used,
            rate,
            rate_max: 2.0 * rate,
            rate_of_one_second_max: 3.0 * rate,
            throttles,
            throttle_ms: 10 * throttles,
        };
        let client = QuotaClient {
            user: "ANONYMOUS".to_owned(),
            client_id: "etl".to_owned(),
            is_connected: true,
            quotas: BTreeMap::from([
                ("consumer_byte_rate".to_owned(), of(None, 0.0, 0.0, 0)),
                ("producer_byte_rate".to_owned(), of(Some(1e6), 5e6, 999_999.6, 7)),
                ("request_percentage".to_owned(), of(None, 3.0, 0.1234, 0)),
            ]),
        };
        let page = QuotaPage {
            version: 1,
            bootstrap_servers: String::new(),
            is_dry_run: true,
            connections_throttled: 0,
            clients: vec![client],
        };
        let text = table(&page);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], HEADINGS);
        assert_eq!(
            lines[1][..5],
            ["ANONYMOUS", "etl", "producer_byte_rate", "1,000,000", "1,000,000"]
        );
        assert_eq!(lines[1][5..].join(" "), "1,999,999 2,999,999 7 times, 70 ms");
        assert_eq!(
            lines[2],
            [
                "ANONYMOUS",
                "etl",
                "request_percentage",
                "-",
                "0.123",
                "0.247",
                "0.37",
                "-"
            ]
        );
        assert!(text.contains("would have happened") && lines.len() == 5, "{text}");
    }
}
