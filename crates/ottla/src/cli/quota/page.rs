//! `GET /quotas` of the admin address, as a value.

use std::collections::BTreeMap;

use ottla_lab::ask;
use serde::Deserialize;

use super::Failure;

/// The version of the answer that this program reads.
const VERSION: u32 = 1;

/// The limit of an answer: ten thousand clients are about 15 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// All clients that the broker knows, the heaviest first.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Page {
    pub version: u32,
    pub bootstrap_servers: String,
    pub is_dry_run: bool,
    pub connections_throttled: u64,
    pub clients: Vec<Client>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Client {
    pub user: String,
    pub client_id: String,
    pub is_connected: bool,
    /// By quota key, e.g. `producer_byte_rate`.
    pub quotas: BTreeMap<String, Use>,
}

/// A client's use of one quota, in the unit of the quota's key.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub struct Use {
    pub limit: Option<f64>,
    pub used: f64,
    pub rate: f64,
    pub rate_max: f64,
    pub rate_of_one_second_max: f64,
    pub throttles: u64,
    pub throttle_ms: u64,
}

/// Returns the page as text and as a value.
///
/// - Errors: no answer, or one of another version.
pub fn ask(address: &str) -> Result<(String, Page), Failure> {
    let text = ask::ask(address, "GET", "/quotas", ANSWER_BYTES_MAX).map_err(|error| {
        Failure::unanswered(format!(
            "{address}: {error}; --admin or --bootstrap-server select another broker"
        ))
    })?;
    let page = read(&text).map_err(|problem| Failure::unanswered(format!("{address}: {problem}")))?;
    Ok((text, page))
}

fn read(text: &str) -> Result<Page, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_by_number() {
        let page = r#"{"version":1,"bootstrap_servers":"h:1","is_dry_run":false,"connections_throttled":0,"clients":[]}"#;
        assert!(read(page).is_ok());
        let error = read(&page.replace("\"version\":1", "\"version\":2")).unwrap_err();
        assert_eq!(error, "/quotas has version 2; this program reads version 1");
        assert!(read("{}").unwrap_err().contains("none"));
        assert!(read("<").unwrap_err().contains("not JSON"));
    }
}
