//! The answer of `GET /quotas` as a value, and quotas from what clients used.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The version of the answer that this program reads.
const VERSION: u32 = 1;

/// All clients that the broker knows, the heaviest first.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct QuotaPage {
    pub version: u32,
    pub bootstrap_servers: String,
    pub is_dry_run: bool,
    pub connections_throttled: u64,
    pub clients: Vec<QuotaClient>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct QuotaClient {
    pub user: String,
    pub client_id: String,
    pub is_connected: bool,
    /// By quota key, e.g. `producer_byte_rate`.
    pub quotas: BTreeMap<String, QuotaUse>,
}

/// A client's use of one quota, in the unit of the quota's key.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub struct QuotaUse {
    pub limit: Option<f64>,
    pub used: f64,
    pub rate: f64,
    pub rate_max: f64,
    pub rate_of_one_second_max: f64,
    pub throttles: u64,
    pub throttle_ms: u64,
}

impl QuotaPage {
    /// Parses the answer.
    ///
    /// - Errors: the answer has another version.
    pub fn read(text: &str) -> Result<QuotaPage, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("/quotas is not JSON: {error}"))?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(VERSION)) {
            let found = version.map_or_else(|| String::from("none"), |version| version.to_string());
            return Err(format!(
                "/quotas has version {found}; this program reads version {VERSION}"
            ));
        }
        serde_json::from_value(value).map_err(|error| format!("/quotas: {error}"))
    }
}

/// The quotas that are suggested, in this order.
pub const KEYS: [&str; 3] = ["producer_byte_rate", "consumer_byte_rate", REQUEST_PERCENTAGE];

const REQUEST_PERCENTAGE: &str = "request_percentage";

/// Quotas for one client, each above what the client used.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion<'a> {
    pub client: &'a QuotaClient,
    /// Some of [`KEYS`]; never empty.
    pub quotas: Vec<(&'static str, f64)>,
}

/// Suggests quotas for every client that has used one: its rate in its busiest ten seconds with
/// head room, at least that of its busiest second.
pub fn suggest(page: &QuotaPage, head_room_percent: u32) -> Vec<Suggestion<'_>> {
    let of_client = |client| {
        let quotas: Vec<(&'static str, f64)> = KEYS
            .into_iter()
            .filter_map(|key| Some((key, wanted(client, key, head_room_percent)?)))
            .collect();
        (!quotas.is_empty()).then_some(Suggestion { client, quotas })
    };
    page.clients.iter().filter_map(of_client).collect()
}

/// The default for all other clients: the event loop time of the heaviest client.
pub fn default_request_percentage(suggestions: &[Suggestion<'_>]) -> Option<f64> {
    let quotas = suggestions.iter().flat_map(|suggestion| &suggestion.quotas);
    let percentages = quotas.filter(|(key, _)| *key == REQUEST_PERCENTAGE);
    percentages.map(|(_, value)| *value).max_by(f64::total_cmp)
}

fn wanted(client: &QuotaClient, key: &str, head_room_percent: u32) -> Option<f64> {
    let value = value(client.quotas.get(key)?, head_room_percent)?;
    // Kafka accepts only whole bytes.
    Some(match key {
        REQUEST_PERCENTAGE => value,
        _ => value.ceil(),
    })
}

/// Returns the rate with head room, at least that of the busiest second so that it would not have
/// been throttled, rounded up to two digits.
fn value(of: &QuotaUse, head_room_percent: u32) -> Option<f64> {
    let head_room = 1.0 + f64::from(head_room_percent) / 100.0;
    let wanted = (of.rate_max * head_room).max(of.rate_of_one_second_max);
    if wanted <= 0.0 {
        return None;
    }
    let unit = 10f64.powf(wanted.log10().floor() - 1.0);
    let rounded = (wanted / unit - 1e-9).ceil() * unit;
    // A share of an event loop keeps four decimals of a percent: one microsecond per second.
    Some(if rounded >= 10.0 {
        rounded.round()
    } else {
        (rounded * 1e4 - 1e-6).ceil() / 1e4
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_by_number() {
        let page = r#"{"version":1,"bootstrap_servers":"h:1","is_dry_run":false,"connections_throttled":0,"clients":[]}"#;
        assert!(QuotaPage::read(page).is_ok());
        let error = QuotaPage::read(&page.replace("\"version\":1", "\"version\":2")).unwrap_err();
        assert_eq!(error, "/quotas has version 2; this program reads version 1");
        assert!(QuotaPage::read("{}").unwrap_err().contains("none"));
        assert!(QuotaPage::read("<").unwrap_err().contains("not JSON"));
    }

    fn used(rate_max: f64, rate_of_one_second_max: f64) -> QuotaUse {
        QuotaUse {
            rate_max,
            rate_of_one_second_max,
            ..QuotaUse::default()
        }
    }

    #[test]
    fn a_value_has_head_room_and_covers_the_busiest_second() {
        let check = |rate_max, second, head_room, expected: Option<f64>| {
            assert_eq!(value(&used(rate_max, second), head_room), expected);
        };
        check(1_000_000.0, 1_000_000.0, 50, Some(1_500_000.0));
        check(1_000_000.0, 4_010_000.0, 50, Some(4_100_000.0));
        check(123.0, 0.0, 0, Some(130.0));
        check(0.5, 0.0, 0, Some(0.5));
        check(0.123, 0.0, 0, Some(0.13));
        check(0.000_01, 0.0, 0, Some(0.0001));
        check(0.0, 0.0, 50, None);
    }
}
